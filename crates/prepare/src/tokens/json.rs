//! Reads a tokenizer.json of Hugging Face that uses GPT-2's method with another vocabulary:
//! byte-level BPE without normalisation. Anything else is refused, and the error names it.

use super::Tokens;
use super::bpe::{Bpe, MOST_IDS, Merge};
use crate::limits;
use data::Meta;
use pick::{Pick, Scalar, ScalarRef};
use serde_core::de::{IgnoredAny, MapAccess, SeqAccess};
use std::collections::HashMap;

/// Names of the token that ends a document, in the order they are tried.
const ENDS: [&str; 5] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|end▁of▁sentence|>"];

/// The parts of the file that are kept.
#[derive(Default)]
struct Document {
    normalizer: Scalar,
    pre_tokenizer: Settings,
    added_tokens: List<Settings>,
    model: Model,
}

impl Pick for Document {
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "normalizer" => self.normalizer = pick::value(map)?,
            "pre_tokenizer" => self.pre_tokenizer = pick::value(map)?,
            "added_tokens" => self.added_tokens = pick::value(map)?,
            "model" => self.model = pick::value(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The known strings and numbers of an object.
#[derive(Default)]
struct Settings([Scalar; SETTINGS.len()]);

const SETTINGS: [&str; 6] = ["type", "use_regex", "add_prefix_space", "content", "special", "id"];

impl Settings {
    fn get(&self, name: &str) -> &Scalar {
        let place = SETTINGS.iter().position(|known| *known == name);
        place.map_or(&Scalar::Null, |place| &self.0[place])
    }
}

impl Pick for Settings {
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match SETTINGS.iter().position(|known| *known == name) {
            Some(place) => self.0[place] = pick::value(map)?,
            None => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The first elements of a list, up to one more than the number of possible ids.
struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T: Pick> Pick for List<T> {
    fn element<'de, S: SeqAccess<'de>>(&mut self, list: &mut S) -> Result<Option<()>, S::Error> {
        if self.0.len() > MOST_IDS {
            return Ok(list.next_element::<IgnoredAny>()?.map(drop));
        }
        let element = pick::element(list)?;
        Ok(element.map(|element| self.0.push(element)))
    }
}

/// Options of a model that would change ids.
const SWITCHES: [&str; 4] = ["dropout", "byte_fallback", "ignore_merges", "fuse_unk"];
/// Affixes that other kinds of BPE put around words.
const AFFIXES: [&str; 2] = ["continuing_subword_prefix", "end_of_word_suffix"];

#[derive(Default)]
struct Model {
    kind: Scalar,
    switches: [Scalar; SWITCHES.len()],
    affixes: [Scalar; AFFIXES.len()],
    vocab: Option<Vocab>,
    merges: Option<Merges>,
}

impl Pick for Model {
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let place = |names: &[&str]| names.iter().position(|known| *known == name);
        match (name, place(&SWITCHES), place(&AFFIXES)) {
            ("type", ..) => self.kind = pick::value(map)?,
            ("vocab", ..) => self.vocab = Some(pick::value(map)?),
            ("merges", ..) => self.merges = Some(pick::value(map)?),
            (_, Some(switch), _) => self.switches[switch] = pick::value(map)?,
            (_, _, Some(affix)) => self.affixes[affix] = pick::value(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Tokens with their ids, up to one more than the number of possible ids.
#[derive(Default)]
struct Vocab(Vec<(Box<str>, Option<u64>)>);

impl Pick for Vocab {
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let id: Scalar = pick::value(map)?;
        if self.0.len() <= MOST_IDS {
            self.0.push((name.into(), id.whole()));
        }
        Ok(())
    }
}

/// Pairs by rank, stored as one text, because they may come before the vocabulary that gives them
/// ids.
#[derive(Default)]
struct Merges {
    text: String,
    /// Where the left and the right part of each pair end.
    ends: Vec<(usize, usize)>,
    /// The first element that is not a pair.
    odd: Option<String>,
}

impl Pick for Merges {
    fn element<'de, S: SeqAccess<'de>>(&mut self, list: &mut S) -> Result<Option<()>, S::Error> {
        if self.ends.len() > limits::MERGES || self.odd.is_some() {
            return Ok(list.next_element::<IgnoredAny>()?.map(drop));
        }
        let Some(pair) = pick::element::<Pair, S>(list)? else {
            return Ok(None);
        };
        match &pair.0[..] {
            [one] => match one.split_once(' ') {
                Some((left, right)) => self.push(left, right),
                None => self.odd = Some(format!("'{one}'")),
            },
            [left, right] => self.push(left, right),
            _ => self.odd = Some("something that is not a pair".to_owned()),
        }
        Ok(Some(()))
    }
}

impl Merges {
    fn push(&mut self, left: &str, right: &str) {
        self.text.push_str(left);
        let middle = self.text.len();
        self.text.push_str(right);
        self.ends.push((middle, self.text.len()));
    }
}

/// One string with a space in it, or two strings.
#[derive(Default)]
struct Pair(Vec<String>);

impl Pick for Pair {
    fn element<'de, S: SeqAccess<'de>>(&mut self, list: &mut S) -> Result<Option<()>, S::Error> {
        if self.0.len() > 2 {
            return Ok(list.next_element::<IgnoredAny>()?.map(drop));
        }
        let part = pick::element::<Pair, S>(list)?;
        Ok(part.map(|part| self.0.push(part.0.concat())))
    }

    fn scalar(&mut self, found: ScalarRef<'_>) {
        if let ScalarRef::Text(text) = found {
            self.0.push(text.to_owned());
        }
    }
}

/// The file's tokenizer.
pub fn parse(bytes: &[u8]) -> Result<Tokens, String> {
    let file: Document = pick::read(bytes)
        .map_err(|error| format!("is not JSON: {error}; give Hugging Face's tokenizer.json"))?;
    check(&file)?;
    let model = &file.model;
    let vocab = model.vocab.as_ref().ok_or("has no model.vocab: it is not a tokenizer.json")?;
    let most = file.added_tokens.0.len().max(vocab.0.len());
    if most > MOST_IDS {
        return Err(format!("has more than {MOST_IDS} tokens, the limit of token files"));
    }
    let letters = byte_letters();
    let mut ids: HashMap<&str, u16> = HashMap::new();
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut place = |name: &str, id: Option<u64>, piece: Vec<u8>| -> Result<u16, String> {
        let id = id.unwrap_or(u64::MAX);
        let small = u16::try_from(id).map_err(|_| {
            let name = shown(name);
            format!("token '{name}' has id {id}, but token files hold ids below {MOST_IDS}")
        })?;
        if pieces.len() <= usize::from(small) {
            pieces.resize(usize::from(small) + 1, Vec::new());
        }
        pieces[usize::from(small)] = piece;
        Ok(small)
    };
    for (name, id) in &vocab.0 {
        let piece = name.chars().map(|c| letters.get(&c).copied()).collect::<Option<Vec<u8>>>();
        // Special tokens in the vocabulary are not made of byte letters and have no text.
        ids.insert(name, place(name, *id, piece.unwrap_or_default())?);
    }
    for token in &file.added_tokens.0 {
        let Some(name) = token.get("content").text() else { continue };
        // Such a token is matched before pre-tokenization, which would give other ids than ours.
        if *token.get("special") == Scalar::Bool(false) {
            return Err(format!(
                "has an added token '{name}' that is not special; only special ones are supported"
            ));
        }
        let id = place(name, token.get("id").whole(), Vec::new())?;
        ends_insert(&mut ids, name, id);
    }
    let merges = merges(model.merges.as_ref(), &ids)?;
    let mut single = [0; 256];
    for (letter, byte) in &letters {
        let id = ids.get(letter.to_string().as_str());
        let id = id.ok_or_else(|| format!("has no token for byte {byte}; byte-level is needed"))?;
        single[usize::from(*byte)] = *id;
    }
    let end = ENDS.iter().find_map(|name| ids.get(name));
    let end_of_text = *end.ok_or_else(|| {
        format!("names no token that ends a document (looked for {})", ENDS.join(", "))
    })?;
    let meta = Some(Meta::new(pieces.len() as u32, None));
    let bpe = Box::new(Bpe::ranked(pieces, single, &merges));
    Ok(Tokens::Bpe { bpe, end_of_text, meta })
}

/// The first characters of a name, which may have any length.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(60)]
}

/// Inserts `name` only if it equals one of the constants in [`ENDS`].
fn ends_insert(ids: &mut HashMap<&str, u16>, name: &str, id: u16) {
    if let Some(known) = ENDS.iter().find(|known| **known == name) {
        ids.insert(known, id);
    }
}

/// Refuses settings that would change ids and are not implemented here.
fn check(file: &Document) -> Result<(), String> {
    let model = &file.model;
    let kind = model.kind.text().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(format!("is a {kind} tokenizer; only byte-level BPE is supported"));
    }
    if file.normalizer != Scalar::Null {
        return Err("normalises text before encoding, which is not supported".to_owned());
    }
    for (switch, value) in SWITCHES.iter().zip(&model.switches) {
        let is_on = match value {
            Scalar::Bool(value) => *value,
            Scalar::Whole(number) => *number > 0,
            Scalar::Number(number) => *number > 0.0,
            _ => false,
        };
        if is_on {
            return Err(format!("sets model.{switch}, which is not supported"));
        }
    }
    for (affix, value) in AFFIXES.iter().zip(&model.affixes) {
        if value.text().is_some_and(|text| !text.is_empty()) {
            return Err(format!("sets model.{affix}: it is not byte-level"));
        }
    }
    let before = &file.pre_tokenizer;
    if before.get("type").text() != Some("ByteLevel") {
        let kind = before.get("type").text().unwrap_or("none");
        return Err(format!("splits words with '{kind}'; only 'ByteLevel' (GPT-2's) is supported"));
    }
    if *before.get("use_regex") == Scalar::Bool(false) {
        return Err("does not split words (use_regex false), which is not supported".to_owned());
    }
    if *before.get("add_prefix_space") == Scalar::Bool(true) {
        return Err("adds a space before each text (add_prefix_space): not supported".into());
    }
    Ok(())
}

/// Pairs with their ids, by rank.
fn merges(found: Option<&Merges>, ids: &HashMap<&str, u16>) -> Result<Vec<Merge>, String> {
    let found = found.ok_or("has no model.merges")?;
    if let Some(odd) = &found.odd {
        return Err(format!("has {} among its merges", shown(odd)));
    }
    if found.ends.len() > limits::MERGES {
        let most = limits::MERGES;
        return Err(format!("has more than {most} merges, too many for {MOST_IDS} tokens"));
    }
    let id = |name: &str| {
        let id = ids.get(name).copied();
        id.ok_or_else(|| format!("merges '{}', which has no id", shown(name)))
    };
    let mut merges = Vec::with_capacity(found.ends.len());
    let mut start = 0;
    for &(middle, end) in &found.ends {
        let (left, right) = (&found.text[start..middle], &found.text[middle..end]);
        merges.push((id(left)?, id(right)?, id(&found.text[start..end])?));
        start = end;
    }
    Ok(merges)
}

/// The letter that represents each byte in such files: a printable byte represents itself, the
/// others start at U+0100.
fn byte_letters() -> HashMap<char, u8> {
    let mut others = 0x100..;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next().and_then(char::from_u32),
    };
    let letters: Vec<Option<char>> = (0..=255).map(letter).collect();
    letters.into_iter().zip(0..=255).filter_map(|(letter, byte)| Some((letter?, byte))).collect()
}
