//! A model whose weights are rounded while they are read. Moments and the step state stay as they
//! are.

use crate::export::{ExportError, Precision};
use crate::number;
use checkpoint::{Dtype, TensorInfo, TensorSource};

/// A source whose weights have another number format.
pub(crate) struct Rounded<'a> {
    inner: &'a dyn TensorSource,
    tensors: Vec<TensorInfo>,
    precision: Precision,
}

impl<'a> Rounded<'a> {
    pub fn new(inner: &'a dyn TensorSource, precision: Precision) -> Rounded<'a> {
        let mut tensors = inner.tensors().to_vec();
        for tensor in tensors.iter_mut().filter(|tensor| tensor.name.starts_with("weights/")) {
            if number::is_weight_type(tensor.dtype) {
                tensor.dtype = precision.dtype();
            }
        }
        Rounded { inner, tensors, precision }
    }

    /// All tensors.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Reads a tensor, rounded.
    pub fn fill(&self, index: usize, content: &mut [u8]) -> Result<(), ExportError> {
        let (from, to) = match (self.inner.tensors().get(index), self.tensors.get(index)) {
            (Some(from), Some(to)) if from.dtype != to.dtype => (from, to),
            _ => return Ok(self.inner.read(index, content)?),
        };
        let mut whole = vec![0; from.bytes().map_or(0, |bytes| bytes as usize)];
        self.inner.read(index, &mut whole)?;
        let elements = content.len() / to.dtype.bytes() as usize;
        for element in 0..elements {
            let value = number::at(from.dtype, &whole, element);
            if !number::put(to.dtype, content, element, value) {
                let advice = if to.dtype == Dtype::F16 { "bfloat16" } else { "float32" };
                let (tensor, precision) = (to.name.clone(), self.precision);
                return Err(ExportError::Overflow { tensor, value, precision, advice });
            }
        }
        Ok(())
    }
}
