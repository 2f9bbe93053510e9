//! What a checkpoint is evaluated on: a split of a data set, a file of tokens, or a text.

use crate::error::TrainError;
use data::{BUILTIN, DataError, Dataset, Split, TokenStream};
use std::io::Read;
use std::path::Path;
use tokenizer::{Tokenizer, last_safe_cut};

/// Most bytes of a text; longer ones become a data set first.
const MOST_TEXT: u64 = 1 << 30;

/// Bytes of text that are encoded at once.
const PART: usize = 1 << 20;

/// Most characters of a name in a message.
const LONGEST: usize = 200;

/// What kind of data it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A split of a data set.
    Split,
    /// A file of tokens.
    Tokens,
    /// A text, as the model's tokens.
    Text,
}

/// Tokens to evaluate on.
#[derive(Debug)]
pub struct EvalData {
    /// The data set; of a file, one whose validation half is the file.
    pub dataset: Dataset,
    /// The half to evaluate on.
    pub split: Split,
    /// What it was opened from.
    pub kind: Kind,
}

impl EvalData {
    /// Opens what a name means: the built-in data set, a data set's folder (or one in `data`), a
    /// file of tokens (`.bin`), or else a text file. `tokenizer` is the model's, or why there is
    /// none.
    pub fn open(
        name: &str,
        split: Split,
        tokenizer: Result<&Tokenizer, &str>,
    ) -> Result<EvalData, TrainError> {
        let here = Path::new(name);
        let in_data = Path::new("data").join(name);
        let of = |stream: TokenStream, kind: Kind| {
            let dataset = Dataset::of_stream(name, stream);
            EvalData { dataset, split: Split::Val, kind }
        };
        if name != BUILTIN && here.exists() && !here.is_dir() {
            return Ok(match here.extension().is_some_and(|ending| ending == "bin") {
                true => of(TokenStream::open(&[here.to_path_buf()])?, Kind::Tokens),
                false => of(text(here, tokenizer)?, Kind::Text),
            });
        }
        if is_path(name) && !here.exists() && !in_data.exists() {
            let shown: String = name.chars().take(LONGEST).collect();
            let what = format!(
                "there is no file or folder {shown} here, nor data/{shown}: give a text, a .bin \
                 file or a data set"
            );
            return Err(TrainError::Text { what });
        }
        let dataset = match name {
            BUILTIN => Dataset::builtin(),
            _ => match Dataset::open(&in_data) {
                Err(DataError::Missing { .. }) if here.is_dir() => Dataset::open(here)?,
                found => found?,
            },
        };
        Ok(EvalData { dataset, split, kind: Kind::Split })
    }

    /// The tokens.
    pub fn stream(&self) -> &TokenStream {
        self.dataset.split(self.split)
    }
}

/// Whether a name can only be meant as a path, not as that of a data set in `data`. Standard input
/// is not read: what is evaluated twice must be the same.
fn is_path(name: &str) -> bool {
    name == "-" || name.contains('/') || Path::new(name).extension().is_some()
}

/// Reads a text in parts and encodes it as `prepare` does, without special tokens.
fn text(path: &Path, tokenizer: Result<&Tokenizer, &str>) -> Result<TokenStream, TrainError> {
    let refuse = |what: String| TrainError::Text { what: format!("{}: {what}", path.display()) };
    let failed = |error: std::io::Error| TrainError::Io {
        path: path.to_path_buf(),
        doing: "read the text",
        error,
        advice: "give a text file, a .bin file or a data set",
    };
    let tokenizer =
        tokenizer.map_err(|why| refuse(format!("the model has no tokenizer for a text: {why}")))?;
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("it is not a regular file")));
    }
    if metadata.len() > MOST_TEXT {
        return Err(refuse(format!(
            "has {} bytes, a text at most {MOST_TEXT}; make a data set of it with `fitgpt prepare`",
            metadata.len()
        )));
    }
    let mut file = std::fs::File::open(path).map_err(failed)?.take(MOST_TEXT);
    let mut encoder = tokenizer.encoder();
    let (mut ids, mut held, mut done) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        let read = file.by_ref().take(PART as u64).read_to_end(&mut held).map_err(failed)?;
        let valid = match std::str::from_utf8(&held) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && read > 0 => {
                std::str::from_utf8(&held[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let at = done + error.valid_up_to() as u64;
                return Err(refuse(format!("is not UTF-8 text at byte {at}")));
            }
        };
        let end = if read == 0 { valid.len() } else { last_safe_cut(valid).unwrap_or(0) };
        encoder.encode(&valid[..end], &mut ids).map_err(|character| {
            refuse(format!(
                "has {character:?}, which is not one of the {} characters that the model knows",
                tokenizer.vocab_size()
            ))
        })?;
        done += end as u64;
        held.drain(..end);
        if read == 0 {
            return Ok(TokenStream::from_memory(&path.display().to_string(), ids));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("fitgpt-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A text that is longer than a part has the same tokens as the whole.
    #[test]
    fn a_text_is_encoded_in_parts() {
        let whole = "naïve words, 中文 and  spaces\n\n".repeat(80_000);
        assert!(whole.len() > 2 * PART);
        let path = written("parts.txt", whole.as_bytes());
        let data =
            EvalData::open(path.to_str().unwrap(), Split::Val, Ok(&Tokenizer::Gpt2)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut want = Vec::new();
        Tokenizer::Gpt2.encoder().encode(&whole, &mut want).unwrap();
        assert!(data.stream().to_vec().unwrap() == want);
    }

    #[test]
    fn a_file_that_is_not_there_is_no_data_set() {
        let error = |name: &str| {
            EvalData::open(name, Split::Val, Err("")).map(drop).unwrap_err().to_string()
        };
        for name in ["book.txt", "texts/book", "-"] {
            let begin = format!("there is no file or folder {name} here, nor data/{name}: ");
            assert!(error(name).starts_with(&begin), "{}", error(name));
        }
        assert!(error("book").contains("data/book"), "{}", error("book"));
        assert!(!error("book").starts_with("there is no file"), "{}", error("book"));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let open = |name: &str, content: &[u8], tokenizer: Result<&Tokenizer, &str>| {
            let path = written(name, content);
            let error = EvalData::open(path.to_str().unwrap(), Split::Val, tokenizer).unwrap_err();
            std::fs::remove_file(&path).unwrap();
            error.to_string()
        };
        let gpt2 = Ok(&Tokenizer::Gpt2);
        assert!(open("a.txt", b"ab\xff", gpt2).ends_with("is not UTF-8 text at byte 2"));
        assert!(open("b.txt", b"ab\xe4\xb8", gpt2).ends_with("is not UTF-8 text at byte 2"));
        assert!(open("c.txt", b"ab", Err("why")).ends_with("no tokenizer for a text: why"));
        let letters = tokenizer::CharTokenizer::new(vec!['a']).unwrap();
        let letters = Tokenizer::Char(letters);
        assert!(open("d.txt", b"ab", Ok(&letters)).contains("'b', which is not one of the 1"));
    }
}
