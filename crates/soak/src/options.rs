//! The command line of the soak; `cargo xtask soak` passes it.

use crate::section::{Environment, SECTIONS};
use std::path::PathBuf;

/// The options of a soak.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A section or a part of one; empty for all sections.
    pub name: String,
    /// Total time.
    pub minutes: f64,
    /// Number of cases per section, instead of a time.
    pub cases: Option<u64>,
    /// The first case.
    pub first: u64,
    /// What cases may use.
    pub environment: Environment,
    /// The folder where the document is kept.
    pub keep: Option<PathBuf>,
    /// Facts for the document that only the caller knows: commit, date, cpu.
    pub facts: Vec<(&'static str, String)>,
}

const FACTS: [&str; 4] = ["commit", "date", "cpu", "machine"];

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// The invalid argument, and what is allowed.
    pub fn read(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options { minutes: 10.0, ..Options::default() };
        options.environment.seed = 1;
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if flag == "--cuda" {
                options.environment.cuda = true;
                continue;
            }
            if !flag.starts_with("--") {
                options.name = word.clone();
                continue;
            }
            let value = value.or_else(|| rest.next().cloned());
            let value = value.ok_or_else(|| format!("{flag} needs a value"))?;
            options.set(flag, value)?;
        }
        match SECTIONS.iter().any(|section| section.is_meant(&options.name)) {
            true => Ok(options),
            false => {
                let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
                let names = names.join(", ");
                Err(format!("no section is called '{}'; there are {names}", options.name))
            }
        }
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        let number = || value.parse::<u64>().map_err(|_| format!("{flag} needs a number"));
        match flag {
            "--minutes" => {
                let minutes = value.parse::<f64>().ok().filter(|m| (0.01..=1e5).contains(m));
                self.minutes = minutes.ok_or("--minutes needs 0.01 to 100000")?;
            }
            "--seed" => self.environment.seed = number()?,
            "--cases" => self.cases = Some(number()?),
            "--first" => self.first = number()?,
            "--keep" => self.keep = Some(PathBuf::from(value)),
            "--binary" => self.environment.binary = PathBuf::from(value),
            "--faults" => self.environment.faults = Some(PathBuf::from(value)),
            _ => {
                let fact = FACTS.iter().find(|fact| flag.strip_prefix("--") == Some(**fact));
                self.facts.push((fact.ok_or_else(|| format!("soak has no flag {flag}"))?, value));
            }
        }
        Ok(())
    }

    /// A fact that the caller gave.
    pub fn fact(&self, name: &str) -> &str {
        let found = self.facts.iter().find(|(fact, _)| *fact == name);
        found.map_or("unknown", |(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_flag_is_read() {
        let options = read(
            "bytes/parquet --seed 77 --cases=1 --first 123 --minutes 2.5 --cuda --keep x \
             --binary b --faults f --commit abc",
        )
        .unwrap();
        assert_eq!((options.name.as_str(), options.environment.seed), ("bytes/parquet", 77));
        assert_eq!((options.cases, options.first, options.minutes), (Some(1), 123, 2.5));
        assert!(
            options.environment.cuda
                && options.keep.is_some()
                && options.environment.faults.is_some()
        );
        assert_eq!((options.fact("commit"), options.fact("date")), ("abc", "unknown"));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, word) in [
            ("nothing", "there are bytes"),
            ("--seed x", "--seed"),
            ("--seed", "needs a value"),
            ("--speed 5", "no flag --speed"),
            ("--minutes 0", "--minutes"),
        ] {
            let message = read(line).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
