//! Which values a key or a flag accepts. The parser, messages, documents and shell completion all
//! read this. `words!` declares an enum whose variants are words, so that each word is written
//! only once, next to its variant.

/// Which values of its type a key or a flag accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Anything: a number, a size, a text.
    Any,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these words, or something else, which the text describes after the words.
    WordsOr(&'static [&'static str], &'static str),
    /// The same, where a path is among the other things.
    WordsOrPath(&'static [&'static str], &'static str),
    /// The path of a file.
    File,
    /// The path of a folder.
    Folder,
    /// The name of a data set, or a path to one.
    DataSet,
    /// A graphics card by name.
    Card,
    /// A graphics card by name, or one of these words.
    CardOr(&'static [&'static str]),
    /// A link between GPUs or machines by name, or one of these words.
    LinkOr(&'static [&'static str]),
    /// The name of a key, then `=` and values.
    Key,
}

impl Values {
    /// The accepted words; empty where any value will do.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Values::Words(words)
            | Values::WordsOr(words, _)
            | Values::WordsOrPath(words, _)
            | Values::CardOr(words)
            | Values::LinkOr(words) => words,
            Values::Any
            | Values::File
            | Values::Folder
            | Values::DataSet
            | Values::Card
            | Values::Key => &[],
        }
    }

    /// What is accepted beside the words, as it follows them in a sentence.
    const fn more(self) -> Option<&'static str> {
        match self {
            Values::WordsOr(_, more) | Values::WordsOrPath(_, more) => Some(more),
            _ => None,
        }
    }

    /// Appends the accepted words to a meaning that does not mention all of them.
    pub fn explained(self, meaning: &str) -> String {
        let ends = [' ', '\'', '`', ',', ':', ';', '.'];
        let named = |word: &str| meaning.split(ends).any(|w| w == word);
        let words = self.words();
        if words.iter().all(|word| named(word)) {
            return meaning.to_string();
        }
        format!("{meaning} ({}{})", words.join(", "), self.more().unwrap_or_default())
    }

    /// The words in a meaning that are not accepted: quoted ones, and bare `True` and `False`.
    /// None where other things than words are accepted.
    pub fn obsolete(self, meaning: &str) -> Vec<&str> {
        let Values::Words(words) = self else { return Vec::new() };
        // An apostrophe follows a letter; an opening quote does not.
        let is_quote =
            |(at, _): &(usize, &str)| !meaning[..*at].ends_with(|c: char| c.is_alphanumeric());
        let quoted = meaning.match_indices('\'').filter(is_quote);
        let quoted = quoted.filter_map(|(at, _)| meaning[at + 1..].split_once('\''));
        let bare =
            meaning.split([' ', ',', ':', ';', '.']).filter(|w| ["True", "False"].contains(w));
        let named = quoted.map(|(word, _)| word).chain(bare);
        named.filter(|word| !words.contains(word)).collect()
    }

    /// The accepted words for messages: `'auto', 'erf' or 'tanh'`; empty where there are none.
    pub fn listed(self) -> String {
        let quoted = |word: &&str| match *word {
            "True" | "False" => word.to_string(),
            word => format!("'{word}'"),
        };
        let words: Vec<String> = self.words().iter().map(quoted).collect();
        match (self.more(), words.split_last()) {
            (Some(more), _) => words.join(", ") + more,
            (_, Some((last, rest))) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

/// Declares an enum whose variants are words of a key or a flag.
#[macro_export]
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All words, in the order in which they are shown.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The variant of a word.
            pub fn of(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// The word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        /// A choice.
        pub enum Fruit {
            /// One.
            Apple = "apple",
            /// Another.
            Plum = "False",
        }
    }

    #[test]
    fn a_word_and_its_variant_are_declared_together() {
        assert_eq!(Fruit::WORDS, ["apple", "False"]);
        for word in Fruit::WORDS {
            assert_eq!(Fruit::of(word).map(Fruit::word), Some(*word));
        }
        assert_eq!(Fruit::of("Apple"), None);
    }

    #[test]
    fn a_meaning_names_all_words() {
        let fruit = Values::Words(Fruit::WORDS);
        assert_eq!(fruit.explained("apple, or False"), "apple, or False");
        assert_eq!(fruit.explained("what to eat"), "what to eat (apple, False)");
        assert_eq!(Values::Any.explained("a number"), "a number");
        let or = Values::WordsOrPath(&["a", "b"], " or a path");
        assert_eq!(or.explained("what to read"), "what to read (a, b or a path)");
        assert_eq!(Values::CardOr(&["list"]).explained("`--gpu list` lists"), "`--gpu list` lists");
    }

    #[test]
    fn a_meaning_names_no_other_words() {
        let fruit = Values::Words(Fruit::WORDS);
        assert_eq!(fruit.obsolete("'apple': the cook's, False: none"), Vec::<&str>::new());
        assert_eq!(fruit.obsolete("'pear', the cook's, or True"), ["pear", "True"]);
        assert_eq!(Values::Any.obsolete("'8GB'"), Vec::<&str>::new());
    }

    #[test]
    fn messages_list_the_words() {
        for (values, want) in [
            (Values::Any, ""),
            (Values::Words(&["a"]), "'a'"),
            (Values::Words(Fruit::WORDS), "'apple' or False"),
            (Values::Words(&["a", "b", "c"]), "'a', 'b' or 'c'"),
            (Values::WordsOr(&["a", "b"], " or a number"), "'a', 'b' or a number"),
        ] {
            assert_eq!(values.listed(), want);
        }
    }
}
