//! The goldens in the tree: a text manifest that says what was computed and with what, and one file
//! of little-endian floats for each case. The position and size of every reading are checked.

use crate::case::Case;
use crate::values::floats;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// First line of a manifest.
const HEADER: &str = "fitgpt golden 1";
/// Name of the manifest.
const MANIFEST: &str = "manifest.txt";

/// All goldens of a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Goldens {
    /// PyTorch's version.
    pub torch: String,
    /// Seed of all inputs.
    pub seed: u64,
    /// The floating-point type in which the reference computed.
    pub precision: String,
    cases: BTreeMap<String, Golden>,
}

/// The golden of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    /// [`Case::fingerprint`] of the case that it was computed for.
    pub fingerprint: u64,
    /// In the order of the readings.
    pub values: Vec<GoldenValue>,
}

/// The golden of a reading.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenValue {
    /// The reading's label.
    pub label: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its elements.
    pub elements: Vec<f32>,
}

/// Why a golden cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoldenError {
    /// A line of the manifest is wrong.
    #[error("{MANIFEST}, line {line}: {problem}")]
    Manifest {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A file cannot be read.
    #[error("{}: {problem}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error message.
        problem: String,
    },
    /// A data file does not have the size that the manifest gives.
    #[error("{case}.bin has {found} bytes, the manifest says {wanted}")]
    Size {
        /// The case.
        case: String,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        wanted: usize,
    },
    /// A case has no golden, or one that was made for something else.
    #[error("the golden of {case} {problem}; run `cargo xtask golden`")]
    Stale {
        /// The case.
        case: String,
        /// What differs.
        problem: &'static str,
    },
}

impl Goldens {
    /// The goldens in this crate's folder. Where tests run far from it, those in the folder
    /// `FITGPT_GOLDENS`.
    pub fn in_tree() -> Result<Goldens, GoldenError> {
        let in_tree = || Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/data");
        Goldens::read(&std::env::var_os("FITGPT_GOLDENS").map_or_else(in_tree, Into::into))
    }

    /// The goldens in a folder.
    pub fn read(folder: &Path) -> Result<Goldens, GoldenError> {
        let open = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path)
                .map_err(|error| GoldenError::File { path, problem: error.to_string() })
        };
        let text = open(MANIFEST)?;
        let mut goldens = Goldens::parse(&String::from_utf8_lossy(&text))?;
        for (name, golden) in &mut goldens.cases {
            golden.fill(name, &open(&format!("{name}.bin"))?)?;
        }
        Ok(goldens)
    }

    /// Parses a manifest. The elements are read later.
    pub fn parse(text: &str) -> Result<Goldens, GoldenError> {
        let mut lines = text.lines().enumerate().map(|(index, text)| Line { at: index + 1, text });
        let mut header = |key: &str| -> Result<(Line<'_>, String), GoldenError> {
            let end = Line { at: 0, text: "" };
            let line = lines.next().unwrap_or(end);
            let rest = line.text.strip_prefix(key).map(|rest| rest.trim().to_string());
            rest.map(|rest| (line, rest))
                .ok_or_else(|| line.refuse(format!("'{key}' was expected, not '{}'", line.text)))
        };
        header(HEADER)?;
        let torch = header("torch ")?.1;
        let (seed_line, seed) = header("seed ")?;
        let seed = seed.parse().map_err(|_| seed_line.refuse("the seed is not a number".into()))?;
        let precision = header("precision ")?.1;
        let mut cases: BTreeMap<String, Golden> = BTreeMap::new();
        let mut current = None;
        for line in lines {
            match line.text.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["case", name, fingerprint] => {
                    let golden = line.case(name, fingerprint)?;
                    if cases.insert((*name).to_string(), golden).is_some() {
                        return Err(line.refuse(format!("case {name} is here twice")));
                    }
                    current = Some((*name).to_string());
                }
                ["value", label, shape, count] => {
                    let value = line.value(label, shape, count)?;
                    let golden = current.as_ref().and_then(|name| cases.get_mut(name));
                    golden
                        .ok_or_else(|| line.refuse("a value before any case".into()))?
                        .values
                        .push(value);
                }
                [] => {}
                _ => return Err(line.refuse(format!("'{}' is not understood", line.text))),
            }
        }
        Ok(Goldens { torch, seed, precision, cases })
    }

    /// The golden of a case, if it was made for exactly this case.
    pub fn of(&self, case: &Case) -> Result<&Golden, GoldenError> {
        let stale = |problem| GoldenError::Stale { case: case.name.clone(), problem };
        let golden = self.cases.get(&case.name).ok_or_else(|| stale("does not exist"))?;
        if golden.fingerprint != case.fingerprint() {
            return Err(stale("was made from other inputs"));
        }
        let same = |(value, reading): (&GoldenValue, _)| {
            let reading: &crate::case::Reading = reading;
            value.label == reading.label && value.shape == case.reading_shape(reading)
        };
        let count = case.readings().count();
        if golden.values.len() != count || !golden.values.iter().zip(case.readings()).all(same) {
            return Err(stale("has other readings"));
        }
        Ok(golden)
    }

    /// Names of all cases that have a golden.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }
}

