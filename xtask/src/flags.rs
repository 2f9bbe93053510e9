//! Parses the flags of a task: `--flag value` or `--flag=value`; the last value wins.

use std::collections::BTreeMap;

/// Parses the flags of a task. `known` are its flags; `usage` describes them in messages.
pub fn read(
    task: &str,
    known: &[&str],
    usage: &str,
    args: &[String],
) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        if !known.contains(&flag) {
            return Err(format!("{task} has no flag '{flag}'; it has {usage}"));
        }
        let value =
            value.or_else(|| rest.next().cloned()).ok_or(format!("{flag} needs a value"))?;
        found.insert(flag.to_owned(), value);
    }
    Ok(found)
}
