//! Man pages, generated from the same tables as `--help`: one for the program, one per command.

use crate::commands::{COMMANDS, Command, Line};
use data::known::DATA_SETS;
use spec::documents;

/// A page and the name of its file.
pub struct Page {
    /// `fitgpt-train.1`.
    pub file: String,
    /// Its text in the `man` macros.
    pub text: String,
}

/// Exit codes of every command, in the order of the numbers.
pub const EXIT_CODES: [(&str, &str); 7] = [
    ("0", "success"),
    ("1", "failure"),
    ("2", "usage or config"),
    ("3", "does not fit in memory"),
    ("4", "data or checkpoint"),
    ("5", "device"),
    ("130", "interrupted"),
];

/// What `--version` shows.
const VERSION: &str =
    "Version, commit and target; with --json also the libraries found on this machine.";

/// Environment variables that the program reads.
const VARIABLES: [(&str, &str); 13] = [
    ("CUDA_VISIBLE_DEVICES", "Which GPUs the driver shows."),
    ("CUDA_HOME, CUDA_PATH", "A CUDA toolkit, searched first for NVIDIA's libraries."),
    ("FITGPT_PYTHON_ENV", "A Python environment, searched first for NVIDIA's packages."),
    ("FITGPT_CACHE", "Folder of compiled kernels and timings; ~/.cache/fitgpt without it."),
    ("FITGPT_MPI", "A folder with bin and lib, the only one in which MPI is looked for."),
    ("FITGPT_MEETING", "host:port where the ranks of a run meet, if the launcher's is unsuitable."),
    ("XDG_CACHE_HOME", "Folder of caches; ~/.cache without it."),
    ("HF_HOME, HF_HUB_CACHE", "Where downloaded models lie, as Hugging Face documents it."),
    ("HF_TOKEN, HF_TOKEN_PATH", "Access to private repositories of the hub."),
    ("HF_ENDPOINT", "Another server that speaks the hub's protocol."),
    ("HF_HUB_OFFLINE", "1: use only what is in the cache."),
    ("OMP_NUM_THREADS", "Threads of the CPU."),
    ("NO_COLOR, LANG, LC_ALL", "No colour; the language of the doctor."),
];

/// All pages, the program's own first.
pub fn pages() -> Vec<Page> {
    let own = Page { file: "fitgpt.1".to_string(), text: overview() };
    let of = |command: &&Command| Page {
        file: format!("fitgpt-{}.1", command.name),
        text: of_command(command),
    };
    [own].into_iter().chain(COMMANDS.iter().map(of)).collect()
}

fn overview() -> String {
    let mut page = Roff::new("FITGPT", "fitgpt", "train GPT-2-class models within a memory budget");
    page.section("SYNOPSIS");
    page.typed("fitgpt <command> [config.py|config.toml ...] [--key=value ...]");
    page.section("DESCRIPTION");
    page.paragraph(
        "Does nanoGPT's job with nanoGPT's configs, data files, checkpoints and losses, in one \
         program without Python. Memory is planned to the byte before the first step: the run \
         allocates exactly that, or does not start.",
    );
    page.section("COMMANDS");
    for command in COMMANDS {
        page.item(&format!("fitgpt-{}(1)", command.name), command.about);
    }
    page.section("OPTIONS");
    page.item("--help", "The list of commands; after a command, its arguments, flags and keys.");
    page.item("--version [--json]", VERSION);
    page.section("EXIT STATUS");
    for (code, meaning) in EXIT_CODES {
        page.item(code, meaning);
    }
    page.section("ENVIRONMENT");
    for (names, meaning) in VARIABLES {
        page.item(names, meaning);
    }
    page.section("FILES");
    page.item("~/.cache/fitgpt", "Compiled kernels and timings; `fitgpt devices` shows its size.");
    page.item(
        "~/.cache/huggingface/hub",
        "Downloaded models, shared with Hugging Face's programs.",
    );
    page.text
}

