//! Flags of a task: `--flag value` and `--flag=value`, each with the value that was given last.

use std::collections::BTreeMap;

/// Reads the flags of a task; `known` are those that it has, `usage` is what messages say of them.
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
