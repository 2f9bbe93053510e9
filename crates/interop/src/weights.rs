//! Weights on their way into another program's file: one is read at a time, and leaves in small
//! blocks, rounded and, where the format wants it, transposed.

use crate::export::{ExportError, ExportModel, Precision};
use crate::number;
use checkpoint::{Dtype, TensorSource, largest_bytes};
use model::{Dims, Gpt2, Param, ParamKind};

/// Bytes of a block, if a row is not longer.
const BLOCK: usize = 1 << 20;

/// Rows that are transposed together: their elements are neighbours in the source.
const TRANSPOSED_ROWS: usize = 16;

/// The order in which elements leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Row by row, as they are.
    Rows,
    /// Column by column.
    Columns,
}

/// A parameter, and where its content is; none for a bias that the model does not have.
struct Row {
    param: Param,
    source: Option<(usize, Dtype)>,
}

/// All weights of a model. Other programs' formats have every bias: those of a model without biases
/// are zeros.
pub(crate) struct Weights<'a> {
    source: &'a dyn TensorSource,
    rows: Vec<Row>,
    buffer: Vec<u8>,
}

impl<'a> Weights<'a> {
    /// Finds all weights. Allocates room for the largest, and nothing else of a weight's size is
    /// allocated afterwards.
    pub fn new(model: &ExportModel<'a>) -> Result<Weights<'a>, ExportError> {
        let refused = |what: String| ExportError::Refused { what };
        let dims = Dims { bias: true, ..model.dims };
        let params = model::Architecture::from(Gpt2 { gelu: model.gelu }).parameters(&dims);
        let params = params.map_err(|error| refused(error.to_string()))?;
        let infos = model.tensors.tensors();
        let mut rows = Vec::with_capacity(params.len());
        let mut used = Vec::with_capacity(params.len());
        for param in params {
            let name = format!("weights/{}", param.name);
            let source = match model.tensors.find(&name) {
                Some(index) => {
                    let info = &infos[index];
                    if info.shape != param.shape.dims() || !number::is_weight_type(info.dtype) {
                        return Err(refused(format!(
                            "{name} is {} {:?}, but the model's sizes need floats {:?}; use \
                             another checkpoint",
                            info.dtype.name(),
                            info.shape,
                            param.shape.dims()
                        )));
                    }
                    used.push(info.clone());
                    Some((index, info.dtype))
                }
                None if param.kind == ParamKind::Bias && !model.dims.bias => None,
                None => {
                    let what = format!("the checkpoint has no tensor {name}; use another one");
                    return Err(refused(what));
                }
            };
            rows.push(Row { param, source });
        }
        let bytes = largest_bytes(&used).and_then(|bytes| usize::try_from(bytes).ok());
        let mut buffer = Vec::new();
        match bytes.map(|bytes| (bytes, buffer.try_reserve_exact(bytes))) {
            Some((bytes, Ok(()))) => buffer.resize(bytes, 0),
            _ => return Err(refused("there is no memory for the largest weight".to_owned())),
        }
        Ok(Weights { source: model.tensors, rows, buffer })
    }

    /// The parameters, in PyTorch's order.
    pub fn params(&self) -> impl Iterator<Item = &Param> {
        self.rows.iter().map(|row| &row.param)
    }

    /// Reads a parameter.
    pub fn load(&mut self, position: usize) -> Result<Matrix<'_>, ExportError> {
        let Some(Row { param, source }) = self.rows.get(position) else {
            return Err(ExportError::Refused { what: format!("there is no weight {position}") });
        };
        let elements = param.shape.elements() as usize;
        let columns = match param.shape.dims() {
            &[_, columns] => columns as usize,
            _ => elements,
        };
        let (content, dtype) = match *source {
            None => (None, Dtype::F32),
            Some((index, dtype)) => {
                let content = &mut self.buffer[..elements * dtype.bytes() as usize];
                self.source.read(index, content)?;
                (Some(&*content), dtype)
            }
        };
        let rows = elements.checked_div(columns).unwrap_or(0);
        Ok(Matrix { name: &param.name, content, dtype, rows, columns })
    }
}

/// A parameter that was read. A vector is a matrix of one row.
pub(crate) struct Matrix<'a> {
    name: &'a str,
    /// None for zeros.
    content: Option<&'a [u8]>,
    dtype: Dtype,
    pub rows: usize,
    pub columns: usize,
}

/// Takes blocks of bytes.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), ExportError> + 'a;

