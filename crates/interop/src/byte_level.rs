//! Byte-level BPE as Hugging Face and llama.cpp write it: each byte of a token is shown as one
//! printable character, and merges are pairs of such texts. GPT-2's own tables are derived from the
//! tokens' bytes: a token's id is the rank of the merge that makes it.

use std::collections::HashMap;
use std::sync::OnceLock;

/// The text of GPT-2's only special token.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";

/// The id of [`END_OF_TEXT`] in GPT-2's vocabulary.
pub(crate) const GPT2_END: u32 = 50_256;

/// The character that stands for a byte. Printable characters of Latin-1 stand for themselves, the
/// other bytes for the characters from U+0100 on.
pub(crate) fn character(byte: u8) -> char {
    static TABLE: OnceLock<[char; 256]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut next = 0x100;
        std::array::from_fn(|byte| match byte as u8 {
            shown @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(shown),
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap_or_default()
            }
        })
    })[usize::from(byte)]
}

/// A token's bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| character(byte)).collect()
}

/// The tokens of a vocabulary by id, and the merges by rank, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    pub tokens: Vec<String>,
    pub merges: Vec<(String, String)>,
}

/// GPT-2's tables, without its special token.
pub(crate) fn gpt2() -> Tables {
    let bpe = tiktoken::encoding::gpt2();
    let tokens: Vec<Vec<u8>> = (0..GPT2_END).map(|id| bpe.decode(&[id])).collect();
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (&token[..], rank)).collect();
    let merges = tokens.iter().enumerate().filter(|(_, token)| token.len() > 1);
    let merges = merges.filter_map(|(rank, token)| {
        let (left, right) = token.split_at(last_merge(token, rank, &ranks)?);
        Some((text(left), text(right)))
    });
    Tables { merges: merges.collect(), tokens: tokens.iter().map(|token| text(token)).collect() }
}

/// Where the last merge that makes a token joins it: merges all pairs of a lower rank, as encoding
/// does, until two parts are left.
fn last_merge(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<usize> {
    let mut starts: Vec<usize> = (0..=token.len()).collect();
    while starts.len() > 3 {
        let rank_at = |at: usize| {
            let joined = ranks.get(&token[starts[at]..starts[at + 2]]);
            joined.filter(|&&found| found < rank).copied()
        };
        let pairs = (0..starts.len() - 2).filter_map(|at| Some((rank_at(at)?, at)));
        let (_, at) = pairs.min()?;
        starts.remove(at + 1);
    }
    starts.get(1).copied()
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
                let merge = (text(left), text(&[right]));
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
    fn bytes_have_printable_characters_of_their_own() {
        let all: std::collections::BTreeSet<char> = (0..=255).map(character).collect();
        assert_eq!(all.len(), 256);
        assert!(all.iter().all(|c| !c.is_whitespace() && !c.is_control()));
        assert_eq!(text(b"a b\n\xc3\xa9"), "aĠbĊÃ©");
        assert_eq!((character(0), character(0xad)), ('Ā', 'Ń'));
    }

    #[test]
    fn gpt2_has_its_known_tokens_and_merges() {
        let Tables { tokens, merges } = gpt2();
        assert_eq!((tokens.len(), merges.len()), (50_256, 50_000));
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
