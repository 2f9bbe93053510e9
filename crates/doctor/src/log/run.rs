//! What the log says about the run: its settings, the size of the model, and its progress.

use super::assignments::in_line;
use super::card::NamedCard;
use super::parameters;
use super::settings::{Origin, Parameters, Setting};
use super::shipped;
use super::size::Size;
use super::text::Line;
use spec::Key;

/// What the lines before the error say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunLines {
    /// Keys and values as in the log; later ones win.
    pub settings: Vec<Setting>,
    /// Keys among them that nanoGPT does not know.
    pub unknown_keys: Vec<String>,
    /// Settings that the text recommends instead.
    pub(super) suggestions: Vec<(String, String)>,
    /// Config files that were named.
    pub files: Vec<String>,
    /// Whether one of them was echoed with its content.
    echoed_file: bool,
    /// Parameters of the model.
    pub parameters: Option<Parameters>,
    /// Processes that share the run, as its launcher is told.
    pub ranks: Option<u64>,
    /// The GPT-2 that a sentence names.
    pub named_model: Option<Parameters>,
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
    /// How much of it other programs use, as someone or `nvidia-smi` says it.
    pub used_before: Option<Size>,
}

/// Warnings that people ask about.
const UNRELATED: [(&str, &str); 2] = [
    ("torch.cuda.amp.GradScaler(args...) is deprecated", "GradScaler FutureWarning"),
    ("Not enough SMs to use max_autotune_gemm mode", "max_autotune_gemm"),
];

/// A sentence that begins with one of these tells the reader to do something.
const IMPERATIVES: [&str; 30] = [
    "try ",
    "reduce ",
    "use ",
    "lower ",
    "set ",
    "decrease ",
    "change ",
    "add ",
    "increase ",
    "consider ",
    "you could ",
    "you can ",
    "versuche ",
    "setze ",
    "reduziere ",
    "verwende ",
    "füge ",
    "erhöhe ",
    "réduisez ",
    "réduire ",
    "utilisez ",
    "utiliser ",
    "passez ",
    "ajoutez ",
    "essayez ",
    "减小",
    "降低",
    "使用",
    "设置",
    "添加",
];

/// A sentence with one of these is not about the run that failed.
const RECOMMENDS: [&str; 20] = [
    "should",
    "recommend",
    "worked",
    "works with",
    "works for",
    "solved",
    "fixed it",
    "instead of",
    "e.g.",
    "solltest",
    "empfehle",
    "empfohlen",
    "试试",
    "建议",
    "推荐",
    "してください",
    "試し",
    "推奨",
    "devriez",
    "recommand",
];

impl RunLines {
    /// Finds everything the lines say about the run.
    pub fn find(lines: &[Line]) -> RunLines {
        let mut found = RunLines::default();
        let mut in_file = false;
        for line in lines {
            found.settings_of(&line.text, &mut in_file);
            found.figures_of(&line.text);
            for (words, name) in UNRELATED {
                if line.text.contains(words) && !found.unrelated.contains(&name) {
                    found.unrelated.push(name);
                }
            }
        }
        for line in lines {
            found.sentences_of(line);
        }
        found.shipped();
        let card = NamedCard::find(lines);
        (found.card, found.card_memory, found.used_before) = (card.name, card.memory, card.used);
        // What the program printed counts more than what someone wrote about it.
        found.settings.sort_by_key(|row| row.origin);
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
            let word = word.trim_matches(['"', '\'', '`']);
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
            (*in_file, self.has_beginning, self.echoed_file) = (true, true, true);
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
        let fits = key.len() <= 60 && value.len() <= 400 && self.settings.len() < 2_000;
        if !key.is_empty() && key.chars().all(name) && !value.is_empty() && fits {
            if Key::find(key).is_none() && !self.unknown_keys.iter().any(|known| known == key) {
                self.unknown_keys.push(key.to_string());
            }
            let (key, value) = (key.to_string(), value.to_string());
            self.settings.push(Setting { key, value, origin });
        }
    }

    /// Settings and counts in sentences, configs and commands of other programs.
    fn sentences_of(&mut self, line: &Line) {
        let text = line.text.as_str();
        if !line.told
            || text.starts_with("Overriding")
            || self.settings.len() + self.suggestions.len() > 2_000
        {
            return;
        }
        if self.parameters.is_none() && !line.advice {
            self.parameters =
                parameters::of_line(text).or_else(|| parameters::of_named_model(text));
        }
        self.ranks = self.ranks.or_else(|| ranks(text));
        if self.named_model.is_none() && !line.advice {
            self.named_model = parameters::of_sentence(text);
        }
        if self.last_step.is_none() && !line.advice {
            self.last_step = after_step(text);
        }
        for sentence in text.split(['。', '!', '?']).flat_map(|part| part.split(". ")) {
            let lower = sentence.trim_start_matches(['-', '*', ' ', '#']).to_lowercase();
            let recommends = IMPERATIVES.iter().any(|words| lower.starts_with(words))
                || RECOMMENDS.iter().any(|words| lower.contains(words));
            for one in in_line(sentence) {
                if line.advice || (recommends && !line.fenced) {
                    self.suggest(one.key, one.value);
                } else {
                    self.describe(one.key, one.value, origin(line, sentence, one.at));
                }
            }
            if !line.advice && !recommends && !self.has_beginning {
                self.precision_of(&lower);
            }
        }
    }

