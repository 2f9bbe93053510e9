//! `meta.pkl`, nanoGPT's description of a data set: `vocab_size`, and for character models `itos`
//! and `stoi`, which must agree with each other.

use crate::error::DataError;
use crate::regular;
use pickle::Value;
use std::io::Read;
use std::path::Path;
use tokenizer::CharTokenizer;

/// Most bytes of a file: 65,536 characters, twice, take less than a tenth.
const MOST_BYTES: u64 = 32 << 20;

/// Largest vocabulary that 16-bit tokens can use.
const MOST_IDS: i64 = 1 << 16;

/// What a `meta.pkl` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Rows of the embedding.
    pub vocab_size: u32,
    /// The characters; `None` if the file gives only a size.
    pub characters: Option<CharTokenizer>,
    /// Why the file's tables cannot be used, if it has some. As in nanoGPT, training needs only the
    /// size, but ids cannot be decoded to text.
    pub unusable: Option<String>,
}

impl Meta {
    /// A vocabulary of `vocab_size` rows, with its characters if known.
    #[must_use]
    pub fn new(vocab_size: u32, characters: Option<CharTokenizer>) -> Self {
        Self { vocab_size, characters, unusable: None }
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is not a pickle of plain values, or contradicts itself.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let mut bytes = Vec::new();
        let mut start = regular::open(path)?.take(MOST_BYTES + 1);
        start.read_to_end(&mut bytes).map_err(DataError::io(path, "read it"))?;
        if bytes.len() as u64 > MOST_BYTES {
            let what = format!("it has more than {MOST_BYTES} bytes, so it is not a meta.pkl");
            return Err(DataError::Meta { path: path.to_owned(), what });
        }
        Self::parse(&bytes, path)
    }

    /// Reads the file's bytes; `path` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Meta::read`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, DataError> {
        let value = pickle::parse(bytes)
            .map_err(|source| DataError::MetaPickle { path: path.to_owned(), source })?;
        from_value(&value).map_err(|what| DataError::Meta { path: path.to_owned(), what })
    }

    /// The file's bytes, for Python and for [`Meta::parse`].
    #[must_use]
    pub fn to_pickle(&self) -> Vec<u8> {
        let text = |t: &str| Value::Str(t.to_owned());
        let mut entries = vec![(text("vocab_size"), Value::Int(self.vocab_size.into()))];
        if let Some(table) = &self.characters {
            let pairs = || (0..).zip(table.characters()).map(|(id, c)| (Value::Int(id), c));
            let itos = pairs().map(|(id, c)| (id, Value::Str(c.to_string()))).collect();
            let stoi = pairs().map(|(id, c)| (Value::Str(c.to_string()), id)).collect();
            entries.push((text("itos"), Value::Dict(itos)));
            entries.push((text("stoi"), Value::Dict(stoi)));
        }
        pickle::write(&Value::Dict(entries))
    }
}

fn from_value(value: &Value) -> Result<Meta, String> {
    if value.as_dict().is_none() {
        return Err(format!("it holds a {}, not a dict", value.type_name()));
    }
    let size = value.get("vocab_size").ok_or("it has no 'vocab_size'")?;
    let size = size.as_int().ok_or_else(|| format!("vocab_size is a {}", size.type_name()))?;
    if !(1..=MOST_IDS).contains(&size) {
        return Err(format!("vocab_size is {size}, but 16-bit tokens allow 1 to {MOST_IDS}"));
    }
    let found = match (value.get("itos"), value.get("stoi")) {
        (None, None) => Ok(None),
        (Some(itos), Some(stoi)) => characters(itos, stoi, size).map(Some),
        (Some(_), None) => Err("it has 'itos' but no 'stoi'".to_owned()),
        (None, Some(_)) => Err("it has 'stoi' but no 'itos'".to_owned()),
    };
    let (characters, unusable) = match found {
        Ok(characters) => (characters, None),
        Err(why) => (None, Some(why)),
    };
    Ok(Meta { vocab_size: size as u32, characters, unusable })
}

fn characters(itos: &Value, stoi: &Value, size: i64) -> Result<CharTokenizer, String> {
    let itos = itos.as_dict().ok_or_else(|| format!("itos is a {}", itos.type_name()))?;
    let stoi = stoi.as_dict().ok_or_else(|| format!("stoi is a {}", stoi.type_name()))?;
    let (count, back) = (itos.len(), stoi.len());
    if count as i64 > size || count != back {
        return Err(format!("itos has {count} entries and stoi {back}, but vocab_size is {size}"));
    }
    let size = count as i64; // a vocabulary may have more rows than characters
    let mut table = vec![None; size as usize];
    for (id, character) in itos {
        let (id, character) = entry("itos", id, character, size)?;
        if let Some(before) = table[id].replace(character) {
            return Err(format!("itos gives id {id} to {before:?} and {character:?}"));
        }
    }
    let mut seen = vec![false; size as usize];
    for (character, id) in stoi {
        let (id, character) = entry("stoi", id, character, size)?;
        if std::mem::replace(&mut seen[id], true) {
            return Err(format!("stoi gives id {id} twice"));
        }
        if table[id] != Some(character) {
            let other = table[id];
            return Err(format!(
                "stoi gives id {id} to {character:?}, but itos gives it to {other:?}"
            ));
        }
    }
    // There are as many ids as entries and no duplicates, so every entry is filled.
    let table = table.into_iter().flatten().collect();
    CharTokenizer::new(table).ok_or_else(|| "itos names a character twice".to_owned())
}

fn entry(name: &str, id: &Value, text: &Value, size: i64) -> Result<(usize, char), String> {
    let place = id.as_int().filter(|id| (0..size).contains(id));
    let place =
        place.ok_or_else(|| format!("{name} has {} instead of an id below {size}", shown(id)));
    let mut letters = text.as_str().unwrap_or_default().chars();
    let (Some(character), None) = (letters.next(), letters.next()) else {
        return Err(format!("{name} has {} instead of one character", shown(text)));
    };
    Ok((place? as usize, character))
}

/// A value as a message shows it, shortened if it is long.
fn shown(value: &Value) -> String {
    let text = match (value.as_str(), value.as_int()) {
        (Some(text), _) => format!("'{text}'"),
        (_, Some(number)) => number.to_string(),
        _ => format!("a {}", value.type_name()),
    };
    text.chars().take(60).collect()
}
