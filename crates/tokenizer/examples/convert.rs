//! Converts standard input to standard output, for comparisons with other tokenizers
//! (`tests/peers/unicode_text.py`): `convert gpt2|TOKENIZER.JSON encode|ordinary|decode|json`.
//! Ids are 16-bit, little-endian; `ordinary` is `encode` without special tokens.

use fitgpt_tokenizer::Tokenizer;
use std::io::{Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("convert gpt2|FILE encode|ordinary|decode|json");
    let (vocabulary, action) = (next()?, next()?);
    let tokenizer = match vocabulary.as_str() {
        "gpt2" => Tokenizer::Gpt2,
        path => Tokenizer::from_json(&std::fs::read(path)?)?,
    };
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let output = match action.as_str() {
        "encode" => {
            let ids = tokenizer.encode(std::str::from_utf8(&input)?)?;
            ids.iter().flat_map(|id| (*id as u16).to_le_bytes()).collect()
        }
        "ordinary" => {
            let mut ids = Vec::new();
            let known = tokenizer.encoder().encode(std::str::from_utf8(&input)?, &mut ids);
            known.map_err(|character| format!("{character:?}"))?;
            ids.iter().flat_map(|id| id.to_le_bytes()).collect()
        }
        "decode" => {
            let ids = input.chunks_exact(2).map(|id| i32::from(u16::from_le_bytes([id[0], id[1]])));
            tokenizer.decode(&ids.collect::<Vec<_>>()).into_bytes()
        }
        "json" => tokenizer.to_json().unwrap_or_default().as_bytes().to_vec(),
        other => return Err(format!("no action is called '{other}'").into()),
    };
    std::io::stdout().write_all(&output)?;
    Ok(())
}
