//! What the log says about the run: the settings that nanoGPT echoes, the size of the model, and
//! its progress.

use super::settings::{Origin, Parameters, Setting};
use super::size::Size;
use super::text::Line;

/// What the lines before the error say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunLines {
    /// Keys and values as in the log, in order; later ones win.
    pub settings: Vec<Setting>,
    /// Keys among them that nanoGPT does not know.
    pub unknown_keys: Vec<String>,
    /// Config files that were echoed.
    pub files: Vec<String>,
    /// Parameters of the model.
    pub parameters: Option<Parameters>,
    /// Tokens of an iteration.
    pub tokens_per_iteration: Option<u64>,
    /// Rows of the vocabulary.
    pub vocab_size: Option<u64>,
    /// The iteration of the last printed evaluation.
    pub last_step: Option<u64>,
    /// The last printed iteration.
    pub last_iteration: Option<u64>,
    /// Whether the log includes the start of the program.
    pub has_beginning: bool,
    /// Whether the log says that the model is compiled.
    pub compiling: bool,
    /// Warnings that look related to the error but are not.
    pub unrelated: Vec<&'static str>,
    /// Whether the log says that attention is not flash attention.
    pub slow_attention: bool,
    /// The GPU that the log names.
    pub card: Option<String>,
    /// The card's memory as someone says it (`12GB VRAM`); the driver has a little less.
    pub card_memory: Option<Size>,
    /// How much of it is in use before the run, as someone says it.
    pub used_before: Option<Size>,
}

/// Warnings that people ask about.
const UNRELATED: [(&str, &str); 2] = [
    ("torch.cuda.amp.GradScaler(args...)` is deprecated", "GradScaler FutureWarning"),
    ("Not enough SMs to use max_autotune_gemm mode", "max_autotune_gemm"),
];

impl RunLines {
    /// Finds everything the lines say about the run.
    pub fn find(lines: &[Line]) -> RunLines {
        let mut found = RunLines::default();
        let mut in_file = false;
        for line in lines.iter().map(|line| line.text.as_str()) {
            found.settings_of(line, &mut in_file);
            found.figures_of(line);
            for (words, name) in UNRELATED {
                if line.contains(words) && !found.unrelated.contains(&name) {
                    found.unrelated.push(name);
                }
            }
        }
        found
    }

    /// The last value of a key.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|row| row.key == key).map(|row| row.value.as_str())
    }

    /// `$ python train.py config/mine.py --batch_size=64`.
    fn typed(&mut self, line: &str) {
        let Some((_, behind)) = line.split_once("train.py ") else {
            return;
        };
        if line.trim_start().starts_with("File ") {
            return;
        }
        for word in behind.split_whitespace() {
            match word.strip_prefix("--") {
                Some(setting) => self.assignment(setting, Origin::CommandLine),
                None if word.ends_with(".py") && !self.files.iter().any(|file| file == word) => {
                    self.files.push(word.to_string());
                }
                None => {}
            }
        }
    }

    fn settings_of(&mut self, line: &str, in_file: &mut bool) {
        self.typed(line);
        if let Some(rest) = line.strip_prefix("Overriding config with ") {
            self.files.push(rest.trim_end_matches(':').trim().to_string());
            (*in_file, self.has_beginning) = (true, true);
            return;
        }
        if let Some(rest) = line.strip_prefix("Overriding: ") {
            (*in_file, self.has_beginning) = (false, true);
            self.assignment(rest, Origin::Echoed);
            return;
        }
        // An echoed file continues until the program's own first line.
        if line.starts_with("tokens per iteration") || line.starts_with("Traceback") {
            *in_file = false;
        }
        if *in_file {
            let code = line.split('#').next().unwrap_or("");
            self.assignment(code, Origin::Echoed);
        }
    }

    fn assignment(&mut self, text: &str, origin: Origin) {
        let Some((key, value)) = text.split_once('=') else {
            return;
        };
        let (key, value) = (key.trim(), value.trim().trim_matches(['\'', '"']));
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !key.is_empty() && key.chars().all(name) && !value.is_empty() {
            let (key, value) = (key.to_string(), value.to_string());
            self.settings.push(Setting { key, value, origin });
        }
    }

    fn figures_of(&mut self, line: &str) {
        let behind = |words: &str| line.trim_start().strip_prefix(words).map(str::trim);
        if let Some(rest) = behind("tokens per iteration will be:") {
            self.tokens_per_iteration = whole(rest);
            self.has_beginning = true;
        }
        if let Some(rest) = behind("number of parameters:") {
            self.parameters = millions(rest).or(self.parameters);
            self.has_beginning = true;
        }
        if let Some(rest) = behind("defaulting to vocab_size of GPT-2 to") {
            self.vocab_size = rest.split(' ').next().and_then(whole);
        }
        if let Some(rest) = behind("found vocab_size =") {
            self.vocab_size = rest.split(' ').next().and_then(whole);
        }
        if let Some(rest) = behind("step ") {
            self.last_step = rest.split_once(':').and_then(|(n, _)| whole(n)).or(self.last_step);
        }
        if let Some(rest) = behind("iter ") {
            let number = rest.split_once(':').and_then(|(n, _)| whole(n));
            self.last_iteration = number.or(self.last_iteration);
        }
        self.slow_attention |= line.contains("using slow attention");
        self.compiling |= line.contains("compiling the model...");
        if let Some(at) = line.find("NVIDIA GeForce ").or_else(|| line.find("NVIDIA RTX ")) {
            let name: String = line[at..].chars().take_while(|c| !"|,;()[]".contains(*c)).collect();
            let words: Vec<&str> = name.split_whitespace().take(6).collect();
            self.card = Some(words.join(" "));
        }
    }
}

/// `123.59M`.
fn millions(text: &str) -> Option<Parameters> {
    let number: f64 = text.strip_suffix('M')?.parse().ok()?;
    let count = (number * 1e6).round() as u64;
    // Two decimals, and nanoGPT's own sum may be rounded either way.
    Some(Parameters { count, within: 6_000, origin: Origin::Echoed })
}

/// `131,072`.
fn whole(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|c| *c != ',').collect();
    digits.trim().parse().ok()
}
