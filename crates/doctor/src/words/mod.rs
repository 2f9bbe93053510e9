//! The texts: one catalogue for each language. The compiler checks that each is complete.

mod chinese;
mod english;
mod french;
mod german;
mod japanese;

use crate::account::What;
use crate::advice::{Note, Verdict};
use crate::cause::{Cause, Reason};
use crate::diagnosis::Unknown;
use crate::figure::Numbers;
use crate::fixes::FixKind;
use crate::log::{Claim, LogPhase, Program};
use crate::patch::Change;
use crate::remedies::Remedy;
use crate::tensor::Confidence;
use crate::tensor_name::TensorKind;
use crate::torch::Phase;

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// en.
    English,
    /// ja.
    Japanese,
    /// zh.
    Chinese,
    /// de.
    German,
    /// fr.
    French,
}

impl Language {
    /// All.
    pub const ALL: [Language; 5] = [
        Language::English,
        Language::Japanese,
        Language::Chinese,
        Language::German,
        Language::French,
    ];

    /// The codes of all languages.
    pub const CODES: [&'static str; 5] = {
        let mut codes = [""; Language::ALL.len()];
        let mut index = 0;
        while index < codes.len() {
            codes[index] = Language::ALL[index].code();
            index += 1;
        }
        codes
    };

    /// Its two-letter code.
    pub const fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
            Language::Chinese => "zh",
            Language::German => "de",
            Language::French => "fr",
        }
    }

    /// The language of a code or of a value of LANG: `de`, `de_DE.UTF-8`.
    pub fn of(code: &str) -> Option<Language> {
        let first = code.split(['_', '.', '-', '@']).next().unwrap_or("").to_ascii_lowercase();
        Language::ALL.into_iter().find(|language| language.code() == first)
    }

    /// Whether a space separates its sentences.
    pub const fn is_spaced(self) -> bool {
        !matches!(self, Language::Japanese | Language::Chinese)
    }

    /// Its texts.
    pub fn words(self) -> &'static dyn Catalogue {
        match self {
            Language::English => &english::English,
            Language::Japanese => &japanese::Japanese,
            Language::Chinese => &chinese::Chinese,
            Language::German => &german::German,
            Language::French => &french::French,
        }
    }
}

/// The texts of one language.
pub trait Catalogue {
    /// How it writes numbers.
    fn numbers(&self) -> Numbers;
    /// Why the run failed, in one or two sentences.
    fn cause(&self, cause: Cause) -> &'static str;
    /// A sentence that supports the cause; `{0}` are its figures.
    fn reason(&self, reason: Reason) -> &'static str;
    /// A piece of advice or an assertion.
    fn claim(&self, claim: Claim) -> &'static str;
    /// What it is worth.
    fn verdict(&self, verdict: Verdict) -> &'static str;
    /// The reason for a verdict; `{0}` are its figures.
    fn note(&self, note: Note) -> &'static str;
    /// What to try.
    fn remedy(&self, remedy: Remedy) -> &'static str;
    /// What a change of settings means.
    fn fix(&self, fix: FixKind) -> &'static str;
    /// What a change of code means.
    fn change(&self, change: Change) -> &'static str;
    /// What the change of code does not do, or costs.
    fn limit(&self, change: Change) -> &'static str;
    /// A row of the table of memory.
    fn what(&self, what: What) -> &'static str;
    /// A tensor; `{name}` is its parameter or layer.
    fn tensor(&self, tensor: TensorKind) -> &'static str;
    /// How certain the identification of a tensor is.
    fn confidence(&self, confidence: Confidence) -> &'static str;
    /// When the run failed, as part of a sentence.
    fn phase(&self, phase: LogPhase) -> &'static str;
    /// A phase, as a row of a table.
    fn phase_name(&self, phase: Phase) -> &'static str;
    /// A program.
    fn program(&self, program: Program) -> &'static str;
    /// What the log does not say, and how to find out.
    fn unknown(&self, unknown: Unknown) -> &'static str;
    /// Why the command does not run; `{name}` and `{flag}` are filled in.
    fn refusal(&self, refusal: Refusal) -> &'static str;
    /// Titles and short sentences.
    fn labels(&self) -> &'static Labels;
}

/// Why the command does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Neither a log nor settings.
    NoInput,
    /// Two forms of the report.
    TwoForms,
    /// Two logs.
    SecondLog,
    /// A size that cannot be read.
    BadSize,
}

