//! What a checkpoint stores about a tensor: name, element type and shape, from which its size
//! follows.

/// Element types that checkpoints hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// bfloat16: the upper half of a 32-bit float.
    BF16,
    /// IEEE 16-bit float.
    F16,
    /// 32-bit integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// Unsigned byte.
    U8,
    /// 64-bit integer.
    I64,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Dtype; 7] =
        [Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::I32, Dtype::U32, Dtype::U8, Dtype::I64];

    /// The name that safetensors uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::BF16 => "BF16",
            Dtype::F16 => "F16",
            Dtype::I32 => "I32",
            Dtype::U32 => "U32",
            Dtype::U8 => "U8",
            Dtype::I64 => "I64",
        }
    }

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::U8 => 1,
            Dtype::BF16 | Dtype::F16 => 2,
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::I64 => 8,
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

/// A tensor of a checkpoint, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// Type of its elements, which are little-endian.
    pub dtype: Dtype,
    /// Its dimensions, the slowest-varying first; empty for a scalar.
    pub shape: Vec<u64>,
}

impl TensorInfo {
    /// A tensor of this name, type and shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: &[u64]) -> TensorInfo {
        TensorInfo { name: name.into(), dtype, shape: shape.to_vec() }
    }

    /// Its size in bytes; `None` if that exceeds 64 bits.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.bytes(), |bytes, &extent| bytes.checked_mul(extent))
    }
}

/// Size of the largest tensor, which is the buffer that [`save`](crate::save()) needs. `None` if a
/// size exceeds 64 bits.
#[must_use]
pub fn largest_bytes(tensors: &[TensorInfo]) -> Option<u64> {
    tensors.iter().try_fold(0, |largest, tensor| Some(tensor.bytes()?.max(largest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        for (dtype, shape, want) in [
            (Dtype::F32, &[] as &[u64], Some(4)),
            (Dtype::BF16, &[3, 5], Some(30)),
            (Dtype::U8, &[7, 0], Some(0)),
            (Dtype::I64, &[1 << 60], Some(1 << 63)),
            (Dtype::I64, &[1 << 61], None),
            (Dtype::U8, &[1 << 32, 1 << 32, 0], None),
        ] {
            assert_eq!(TensorInfo::new("x", dtype, shape).bytes(), want, "{dtype:?} {shape:?}");
        }
    }

    #[test]
    fn names_lead_back() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(Dtype::from_name("F64"), None);
    }

    #[test]
    fn the_largest_decides() {
        let tensor = |extent| TensorInfo::new("x", Dtype::F32, &[extent]);
        assert_eq!(largest_bytes(&[tensor(2), tensor(9), tensor(0)]), Some(36));
        assert_eq!(largest_bytes(&[]), Some(0));
        assert_eq!(largest_bytes(&[tensor(2), tensor(u64::MAX)]), None);
    }
}
