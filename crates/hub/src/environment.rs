//! What the environment says about the hub, as Hugging Face documents it for its own programs: its
//! address, the user's token, the folder of the cache, and whether requests are allowed at all.

use std::env;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The public hub.
pub const ENDPOINT: &str = "https://huggingface.co";

/// Most bytes of a token's file.
const TOKEN: u64 = 4 << 10;

/// The hub's address and the user's token.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Its address without a final slash.
    pub endpoint: String,
    /// Access token, for repositories that need one.
    pub token: Option<String>,
}

impl Hub {
    /// Reads `HF_ENDPOINT`, and the token from `HF_TOKEN`, else from the file `HF_TOKEN_PATH`, else
    /// from `$HF_HOME/token`.
    #[must_use]
    pub fn from_environment() -> Hub {
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), token: token(&read) }
    }
}

/// Whether `HF_HUB_OFFLINE`, or if that is not set `TRANSFORMERS_OFFLINE`, forbids requests to the
/// hub.
pub(crate) fn is_offline() -> bool {
    is_forbidden(&read)
}

/// Hugging Face's folder: `HF_HOME`, else `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache`.
#[must_use]
pub fn home_folder() -> Option<PathBuf> {
    home(&read)
}

/// The folder of downloaded repositories; `None` if there is no home folder either.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    folder_of_cache(&read)
}

/// How the environment is read; tests give their own.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn read(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// A variable that is set to something.
fn set(name: &str, variables: Variables<'_>) -> Option<OsString> {
    variables(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> Option<String> {
    set(name, &read)?.into_string().ok()
}

fn is_true(name: &str, variables: Variables<'_>) -> bool {
    let value = set(name, variables).and_then(|value| value.into_string().ok());
    let value = value.unwrap_or_default().to_ascii_uppercase();
    matches!(value.as_str(), "1" | "ON" | "YES" | "TRUE")
}

fn is_forbidden(variables: Variables<'_>) -> bool {
    let names = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"];
    let first = names.into_iter().find(|name| set(name, variables).is_some());
    first.is_some_and(|name| is_true(name, variables))
}

/// A folder or file; a leading `~` is the home folder.
fn path(name: &str, variables: Variables<'_>) -> Option<PathBuf> {
    let given = PathBuf::from(set(name, variables)?);
    match (given.strip_prefix("~"), set("HOME", variables)) {
        (Ok(rest), Some(home)) => Some(Path::new(&home).join(rest)),
        _ => Some(given),
    }
}

fn home(variables: Variables<'_>) -> Option<PathBuf> {
    path("HF_HOME", variables).or_else(|| {
        let caches = path("XDG_CACHE_HOME", variables)
            .or_else(|| Some(Path::new(&set("HOME", variables)?).join(".cache")))?;
        Some(caches.join("huggingface"))
    })
}

fn folder_of_cache(variables: Variables<'_>) -> Option<PathBuf> {
    path("HF_HUB_CACHE", variables)
        .or_else(|| path("HUGGINGFACE_HUB_CACHE", variables)) // its name before 2023
        .or_else(|| Some(home(variables)?.join("hub")))
}

fn token(variables: Variables<'_>) -> Option<String> {
    if is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN", variables) {
        return None;
    }
    let given = set("HF_TOKEN", variables).or_else(|| set("HUGGING_FACE_HUB_TOKEN", variables));
    if let Some(given) = given {
        return Some(given.to_string_lossy().into_owned());
    }
    let file = path("HF_TOKEN_PATH", variables).or_else(|| Some(home(variables)?.join("token")))?;
    if !file.is_file() {
        return None;
    }
    let mut content = Vec::new();
    std::fs::File::open(file).ok()?.take(TOKEN).read_to_end(&mut content).ok()?;
    let content = String::from_utf8_lossy(&content).trim().to_owned();
    (!content.is_empty()).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone().into())
    }

    #[test]
    fn the_cache_is_where_hugging_face_documents_it() {
        for (pairs, want) in [
            (&[("HOME", "/h")][..], Some("/h/.cache/huggingface/hub")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/huggingface/hub")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")], Some("/f/hub")),
            (&[("HOME", "/h"), ("HF_HOME", "~/f")], Some("/h/f/hub")),
            (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")], Some("/c")),
            (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "")], Some("/f/hub")),
            (&[("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/c")], Some("/c")),
            (&[], None),
        ] {
            assert_eq!(folder_of_cache(&with(pairs)), want.map(PathBuf::from), "{pairs:?}");
        }
    }

    #[test]
    fn the_token_is_the_first_that_is_set() {
        let folder = std::env::temp_dir().join(format!("fitgpt-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("token"), "kept\n").unwrap();
        std::fs::write(folder.join("other"), "other\n").unwrap();
        let (home, other) = (folder.to_str().unwrap(), folder.join("other"));
        let other = ("HF_TOKEN_PATH", other.to_str().unwrap());
        let home = ("HF_HOME", home);
        for (pairs, want) in [
            (&[home][..], Some("kept")),
            (&[home, other], Some("other")),
            (&[home, other, ("HF_TOKEN", "typed")], Some("typed")),
            (&[home, ("HUGGING_FACE_HUB_TOKEN", "old")], Some("old")),
            (&[home, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], None),
            (&[("HF_HOME", "/nowhere")], None),
            (&[("HF_TOKEN_PATH", "/dev/zero")], None),
        ] {
            assert_eq!(token(&with(pairs)).as_deref(), want, "{pairs:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn offline_has_the_words_that_hugging_face_takes() {
        for (word, want) in [("1", true), ("true", true), ("Yes", true), ("0", false), ("", false)]
        {
            for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
                assert_eq!(is_forbidden(&with(&[(name, word)])), want, "{name}={word}");
            }
        }
        let both = [("TRANSFORMERS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "0")];
        assert!(!is_forbidden(&with(&both)));
    }
}
