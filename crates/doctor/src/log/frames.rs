//! The frames of a traceback, as Python, IPython and rich print them.

use super::text::Line;

/// One frame of the last traceback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Last part of the path.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line of code, if the traceback shows it.
    pub code: String,
}

/// More frames than these are a recursion; the outermost and innermost tell the phase.
const MOST_FRAMES: usize = 400;

/// The frames in these lines, outermost first. Only lines of `rank` count, if they name one.
pub fn frames(lines: &[Line], rank: Option<u64>) -> Vec<Frame> {
    let own = |line: &&Line| line.rank.is_none() || rank.is_none() || line.rank == rank;
    let lines: Vec<&str> = lines.iter().filter(own).map(|line| line.text.as_str()).collect();
    let mut found: Vec<Frame> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((path, function)) = place(line) else {
            continue;
        };
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let code = code(&lines[index + 1..]);
        found.push(Frame {
            file: file.to_string(),
            function: function.to_string(),
            code: code.to_string(),
        });
    }
    if found.len() > MOST_FRAMES {
        found.drain(MOST_FRAMES / 2..found.len() - MOST_FRAMES / 2);
    }
    found
}

/// Path and function of a line that begins a frame.
fn place(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.len() > 2000 {
        return None;
    }
    // File "/home/user/train.py", line 264, in <module>
    if let Some(at) = line.find("File \"") {
        let (path, rest) = line[at + "File \"".len()..].split_once('"')?;
        return Some((path, rest.split_once(", in ").map_or("", |(_, name)| name.trim())));
    }
    // Cell In[11], line 2
    if line.starts_with("Cell In") && line.contains(", line ") {
        return Some(("<cell>", line.split_once(", in ").map_or("<module>", |(_, name)| name)));
    }
    // File ~/nanoGPT/train.py:264, in estimate_loss()
    if let Some(rest) = line.strip_prefix("File ") {
        let (path, name) = rest.split_once(", in ")?;
        let path = path.trim_end_matches(|c: char| c.is_ascii_digit());
        return Some((path.strip_suffix(':')?, plain(name)));
    }
    // /usr/lib/python3/functional.py in cross_entropy(input, target)
    // <ipython-input-8-3fe4c666eb07> in <module>()
    let (path, name) = line.split_once(" in ")?;
    let path = path.trim();
    if path.starts_with("<ipython-input") {
        return Some(("<cell>", plain(name)));
    }
    // C:\venv\adamw.py:566 in step
    let path = path.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(':');
    let one = !path.contains(' ') || path.contains(":\\");
    (path.ends_with(".py") && one).then(|| (path, plain(name)))
}

/// A function's name without its arguments.
fn plain(name: &str) -> &str {
    name.split_once('(').map_or(name, |(name, _)| name).trim()
}

/// The code of a frame: the line that an arrow marks, or the first line below.
fn code<'a>(below: &[&'a str]) -> &'a str {
    let mut first = "";
    for line in below.iter().take(24) {
        let text = line.trim();
        if place(text).is_some() {
            break;
        }
        if let Some(marked) = marked(text) {
            return marked;
        }
        let underline = text.chars().all(|c| matches!(c, '^' | '~' | ' '));
        if first.is_empty() && !underline && !starts_with_number(text) {
            first = text;
        }
    }
    first
}

/// `----> 2 code`, `-> 2824     code`, `❱ 566 │   code`.
fn marked(text: &str) -> Option<&str> {
    let arrow = text.trim_start_matches('-');
    let rest = match text.strip_prefix('❱') {
        Some(rest) => rest,
        None if arrow.len() < text.len() => arrow.strip_prefix('>')?,
        None => return None,
    };
    let rest = rest.trim_start();
    let code = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = rest.len() > code.len();
    number.then(|| code.trim_start_matches(['│', '|', ' ']).trim_end_matches(['│', ' ']).trim())
}

/// Whether it is a line of the listing around the marked one.
fn starts_with_number(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && (rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String, String)> {
        let lines: Vec<Line> = text.lines().map(Line::plain).collect();
        frames(&lines, None).into_iter().map(|f| (f.file, f.function, f.code)).collect()
    }

    fn frame(file: &str, function: &str, code: &str) -> (String, String, String) {
        (file.to_string(), function.to_string(), code.to_string())
    }

    #[test]
    fn every_style_of_frame_is_read() {
        let python = "  File \"/a/train.py\", line 9, in <module>\n\n    loss = f(x)\n       ^^^^\n\
            \u{20} File \"b.py\", line 3, in step";
        let first = frame("train.py", "<module>", "loss = f(x)");
        assert_eq!(read(python), [first, frame("b.py", "step", "")]);
        let notebook = "Cell In[3], line 2\n      1 # comment\n----> 2 trainer.train()\n\n\
            File ~/a/trainer.py:77, in Trainer.train(self, x)\n  76 x\n---> 77 return y\n  78 z";
        let cell = frame("<cell>", "<module>", "trainer.train()");
        assert_eq!(read(notebook), [cell, frame("trainer.py", "Trainer.train", "return y")]);
        let old = "<ipython-input-8-3fe4> in <module>()\n----> 1 run()\n\n\
            /usr/lib/functional.py in relu(input)\n   28     x\n-> 29     return y";
        assert_eq!(
            read(old),
            [frame("<cell>", "<module>", "run()"), frame("functional.py", "relu", "return y")]
        );
        let rich = "C:\\my venv\\lib\\adamw.py:566 in step\n\n  565 │  a\n❱ 566 │   │ b = c(d)\n";
        assert_eq!(read(rich), [frame("adamw.py", "step", "b = c(d)")]);
        assert!(read("this is in the file train.py, in short").is_empty());
    }

    #[test]
    fn frames_of_other_ranks_are_left_out() {
        let line = |rank, text: &str| Line { rank: Some(rank), ..Line::plain(text) };
        let lines = [
            line(0, "File \"a.py\", line 1, in a"),
            line(1, "File \"b.py\", line 1, in b"),
            line(0, "  x = 1"),
        ];
        let found = frames(&lines, Some(0));
        assert_eq!((found.len(), found[0].code.as_str()), (1, "x = 1"));
    }
}
