//! The texts: one catalogue for each language, complete because a language that lacks one does not
//! compile.

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

    /// Codes of all.
    pub const CODES: [&'static str; 5] = {
        let mut codes = [""; Language::ALL.len()];
        let mut index = 0;
        while index < codes.len() {
            codes[index] = Language::ALL[index].code();
            index += 1;
        }
        codes
    };

    /// Its code.
    pub const fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
            Language::Chinese => "zh",
            Language::German => "de",
            Language::French => "fr",
        }
    }

    /// Of a code, or of what LANG says: `de`, `de_DE.UTF-8`.
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

/// What every language says.
pub trait Catalogue {
    /// The reason of a verdict.
    fn note(&self, note: Note) -> &'static str;
    /// A piece of advice.
    fn advice(&self, advice: Advice) -> &'static str;
    /// How sure a name is.
    fn confidence(&self, confidence: Confidence) -> &'static str;
    /// A row of the table of memory.
    fn what(&self, what: What) -> &'static str;
    /// Why it died, in a sentence or two.
    fn cause(&self, cause: Cause) -> &'static str;
    /// When it died, as a part of a sentence.
    fn phase(&self, phase: LogPhase) -> &'static str;
    /// What a piece of advice is worth.
    fn verdict(&self, verdict: Verdict) -> &'static str;
    /// What the log does not tell, and what would settle it.
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
    /// What else it could be.
    pub same_size: &'static str,
    /// Title of the table of memory.
    pub memory: &'static str,
    /// Title of the predicted peaks.
    pub peaks: &'static str,
    /// Behind a peak.
    pub of_budget: &'static str,
    /// Title of the advice.
    pub advice: &'static str,
    /// Title of the fixes.
    pub fixes: &'static str,
    /// Where there are none.
    pub nothing: &'static str,
    /// Title of what is unknown.
    pub unknown: &'static str,
    /// Before nanoGPT's command.
    pub nanogpt: &'static str,
    /// Before ours.
    pub fitgpt: &'static str,
    /// Before ours, where it had to be changed.
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
    /// Numbers that are set aside.
    pub nonsense: &'static str,
}

/// A text with its names filled in.
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
