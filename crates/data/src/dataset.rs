//! A data set in nanoGPT's folder layout (`train.bin`, `val.bin` and optionally `meta.pkl`), as
//! shards, or the built-in one, which needs no folder.

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::known::DATA_SETS;
use crate::meta::Meta;
use crate::regular;
use crate::token_stream::TokenStream;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tokenizer::{CharTokenizer, MOST_KEPT, Tokenizer};

/// The name of a data set's own tokenizer.
const TOKENIZER_FILE: &str = "tokenizer.json";

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
    /// The folder's `tokenizer.json`, or why there is no tokenizer; read on first use.
    json: OnceLock<Result<Tokenizer, String>>,
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
        let json = OnceLock::new();
        let mut dataset = Self { name, folder, train, val, meta, json, floor: None };
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
        let json = OnceLock::new();
        let mut dataset = Self { name, folder, train, val, meta: None, json, floor };
        dataset.set_vocab_size(meta.vocab_size);
        dataset.meta = Some(meta);
        dataset
    }

    /// One stream as the validation half, beside an empty training half.
    #[must_use]
    pub fn of_stream(name: &str, val: TokenStream) -> Self {
        let train = TokenStream::from_memory(name, Vec::new());
        let (name, folder, json) = (name.to_owned(), PathBuf::new(), OnceLock::new());
        Self { name, folder, train, val, meta: None, json, floor: None }
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

    /// The tokenizer: the characters of `meta.pkl`; GPT-2's BPE if there is no `meta.pkl`; the
    /// folder's `tokenizer.json` if `meta.pkl` gives only a size.
    ///
    /// # Errors
    ///
    /// Why ids cannot be turned into text: there is none of these, or it cannot be used.
    pub fn tokenizer(&self) -> Result<Tokenizer, String> {
        match &self.meta {
            None => Ok(Tokenizer::Gpt2),
            Some(Meta { characters: Some(table), .. }) => Ok(Tokenizer::Char(table.clone())),
            Some(meta) => self.json.get_or_init(|| without_characters(meta, &self.folder)).clone(),
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

/// The tokenizer of a data set's folder, which needs no token files for this.
///
/// # Errors
///
/// As [`Dataset::tokenizer`], and when `meta.pkl` cannot be read.
pub fn folder_tokenizer(folder: &Path) -> Result<Tokenizer, String> {
    let path = folder.join("meta.pkl");
    if !is_there(&path) {
        return Ok(Tokenizer::Gpt2);
    }
    match Meta::read(&path).map_err(|error| error.to_string())? {
        Meta { characters: Some(table), .. } => Ok(Tokenizer::Char(table)),
        meta => without_characters(&meta, folder),
    }
}

/// The tokenizer.json of a folder, unless its `meta.pkl` has characters that cannot be used.
fn without_characters(meta: &Meta, folder: &Path) -> Result<Tokenizer, String> {
    match &meta.unusable {
        Some(why) => Err(format!("meta.pkl: {why}")),
        None => read_json(&folder.join(TOKENIZER_FILE), meta.vocab_size),
    }
}

/// Reads the tokenizer of a data set with `vocab_size` rows.
fn read_json(path: &Path, vocab_size: u32) -> Result<Tokenizer, String> {
    if !is_there(path) {
        return Err(format!(
            "meta.pkl has a size but no characters, and there is no {TOKENIZER_FILE}"
        ));
    }
    let mut bytes = Vec::new();
    let mut start = regular::open(path).map_err(|e| e.to_string())?.take(tokenizer::MOST_BYTES + 1);
    start.read_to_end(&mut bytes).map_err(|error| format!("{TOKENIZER_FILE}: {error}"))?;
    if bytes.len() as u64 > tokenizer::MOST_BYTES {
        return Err(format!("{TOKENIZER_FILE} has more than {} bytes", tokenizer::MOST_BYTES));
    }
    let tokenizer =
        Tokenizer::from_json(&bytes).map_err(|what| format!("{TOKENIZER_FILE} {what}"))?;
    let (ids, kept) = (tokenizer.vocab_size(), tokenizer.to_json().map_or(0, str::len));
    if ids > vocab_size {
        return Err(format!("{TOKENIZER_FILE} has {ids} ids, but meta.pkl says {vocab_size}"));
    }
    if kept > MOST_KEPT {
        return Err(format!(
            "{TOKENIZER_FILE} needs {kept} bytes, but checkpoints keep at most {MOST_KEPT}"
        ));
    }
    Ok(tokenizer)
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
