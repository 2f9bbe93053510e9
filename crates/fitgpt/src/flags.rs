//! A command's own flags, taken out of its arguments before the rest is read as config files and
//! keys. Both `--flag value` and `--flag=value` work; keys are written `--key=value` only.

use spec::SpecError;

/// One row of a command's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// With its dashes.
    pub name: &'static str,
    /// What stands behind it; none for a switch.
    pub value: Option<&'static str>,
}

/// Flags that were given, and everything else.
#[derive(Debug, Default)]
pub struct Given {
    flags: Vec<(&'static str, String)>,
    /// What is left, in order.
    pub rest: Vec<String>,
}

impl Given {
    /// Takes the flags of the table out of the arguments.
    pub fn new(table: &[Flag], arguments: &[String]) -> Result<Given, SpecError> {
        let mut given = Given::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            let Some(flag) = table.iter().find(|flag| flag.name == name) else {
                given.rest.push(argument.clone());
                continue;
            };
            let value = match (flag.value, attached) {
                (None, None) => String::new(),
                (None, Some(value)) => return Err(refuse(flag, &format!("takes no '{value}'"))),
                (Some(_), Some(value)) => value.to_string(),
                (Some(what), None) => {
                    let next = arguments.next().filter(|next| !next.starts_with("--"));
                    next.ok_or_else(|| refuse(flag, &format!("needs a {what} behind it")))?.clone()
                }
            };
            given.flags.push((flag.name, value));
        }
        Ok(given)
    }

    /// The value of a flag, the last one where it was given twice; "" for a switch.
    pub fn get(&self, name: &str) -> Option<&str> {
        let of_name = self.flags.iter().rev().find(|(given, _)| *given == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// All values of a flag, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let of_name = self.flags.iter().filter(|(given, _)| *given == name);
        of_name.map(|(_, value)| value.as_str()).collect()
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn refuse(flag: &Flag, problem: &str) -> SpecError {
    SpecError::Conflict { what: format!("{} {problem}", flag.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [Flag; 2] =
        [Flag { name: "--json", value: None }, Flag { name: "--gpu", value: Some("name") }];

    fn given(arguments: &[&str]) -> Result<Given, SpecError> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Given::new(&TABLE, &arguments)
    }

    #[test]
    fn flags_are_taken_out_and_keys_are_left() {
        let found =
            given(&["a.py", "--gpu", "RTX 4070", "--json", "--gpu=L4", "--seed=1"]).unwrap();
        assert_eq!(found.get("--gpu"), Some("L4"));
        assert!(found.has("--json") && !found.has("--svg"));
        assert_eq!(found.rest, ["a.py", "--seed=1"]);
    }

    #[test]
    fn what_is_missing_or_too_much_is_told() {
        for (arguments, want) in [
            (&["--gpu"][..], "--gpu needs a name behind it"),
            (&["--gpu", "--json"], "--gpu needs a name behind it"),
            (&["--json=yes"], "--json takes no 'yes'"),
        ] {
            assert_eq!(given(arguments).unwrap_err().to_string(), want);
        }
    }
}
