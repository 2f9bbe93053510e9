//! Settings that a log shows, and where each one is from.

/// Where a setting is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody says it; it is nanoGPT's default.
    Assumed,
    /// Someone wrote it in a sentence.
    Prose,
    /// A block of settings in a text.
    Config,
    /// A command that the log shows.
    CommandLine,
    /// The program printed it.
    Echoed,
    /// The user gave it to this program.
    Given,
}

impl Origin {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Assumed => "assumed",
            Origin::Prose => "prose",
            Origin::Config => "config",
            Origin::CommandLine => "command_line",
            Origin::Echoed => "echoed",
            Origin::Given => "given",
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, as nanoGPT spells it.
    pub key: String,
    /// Its value, without quotes.
    pub value: String,
    /// Where it is from.
    pub origin: Origin,
}

/// The number of a model's parameters, as a log says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number.
    pub count: u64,
    /// The true number differs by at most this much: 0 if all digits are printed.
    pub within: u64,
    /// Where it is from. nanoGPT's own number (`Echoed`) leaves out the position embedding.
    pub origin: Origin,
}

impl Parameters {
    /// Whether a model with `count` parameters would be printed like this.
    pub fn is(self, count: u64) -> bool {
        self.count.abs_diff(count) <= self.within
    }
}
