//! The texts: one catalogue for each language. The compiler checks that each is complete.

mod chinese;
mod english;
mod french;
mod german;
mod japanese;

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;

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
    /// The reason for a verdict.
    fn note(&self, note: Note) -> &'static str;
    /// A piece of advice.
    fn advice(&self, advice: Advice) -> &'static str;
    /// How certain the identification of a tensor is.
    fn confidence(&self, confidence: Confidence) -> &'static str;
    /// A row of the table of memory.
    fn what(&self, what: What) -> &'static str;
    /// Why the run failed, in one or two sentences.
    fn cause(&self, cause: Cause) -> &'static str;
    /// When the run failed, as part of a sentence.
    fn phase(&self, phase: LogPhase) -> &'static str;
    /// What a piece of advice is worth.
    fn verdict(&self, verdict: Verdict) -> &'static str;
    /// What the log does not say, and how to find out.
    fn unknown(&self, unknown: Unknown) -> &'static str;
    /// What a change means.
    fn fix(&self, fix: FixKind) -> &'static str;
    /// Titles and short sentences.
    fn labels(&self) -> &'static Labels;
}

/// Titles and short sentences; `{name}` is filled in.
pub struct Labels {
    /// The first sentence.
    pub did_not_fit: &'static str,
    /// The second.
    pub which: &'static str,
    /// Introduces other tensors of the same size.
    pub same_size: &'static str,
    /// Title of the table of memory.
    pub memory: &'static str,
    /// Title of the predicted peaks.
    pub peaks: &'static str,
    /// Follows a peak.
    pub of_budget: &'static str,
    /// Title of the advice.
    pub advice: &'static str,
    /// Title of the fixes.
    pub fixes: &'static str,
    /// Shown if there are no fixes.
    pub nothing: &'static str,
    /// Title of what is unknown.
    pub unknown: &'static str,
    /// Introduces nanoGPT's command.
    pub nanogpt: &'static str,
    /// Introduces the fitGPT command.
    pub fitgpt: &'static str,
    /// Introduces the fitGPT command if its settings had to change.
    pub fitgpt_changed: &'static str,
    /// Warnings that are not the cause.
    pub unrelated: &'static str,
    /// Keys that nanoGPT ignores.
    pub foreign: &'static str,
    /// A config that fits.
    pub fits: &'static str,
    /// A config that does not.
    pub dies: &'static str,
    /// A log without a message.
    pub no_log: &'static str,
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
                labels.which,
                labels.same_size,
                labels.of_budget,
                labels.unrelated,
                labels.foreign,
                labels.dies,
                labels.nonsense,
            ]
            .map(names)
        };
        for language in Language::ALL {
            assert_eq!(all(language), all(Language::English), "{language:?}");
        }
    }
}