fn of_command(command: &Command) -> String {
    let name = format!("fitgpt-{}", command.name);
    let mut page = Roff::new(&name.to_uppercase(), &name, command.about);
    page.section("SYNOPSIS");
    page.lines(command.usage);
    page.section("DESCRIPTION");
    page.paragraphs(command.text);
    page.paragraphs(command.notes);
    if command.lists_data_sets {
        page.section("DATA SETS");
        for set in DATA_SETS {
            page.item(set.name, set.about);
        }
    }
    if !command.flags.is_empty() {
        page.section("OPTIONS");
        for flag in command.flags {
            page.item(&flag.typed(), &flag.doc());
        }
    }
    page.paragraphs(command.closing);
    if !command.examples.is_empty() {
        page.section("EXAMPLES");
        page.lines(command.examples);
    }
    if let Some(keys) = command.keys {
        page.section("KEYS");
        for (title, keys) in documents::groups(keys) {
            page.macro_line("SS", title);
            for (typed, meaning) in keys {
                page.item(&typed, &meaning);
            }
        }
    }
    page.section("SEE ALSO");
    page.paragraph("fitgpt(1)");
    page.text
}

/// A page that is being written.
struct Roff {
    text: String,
}

impl Roff {
    fn new(title: &str, name: &str, about: &str) -> Roff {
        let version = env!("CARGO_PKG_VERSION");
        let head =
            format!(".TH {} 1 \"\" \"fitgpt {version}\" \"fitgpt\"\n.ad l\n.nh\n", escaped(title));
        let mut page = Roff { text: head };
        page.section("NAME");
        page.text += &format!("{} \\- {}\n", escaped(name), escaped(about));
        page
    }

    fn section(&mut self, title: &str) {
        self.macro_line("SH", title);
    }

    fn macro_line(&mut self, name: &str, title: &str) {
        self.text += &format!(".{name} \"{}\"\n", escaped(title).replace('"', "\\(dq"));
    }

    /// The first paragraph of a section needs no macro.
    fn begin(&mut self) {
        let heading = self.text.lines().last().is_some_and(|last| last.starts_with(".S"));
        self.text += if heading { "" } else { ".PP\n" };
    }

    fn paragraph(&mut self, text: &str) {
        self.begin();
        self.text += &(line(text) + "\n");
    }

    fn paragraphs(&mut self, all: &[&str]) {
        for text in all {
            self.paragraph(text);
        }
    }

    /// A term and its text below.
    fn item(&mut self, term: &str, text: &str) {
        self.text += &format!(".TP\n.B {}\n{}\n", escaped(term), line(text));
    }

    /// A command line without a remark. It is filled, so that it fits a narrow window.
    fn typed(&mut self, line: &str) {
        self.begin();
        self.text += &format!(".B {}\n", escaped(line));
    }

    /// Command lines, each with its remark below.
    fn lines(&mut self, lines: &[Line]) {
        for one in lines {
            match one.remark.is_empty() {
                true => self.typed(one.typed),
                false => self.item(one.typed, one.remark),
            }
        }
    }
}

/// A text line: one that begins with a dot or an apostrophe would be a request.
fn line(text: &str) -> String {
    let text = escaped(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Backslashes begin escapes, a plain dash would become a hyphen, which nobody can paste, and some
/// formatters typeset quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '\'' => out += "\\(aq",
            '`' => out += "\\(ga",
            '^' => out += "\\(ha",
            '~' => out += "\\(ti",
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_a_request() {
        assert_eq!(line(".py and 'x' \\ --key"), "\\&.py and \\(aqx\\(aq \\e \\-\\-key");
        assert_eq!(line("'a"), "\\(aqa");
        for page in pages() {
            for text in page.text.lines().filter(|text| text.starts_with('.')) {
                let request = text[1..].split(' ').next().unwrap_or_default();
                let known = ["TH", "ad", "nh", "SH", "SS", "PP", "TP", "B"].contains(&request);
                assert!(known, "{}: {text}", page.file);
            }
        }
    }

    #[test]
    fn every_command_has_a_page_that_names_its_flags_and_keys() {
        let pages = pages();
        assert_eq!(pages.len(), COMMANDS.len() + 1);
        for (command, page) in COMMANDS.iter().zip(&pages[1..]) {
            for flag in command.flags {
                let term = format!(".B {}\n", escaped(&flag.typed()));
                assert!(page.text.contains(&term), "{}: {term}", page.file);
            }
        }
    }
}