impl Golden {
    /// Reads the elements of all values from a data file.
    fn fill(&mut self, case: &str, bytes: &[u8]) -> Result<(), GoldenError> {
        let wanted = self.values.iter().map(|value| value.elements.len() * 4).sum();
        if bytes.len() != wanted {
            return Err(GoldenError::Size { case: case.to_string(), found: bytes.len(), wanted });
        }
        let mut rest = bytes;
        for value in &mut self.values {
            let (here, after) = rest.split_at(value.elements.len() * 4);
            value.elements = floats(here);
            rest = after;
        }
        Ok(())
    }
}

/// A line of the manifest and its number.
#[derive(Clone, Copy)]
struct Line<'a> {
    at: usize,
    text: &'a str,
}

/// More elements than all goldens together may have. It limits the memory that a manifest can ask
/// for.
const MOST_ELEMENTS: u64 = 1 << 20;

impl Line<'_> {
    fn refuse(&self, problem: String) -> GoldenError {
        GoldenError::Manifest { line: self.at, problem }
    }

    fn case(&self, name: &str, fingerprint: &str) -> Result<Golden, GoldenError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(plain) {
            return Err(self.refuse(format!("'{name}' is not the name of a case")));
        }
        let fingerprint = u64::from_str_radix(fingerprint, 16)
            .map_err(|_| self.refuse(format!("'{fingerprint}' is not a fingerprint")))?;
        Ok(Golden { fingerprint, values: Vec::new() })
    }

    fn value(&self, label: &str, shape: &str, count: &str) -> Result<GoldenValue, GoldenError> {
        let dims = shape.split('x').map(str::parse).collect::<Result<Vec<u64>, _>>();
        let dims = dims.map_err(|_| self.refuse(format!("'{shape}' is not a shape")))?;
        let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        let elements = elements.filter(|&elements| (1..=MOST_ELEMENTS).contains(&elements));
        if elements.is_none() || elements != count.parse().ok() {
            return Err(self.refuse(format!("{shape} does not make {count} elements")));
        }
        let elements = vec![0.0; elements.unwrap_or(0) as usize];
        Ok(GoldenValue { label: label.to_string(), shape: dims, elements })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "fitgpt golden 1\ntorch 2.11.0\nseed 7\nprecision float64\n\
                        case a_1 00ff\nvalue out 2x3 6\nvalue loss 1 1\n\ncase b 1\n";

    #[test]
    fn a_manifest_is_read() {
        let goldens = Goldens::parse(GOOD).unwrap();
        assert_eq!((goldens.torch.as_str(), goldens.seed), ("2.11.0", 7));
        assert_eq!(goldens.names().collect::<Vec<_>>(), ["a_1", "b"]);
        let golden = &goldens.cases["a_1"];
        assert_eq!(golden.fingerprint, 255);
        assert_eq!(golden.values[0].shape, [2, 3]);
        assert_eq!(golden.values[1].elements.len(), 1);
    }

    #[test]
    fn malformed_manifests_name_their_line() {
        let huge = format!("value out {0}x{0}x{0} 1", u64::MAX);
        for (old, new, want) in [
            (GOOD, "", "line 0: 'fitgpt golden 1' was expected"),
            ("fitgpt golden 1", "fitgpt golden 2", "line 1: 'fitgpt golden 1' was expected"),
            ("torch ", "tensorflow ", "line 2: 'torch ' was expected"),
            ("seed 7", "seed seven", "line 3: the seed is not a number"),
            ("case a_1 00ff", "case ../a 00ff", "line 5: '../a' is not the name"),
            ("case a_1 00ff", "case a_1 00fg", "line 5: '00fg' is not a fingerprint"),
            ("case a_1 00ff", "", "line 6: a value before any case"),
            ("value out 2x3 6", "value out 2x3 7", "line 6: 2x3 does not make 7 elements"),
            ("value out 2x3 6", "value out 2x 2", "line 6: '2x' is not a shape"),
            ("value out 2x3 6", "value out 0 0", "line 6: 0 does not make 0 elements"),
            ("value out 2x3 6", &huge, "line 6: 18446744073709551615x"),
            ("value loss 1 1", "value loss 1", "line 7: 'value loss 1' is not understood"),
            ("case b 1", "case a_1 1", "line 9: case a_1 is here twice"),
        ] {
            let error = Goldens::parse(&GOOD.replace(old, new)).unwrap_err().to_string();
            assert!(error.contains(want), "{new}: {error}");
        }
    }

    #[test]
    fn data_of_the_wrong_size_is_refused() {
        let mut goldens = Goldens::parse(GOOD).unwrap();
        let golden = goldens.cases.get_mut("a_1").unwrap();
        let bytes: Vec<u8> = (0..7).flat_map(|v| (v as f32).to_le_bytes()).collect();
        golden.fill("a_1", &bytes).unwrap();
        assert_eq!(golden.values[0].elements, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(golden.values[1].elements, [6.0]);
        for wrong in [&bytes[..27], &bytes[..24], &[]] {
            let error = golden.fill("a_1", wrong).unwrap_err().to_string();
            assert!(error.ends_with("bytes, the manifest says 28"), "{error}");
        }
    }

    #[test]
    fn a_folder_without_goldens_is_an_error() {
        let error = Goldens::read(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/folder/manifest.txt: "), "{error}");
    }
}
