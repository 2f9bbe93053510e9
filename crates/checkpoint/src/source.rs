//! Anything that has the tensors of a checkpoint: our own file, or another program's.

use crate::error::ReadError;
use crate::read::Reader;
use crate::tensor::TensorInfo;

/// Tensors that are read one at a time. Their names are those of our checkpoints. Their content is
/// little-endian, contiguous and row-major, each matrix as outputs × inputs: another program's file
/// is brought into this form while one tensor of it is read.
pub trait TensorSource: Send {
    /// All tensors.
    fn tensors(&self) -> &[TensorInfo];

    /// Reads a tensor into a buffer of exactly its size.
    ///
    /// # Errors
    ///
    /// When the content cannot be read or is damaged, or the buffer has the wrong size.
    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError>;

    /// Index of the tensor with this name.
    fn find(&self, name: &str) -> Option<usize> {
        self.tensors().iter().position(|tensor| tensor.name == name)
    }
}

impl TensorSource for Reader {
    fn tensors(&self) -> &[TensorInfo] {
        Reader::tensors(self)
    }

    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        Reader::read(self, index, content)
    }
}
