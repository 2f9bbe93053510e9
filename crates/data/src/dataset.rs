//! A data set in nanoGPT's folder layout (`train.bin`, `val.bin` and optionally `meta.pkl`), as
//! shards, or the built-in one, which needs no folder.

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::known::DATA_SETS;
use crate::meta::Meta;
use crate::token_stream::TokenStream;
use crate::tokenizer::{CharTokenizer, Tokenizer};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the built-in data set.
pub const BUILTIN: &str = "builtin";

/// One half of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// The half that the model trains on.
    Train,
    /// The half that is only used for evaluation.
    Val,
}

impl Split {
    /// The names of both.
    pub const NAMES: [&'static str; 2] = [Self::Train.name(), Self::Val.name()];

    /// The half of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Train, Self::Val].into_iter().find(|split| split.name() == name)
    }

    /// Its name in files and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
    }

    fn files(self) -> &'static str {
        match self {
            Self::Train => "train.bin or *_train_*.bin",
            Self::Val => "val.bin or *_val_*.bin",
        }
    }
}

/// Tokens to train on and to evaluate on, and how to decode them.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    folder: PathBuf,
    train: TokenStream,
    val: TokenStream,
    meta: Option<Meta>,
    floor: Option<f64>,
}

impl Dataset {
    /// Opens `dir`, such as `data/shakespeare_char`.
    ///
    /// # Errors
    ///
    /// When a half is missing (the error says how to make it), or a file is invalid.
    pub fn open(dir: &Path) -> Result<Self, DataError> {
        let train = open_split(dir, Split::Train)?;
        let val = open_split(dir, Split::Val)?;
        let meta_path = dir.join("meta.pkl");
        let meta = if is_there(&meta_path) { Some(Meta::read(&meta_path)?) } else { None };
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        let folder = dir.to_owned();
        let mut dataset = Self { name, folder, train, val, meta, floor: None };
        if let Some(meta) = &dataset.meta {
            dataset.set_vocab_size(meta.vocab_size);
        }
        Ok(dataset)
    }

    /// The built-in corpus: the same for everybody, generated in well under a second.
    #[must_use]
    pub fn builtin() -> Self {
        Self::from_corpus(&Corpus::builtin())
    }

    /// A corpus as a data set of characters.
    #[must_use]
    pub fn from_corpus(corpus: &Corpus) -> Self {
        let stream = |split: Split, text: &[u8]| {
            TokenStream::from_memory(&format!("{BUILTIN} {}", split.name()), corpus.tokens(text))
        };
        let (train, val) = (stream(Split::Train, &corpus.train), stream(Split::Val, &corpus.val));
        let characters = corpus.vocabulary.iter().map(|&byte| char::from(byte)).collect();
        let characters = CharTokenizer::new(characters);
        let meta = Meta::new(corpus.vocabulary.len() as u32, characters);
        let (name, folder, floor) = (BUILTIN.to_owned(), PathBuf::new(), Some(corpus.floor));
        let mut dataset = Self { name, folder, train, val, meta: None, floor };
        dataset.set_vocab_size(meta.vocab_size);
        dataset.meta = Some(meta);
        dataset
    }

    /// Its name: the folder's, or `builtin`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder; empty for the built-in data set.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One half's tokens.
    #[must_use]
    pub fn split(&self, split: Split) -> &TokenStream {
        match split {
            Split::Train => &self.train,
            Split::Val => &self.val,
        }
    }

    /// What `meta.pkl` says, if there is one.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// The tokenizer: the characters of `meta.pkl`, or GPT-2's BPE if there is no
    /// `meta.pkl`. `None` if `meta.pkl` gives a size but no characters.
    #[must_use]
    pub fn tokenizer(&self) -> Option<Tokenizer> {
        match &self.meta {
            Some(meta) => meta.characters.clone().map(Tokenizer::Char),
            None => Some(Tokenizer::Gpt2),
        }
    }

    /// The loss that no model can beat on the validation half, in nats per token; known only for
    /// the built-in corpus.
    #[must_use]
    pub fn floor(&self) -> Option<f64> {
        self.floor
    }

    /// From now on, reading an id of `vocab_size` or above is an error, in both halves. `meta.pkl`,
    /// if there is one, sets it.
    pub fn set_vocab_size(&mut self, vocab_size: u32) {
        self.train.set_vocab_size(vocab_size);
        self.val.set_vocab_size(vocab_size);
    }

    /// Checks that both halves are long enough.
    ///
    /// # Errors
    ///
    /// When one is not, with both numbers.
    pub fn check_block_size(&self, block_size: u64) -> Result<(), DataError> {
        self.train.check_block_size(block_size)?;
        self.val.check_block_size(block_size)
    }
}

fn open_split(dir: &Path, split: Split) -> Result<TokenStream, DataError> {
    let single = dir.join(format!("{}.bin", split.name()));
    if is_there(&single) {
        return TokenStream::open(&[single]);
    }
    let shards = if dir.is_dir() { shards(dir, split)? } else { Vec::new() };
    if shards.is_empty() {
        return Err(DataError::Missing {
            dir: dir.to_owned(),
            dir_exists: dir.is_dir(),
            looked_for: split.files(),
            maker: maker(dir),
        });
    }
    TokenStream::open(&shards)
}

/// Whether the name exists, even as a dangling link: only a file that is really absent is optional.
fn is_there(path: &Path) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    let absent = |error: io::Error| matches!(error.kind(), NotFound | NotADirectory);
    !path.symlink_metadata().is_err_and(absent)
}

/// The files `*_train_*.bin` and `*_train.bin`, or likewise for val, by name.
fn shards(dir: &Path, split: Split) -> Result<Vec<PathBuf>, DataError> {
    let (middle, end) = (format!("_{}_", split.name()), format!("_{}.bin", split.name()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(DataError::io(dir, "list it"))? {
        let path = entry.map_err(DataError::io(dir, "list it"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(&end) || name.contains(&middle) && name.ends_with(".bin") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The command that makes the data set. It names a known data set if the folder's name begins with
/// that name, however its words are joined.
fn maker(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let known = DATA_SETS.iter().find(|known| plain(&name).starts_with(&plain(known.name)));
    let source = known.map_or("TEXT", |known| known.name);
    format!("`fitgpt prepare {source} --out {}` makes it", dir.display())
}
