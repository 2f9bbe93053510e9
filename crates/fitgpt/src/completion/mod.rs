//! What a shell may offer at the cursor. The words come from the tables of commands, flags, keys,
//! cards and data sets, so a new row completes without further work. The scripts of the four shells
//! (`scripts.rs`) only pass the words of the line here and show the answer.

pub mod scripts;

mod paths;

use crate::commands::{COMMANDS, Command};
use crate::flags::Flag;
use data::known::DATA_SETS;
use paths::{Kind, paths};
use plan::hardware::CARDS;
use plan::links::LINKS;
use spec::{KEYS, Key, Values};

/// Options of the program itself and of every command.
const HELP: (&str, &str) = ("--help", "arguments, flags and keys");
const VERSION: (&str, &str) = ("--version", "the version of this program");

/// Where `dataset` looks for names.
const DATA: &str = "data";

/// A word to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The whole word, which replaces the one at the cursor.
    pub word: String,
    /// What it means; may be empty.
    pub about: String,
}

impl Offer {
    fn new(word: impl Into<String>, about: impl Into<String>) -> Offer {
        Offer { word: word.into(), about: about.into() }
    }
}

/// What fits at the cursor. The last of `words` is the unfinished one; the program's name is not
/// among them.
pub fn offers(words: &[String]) -> Vec<Offer> {
    let Some((current, before)) = words.split_last() else {
        return Vec::new();
    };
    let found = match before.split_first() {
        None => with_options(commands(), &[HELP, VERSION], current),
        Some((first, [])) if first == "help" => commands(),
        Some((first, [])) if first == "man" && !current.starts_with('-') => commands(),
        Some((first, rest)) => match COMMANDS.iter().find(|command| command.name == first) {
            Some(command) => of_command(command, rest, current),
            None => Vec::new(),
        },
    };
    found.into_iter().filter(|offer| offer.word.starts_with(current.as_str())).collect()
}

/// The answer for the scripts: a line for each word, and what it means after a tab.
pub fn lines(offers: &[Offer]) -> String {
    let text = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    // A file name with a line break would become two words.
    let whole = offers.iter().filter(|offer| !offer.word.contains(['\t', '\n', '\r']));
    whole.map(|offer| format!("{}\t{}\n", offer.word, text(&offer.about))).collect()
}

fn commands() -> Vec<Offer> {
    COMMANDS.iter().map(|command| Offer::new(command.name, command.about)).collect()
}

/// Options are offered once a dash was typed, or where nothing else fits.
fn with_options(words: Vec<Offer>, options: &[(&str, &str)], current: &str) -> Vec<Offer> {
    if !current.starts_with('-') && !words.is_empty() {
        return words;
    }
    options.iter().map(|(word, about)| Offer::new(*word, *about)).collect()
}

fn of_command(command: &Command, before: &[String], current: &str) -> Vec<Offer> {
    // `--flag value`: the flag is the word before.
    let open = before.last().and_then(|word| flag(command, word)).and_then(|flag| flag.value);
    if let Some(value) = open {
        return values(value.values, current);
    }
    if let Some((name, value)) = current.split_once('=').filter(|_| current.starts_with("--")) {
        let offers = match (flag(command, name), key(command, name)) {
            (Some(flag), _) => flag.value.map_or(Vec::new(), |flag| values(flag.values, value)),
            (None, Some((key, keys))) => values_of_key(key, keys, value),
            (None, None) => Vec::new(),
        };
        let whole = |offer: Offer| Offer { word: format!("{name}={}", offer.word), ..offer };
        return offers.into_iter().map(whole).collect();
    }
    let arguments = arguments(command, before, current);
    if !current.starts_with('-') && !arguments.is_empty() {
        return arguments;
    }
    let flags = command.flags.iter().filter(|flag| {
        let given = before.iter().any(|word| word.split('=').next() == Some(flag.name));
        flag.repeats || !given
    });
    let flags = flags.map(|flag| Offer::new(flag.name, flag.doc()));
    let keys = KEYS.iter().filter(|key| command.keys.is_some_and(|keys| key.used_by(keys)));
    let keys = keys.map(|key| Offer::new(format!("--{}=", key.name), key.doc));
    flags.chain([Offer::new(HELP.0, HELP.1)]).chain(keys).collect()
}

