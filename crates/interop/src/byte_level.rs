//! Byte-level BPE as Hugging Face and llama.cpp write it: each byte of a token is shown as one
//! printable character, and merges are pairs of such texts.

use tokenizer::{BytePairs, byte_letters};

/// The text of GPT-2's only special token.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";

/// The tokens of a vocabulary by id, and the merges by rank, as texts. Unused ids have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    pub tokens: Vec<String>,
    pub merges: Vec<(String, String)>,
}

impl Tables {
    pub fn of(pairs: &BytePairs) -> Tables {
        let ids = (0..=u16::MAX).take(pairs.vocab_size() as usize);
        let merges = pairs.merges().into_iter();
        Tables {
            tokens: ids.map(|id| pairs.name(id)).collect(),
            merges: merges.map(|(left, right, _)| (pairs.name(left), pairs.name(right))).collect(),
        }
    }
}

/// Merges that join the bytes of characters, for a vocabulary with one token per character. A pair
/// begins with the first byte of a character and goes on with a later one, so no merge reaches
/// across characters. ASCII needs none.
pub(crate) fn character_merges(characters: &[char]) -> Vec<(String, String)> {
    let mut merges = Vec::new();
    for length in 1..4 {
        let mut buffer = [0; 4];
        for character in characters {
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            if let (Some(left), Some(&right)) = (bytes.get(..length), bytes.get(length)) {
                let merge = (byte_letters(left), byte_letters(&[right]));
                merges.push(merge);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    merges.retain(|merge| seen.insert(merge.clone()));
    merges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpt2_has_its_known_tokens_and_merges() {
        let gpt2 = tokenizer::Tokenizer::Gpt2;
        let Tables { tokens, merges } = Tables::of(gpt2.byte_pairs().unwrap());
        assert_eq!((tokens.len(), merges.len()), (50_257, 50_000));
        for (id, token) in [(0, "!"), (198, "Ċ"), (220, "Ġ"), (256, "Ġt"), (262, "Ġthe")] {
            assert_eq!(tokens[id], token);
        }
        let pair = |rank: usize| (merges[rank].0.as_str(), merges[rank].1.as_str());
        assert_eq!([pair(0), pair(1), pair(6)], [("Ġ", "t"), ("Ġ", "a"), ("Ġt", "he")]);
        // A merge's rank is the id of what it makes.
        for (rank, (left, right)) in merges.iter().enumerate() {
            assert_eq!(format!("{left}{right}"), tokens[256 + rank]);
        }
    }

    #[test]
    fn only_characters_of_several_bytes_need_merges() {
        assert_eq!(character_merges(&['a', '\n', ' ']), []);
        let merges = character_merges(&['é', 'è', '—', '–', '🦀']);
        let joined: Vec<String> = merges.iter().map(|(l, r)| format!("{l}|{r}")).collect();
        let want = ["Ã|©", "Ã|¨", "â|Ģ", "ð|Ł", "âĢ|Ķ", "âĢ|ĵ", "ðŁ|¦", "ðŁ¦|Ģ"];
        assert_eq!(joined, want);
    }
}