    /// nanoGPT echoes its config files; a command alone names them.
    fn shipped(&mut self) {
        let files = self.files.iter().filter(|_| !self.echoed_file);
        let known: Vec<_> = files.flat_map(|file| shipped::of_file(file)).collect();
        for (key, value) in known {
            let (key, value) = ((*key).to_string(), (*value).to_string());
            self.settings.insert(0, Setting { key, value, origin: Origin::Config });
        }
    }

    fn suggest(&mut self, key: &str, value: String) {
        if !self.suggestions.iter().any(|(known, old)| known == key && *old == value) {
            self.suggestions.push((key.to_string(), value));
        }
    }

    /// Of sentences the first counts: later ones are about other runs.
    fn describe(&mut self, key: &str, value: String, origin: Origin) {
        if key == "vocab_size" {
            let said = value.parse().ok();
            self.vocab_size = self.vocab_size.or(said);
            return;
        }
        if key == "device" {
            return;
        }
        let mut same = self.settings.iter().filter(|row| row.key == key && row.origin == origin);
        if same.any(|row| origin == Origin::Prose || row.value == value) {
            return;
        }
        self.settings.push(Setting { key: key.to_string(), value, origin });
    }

    /// The element type that a sentence names, unless it names two.
    fn precision_of(&mut self, lower: &str) {
        const NAMES: [(&str, &str); 7] = [
            ("bfloat16", "bfloat16"),
            ("bf16", "bfloat16"),
            ("float16", "float16"),
            ("fp16", "float16"),
            ("float32", "float32"),
            ("fp32", "float32"),
            ("16-bits training: false", "float32"),
        ];
        let code = ["==", "torch.", "data type", "allocate"].iter().any(|w| lower.contains(w));
        if code || lower.len() > 4000 {
            return;
        }
        let lower = lower.replace("bfloat16", "bf16");
        let mut named: Vec<&str> = NAMES
            .iter()
            .filter(|(name, _)| lower.contains(name))
            .map(|(_, dtype)| *dtype)
            .collect();
        named.dedup();
        if let [dtype] = named.as_slice() {
            self.describe("dtype", (*dtype).to_string(), Origin::Prose);
        }
    }

    fn figures_of(&mut self, line: &str) {
        let behind = |words: &str| line.trim_start().strip_prefix(words).map(str::trim);
        if let Some(rest) = behind("tokens per iteration will be:") {
            self.tokens_per_iteration = whole(rest);
            self.has_beginning = true;
        }
        if behind("number of parameters:").is_some() {
            self.parameters = parameters::of_line(line).or(self.parameters);
            // Others print all digits.
            self.has_beginning |= line.trim_end().ends_with('M');
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
    }
}

/// Where a setting in a line is from.
fn origin(line: &Line, sentence: &str, at: usize) -> Origin {
    let before = sentence.get(..at).unwrap_or("");
    match () {
        () if before.contains("add_argument") => Origin::Config,
        () if before.ends_with("--") => Origin::CommandLine,
        () if line.fenced && before.trim_matches([' ', '"', '\'', '-', '{']).is_empty() => {
            Origin::Config
        }
        () => Origin::Prose,
    }
}

/// `torchrun --nproc_per_node=4 --nnodes=2`: eight.
fn ranks(text: &str) -> Option<u64> {
    let number = |flag: &str| {
        let (_, rest) = text.split_once(flag)?;
        let rest = rest.trim_start_matches(['=', ' ']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u64>().ok().filter(|count| *count < 1 << 20)
    };
    let of_node = ["--nproc_per_node", "--nproc-per-node"].iter().find_map(|flag| number(flag))?;
    Some(of_node * number("--nnodes").unwrap_or(1))
}

/// `after step 0`, `after the step 0`.
fn after_step(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("after ")?;
    let rest = rest.strip_prefix("the ").unwrap_or(rest);
    let rest = rest.strip_prefix("step ").or_else(|| rest.strip_prefix("iteration "))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// `131,072`.
fn whole(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|c| *c != ',').collect();
    digits.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::text::lines;

    /// What failed and what is recommended are kept apart.
    #[test]
    fn recommended_settings_are_not_those_of_the_run() {
        let text = "My run with batch_size=24 and n_embd reduced to 480 (~60M parameters) fails in \
            FP16. Try batch_size=6.\n\n### Option 1\n```python\nbatch_size = 8\nn_embd = 320\n```";
        let found = RunLines::find(&lines(text.as_bytes()));
        let shown: Vec<String> =
            found.settings.iter().map(|row| format!("{}={}", row.key, row.value)).collect();
        assert_eq!(shown, ["batch_size=24", "n_embd=480", "dtype=float16"]);
        assert!(found.settings.iter().all(|row| row.origin == Origin::Prose));
        assert_eq!(found.parameters.unwrap().count, 60_000_000);
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        let want = [pair("batch_size", "6"), pair("batch_size", "8"), pair("n_embd", "320")];
        assert_eq!(found.suggestions, want);
    }

    #[test]
    fn what_the_program_printed_wins() {
        let text = "I use batch_size=3.\n$ python train.py config/x.py --n_layer=4 --rope=True\n\
            Overriding: batch_size = 5\nOverriding: use_rope = True\n";
        let found = RunLines::find(&lines(text.as_bytes()));
        assert_eq!(found.setting("batch_size"), Some("5"));
        assert_eq!(found.setting("n_layer"), Some("4"));
        assert_eq!(found.unknown_keys, ["rope", "use_rope"]);
        assert_eq!(found.files, ["config/x.py"]);
    }
}
