//! A command's own flags. [`flags!`] declares them once, for the parser, `--help`,
//! `docs/commands.md` and the struct that the command reads. The compiler reports a flag that its
//! command does not read, because it is an unused field.
//!
//! Both `--flag value` and `--flag=value` work; keys are written `--key=value` only.

use spec::{SpecError, Values};
use std::ops::RangeInclusive;

/// Accepted values of `bench --rank` and `plan --best`.
pub const RANKS: RangeInclusive<usize> = 1..=1000;

/// The declaration of one flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// With its dashes.
    pub name: &'static str,
    /// Its value; none for a switch.
    pub value: Option<FlagValue>,
    /// Whether all given values count, not only the last one.
    pub repeats: bool,
    /// The only form of the command that accepts it; none if all do.
    pub only: Option<&'static str>,
    doc: &'static str,
}

/// The value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// Its name in help: `FILE`.
    pub placeholder: &'static str,
    /// Which values are accepted; shell completion offers them.
    pub values: Values,
}

impl Flag {
    /// Called by [`flags!`].
    pub const fn new<S: Slot>(
        name: &'static str,
        value: Option<FlagValue>,
        only: Option<&'static str>,
        doc: &'static str,
    ) -> Flag {
        assert!(
            S::TAKES_VALUE == value.is_some(),
            "a switch is a bool, a flag with a value is not"
        );
        Flag { name, value, repeats: S::REPEATS, only, doc }
    }

    /// What it does, which words it accepts, and which form of the command it is for.
    pub fn doc(&self) -> String {
        let doc = self.doc.trim();
        let doc = self.value.map_or(doc.to_string(), |value| value.values.explained(doc));
        self.only.map_or(doc.clone(), |form| format!("for {form}: {doc}"))
    }

    /// As it is typed: `--gpu NAME`.
    pub fn typed(&self) -> String {
        let value = self.value.map(|value| format!(" {}", value.placeholder));
        format!("{}{}", self.name, value.unwrap_or_default())
    }
}

/// The type of a field that a flag fills.
pub trait Slot {
    /// Whether the flag takes a value.
    const TAKES_VALUE: bool;
    /// Whether all given values count.
    const REPEATS: bool;
    /// Converts the given values, one for each time the flag was given; a switch's are empty.
    fn of(values: &[&str]) -> Self;
}

impl Slot for bool {
    const TAKES_VALUE: bool = false;
    const REPEATS: bool = false;

    fn of(values: &[&str]) -> bool {
        !values.is_empty()
    }
}

impl Slot for Option<String> {
    const TAKES_VALUE: bool = true;
    const REPEATS: bool = false;

    fn of(values: &[&str]) -> Option<String> {
        values.last().map(ToString::to_string)
    }
}

impl Slot for Vec<String> {
    const TAKES_VALUE: bool = true;
    const REPEATS: bool = true;

    fn of(values: &[&str]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
}

/// The flags of a command; [`flags!`] implements this.
pub trait FlagSet: Sized {
    /// All flags, in the order of help.
    const TABLE: &'static [Flag];

