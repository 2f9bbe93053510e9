//! The report for people: half a screen of text, then the tables, then the two commands. Also as a
//! Markdown document.

use crate::diagnosis::Diagnosis;
use crate::fixes::{Fix, FixKind, needs};
use crate::log::{Dialect, LogPhase};
use crate::tensor::{Confidence, Named};
use crate::words::{Catalogue, Language, fill};
use plan::Bytes;
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

/// A size in a readable unit.
pub fn bytes(count: u64) -> String {
    Bytes::new(count).map_or_else(|| count.to_string(), |bytes| bytes.to_string())
}

impl Report<'_> {
    fn words(&self) -> &'static dyn Catalogue {
        self.language.words()
    }

    /// Sentences: what did not fit, when, and why.
    pub fn summary(&self) -> Vec<String> {
        let Diagnosis { log, tensor, cause, phase, budget, .. } = self.diagnosis;
        let (words, labels) = (self.words(), self.words().labels());
        let mut lines = Vec::new();
        match log {
            Some(log) if log.message.dialect == Dialect::None => {
                lines.push(labels.no_log.to_string())
            }
            Some(log) => {
                let asked =
                    log.message.requested.as_ref().map_or("?".to_string(), ToString::to_string);
                let when = words.phase(*phase);
                lines.push(fill(labels.did_not_fit, &[("bytes", &asked), ("phase", when)]));
            }
            None if budget.is_some() && *phase == LogPhase::Unknown => {
                lines.push(labels.fits.to_string());
            }
            None if budget.is_some() => {
                lines.push(fill(labels.dies, &[("phase", words.phase(*phase))]));
            }
            None => {}
        }
        if let Some(tensor) = tensor {
            lines.push(self.tensor(tensor));
        }
        let says_nothing = log.is_none() && *phase == LogPhase::Unknown;
        if !says_nothing {
            lines.push(words.cause(*cause).to_string());
        }
        lines.extend(log.iter().flat_map(|log| log.message.refusal.clone()));
        lines.extend(self.asides());
        lines
    }

    fn tensor(&self, tensor: &Named) -> String {
        let labels = self.words().labels();
        let shape = format!("{:?}", tensor.shape).replace('[', "(").replace(']', ")");
        let dtype = tensor.dtype.to_string();
        let confidence = self.words().confidence(tensor.confidence);
        let named = [
            ("name", tensor.name.as_str()),
            ("shape", shape.as_str()),
            ("dtype", dtype.as_str()),
            ("confidence", confidence),
        ];
        let mut text = fill(labels.which, &named);
        if !tensor.alternatives.is_empty() && tensor.confidence != Confidence::Certain {
            let others = tensor.alternatives.join(", ");
            text += &format!(" ({})", fill(labels.same_size, &[("others", &others)]));
        }
        text
    }

    fn asides(&self) -> Vec<String> {
        let labels = self.words().labels();
        let mut lines = Vec::new();
        if let Some(log) = &self.diagnosis.log {
            for what in &log.run.unrelated {
                lines.push(fill(labels.unrelated, &[("what", what)]));
            }
            if !log.message.nonsense.is_empty() {
                let numbers = log.message.nonsense.join(", ");
                lines.push(fill(labels.nonsense, &[("numbers", &numbers)]));
            }
        }
        if let Some(recovered) =
            self.diagnosis.recovered.as_ref().filter(|recovered| !recovered.foreign.is_empty())
        {
            let keys = recovered.foreign.join(", ");
            lines.push(fill(labels.foreign, &[("keys", &keys)]));
        }
        lines
    }

    /// Rows of the table of memory.
    pub fn memory(&self) -> Vec<(String, u64)> {
        let words = self.words();
        self.diagnosis.memory.iter().map(|(what, n)| (words.what(*what).to_string(), *n)).collect()
    }

    /// Predicted peaks of PyTorch's tensors, with the device memory that each needs, including
    /// context and fragmentation.
    pub fn peaks(&self) -> Vec<(&'static str, u64, u64)> {
        let row = |peak: &crate::torch::Peak| (peak.phase.name(), peak.bytes, needs(peak.bytes));
        self.diagnosis.peaks.iter().map(row).collect()
    }

    /// Rows of the table of advice: verdict, advice, bytes, reason.
    pub fn advice(&self) -> Vec<[String; 4]> {
        let words = self.words();
        let row = |judged: &crate::advice::Judged| {
            let saved = match judged.bytes {
                0 => String::new(),
                n if n > 0 => format!("-{}", bytes(n as u64)),
                n => format!("+{}", bytes(n.unsigned_abs())),
            };
            [
                words.verdict(judged.verdict).to_string(),
                words.advice(judged.advice).to_string(),
                saved,
                words.note(judged.note).to_string(),
            ]
        };
        self.diagnosis.advice.iter().map(row).collect()
    }

    /// A fix in one line.
    pub fn fix(&self, fix: &Fix) -> String {
        let (size, note) = (bytes(fix.device_bytes), self.note(fix));
        let rate = fix.tokens_per_second.map(|rate| format!(", {:.1}k tok/s", rate / 1e3));
        format!("{} ({size}{}): {note}", arguments(fix), rate.unwrap_or_default())
    }

    /// The sentence of a fix; for a smaller model, with its size.
    pub fn note(&self, fix: &Fix) -> String {
        let note = self.words().fix(fix.kind);
        match fix.kind {
            FixKind::SmallerModel(millions) => format!("{note} ({millions:.1}M)"),
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

    /// Keys and values to paste into a config: the run with the best fix.
    pub fn recommended(&self) -> Vec<(String, String)> {
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: &str| {
            settings.retain(|(known, _)| known != key);
            settings.push((key.to_string(), value.to_string()));
        };
        for row in self.diagnosis.recovered.iter().flat_map(|recovered| &recovered.settings) {
            set(&row.key, &row.value);
        }
        for (key, value) in self.diagnosis.fixes.iter().take(1).flat_map(|fix| &fix.settings) {
            set(key, value);
        }
        settings
    }

    /// The whole report as a Markdown document.
    pub fn markdown(&self) -> String {
        let labels = self.words().labels();
        let mut text = format!("# {}\n\n{}\n", labels.problem, self.summary().join("\n"));
        text +=
            &format!("\n## {}\n\n{}\n\n", labels.root, self.words().cause(self.diagnosis.cause));
        for (what, count) in self.memory() {
            text += &format!("- {what}: {}\n", bytes(count));
        }
        text += &format!("\n## {}\n\n", labels.fixes);
        if self.diagnosis.fixes.is_empty() {
            text += &format!("{}\n", labels.nothing);
        }
        for (index, fix) in self.diagnosis.fixes.iter().enumerate() {
            let (note, size) = (self.note(fix), bytes(fix.device_bytes));
            text += &format!("{}. {note} ({size})\n\n", index + 1);
            let lines = fix.settings.iter().map(|(key, value)| format!("   {key} = {value}\n"));
            text += &format!("   ```python\n{}   ```\n", lines.collect::<String>());
        }
        text += &format!("\n## {}\n\n", labels.advice);
        for [verdict, advice, saved, note] in self.advice() {
            let saved = if saved.is_empty() { saved } else { format!(" ({saved})") };
            text += &format!("- **{verdict}** {advice}{saved}: {note}\n");
        }
        text += &format!("\n## {}\n\n```python\n", labels.config);
        for (key, value) in self.recommended() {
            text += &format!("{key} = {}\n", python(&value));
        }
        text += "```\n";
        if let Some(fix) = self.diagnosis.fixes.first() {
            text += &format!("\n## {}\n\n{}\n", labels.expected, bytes(fix.device_bytes));
        }
        if !self.diagnosis.unknown.is_empty() {
            text += &format!("\n## {}\n\n", labels.unknown);
            for unknown in &self.diagnosis.unknown {
                text += &format!("- {}\n", self.words().unknown(*unknown));
            }
        }
        for (title, command) in self.commands() {
            text += &format!("\n{title}:\n\n```\n{command}\n```\n");
        }
        text
    }

    /// The two commands with their titles.
    pub fn commands(&self) -> Vec<(&'static str, String)> {
        let labels = self.words().labels();
        let ours = match self.diagnosis.fitgpt.as_ref().is_some_and(|command| command.unchanged) {
            true => labels.fitgpt,
            false => labels.fitgpt_changed,
        };
        let nanogpt = self.nanogpt_command().map(|command| (labels.nanogpt, command));
        let fitgpt = self.fitgpt_command().map(|command| (ours, command));
        nanogpt.into_iter().chain(fitgpt).collect()
    }
}

fn arguments(fix: &Fix) -> String {
    let typed = fix.settings.iter().map(|(key, value)| format!("--{key}={value}"));
    typed.collect::<Vec<_>>().join(" ")
}

/// A value as Python writes it.
fn python(value: &str) -> String {
    let plain = value.parse::<f64>().is_ok() || value == "True" || value == "False";
    if plain { value.to_string() } else { format!("'{}'", value.replace('\'', "\\'")) }
}
