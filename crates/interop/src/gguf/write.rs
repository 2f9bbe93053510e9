//! Writes a model as one GGUF file of architecture `gpt2`, which llama.cpp computes with the tanh
//! form of GELU. Matrices are outputs × inputs as ours. Vectors, norms and the position embedding
//! are always f32.

use super::encode::{Kind, Listed, Value, header, padded};
use super::vocabulary::Vocabulary;
use crate::export::{ExportError, ExportModel, Meter, Precision, check_file};
use crate::new_folder::Existing;
use crate::weights::{Matrix, Order, Sink, Weights};
use checkpoint::NewFile;
use model::{ModuleKind, NORM_EPSILON, Param, ParamKind};
use std::path::Path;

/// llama.cpp's names of modules.
const MODULES: [(&str, &str); 9] = [
    ("wte", "token_embd"),
    ("wpe", "position_embd"),
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
    ("ln_f", "output_norm"),
];

/// Writes the model as one file; returns its size. `existing` says what happens to a file that has
/// the name when the new one is complete. `report` gets the bytes written so far and in all, and
/// returns whether to go on.
///
/// # Errors
///
/// When the model cannot be read, its tokenizer not be held, the file not be written, or a weight
/// is beyond the largest number of `precision`.
pub fn write(
    path: &Path,
    model: &ExportModel,
    precision: Precision,
    existing: Existing,
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, ExportError> {
    let tokenizer = model.tokenizer.ok_or_else(|| ExportError::Refused {
        what: "a GGUF file needs the model's tokenizer, which is not known; use --to hf".to_owned(),
    })?;
    let vocabulary = Vocabulary::new(tokenizer, model.dims.vocab_size)?;
    let mut weights = Weights::new(model)?;
    let plans: Vec<(Listed, Precision, bool)> = weights
        .params()
        .map(|param| {
            let is_extended =
                param.module.kind == ModuleKind::TokenEmbedding && vocabulary.extra_row;
            let precision = precision_of(param, precision);
            (listed(param, precision, is_extended), precision, is_extended)
        })
        .collect();
    let tensors: Vec<Listed> = plans.iter().map(|(listed, ..)| listed.clone()).collect();
    let start = header(&pairs(model, precision, vocabulary), &tensors);
    let total = tensors
        .iter()
        .fold(start.len() as u64, |sum, tensor| sum.saturating_add(padded(tensor.bytes)));
    let mut meter = Meter::start(total, report)?;
    let mut file = NewFile::create(path, total)?;
    let mut append = |bytes: &[u8]| {
        file.append(bytes)?;
        meter.add(bytes.len())
    };
    append(&start)?;
    for (position, (listed, precision, is_extended)) in plans.into_iter().enumerate() {
        let matrix = weights.load(position)?;
        matrix.write(Order::Rows, precision, &mut append)?;
        if is_extended {
            mean_row(&matrix, precision, &mut append)?;
        }
        append(&vec![0; (padded(listed.bytes) - listed.bytes) as usize])?;
    }
    check_file(path, existing)?;
    Ok(file.finish()?)
}

/// The format of a parameter.
fn precision_of(param: &Param, precision: Precision) -> Precision {
    match (param.module.kind, param.kind) {
        (ModuleKind::TokenEmbedding | ModuleKind::Linear, ParamKind::Weight) => precision,
        _ => Precision::Float32,
    }
}

fn listed(param: &Param, precision: Precision, is_extended: bool) -> Listed {
    let theirs = MODULES.iter().find(|(ours, _)| *ours == param.module.name);
    let module = theirs.map_or(param.module.name, |(_, theirs)| theirs);
    let part = match param.kind {
        ParamKind::Weight => "weight",
        ParamKind::Bias => "bias",
    };
    let name = match param.layer {
        Some(layer) => format!("blk.{layer}.{module}.{part}"),
        None => format!("{module}.{part}"),
    };
    let mut shape = param.shape.dims().to_vec();
    if let (true, Some(rows)) = (is_extended, shape.first_mut()) {
        *rows += 1;
    }
    let kind = match precision {
        Precision::Float32 => Kind::F32,
        Precision::Float16 => Kind::F16,
        Precision::BFloat16 => Kind::Bf16,
    };
    let elements = shape.iter().copied().fold(1, u64::saturating_mul);
    Listed { name, shape, kind, bytes: elements.saturating_mul(precision.dtype().bytes()) }
}

/// Writes the mean of all rows.
fn mean_row(matrix: &Matrix, precision: Precision, append: &mut Sink) -> Result<(), ExportError> {
    let mut sums = vec![0f64; matrix.columns];
    for row in 0..matrix.rows {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum += f64::from(matrix.at(row, column));
        }
    }
    let means: Vec<u8> =
        sums.iter().flat_map(|sum| ((sum / matrix.rows as f64) as f32).to_le_bytes()).collect();
    Matrix::row("wte.weight", &means).write(Order::Rows, precision, append)
}

/// llama.cpp's numbers of the formats that most weights have.
fn file_type(precision: Precision) -> u32 {
    match precision {
        Precision::Float32 => 0,
        Precision::Float16 => 1,
        Precision::BFloat16 => 32,
    }
}

/// The metadata. Sizes fit in 32 bits: `Dims` bounds them.
fn pairs(
    model: &ExportModel,
    precision: Precision,
    vocabulary: Vocabulary,
) -> Vec<(String, Value)> {
    let size = |size: u64| Value::U32(u32::try_from(size).unwrap_or(u32::MAX));
    let word = |word: &str| Value::Text(word.to_owned());
    let dims = &model.dims;
    let pairs = [
        ("general.architecture", word("gpt2")),
        ("general.name", word(model.name)),
        ("general.file_type", Value::U32(file_type(precision))),
        ("gpt2.context_length", size(dims.block_size)),
        ("gpt2.embedding_length", size(dims.n_embd)),
        ("gpt2.block_count", size(dims.n_layer)),
        ("gpt2.feed_forward_length", size(4 * dims.n_embd)),
        ("gpt2.attention.head_count", size(dims.n_head)),
        ("gpt2.attention.layer_norm_epsilon", Value::F32(NORM_EPSILON as f32)),
        ("tokenizer.ggml.model", word("gpt2")),
        ("tokenizer.ggml.pre", word("gpt-2")),
        ("tokenizer.ggml.tokens", Value::Texts(vocabulary.tokens)),
        ("tokenizer.ggml.token_type", Value::Ints(vocabulary.types)),
        ("tokenizer.ggml.merges", Value::Texts(vocabulary.merges)),
        ("tokenizer.ggml.bos_token_id", Value::U32(vocabulary.end)),
        ("tokenizer.ggml.eos_token_id", Value::U32(vocabulary.end)),
        ("tokenizer.ggml.padding_token_id", Value::U32(vocabulary.end)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
        ("tokenizer.ggml.add_space_prefix", Value::Bool(false)),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
}
