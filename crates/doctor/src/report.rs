//! The report for people: sentences, then the rows of the tables, then the commands. `markdown.rs`
//! makes a document of it.

use crate::advice::{Judged, Verdict};
use crate::diagnosis::Diagnosis;
use crate::figure::Numbers;
use crate::fixes::{Fix, FixKind, needs};
use crate::log::{Backend, Dialect, LogPhase, Program};
use crate::recovered::Defect;
use crate::room::{Fit, RoomSource};
use crate::suggested::Outcome;
use crate::tensor::{Confidence, Named, asked};
use crate::tensor_name::kind_of;
use crate::torch::Peak;
use crate::words::{Catalogue, Language, fill};
use plan::{Dtype, Role};
use spec::shell::quoted;

/// A report in one language.
pub struct Report<'a> {
    /// The diagnosis to report.
    pub diagnosis: &'a Diagnosis,
    /// The language of the report.
    pub language: Language,
    /// The name of this program.
    pub program: &'a str,
}

impl Report<'_> {
    pub(crate) fn words(&self) -> &'static dyn Catalogue {
        self.language.words()
    }

    /// How its numbers are written.
    pub fn numbers(&self) -> Numbers {
        self.words().numbers()
    }

    /// A size in a readable unit.
    pub fn bytes(&self, count: u64) -> String {
        self.numbers().size(count)
    }

    /// Sentences: what did not fit, when, and why.
    pub fn summary(&self) -> Vec<String> {
        let Diagnosis { log, tensor, cause, phase, .. } = self.diagnosis;
        let words = self.words();
        let mut lines = self.opening();
        lines.extend(self.program());
        lines.extend(tensor.as_ref().map(|tensor| self.tensor(tensor)));
        let says_nothing = self.diagnosis.is_empty()
            || (log.is_none() && *phase == LogPhase::Unknown && tensor.is_none());
        if !says_nothing {
            lines.push(words.cause(*cause).to_string());
        }
        for said in &self.diagnosis.reasons {
            lines.push(self.numbers().filled(words.reason(said.reason), &said.figures));
        }
        lines.extend(self.margin());
        lines.extend(log.iter().flat_map(|log| log.message.refusal.clone()));
        lines.extend(self.suggested());
        lines.extend(self.asides());
        lines
    }

    /// What happened.
    fn opening(&self) -> Vec<String> {
        let Diagnosis { log, phase, .. } = self.diagnosis;
        let (words, labels) = (self.words(), self.words().labels());
        let when = words.phase(*phase);
        let Some(log) = log else {
            return self.prediction();
        };
        let printed = log.message.requested.as_ref();
        let printed = printed.map(|size| self.numbers().decimals(&size.to_string()));
        let asked = printed.or_else(|| asked(log).map(|count| self.bytes(count)));
        let line = match (&asked, *phase) {
            _ if self.diagnosis.is_empty() => labels.no_log.to_string(),
            _ if log.message.dialect == Dialect::Killed => labels.killed.to_string(),
            (Some(asked), _) if log.backend == Backend::Host => {
                fill(labels.host_asked, &[("bytes", asked)])
            }
            _ if log.backend == Backend::Host => labels.host.to_string(),
            (Some(asked), LogPhase::Unknown) => fill(labels.did_not_fit_ever, &[("bytes", asked)]),
            (Some(asked), _) => fill(labels.did_not_fit, &[("bytes", asked), ("phase", when)]),
            (None, LogPhase::Unknown) => labels.ran_out_ever.to_string(),
            (None, _) => fill(labels.ran_out, &[("phase", when)]),
        };
        // A text may blame another phase than the one that does not fit.
        let silent = asked.is_none() && self.diagnosis.modelled;
        let other = self.diagnosis.predicted.filter(|other| silent && *other != *phase);
        let other = other.map(|other| fill(labels.dies, &[("phase", words.phase(other))]));
        [line].into_iter().chain(other).collect()
    }

    /// Without a log: whether it would fit.
    fn prediction(&self) -> Vec<String> {
        let labels = self.words().labels();
        let Some((needs, room)) = self.diagnosis.needs.zip(self.diagnosis.room) else {
            return Vec::new();
        };
        let phase = self.words().phase(self.diagnosis.phase);
        vec![match room.fit(needs) {
            Fit::Fits => labels.fits.to_string(),
            Fit::Tight => labels.tight.to_string(),
            Fit::Exceeds => fill(labels.dies, &[("phase", phase)]),
        }]
    }

    /// Which program it was, if its memory is not modelled.
    fn program(&self) -> Option<String> {
        let log = self.diagnosis.log.as_ref().filter(|_| !self.diagnosis.modelled)?;
        let labels = self.words().labels();
        let program = log.program.program;
        let evidence = log.program.evidence.as_deref().map(shortened);
        match (program, evidence) {
            _ if self.diagnosis.is_empty() || log.message.dialect == Dialect::Fitgpt => None,
            _ if log.backend == Backend::Host || program.is_nanogpt() => None,
            (Program::OtherTorch, Some(evidence)) if log.program.name.is_some() => {
                let name = log.program.name.unwrap_or_default();
                Some(fill(labels.program, &[("program", name), ("evidence", &evidence)]))
            }
            (Program::Unknown | Program::OtherTorch, _) | (_, None) => {
                Some(labels.no_program.to_string())
            }
            (program, Some(evidence)) => {
                let name = self.words().program(program);
                Some(fill(labels.program, &[("program", name), ("evidence", &evidence)]))
            }
        }
    }

    fn tensor(&self, tensor: &Named) -> String {
        let labels = self.words().labels();
        // Logits that are named by their size alone: rows are a batch of sequences.
        let general = tensor.birth.is_none()
            && tensor.role == Role::Logits
            && tensor.confidence != Confidence::Certain;
        let shape = |dims: &[u64]| if general { batched(dims) } else { shape(dims) };
        let (name, shown) = (self.tensor_name(&tensor.name), shape(&tensor.shape));
        let dtype = tensor.dtype.to_string();
        let confidence = self.words().confidence(tensor.confidence);
        let named = [
            ("name", name.as_str()),
            ("shape", shown.as_str()),
            ("dtype", dtype.as_str()),
            ("confidence", confidence),
        ];
        let silent = self.diagnosis.log.as_ref().is_none_or(|log| asked(log).is_none());
        let sentence = match tensor.confidence {
            _ if silent => labels.would_be,
            Confidence::Possible => labels.may_be,
            _ => labels.which,
        };
        let mut text = fill(sentence, &named);
        if !tensor.alternatives.is_empty() && tensor.confidence != Confidence::Certain {
            let others = tensor.alternatives.iter().map(|other| {
                let name = self.tensor_name(&other.name);
                format!("{name} {} {}", shape(&other.shape), other.dtype)
            });
            let others = others.collect::<Vec<_>>().join(labels.list);
            let space = if self.language.is_spaced() { " " } else { "" };
            text += &format!("{space}{}", fill(labels.same_size, &[("others", &others)]));
        }
        text
    }

    /// A tensor's name in this language.
    pub fn tensor_name(&self, name: &str) -> String {
        match kind_of(name) {
            Some((kind, of)) => {
                fill(self.words().tensor(kind), &[("name", &of)]).trim_end().to_string()
            }
            None => name.to_string(),
        }
    }

    /// What the run needs beside what there is.
    fn margin(&self) -> Vec<String> {
        let labels = self.words().labels();
        let Some((needs, room)) = self.diagnosis.needs.zip(self.diagnosis.room) else {
            return Vec::new();
        };
        let spare = self.bytes(room.limit.abs_diff(needs));
        let [needs_text, limit, used, free] =
            [needs, room.limit, room.used, room.free()].map(|count| self.bytes(count));
        let names = [
            ("needs", needs_text.as_str()),
            ("limit", limit.as_str()),
            ("spare", spare.as_str()),
            ("used", used.as_str()),
            ("free", free.as_str()),
        ];
        let mut lines = Vec::new();
        if self.diagnosis.log.is_none() || room.source == RoomSource::Desktop {
            let over = needs > room.limit;
            lines.push(fill(if over { labels.margin_over } else { labels.margin }, &names));
        }
        match room.source {
            RoomSource::Desktop => lines.push(fill(labels.desktop, &names)),
            RoomSource::Used | RoomSource::Told if room.used > 0 => {
                lines.push(fill(labels.in_use, &names));
            }
            _ => {}
        }
        lines
    }

    /// What the text's own suggestion comes to.
    fn suggested(&self) -> Option<String> {
        let suggested = self.diagnosis.suggested.as_ref()?;
        let labels = self.words().labels();
        let settings = suggested.settings.iter().map(|(key, value)| format!("{key}={value}"));
        let settings = settings.collect::<Vec<_>>().join(" ");
        Some(match suggested.outcome {
            Outcome::Heads { n_embd, n_head } => {
                let (width, heads) = (n_embd.to_string(), n_head.to_string());
                let names = [("settings", settings.as_str()), ("width", &width), ("heads", &heads)];
                fill(labels.suggested_heads, &names)
            }
            Outcome::Needs { bytes, missing } => {
                let [size, over] = [bytes, missing].map(|count| self.bytes(count));
                let names = [("settings", settings.as_str()), ("bytes", &size), ("missing", &over)];
                let fits = missing == 0;
                fill(if fits { labels.suggested_fits } else { labels.suggested_short }, &names)
            }
        })
    }

    fn asides(&self) -> Vec<String> {
        let labels = self.words().labels();
        let mut lines = Vec::new();
        if let Some(log) = &self.diagnosis.log {
            for what in &log.run.unrelated {
                lines.push(fill(labels.unrelated, &[("what", what)]));
            }
            let said = &log.message.contradictions;
            if !log.message.nonsense.is_empty() && said.is_empty() {
                let numbers = log.message.nonsense.join(", ");
                lines.push(fill(labels.nonsense, &[("numbers", &numbers)]));
            }
        }
        let Some(recovered) = self.diagnosis.recovered.as_ref().filter(|_| self.diagnosis.modelled)
        else {
            return lines;
        };
        let ranks = self.diagnosis.log.as_ref().and_then(|log| log.run.ranks);
        if let Some(ranks) = ranks.filter(|ranks| *ranks > 1) {
            lines.push(fill(labels.ranks, &[("count", &ranks.to_string())]));
        }
        for Defect::Heads { n_embd, n_head, nearest } in &recovered.defects {
            let [width, heads, nearest] = [n_embd, n_head, nearest].map(ToString::to_string);
            let names = [("width", width.as_str()), ("heads", &heads), ("nearest", &nearest)];
            lines.push(fill(labels.heads, &names));
        }
        for (label, keys) in
            [(labels.foreign, &recovered.foreign), (labels.fork_keys, &recovered.unknown_keys)]
        {
            if !keys.is_empty() {
                lines.push(fill(label, &[("keys", &keys.join(", "))]));
            }
        }
        lines
    }

    /// Rows of the table of memory.
    pub fn memory(&self) -> Vec<(String, u64)> {
        let rows = self.diagnosis.account.rows.iter();
        rows.map(|(what, count)| (self.words().what(*what).to_string(), *count)).collect()
    }

    /// What the rows of the table add up to.
    pub fn total(&self) -> Option<String> {
        let total = self.diagnosis.account.total?;
        let labels = self.words().labels();
        let log = self.diagnosis.log.as_ref();
        let message = log.map(|log| &log.message);
        let title = match message {
            Some(message) if message.dialect == Dialect::Mps => labels.total_limit,
            Some(message) if message.allowed.is_some() => labels.total_cap,
            _ => labels.total,
        };
        Some(format!("{:>11} {title}", self.bytes(total)))
    }

    /// Predicted peaks of PyTorch's tensors, with the device memory that each needs, including
    /// context and fragmentation.
    pub fn peaks(&self) -> Vec<(&'static str, u64, u64)> {
        let row =
            |peak: &Peak| (self.words().phase_name(peak.phase), peak.bytes, needs(peak.bytes));
        self.diagnosis.peaks.iter().map(row).collect()
    }

    /// Rows of the text's claims, or of the usual advice: verdict, advice, bytes, reason.
    pub fn advice(&self, claimed: bool) -> Vec<[String; 4]> {
        let words = self.words();
        let row = |judged: &Judged| {
            let mut saved = match judged.bytes {
                0 => String::new(),
                n if n > 0 => format!("-{}", self.bytes(n as u64)),
                n => format!("+{}", self.bytes(n.unsigned_abs())),
            };
            if let Verdict::NotAlone { missing } = judged.verdict {
                let missing = self.bytes(missing);
                saved += if saved.is_empty() { "" } else { words.labels().comma };
                saved += &fill(words.labels().missing, &[("bytes", &missing)]);
            }
            [
                words.verdict(judged.verdict).to_string(),
                words.claim(judged.claim).to_string(),
                saved,
                self.numbers().filled(words.note(judged.note), &judged.figures),
            ]
        };
        let rows = self.diagnosis.advice.iter().filter(|one| one.line.is_some() == claimed);
        rows.map(row).collect()
    }

    /// A remark in the language's brackets; nothing if it is empty.
    pub fn bracketed(&self, text: &str) -> String {
        match text {
            "" => String::new(),
            text => fill(self.words().labels().bracket, &[("text", text)]),
        }
    }

    /// What to try.
    pub fn remedies(&self) -> Vec<&'static str> {
        self.diagnosis.remedies.iter().map(|remedy| self.words().remedy(*remedy)).collect()
    }

    /// A fix in one line.
    pub fn fix(&self, fix: &Fix) -> String {
        let (labels, note) = (self.words().labels(), self.note(fix));
        let rate = |rate: f64| fill(labels.rate, &[("rate", &self.thousands(rate))]);
        let figures = [Some(self.bytes(fix.device_bytes)), fix.tokens_per_second.map(rate)];
        let figures = figures.into_iter().flatten().collect::<Vec<_>>().join(labels.comma);
        let figures = self.bracketed(&figures);
        format!("{}{figures}{}{note}", arguments(fix), labels.colon)
    }

    fn thousands(&self, rate: f64) -> String {
        self.numbers().decimals(&format!("{:.1}k", rate / 1e3))
    }

    /// The sentence of a fix; for a smaller model, with its size.
    pub fn note(&self, fix: &Fix) -> String {
        let note = self.words().fix(fix.kind);
        match fix.kind {
            FixKind::SmallerModel(millions) => {
                let size = self.numbers().decimals(&format!("{millions:.1}M"));
                format!("{note}{}", self.bracketed(&size))
            }
            _ => note.to_string(),
        }
    }

    /// nanoGPT's command with the best fix.
    pub fn nanogpt_command(&self) -> Option<String> {
        let recovered = self.diagnosis.recovered.as_ref()?;
        let fix = self.diagnosis.fixes.first()?;
        let changed = |argument: &&String| {
            !fix.settings.iter().any(|(key, _)| argument.starts_with(&format!("--{key}=")))
        };
        let mut parts = vec!["python train.py".to_string()];
        parts.extend(recovered.files.iter().map(|file| quoted(file)));
        parts.extend(recovered.arguments.iter().filter(changed).map(|argument| quoted(argument)));
        parts.push(arguments(fix));
        Some(parts.join(" "))
    }

    /// The fitGPT command.
    pub fn fitgpt_command(&self) -> Option<String> {
        let command = self.diagnosis.fitgpt.as_ref()?;
        let typed: Vec<String> = command.arguments.iter().map(|word| quoted(word)).collect();
        Some(format!("{} train {}", self.program, typed.join(" ")))
    }

    /// Memory, speed and time of the fitGPT command.
    pub fn fitgpt_plan(&self) -> Option<String> {
        let command = self.diagnosis.fitgpt.as_ref()?;
        let labels = self.words().labels();
        let size = self.bytes(command.device_bytes);
        let mut text = match (command.tokens_per_second, command.run_seconds) {
            (Some(rate), Some(seconds)) => {
                let (rate, time) = (self.thousands(rate), self.numbers().decimals(&time(seconds)));
                let names = [
                    ("bytes", size.as_str()),
                    ("rate", rate.as_str()),
                    ("time", time.as_str()),
                    ("card", command.card),
                ];
                fill(labels.plan, &names)
            }
            _ => size,
        };
        if command.guessed && command.tokens_per_second.is_some() {
            text += &self.bracketed(labels.guessed);
        }
        Some(text)
    }

    /// The title of the change to nanoGPT's code: what it does and what it needs.
    pub fn patch_title(&self) -> Option<String> {
        let patch = self.diagnosis.patch.as_ref()?;
        let labels = self.words().labels();
        let mut title = fill(labels.patch, &[("bytes", &self.bytes(patch.device_bytes))]);
        if !patch.settings.is_empty() {
            let settings = typed(&patch.settings);
            title += labels.comma;
            title += &fill(labels.patch_with, &[("settings", &settings)]);
        }
        if patch.missing > 0 {
            let missing = self.bytes(patch.missing);
            title += labels.comma;
            title += &fill(labels.missing, &[("bytes", &missing)]);
        }
        let changes = patch.changes.iter().map(|change| self.words().change(*change));
        let changes = changes.collect::<Vec<_>>().join(labels.then);
        Some(format!("{title}{}{changes}", labels.colon))
    }

    /// What the change to nanoGPT's code does not do, or costs.
    pub fn patch_limits(&self) -> String {
        let changes = self.diagnosis.patch.iter().flat_map(|patch| &patch.changes);
        let limits = changes.map(|change| self.words().limit(*change));
        let all = [self.words().labels().patch_limits].into_iter().chain(limits);
        all.collect::<Vec<_>>().join(if self.language.is_spaced() { " " } else { "" })
    }

    /// Keys and values to paste into a config: the run with the best fix.
    pub fn recommended(&self) -> Vec<(String, String)> {
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: &str| {
            settings.retain(|(known, _)| known != key);
            settings.push((key.to_string(), value.to_string()));
        };
        let modelled = self.diagnosis.recovered.as_ref().filter(|_| self.diagnosis.modelled);
        for row in modelled.iter().flat_map(|recovered| &recovered.settings) {
            set(&row.key, &row.value);
        }
        for (key, value) in self.diagnosis.fixes.iter().take(1).flat_map(|fix| &fix.settings) {
            set(key, value);
        }
        settings
    }

    /// The two commands with their titles.
    pub fn commands(&self) -> Vec<(String, String)> {
        let labels = self.words().labels();
        let ours = match self.diagnosis.fitgpt.as_ref().is_some_and(|command| command.unchanged) {
            true => labels.fitgpt,
            false => labels.fitgpt_changed,
        };
        let plan = self.fitgpt_plan().unwrap_or_default();
        let nanogpt = self.nanogpt_command().map(|command| (labels.nanogpt.to_string(), command));
        let fitgpt =
            self.fitgpt_command().map(|command| (format!("{ours}{}{plan}", labels.colon), command));
        nanogpt.into_iter().chain(fitgpt).collect()
    }
}

