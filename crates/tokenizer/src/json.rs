//! Reads a tokenizer.json of Hugging Face that uses GPT-2's method with another vocabulary:
//! byte-level BPE without normalisation. Anything else is refused, and the error names it.

use crate::added::AddedToken;
use crate::bpe::{Bpe, MOST_IDS, Merge};
use crate::byte_pairs::BytePairs;
use crate::letters;
use pick::{Pick, Scalar, ScalarRef};
use serde_core::de::{IgnoredAny, MapAccess, SeqAccess};
use std::collections::{BTreeMap, HashMap};

/// Most bytes of a tokenizer.json: the largest in use have 35 MiB.
pub const MOST_BYTES: u64 = 128 << 20;
/// Most merges of a tokenizer.json: four for each id that token files can hold.
pub const MOST_MERGES: usize = 4 << 16;

/// Most bytes of an added token. Picked texts are cut at 200.
const MOST_CONTENT: usize = 190;

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

const SETTINGS: [&str; 10] = [
    "type",
    "use_regex",
    "add_prefix_space",
    "content",
    "special",
    "id",
    "single_word",
    "lstrip",
    "rstrip",
    "normalized",
];

impl Settings {
    fn get(&self, name: &str) -> &Scalar {
        let place = SETTINGS.iter().position(|known| *known == name);
        place.map_or(&Scalar::Null, |place| &self.0[place])
    }