    /// Builds the struct from the given flags and values. It reads no field, so that the compiler
    /// can report fields that the command does not read.
    fn of(given: &[(&'static str, &str)]) -> Self;

    /// Takes the flags out of the arguments; returns the other arguments in order.
    fn read(arguments: &[String]) -> Result<(Self, Vec<String>), SpecError> {
        let (mut given, mut rest) = (Vec::new(), Vec::new());
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            let Some(flag) = Self::TABLE.iter().find(|flag| flag.name == name) else {
                rest.push(argument.clone());
                continue;
            };
            let value = match (flag.value, attached) {
                (None, None) => "",
                (None, Some(value)) => {
                    return Err(refuse(flag, &format!("takes no value, but got '{value}'")));
                }
                (Some(_), Some(value)) => value,
                (Some(_), None) => {
                    let next = arguments.next().filter(|next| !next.starts_with("--"));
                    let missing = format!("needs a value: {}", flag.typed());
                    next.ok_or_else(|| refuse(flag, &missing))?
                }
            };
            given.push((flag.name, value));
        }
        Ok((Self::of(&given), rest))
    }
}

fn refuse(flag: &Flag, problem: &str) -> SpecError {
    SpecError::Conflict { what: format!("{} {problem}", flag.name) }
}

/// The whole number that a flag is given.
pub fn number(flag: &str, given: &str, range: RangeInclusive<usize>) -> Result<usize, SpecError> {
    let number = given.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let shown: String = given.chars().take(40).collect();
        let (start, end) = (range.start(), range.end());
        let what = format!("{flag} needs a whole number from {start} to {end}, not '{shown}'");
        SpecError::Conflict { what }
    })
}

/// Converts the values of one flag.
pub fn slot<S: Slot>(given: &[(&'static str, &str)], name: &str) -> S {
    let values = given.iter().filter(|(flag, _)| *flag == name).map(|(_, value)| *value);
    S::of(&values.collect::<Vec<_>>())
}

/// The optional part of a declaration.
pub const fn first<T: Copy>(given: &[T]) -> Option<T> {
    match given {
        [one, ..] => Some(*one),
        [] => None,
    }
}

/// Declares the flags of a command. The type of a field says what the flag takes: `bool` is a
/// switch, `Option<String>` takes a value, `Vec<String>` may be given more than once. The doc
/// comment is shown by help.
macro_rules! flags {
    (
        $(#[$about:meta])*
        pub struct $set:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $slot:ty = $name:literal
                    $(, $placeholder:literal $values:expr)? $(, only $only:expr)?;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $set { $($(#[doc = $doc])+ pub $field: $slot,)+ }

        impl $crate::flags::FlagSet for $set {
            const TABLE: &'static [$crate::flags::Flag] = &[$(
                $crate::flags::Flag::new::<$slot>(
                    $name,
                    $crate::flags::first(&[$($crate::flags::FlagValue {
                        placeholder: $placeholder,
                        values: $values,
                    })?]),
                    $crate::flags::first(&[$($only)?]),
                    concat!($($doc),+),
                )
            ),+];

            fn of(given: &[(&'static str, &str)]) -> $set {
                $set { $($field: $crate::flags::slot(given, $name),)+ }
            }
        }
    };
}
pub(crate) use flags;

#[cfg(test)]
mod tests {
    use super::*;

    flags! {
        /// Three kinds.
        pub struct Three {
            /// one document
            /// on standard output
            json: bool = "--json";
            /// a card
            gpu: Option<String> = "--gpu", "NAME" Values::Card;
            /// a row each
            sweep: Vec<String> = "--sweep", "KEY=A,B" Values::Key, only "grid";
        }
    }

    fn read(arguments: &[&str]) -> Result<(Three, Vec<String>), SpecError> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Three::read(&arguments)
    }

    #[test]
    fn flags_are_taken_out_and_keys_are_left() {
        let typed = ["a.py", "--gpu", "RTX 4070", "--sweep=a=1,2", "--gpu=L4", "--seed=1"];
        let (flags, rest) = read(&typed).unwrap();
        assert_eq!(flags.gpu.as_deref(), Some("L4"));
        assert_eq!(flags.sweep, ["a=1,2"]);
        assert!(!flags.json && read(&["--json"]).unwrap().0.json);
        assert_eq!(rest, ["a.py", "--seed=1"]);
    }

    #[test]
    fn a_missing_or_extra_value_is_reported() {
        for (arguments, want) in [
            (&["--gpu"][..], "--gpu needs a value: --gpu NAME"),
            (&["--gpu", "--json"], "--gpu needs a value: --gpu NAME"),
            (&["--json=yes"], "--json takes no value, but got 'yes'"),
        ] {
            assert_eq!(read(arguments).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn a_number_is_in_its_range() {
        assert_eq!(number("--best", "1000", RANKS).unwrap(), 1000);
        for given in ["2000", "0", "-1", "x"] {
            let want = format!("--best needs a whole number from 1 to 1000, not '{given}'");
            assert_eq!(number("--best", given, RANKS).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn the_table_is_what_was_declared() {
        let [json, gpu, sweep] = Three::TABLE else { panic!("{:?}", Three::TABLE) };
        assert_eq!(
            (json.doc(), json.typed()),
            ("one document on standard output".into(), "--json".into())
        );
        assert_eq!((gpu.typed(), gpu.repeats), ("--gpu NAME".to_string(), false));
        assert_eq!((sweep.doc(), sweep.repeats), ("for grid: a row each".to_string(), true));
    }
}