fn flag(command: &Command, name: &str) -> Option<&'static Flag> {
    command.flags.iter().find(|flag| flag.name == name)
}

/// A key that the command takes, and whose meaning of it counts.
fn key(command: &Command, name: &str) -> Option<(&'static Key, spec::Command)> {
    let key = Key::find(name.strip_prefix("--")?)?;
    command.keys.filter(|keys| key.used_by(*keys)).map(|keys| (key, keys))
}

/// What fits as an argument without dashes. A command whose first argument is one of a few words
/// (`data head`) takes the others after it.
fn arguments(command: &Command, before: &[String], current: &str) -> Vec<Offer> {
    let takes_value = |word: &String| flag(command, word).is_some_and(|flag| flag.value.is_some());
    let mut given = 0;
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if takes_value(word) {
            words.next();
        } else if !word.starts_with("--") {
            given += 1;
        }
    }
    let fitting = match command.arguments {
        [first @ Values::Words(_), rest @ ..] => {
            if given == 0 {
                std::slice::from_ref(first)
            } else {
                rest
            }
        }
        all => all,
    };
    let mut offers: Vec<Offer> = Vec::new();
    for offer in fitting.iter().flat_map(|one| values(*one, current)) {
        if !offers.iter().any(|other| other.word == offer.word) {
            offers.push(offer);
        }
    }
    offers
}

fn values_of_key(key: &Key, keys: spec::Command, current: &str) -> Vec<Offer> {
    match (key.values_for(keys), key.kind) {
        (Values::Any, spec::Kind::Bool) => words(&["True", "False"]),
        (accepted, _) => values(accepted, current),
    }
}

fn words(all: &[&str]) -> Vec<Offer> {
    all.iter().map(|word| Offer::new(*word, "")).collect()
}

fn values(accepted: Values, current: &str) -> Vec<Offer> {
    let mut offers = words(accepted.words());
    offers.extend(match accepted {
        Values::Any | Values::Words(_) | Values::WordsOr(..) => Vec::new(),
        Values::WordsOrPath(..) | Values::File => paths(current, Kind::All),
        Values::Folder => paths(current, Kind::Folders),
        Values::DataSet => data_sets(current),
        Values::Card | Values::CardOr(_) => named(CARDS.iter().map(|card| card.name), current),
        Values::LinkOr(_) => named(LINKS.iter().map(|link| link.name), current),
        Values::Key => {
            KEYS.iter().map(|key| Offer::new(format!("{}=", key.name), key.doc)).collect()
        }
    });
    offers
}

/// Names of cards or links. Who has typed a space has quoted it and is offered them as they are.
fn named<'a>(names: impl Iterator<Item = &'a str>, current: &str) -> Vec<Offer> {
    let spaced = current.contains(' ');
    names.map(|name| Offer::new(if spaced { name.into() } else { typed(name) }, "")).collect()
}

/// The name of a card or a link without spaces, which would have to be quoted differently in each
/// shell.
fn typed(name: &str) -> String {
    name.replace(' ', "-")
}