/// Titles and short sentences; `{name}` is filled in.
pub struct Labels {
    /// The first sentence: bytes and phase.
    pub did_not_fit: &'static str,
    /// The first sentence, if the phase is unknown.
    pub did_not_fit_ever: &'static str,
    /// The first sentence, if only the phase is known.
    pub ran_out: &'static str,
    /// The first sentence, if nothing is known.
    pub ran_out_ever: &'static str,
    /// The first sentence for host memory.
    pub host: &'static str,
    /// The first sentence for a request of host memory.
    pub host_asked: &'static str,
    /// The first sentence for a killed process.
    pub killed: &'static str,
    /// Which program it was.
    pub program: &'static str,
    /// Nobody says which program it was.
    pub no_program: &'static str,
    /// The tensor.
    pub which: &'static str,
    /// A tensor of this size.
    pub may_be: &'static str,
    /// The tensor of a prediction.
    pub would_be: &'static str,
    /// Introduces other tensors of the same size.
    pub same_size: &'static str,
    /// Title of the table of memory.
    pub memory: &'static str,
    /// The sum of the table.
    pub total: &'static str,
    /// The sum of the table under a cap.
    pub total_cap: &'static str,
    /// The sum of the table under the limit of an Apple GPU.
    pub total_limit: &'static str,
    /// Title of the predicted peaks.
    pub peaks: &'static str,
    /// Title of the text's claims.
    pub claims: &'static str,
    /// Title of the advice.
    pub advice: &'static str,
    /// Follows a verdict.
    pub missing: &'static str,
    /// The suggested settings fit.
    pub suggested_fits: &'static str,
    /// The suggested settings do not fit.
    pub suggested_short: &'static str,
    /// The suggested settings cannot run.
    pub suggested_heads: &'static str,
    /// Title of the remedies.
    pub remedies: &'static str,
    /// Title of the fixes.
    pub fixes: &'static str,
    /// Shown if there are no fixes.
    pub nothing: &'static str,
    /// Title of what is unknown.
    pub unknown: &'static str,
    /// Introduces nanoGPT's command.
    pub nanogpt: &'static str,
    /// Introduces the diff.
    pub patch: &'static str,
    /// The settings that the diff needs as well.
    pub patch_with: &'static str,
    /// What is said about every diff.
    pub patch_limits: &'static str,
    /// Introduces the fitGPT command.
    pub fitgpt: &'static str,
    /// Introduces the fitGPT command if its settings had to change.
    pub fitgpt_changed: &'static str,
    /// Memory, speed and time of the fitGPT command.
    pub plan: &'static str,
    /// A speed.
    pub rate: &'static str,
    /// The card was guessed.
    pub guessed: &'static str,
    /// Warnings that are not the cause.
    pub unrelated: &'static str,
    /// Keys that nanoGPT ignores.
    pub foreign: &'static str,
    /// Keys of a fork.
    pub fork_keys: &'static str,
    /// Heads that do not divide the width.
    pub heads: &'static str,
    /// Several processes shared the run.
    pub ranks: &'static str,
    /// A config that fits.
    pub fits: &'static str,
    /// A config that may fit.
    pub tight: &'static str,
    /// A config that does not.
    pub dies: &'static str,
    /// What it needs on an empty card.
    pub margin: &'static str,
    /// What is missing even on an empty card.
    pub margin_over: &'static str,
    /// A desktop is assumed.
    pub desktop: &'static str,
    /// Others hold memory.
    pub in_use: &'static str,
    /// A log without a message.
    pub no_log: &'static str,
    /// Between a title and its text.
    pub colon: &'static str,
    /// Between parts of a line.
    pub then: &'static str,
    /// Between figures.
    pub comma: &'static str,
    /// Between tensors.
    pub list: &'static str,
    /// A remark.
    pub bracket: &'static str,
    /// Heading.
    pub problem: &'static str,
    /// Heading.
    pub root: &'static str,
    /// Heading.
    pub config: &'static str,
    /// Heading.
    pub expected: &'static str,
    /// Introduces numbers that were ignored.
    pub nonsense: &'static str,
}

/// Fills in the `{name}` placeholders of a text.
pub fn fill(text: &str, names: &[(&str, &str)]) -> String {
    let mut filled = text.to_string();
    for (name, value) in names {
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_found_by_code_and_by_locale() {
        assert_eq!(Language::of("de_DE.UTF-8"), Some(Language::German));
        assert_eq!(Language::of("zh-CN"), Some(Language::Chinese));
        assert_eq!(Language::of("ja"), Some(Language::Japanese));
        assert_eq!(Language::of("C"), None);
        assert_eq!(Language::of(""), None);
    }

    #[test]
    fn every_language_fills_the_same_names() {
        let names = |text: &str| -> Vec<String> {
            let mut found: Vec<String> = text
                .split('{')
                .skip(1)
                .filter_map(|rest| rest.split_once('}').map(|(name, _)| name.to_string()))
                .collect();
            found.sort();
            found
        };
        let all = |language: Language| {
            let labels = language.words().labels();
            [
                labels.did_not_fit,
                labels.did_not_fit_ever,
                labels.ran_out,
                labels.host_asked,
                labels.program,
                labels.which,
                labels.may_be,
                labels.would_be,
                labels.same_size,
                labels.missing,
                labels.suggested_fits,
                labels.suggested_short,
                labels.suggested_heads,
                labels.patch,
                labels.patch_with,
                labels.plan,
                labels.rate,
                labels.unrelated,
                labels.foreign,
                labels.fork_keys,
                labels.heads,
                labels.ranks,
                labels.dies,
                labels.margin,
                labels.margin_over,
                labels.desktop,
                labels.in_use,
                labels.bracket,
                labels.nonsense,
            ]
            .map(names)
        };
        for language in Language::ALL {
            assert_eq!(all(language), all(Language::English), "{language:?}");
        }
    }
}
