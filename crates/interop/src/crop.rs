//! A model with a shorter context: the first rows of its position embedding.

use checkpoint::{ReadError, TensorInfo, TensorSource};

/// The parameter that has a row for each position.
const POSITIONS: &str = "/wpe.weight";

/// A source whose position embedding, and its moments, have fewer rows.
pub struct Cropped {
    inner: Box<dyn TensorSource>,
    tensors: Vec<TensorInfo>,
}

impl Cropped {
    /// The first `rows` positions of a model.
    #[must_use]
    pub fn new(inner: Box<dyn TensorSource>, rows: u64) -> Cropped {
        let mut tensors = inner.tensors().to_vec();
        for tensor in tensors.iter_mut().filter(|tensor| tensor.name.ends_with(POSITIONS)) {
            if let Some(extent) = tensor.shape.first_mut() {
                *extent = rows.min(*extent);
            }
        }
        Cropped { inner, tensors }
    }
}

impl TensorSource for Cropped {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        let [whole, part] = [self.inner.tensors(), &self.tensors]
            .map(|tensors| tensors.get(index).and_then(TensorInfo::bytes).unwrap_or(0));
        if whole == part || content.len() as u64 != part {
            return self.inner.read(index, content);
        }
        let mut all = vec![0; whole as usize];
        self.inner.read(index, &mut all)?;
        content.copy_from_slice(&all[..content.len()]);
        Ok(())
    }
}
