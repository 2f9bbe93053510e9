//! Host values of tensors, and where the inputs of cases come from: each input has its own keyed
//! stream, so that no input depends on which others exist.

use plan::Dtype;
use plan::fnv::Fnv;
use rng::{Purpose, Stream};

/// The seed of all inputs; recorded with the goldens.
pub const SEED: u64 = 20_260_607;

/// The content of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floats.
    F32(Vec<f32>),
    /// Token ids and targets.
    I32(Vec<i32>),
    /// The step state.
    U32(Vec<u32>),
}

impl Values {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Values::F32(_) => Dtype::F32,
            Values::I32(_) => Dtype::I32,
            Values::U32(_) => Dtype::U32,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::I32(values) => values.len(),
            Values::U32(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Little-endian bytes, as a backend takes them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::I32(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::U32(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}

/// Little-endian floats from a backend or a file. A tail of fewer than four bytes is ignored.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

/// The random stream of one input of one case.
pub fn stream(case: &str, input: &str) -> Stream {
    let mut hash = Fnv::seeded(0);
    hash.add(case);
    hash.add("/");
    hash.add(input);
    Stream::new(SEED, Purpose::Init, hash.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_its_own_draws() {
        let first = |case, input| stream(case, input).next_u64();
        assert_eq!(first("linear", "x"), first("linear", "x"));
        assert_ne!(first("linear", "x"), first("linear", "w"));
        assert_ne!(first("linear", "x"), first("gelu", "x"));
        assert_ne!(first("a", "b/c"), first("b", "a/c"));
    }

    /// Pinned, because other draws would make every golden in the tree stale.
    #[test]
    fn the_first_draws_are_pinned() {
        let mut stream = stream("linear_bias", "x");
        let draws: [u32; 3] = std::array::from_fn(|_| stream.next_u32());
        assert_eq!(draws, [2402987858, 2656548098, 3181209614]);
    }

    #[test]
    fn bytes_are_little_endian() {
        let values = Values::F32(vec![1.0, -2.5]);
        assert_eq!(floats(&values.to_bytes()), [1.0, -2.5]);
        assert_eq!(Values::I32(vec![-1]).to_bytes(), [255; 4]);
        assert_eq!(Values::U32(vec![1, 2]).to_bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(floats(&[0, 0, 128, 63, 9]), [1.0]);
    }
}