impl<'a> Matrix<'a> {
    /// A row of f32.
    pub fn row(name: &'a str, content: &'a [u8]) -> Matrix<'a> {
        let columns = content.len() / 4;
        Matrix { name, content: Some(content), dtype: Dtype::F32, rows: 1, columns }
    }

    /// The element at a place.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        let index = row * self.columns + column;
        self.content.map_or(0.0, |content| number::at(self.dtype, content, index))
    }

    /// Writes all elements.
    pub fn write(
        &self,
        order: Order,
        precision: Precision,
        sink: &mut Sink,
    ) -> Result<(), ExportError> {
        match (order, self.content) {
            (Order::Rows, Some(content)) if self.dtype == precision.dtype() => {
                content.chunks(BLOCK).try_for_each(sink)
            }
            (Order::Rows, _) => self.write_rows(precision, sink),
            (Order::Columns, _) => self.write_columns(precision, sink),
        }
    }

    fn write_rows(&self, precision: Precision, sink: &mut Sink) -> Result<(), ExportError> {
        let size = precision.dtype().bytes() as usize;
        let (elements, step) = (self.rows * self.columns, BLOCK / size);
        let mut block = vec![0; step.min(elements) * size];
        for first in (0..elements).step_by(step) {
            let count = step.min(elements - first);
            for index in 0..count {
                self.put(precision, &mut block, index, self.at(0, first + index))?;
            }
            sink(&block[..count * size])?;
        }
        Ok(())
    }

    fn write_columns(&self, precision: Precision, sink: &mut Sink) -> Result<(), ExportError> {
        let size = precision.dtype().bytes() as usize;
        let mut block = vec![0; TRANSPOSED_ROWS.min(self.columns) * self.rows * size];
        for first in (0..self.columns).step_by(TRANSPOSED_ROWS) {
            let count = TRANSPOSED_ROWS.min(self.columns - first);
            for row in 0..self.rows {
                for column in 0..count {
                    let number = self.at(row, first + column);
                    self.put(precision, &mut block, column * self.rows + row, number)?;
                }
            }
            sink(&block[..count * self.rows * size])?;
        }
        Ok(())
    }

    fn put(
        &self,
        precision: Precision,
        block: &mut [u8],
        index: usize,
        value: f32,
    ) -> Result<(), ExportError> {
        if number::put(precision.dtype(), block, index, value) {
            return Ok(());
        }
        let advice = if precision == Precision::Float16 { "bfloat16" } else { "float32" };
        Err(ExportError::Overflow { tensor: self.name.to_owned(), value, precision, advice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        matrix: &Matrix,
        order: Order,
        precision: Precision,
    ) -> Result<Vec<u8>, ExportError> {
        let mut all = Vec::new();
        matrix.write(order, precision, &mut |block| {
            all.extend_from_slice(block);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn elements_leave_in_order_and_rounded() {
        let (rows, columns) = (35, 37);
        let numbers: Vec<f32> = (0..rows * columns).map(|n| n as f32 / 8.0).collect();
        let content: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let matrix =
            Matrix { name: "x", content: Some(&content), dtype: Dtype::F32, rows, columns };
        assert_eq!(written(&matrix, Order::Rows, Precision::Float32).unwrap(), content);
        for precision in [Precision::Float32, Precision::Float16] {
            let dtype = precision.dtype();
            let straight = written(&matrix, Order::Rows, precision).unwrap();
            let transposed = written(&matrix, Order::Columns, precision).unwrap();
            for row in 0..rows {
                for column in 0..columns {
                    let number = numbers[row * columns + column];
                    assert_eq!(number::at(dtype, &straight, row * columns + column), number);
                    assert_eq!(number::at(dtype, &transposed, column * rows + row), number);
                }
            }
        }
        let zeros = Matrix { name: "x", content: None, dtype: Dtype::F32, rows: 1, columns: 5 };
        assert_eq!(written(&zeros, Order::Rows, Precision::BFloat16).unwrap(), [0; 10]);
    }

    #[test]
    fn overflow_names_the_tensor_and_a_format_that_holds_it() {
        let content: Vec<u8> = [1.0f32, 7e4].iter().flat_map(|n| n.to_le_bytes()).collect();
        let content = Some(&content[..]);
        let matrix =
            Matrix { name: "h.0.ln_1.weight", content, dtype: Dtype::F32, rows: 1, columns: 2 };
        let error = written(&matrix, Order::Rows, Precision::Float16).unwrap_err().to_string();
        assert_eq!(
            error,
            "h.0.ln_1.weight has the value 7e4, but the largest float16 is 65504; use --dtype \
             bfloat16"
        );
        assert!(written(&matrix, Order::Columns, Precision::BFloat16).is_ok());
    }
}