    fn is_true(&self, name: &str) -> bool {
        *self.get(name) == Scalar::Bool(true)
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
        if self.ends.len() > MOST_MERGES || self.odd.is_some() {
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
pub fn parse(bytes: &[u8]) -> Result<BytePairs, String> {
    let file: Document = pick::read(bytes)
        .map_err(|error| format!("is not JSON: {error}; give Hugging Face's tokenizer.json"))?;
    check(&file)?;
    let model = &file.model;
    let vocab = model.vocab.as_ref().ok_or("has no model.vocab: it is not a tokenizer.json")?;
    let most = file.added_tokens.0.len().max(vocab.0.len());
    if most > MOST_IDS {
        return Err(format!("has more than {MOST_IDS} tokens, the limit of token files"));
    }
    let mut tokens = Tokens::of(vocab)?;
    let mut added = Vec::new();
    for settings in &file.added_tokens.0 {
        let Some(name) = settings.get("content").text() else { continue };
        added.push(added_token(settings, name, tokens.place(name, settings.get("id").whole())?)?);
    }
    finished(tokens, added, model.merges.as_ref())
}

/// The tokenizer of a `vocab.json` and a `merges.txt`. As in `transformers`, the token that ends a
/// document is special.
pub fn parse_pair(vocab: &[u8], merges: &str) -> Result<BytePairs, String> {
    let vocab: Vocab =
        pick::read(vocab).map_err(|error| format!("vocab.json is not JSON: {error}"))?;
    if vocab.0.len() > MOST_IDS {
        return Err(format!("has more than {MOST_IDS} tokens, the limit of token files"));
    }
    let tokens = Tokens::of(&vocab)?;
    let end = ENDS.iter().find_map(|name| Some((*name, *tokens.ids.get(name)?)));
    let added = end.map(|(name, id)| AddedToken {
        id,
        content: name.into(),
        special: true,
        normalized: false,
        lstrip: false,
        rstrip: false,
    });
    let mut pairs = Merges::default();
    let lines = merges.lines().filter(|line| !line.is_empty() && !line.starts_with("#version"));
    for line in lines.take(MOST_MERGES + 1) {
        match line.split_once(' ') {
            Some((left, right)) => pairs.push(left, right),
            None => return Err(format!("has '{}' among its merges", shown(line))),
        }
    }
    finished(tokens, added.into_iter().collect(), Some(&pairs))
}

/// Puts the parts together.
fn finished(
    tokens: Tokens<'_>,
    added: Vec<AddedToken>,
    found: Option<&Merges>,
) -> Result<BytePairs, String> {
    let merges = merges(found, &tokens.ids)?;
    let mut single = [0; 256];
    for byte in 0..=255 {
        let id = tokens.ids.get(letters::byte_letters(&[byte]).as_str());
        let id = id.ok_or_else(|| format!("has no token for byte {byte}; byte-level is needed"))?;
        single[usize::from(byte)] = *id;
    }
    let end = ENDS.iter().find_map(|name| tokens.ids.get(name));
    let end_of_text = *end.ok_or_else(|| {
        format!("names no token that ends a document (looked for {})", ENDS.join(", "))
    })?;
    let bpe = Bpe::ranked(tokens.pieces, single, &merges);
    Ok(BytePairs::new(bpe, added, end_of_text, tokens.odd_names))
}

/// The tokens that were read so far.
#[derive(Default)]
struct Tokens<'a> {
    ids: HashMap<&'a str, u16>,
    /// Bytes by id.
    pieces: Vec<Vec<u8>>,
    /// Names that are not the letters of their bytes.
    odd_names: BTreeMap<u16, Box<str>>,
    names: HashMap<u16, &'a str>,
}

impl<'a> Tokens<'a> {
    /// Those of a vocabulary.
    fn of(vocab: &'a Vocab) -> Result<Tokens<'a>, String> {
        let mut tokens = Tokens::default();
        for (name, id) in &vocab.0 {
            if tokens.ids.contains_key(&**name) {
                return Err(format!("has token '{}' twice", shown(name)));
            }
            tokens.place(name, *id)?;
        }
        Ok(tokens)
    }

    /// Gives an id to a name. An added token may be in the vocabulary, too.
    fn place(&mut self, name: &'a str, id: Option<u64>) -> Result<u16, String> {
        let id = id.unwrap_or(u64::MAX);
        let small = u16::try_from(id).map_err(|_| {
            let name = shown(name);
            format!("token '{name}' has id {id}, but token files hold ids below {MOST_IDS}")
        })?;
        if let Some(other) = self.names.insert(small, name).filter(|other| *other != name) {
            return Err(format!("gives id {small} to '{}' and '{}'", shown(other), shown(name)));
        }
        if let Some(other) = self.ids.insert(name, small).filter(|other| *other != small) {
            return Err(format!("gives token '{}' the ids {other} and {small}", shown(name)));
        }
        let place = usize::from(small);
        if self.pieces.len() <= place {
            self.pieces.resize(place + 1, Vec::new());
        }
        if letters::bytes(name).is_none_or(|bytes| bytes.is_empty()) {
            self.odd_names.insert(small, name.into());
        }
        self.pieces[place] = letters::decoded(name);
        Ok(small)
    }
}

/// Refuses what is not implemented, and what `prepare` cannot follow: it encodes a long text in
/// parts, which it cuts before white space.
fn added_token(settings: &Settings, content: &str, id: u16) -> Result<AddedToken, String> {
    let refuse = |what: String| Err(format!("has an added token '{}' {what}", shown(content)));
    let special = *settings.get("special") != Scalar::Bool(false);
    let rstrip = settings.is_true("rstrip");
    let mut behind_text = content.trim_start().chars();
    if content.len() > MOST_CONTENT {
        return refuse(format!("of more than {MOST_CONTENT} bytes, which is not supported"));
    }
    if settings.is_true("single_word") {
        return refuse("that must be a single word (single_word): not supported".to_owned());
    }
    if !special && (rstrip || behind_text.any(char::is_whitespace)) {
        return refuse("that is not special and takes white space: not supported".to_owned());
    }
    Ok(AddedToken {
        id,
        content: content.into(),
        special,
        normalized: match settings.get("normalized") {
            Scalar::Bool(normalized) => *normalized,
            _ => !special,
        },
        lstrip: settings.is_true("lstrip"),
        rstrip,
    })
}

/// The first characters of a name, which may have any length.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(60)]
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
    if found.ends.len() > MOST_MERGES {
        let most = MOST_MERGES;
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
        let merge = (id(left)?, id(right)?, id(&found.text[start..end])?);
        // Other names never come from bytes.
        if letters::bytes(&found.text[start..end]).is_some() {
            merges.push(merge);
        }
        start = end;
    }
    Ok(merges)
}