/// `(65536, 50304)`.
fn shape(dims: &[u64]) -> String {
    format!("{dims:?}").replace('[', "(").replace(']', ")")
}

/// `(4 x 1024, 50257)`: rows as a batch of sequences of GPT-2's length.
fn batched(dims: &[u64]) -> String {
    match dims {
        [rows, columns] => {
            // Some losses drop the last position of each sequence.
            let unit = [1024, 1023].into_iter().find(|unit| *rows > 0 && rows % unit == 0);
            unit.map_or(shape(dims), |unit| format!("({} x {unit}, {columns})", rows / unit))
        }
        dims => shape(dims),
    }
}

/// A line of a log, short enough for a sentence.
fn shortened(line: &str) -> String {
    const LONGEST: usize = 60;
    let line = line.trim();
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line.to_string(),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

fn arguments(fix: &Fix) -> String {
    typed(&fix.settings)
}

/// Settings as arguments.
fn typed(settings: &[(&'static str, String)]) -> String {
    let typed = settings.iter().map(|(key, value)| format!("--{key}={value}"));
    typed.collect::<Vec<_>>().join(" ")
}

/// The name of an element type in documents.
pub fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::Bf16 => "bfloat16",
        Dtype::F16 => "float16",
        Dtype::I32 => "int32",
        Dtype::U32 => "uint32",
        Dtype::U16 => "uint16",
    }
}
