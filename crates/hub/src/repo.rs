//! Names of model repositories.

use crate::error::{HubError, Result};
use std::fmt;

/// Most characters of a name, as the hub has it.
const LONGEST: usize = 96;

/// A repository of a model at its main revision: `owner/name`, or `name` alone for the oldest ones,
/// such as `gpt2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRepo {
    id: String,
}

impl ModelRepo {
    /// The revision that is used.
    pub const REVISION: &'static str = "main";

    /// Checks a name by the hub's own rules. They also make it safe as part of a path.
    ///
    /// # Errors
    ///
    /// When it cannot be the name of a repository.
    pub fn new(id: &str) -> Result<ModelRepo> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_part = |part: &str| {
            let ends = part.starts_with(['.', '-']) || part.ends_with(['.', '-']);
            !part.is_empty() && !ends && part.chars().all(is_plain)
        };
        let is_name = id.len() <= LONGEST
            && id.split('/').count() <= 2
            && id.split('/').all(is_part)
            && !id.contains("--")
            && !id.contains("..")
            && !id.ends_with(".git");
        match is_name {
            true => Ok(ModelRepo { id: id.to_owned() }),
            false => {
                let what = "is neither a folder here nor the name of a model on the hub, which is \
                            owner/name with letters, digits, '-', '_' and '.'";
                Err(HubError::Model { name: id.to_owned(), what: what.to_owned() })
            }
        }
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of its folder in the cache.
    #[must_use]
    pub fn folder_name(&self) -> String {
        format!("models--{}", self.id.replace('/', "--"))
    }

    /// The address of a file at a revision.
    #[must_use]
    pub fn url(&self, endpoint: &str, revision: &str, file: &str) -> String {
        format!("{endpoint}/{}/resolve/{revision}/{file}", self.id)
    }
}

impl fmt::Display for ModelRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_hub_allows() {
        for (id, folder) in [
            ("gpt2", "models--gpt2"),
            ("openai-community/gpt2-xl", "models--openai-community--gpt2-xl"),
            ("a.b/c_d", "models--a.b--c_d"),
        ] {
            assert_eq!(ModelRepo::new(id).unwrap().folder_name(), folder);
        }
        let long = "x".repeat(97);
        for id in ["", "/", "a/", "/a", "a/b/c", "../a", "a/..", "a--b", "-a", "a.git", "ü", "a b"]
        {
            assert!(ModelRepo::new(id).is_err(), "{id}");
        }
        assert!(ModelRepo::new(&long).is_err());
    }
}
