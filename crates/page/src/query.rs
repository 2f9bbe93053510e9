//! Reads the query of an address: `a=1&b=two+words`.

/// Most pairs, and most bytes of all of them.
const MOST_PAIRS: usize = 64;
const MOST_BYTES: usize = 8192;

/// The pairs of a query. What is not valid UTF-8 is replaced; what is too long is left out.
pub fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let query = query.filter(|query| query.len() <= MOST_BYTES).unwrap_or_default();
    let parts = query.split('&').filter(|part| !part.is_empty()).take(MOST_PAIRS);
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    };
    parts.map(pair).collect()
}

/// The last value of this name.
pub fn get<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = |index: usize| bytes.get(index).and_then(|&byte| (byte as char).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((16 * high + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let found = pairs(Some("gpu=RTX+4070%20Ti&n_layer=12&x&=&bad=%zz%f"));
        assert_eq!(get(&found, "gpu"), Some("RTX 4070 Ti"));
        assert_eq!(get(&found, "n_layer"), Some("12"));
        assert_eq!(get(&found, "x"), Some(""));
        assert_eq!(get(&found, "bad"), Some("%zz%f"));
        assert_eq!(get(&found, "none"), None);
        assert!(pairs(None).is_empty());
        assert!(pairs(Some(&"a=1&".repeat(10_000))).is_empty());
        assert_eq!(pairs(Some(&"a=1&".repeat(200))).len(), MOST_PAIRS);
    }
}
