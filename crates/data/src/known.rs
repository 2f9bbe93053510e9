//! The data sets that are known by name. This is the only table: `prepare` downloads by it, `train`
//! and `plan` take advice and vocabulary sizes from it, `--help` and completion list its names.

use crate::dataset::Split;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What the user types.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// How it becomes tokens if no tokenizer is named.
    pub tokens: KnownTokens,
    /// Where it comes from.
    pub origin: Origin,
}

/// How a known data set becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownTokens {
    /// One id per character; the text has so many different ones.
    Characters(u32),
    /// GPT-2's BPE.
    Gpt2,
}

/// Where a data set comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// One text at an address, split by position.
    Text(&'static str),
    /// Parquet files of a repository on the hub.
    Hub {
        /// Owner and name.
        repository: &'static str,
        /// The first one is the default.
        configs: &'static [Config],
        /// The column with the text.
        column: &'static str,
        /// File name prefixes that determine a half; if empty, documents are split by the seed.
        halves: &'static [(&'static str, Split)],
    },
}

/// A part of a repository that can be used alone.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What the user types after the name and a slash; a final `*` matches any ending.
    pub name: &'static str,
    /// Revisions and folders, in the order they are tried; `*` is replaced as in the name.
    pub folders: &'static [(&'static str, &'static str)],
}

const MAIN: &str = "main";
/// Where the hub keeps its own conversions to parquet.
const CONVERTED: &str = "refs/convert/parquet";

const fn config(name: &'static str, folders: &'static [(&'static str, &'static str)]) -> Config {
    Config { name, folders }
}

const SHAKESPEARE: &str =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";

const FINEWEB: &[Config] = &[
    config("sample-10BT", &[(MAIN, "sample/10BT")]),
    config("sample-100BT", &[(MAIN, "sample/100BT")]),
    config("sample-350BT", &[(MAIN, "sample/350BT")]),
    config("CC-MAIN-*", &[(MAIN, "data/CC-MAIN-*")]),
    config("default", &[(MAIN, "data")]),
];

/// All known data sets; a longer name comes before its prefix.
pub const DATA_SETS: [Known; 7] = [
    Known {
        name: "shakespeare_char",
        about: "tinyshakespeare as characters, 1.1 MB",
        tokens: KnownTokens::Characters(65),
        origin: Origin::Text(SHAKESPEARE),
    },
    Known {
        name: "shakespeare",
        about: "tinyshakespeare as GPT-2 tokens, 1.1 MB",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Text(SHAKESPEARE),
    },
    Known {
        name: "openwebtext",
        about: "the open copy of GPT-2's training text, about 9 billion tokens",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Hub {
            repository: "Skylion007/openwebtext",
            configs: &[config("plain_text", &[(MAIN, "plain_text"), (CONVERTED, "plain_text")])],
            column: "text",
            halves: &[],
        },
    },
    Known {
        name: "fineweb-edu",
        about: "educational web text; sample-10BT unless another config is named",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Hub {
            repository: "HuggingFaceFW/fineweb-edu",
            configs: FINEWEB,
            column: "text",
            halves: &[],
        },
    },
    Known {
        name: "fineweb",
        about: "web text; sample-10BT unless another config is named",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Hub {
            repository: "HuggingFaceFW/fineweb",
            configs: FINEWEB,
            column: "text",
            halves: &[],
        },
    },
    Known {
        name: "cosmopedia",
        about: "synthetic textbooks, posts and stories (Cosmopedia v2), about 28 billion tokens",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Hub {
            repository: "HuggingFaceTB/smollm-corpus",
            configs: &[config("cosmopedia-v2", &[(MAIN, "cosmopedia-v2")])],
            column: "text",
            halves: &[],
        },
    },
    Known {
        name: "tinystories",
        about: "two million short stories in simple words, about 0.5 billion tokens",
        tokens: KnownTokens::Gpt2,
        origin: Origin::Hub {
            repository: "roneneldan/TinyStories",
            configs: &[config("default", &[(MAIN, "data"), (CONVERTED, "default")])],
            column: "text",
            halves: &[("train", Split::Train), ("validation", Split::Val)],
        },
    },
];

/// The row that an argument names, and the config after its slash.
#[must_use]
pub fn find(argument: &str) -> Option<(&'static Known, Option<&str>)> {
    let (name, config) = match argument.split_once('/') {
        Some((name, config)) => (name, Some(config)),
        None => (argument, None),
    };
    let row = DATA_SETS.iter().find(|row| row.name == name)?;
    Some((row, config))
}

/// Ids of a data set that is known by name and has its own alphabet.
#[must_use]
pub fn characters(name: &str) -> Option<u64> {
    match DATA_SETS.iter().find(|row| row.name == name)?.tokens {
        KnownTokens::Characters(count) => Some(u64::from(count)),
        KnownTokens::Gpt2 => None,
    }
}

/// All names, for messages.
#[must_use]
pub fn names() -> String {
    DATA_SETS.map(|row| row.name).join(", ")
}

impl Config {
    /// The folders of this config for the typed name; `None` if the name does not match.
    #[must_use]
    pub fn folders(&self, typed: &str) -> Option<Vec<(&'static str, String)>> {
        let filling = match self.name.strip_suffix('*') {
            Some(beginning) => typed.strip_prefix(beginning).filter(|end| !end.contains('/'))?,
            None if self.name == typed => "",
            None => return None,
        };
        let folder = |folder: &str| folder.replace('*', filling);
        Some(self.folders.iter().map(|(revision, name)| (*revision, folder(name))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_before_those_that_it_begins_with() {
        for (index, row) in DATA_SETS.iter().enumerate() {
            let hidden = DATA_SETS[..index].iter().find(|other| row.name.starts_with(other.name));
            assert!(hidden.is_none(), "{} is hidden by {hidden:?}", row.name);
        }
    }

    #[test]
    fn a_config_may_be_named() {
        let (row, config) = find("fineweb-edu/CC-MAIN-2024-10").unwrap();
        assert_eq!((row.name, config), ("fineweb-edu", Some("CC-MAIN-2024-10")));
        let folders: Vec<_> =
            FINEWEB.iter().filter_map(|c| c.folders("CC-MAIN-2024-10")).flatten().collect();
        assert_eq!(folders, [(MAIN, "data/CC-MAIN-2024-10".to_string())]);
        assert!(find("fineweb2").is_none());
    }
}
