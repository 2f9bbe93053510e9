//! What a tool put before every line: a container's name, a logger's time and level, an indent, the
//! numbers of a listing. One rule for all: what the lines of a traceback begin with, and nearly all
//! others, is none of their own.

/// Of fewer lines, nothing is said about all.
const LEAST: usize = 8;

/// Lines that are compared: more say no more.
const MOST: usize = 400;

/// Shorter indents are Python's own.
const INDENT: usize = 4;

/// The lines without what they all begin with.
pub fn without_shared(mut lines: Vec<String>) -> Vec<String> {
    if numbers_of_a_listing(&lines) {
        for line in &mut lines {
            if let Some(rest) = behind_number(line).map(|(_, rest)| rest.to_string()) {
                *line = rest;
            }
        }
    }
    let Some(prefix) = shared(&lines) else {
        return lines;
    };
    for line in &mut lines {
        let same = same(line, &prefix);
        if same == prefix.len() || line.chars().count() == same {
            *line = line.chars().skip(same).collect();
        }
    }
    lines
}

/// The prefix, if there is one.
fn shared(lines: &[String]) -> Option<Vec<char>> {
    let told = lines.iter().filter(|line| !line.trim().is_empty());
    let told: Vec<&String> = told.take(MOST).collect();
    if told.len() < LEAST {
        return None;
    }
    let of_traceback: Vec<&&String> = told.iter().filter(|line| is_of_traceback(line)).collect();
    let all = of_traceback.is_empty();
    // A line around the log, such as a greeting, must not decide.
    let samples = [told.len() / 4, told.len() / 2, told.len() * 3 / 4];
    let prefixes = samples.into_iter().map(|at| {
        let sample: Vec<char> = told[at].chars().take(120).collect();
        // An empty line keeps the prefix alone, without its last space.
        let width = |line: &&String| match same(line, &sample) {
            width if width == line.trim_end().chars().count() => sample.len(),
            width => width,
        };
        let mut widths: Vec<usize> = told.iter().map(width).collect();
        let least = of_traceback.iter().map(|line| same(line, &sample)).min();
        widths.sort_unstable();
        let most_lines = widths[if all { 0 } else { told.len() / 10 }];
        let width = most_lines.min(least.unwrap_or(usize::MAX));
        let end = sample[..width].iter().rposition(|c| c.is_whitespace()).map_or(0, |at| at + 1);
        sample[..end].to_vec()
    });
    let longest = prefixes.max_by_key(Vec::len)?;
    let blank = longest.iter().all(|c| c.is_whitespace());
    let least = if blank { INDENT } else { 2 };
    (longest.len() >= least).then_some(longest)
}

/// Whether a line is one of Python's tracebacks: whatever is before it, is before all.
fn is_of_traceback(line: &str) -> bool {
    line.contains("Traceback (most recent call last)") || line.contains("File \"")
}

/// How many characters two lines have in common; any digit is like any other.
fn same(line: &str, prefix: &[char]) -> usize {
    let alike = |(a, b): &(char, &char)| a == *b || (a.is_ascii_digit() && b.is_ascii_digit());
    line.chars().zip(prefix).take_while(alike).count()
}

/// Whether lines are numbered, as `cat -n` and editors do.
fn numbers_of_a_listing(lines: &[String]) -> bool {
    let told = lines.iter().filter(|line| !line.trim().is_empty());
    let numbers: Vec<Option<u64>> =
        told.take(MOST).map(|line| behind_number(line).map(|(number, _)| number)).collect();
    let next = numbers.windows(2).filter(|pair| {
        let follows = |(a, b): (u64, u64)| b > a && b - a < 4;
        pair[0].zip(pair[1]).is_some_and(follows)
    });
    numbers.len() >= LEAST && next.count() * 10 >= numbers.len().saturating_sub(1) * 9
}

/// The number that a line begins with, and what is behind it.
fn behind_number(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start_matches(' ');
    let end = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len());
    let number = line[..end].parse().ok()?;
    let rest = &line[end..];
    if rest.trim().is_empty() {
        return Some((number, ""));
    }
    let marked = ["\t", " | ", "| ", ": ", ":"].iter().find_map(|mark| rest.strip_prefix(mark));
    marked.map(|rest| (number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [&str; 9] = [
        "Overriding: batch_size = 64",
        "number of parameters: 1.00M",
        "",
        "iter 0: loss 10.9",
        "Traceback (most recent call last):",
        "  File \"train.py\", line 1, in <module>",
        "    main()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "done",
    ];

    fn undone(put: impl Fn(usize, &str) -> String) -> Vec<String> {
        without_shared(LOG.iter().enumerate().map(|(at, line)| put(at, line)).collect())
    }

    #[test]
    fn what_stands_before_every_line_is_taken_off() {
        let prefixes: [fn(usize) -> String; 5] = [
            |_| "trainer-1  | ".to_string(),
            |at| format!("2026-05-01 10:11:{:02},123 - INFO - ", at + 10),
            |_| "    ".to_string(),
            |_| "pod/train-0 train ".to_string(),
            |at| format!("{:6}\t", at + 7),
        ];
        for prefix in prefixes {
            let found = undone(|at, line| prefix(at) + line);
            assert_eq!(found, LOG, "{:?}", prefix(0));
            let trimmed = undone(|at, line| (prefix(at) + line).trim_end().to_string());
            assert_eq!(trimmed[3..], LOG[3..], "{:?}", prefix(0));
        }
    }

    #[test]
    fn what_lines_say_themselves_stays() {
        assert_eq!(undone(|_, line| line.to_string()), LOG);
        let losses: Vec<String> = (0..40).map(|at| format!("iter {at}: loss 2.5")).collect();
        let all = losses.iter().map(String::as_str).chain(LOG).map(str::to_string);
        let all: Vec<String> = all.collect();
        assert_eq!(without_shared(all.clone()), all);
    }
}