/// Prepared folders by name, the sets that `prepare` knows, and paths.
fn data_sets(current: &str) -> Vec<Offer> {
    let own = paths(&format!("{DATA}/"), Kind::Folders).into_iter().map(|offer| {
        let name = offer.word.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        Offer::new(name, format!("{DATA}/{name}"))
    });
    let own: Vec<Offer> = own.collect();
    let is_own = |name: &str| own.iter().any(|offer| offer.word == name);
    let known = DATA_SETS.iter().filter(|set| !is_own(set.name));
    let known: Vec<Offer> = known.map(|set| Offer::new(set.name, set.about)).collect();
    own.into_iter().chain(known).chain(paths(current, Kind::Folders)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::hardware::Card;

    fn at(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        offers(&words).into_iter().map(|offer| offer.word).collect()
    }

    #[test]
    fn commands_come_first_and_options_after_a_dash() {
        assert_eq!(at("tr"), ["train"]);
        assert_eq!(at("").len(), COMMANDS.len());
        assert_eq!(at("--"), ["--help", "--version"]);
        assert_eq!(at("help dev"), ["devices"]);
        assert_eq!(at("man dev"), ["devices"]);
        assert_eq!(at("man --o"), ["--out"]);
        assert!(at("nothing x").is_empty());
    }

    #[test]
    fn keys_complete_with_their_values() {
        assert_eq!(at("train --dty"), ["--dtype="]);
        assert_eq!(
            at("train --dtype="),
            ["auto", "float32", "bfloat16", "float16"].map(|word| format!("--dtype={word}"))
        );
        assert_eq!(at("train --compile=T"), ["--compile=True"]);
        assert_eq!(at("sample --top_"), ["--top_k=", "--top_p="]);
        assert!(at("train --no_such_key=").is_empty());
        assert_eq!(at("train --zero="), ["--zero=-1", "--zero=0", "--zero=1"]);
        assert_eq!(at("train --sync=d"), ["--sync=diloco"]);
    }

    #[test]
    fn paths_are_offered_only_where_a_path_is_accepted() {
        let files = |line: &str| at(line).iter().any(|word| word.ends_with("Cargo.toml"));
        for (line, want) in [
            ("train --device=", false),
            ("train --vram=", false),
            ("train --init_from=", true),
            ("sample --init_from=", true),
            ("prepare --tokenizer ", true),
        ] {
            assert_eq!(files(line), want, "{line}");
        }
        assert_eq!(at("train --device="), ["auto", "cpu", "cuda"].map(|w| format!("--device={w}")));
        assert!(at("train --init_from=s").contains(&"--init_from=scratch".to_string()));
        assert!(!at("sample --init_from=s").contains(&"--init_from=scratch".to_string()));
    }

    #[test]
    fn flags_complete_with_their_values_in_both_forms() {
        assert_eq!(at("export --to h"), ["hf"]);
        assert_eq!(at("export --to=h"), ["--to=hf"]);
        assert_eq!(at("plan --gpu RTX-4070-T"), ["RTX-4070-Ti", "RTX-4070-Ti-Super"]);
        let quoted = ["plan", "--gpu", "RTX 4070 T"].map(str::to_string);
        let names: Vec<String> = offers(&quoted).into_iter().map(|offer| offer.word).collect();
        assert_eq!(names, ["RTX 4070 Ti", "RTX 4070 Ti Super"]);
        assert_eq!(at("plan --gpu li"), ["list"]);
        assert!(at("plan --sweep n_l").contains(&"n_layer=".to_string()));
        assert!(!at("plan --json --js").contains(&"--json".to_string()));
    }

    #[test]
    fn a_completed_link_is_found() {
        assert_eq!(at("plan --link 10G"), ["10GbE"]);
        for link in LINKS {
            let found = plan::links::Link::find(&typed(link.name)).map(|link| link.name);
            assert_eq!(found, Some(link.name));
        }
    }

    #[test]
    fn a_completed_card_is_found() {
        for card in CARDS {
            let found = Card::find(&typed(card.name)).map(|card| card.name);
            assert_eq!(found, Some(card.name));
        }
    }

    #[test]
    fn the_first_word_of_data_is_an_action_and_the_second_a_data_set() {
        assert_eq!(at("data h"), ["head"]);
        assert!(at("data head shakespeare_c").contains(&"shakespeare_char".to_string()));
    }

    #[test]
    fn every_word_of_a_table_is_offered_by_its_command() {
        for command in COMMANDS {
            let offered = at(&format!("{} -", command.name));
            for flag in command.flags {
                assert!(offered.contains(&flag.name.to_string()), "{}", flag.name);
            }
        }
    }

    #[test]
    fn an_answer_has_one_line_for_each_word() {
        let offers = [Offer::new("a", "b\tc\nd"), Offer::new("x\ny", "")];
        assert_eq!(lines(&offers), "a\tb c d\n");
    }
}
