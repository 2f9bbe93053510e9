//! The kernels: for each family of ops a `.cu` file and the Rust lines that launch it. One
//! exhaustive `match` over ops; the plan has decided which op runs when.

pub(crate) mod attention;
mod attention_hopper;
mod attention_hopper_backward;
mod decode;
mod embed;
pub(crate) mod gelu;
mod head;
mod layernorm;
mod layernorm_backward;
mod linear;
mod linear_hopper;
mod ranks;
pub(crate) mod sums;
mod transpose;
mod update;

use crate::lowering::{Location, Lowering};
use plan::BackendError;
use plan::ops::{Op, Transfer};

pub use sums::ColumnPartials;

/// The text that all files share.
pub(crate) const PRELUDE: &str = include_str!("prelude.cuh");

/// The text of files with dynamic shared memory.
const SHARED_MEMORY: &str = include_str!("shared_memory.cuh");

/// Adds the launches of one op.
pub(crate) fn lower(cx: &mut Lowering<'_>, op: &Op) -> Result<(), BackendError> {
    match op {
        Op::Embed(op) => embed::forward(cx, op),
        Op::EmbedBackward(op) => embed::backward(cx, op),
        Op::LayerNorm(op) => layernorm::forward(cx, op),
        Op::LayerNormBackward(op) => layernorm_backward::launch(cx, op),
        Op::Linear(op) => linear::forward(cx, op),
        Op::LinearBackwardInput(op) => linear::backward_input(cx, op),
        Op::LinearBackwardWeight(op) => linear::backward_weight(cx, op),
        Op::Attention(op) => attention::forward(cx, op),
        Op::AttentionBackward(op) => attention::backward(cx, op),
        Op::Gelu(op) => gelu::forward(cx, op),
        Op::GeluBackward(op) => gelu::backward(cx, op),
        Op::HeadTrain(op) => head::train(cx, op),
        Op::HeadEval(op) => head::eval(cx, op),
        Op::CacheStore(op) => decode::store(cx, op),
        Op::AttentionDecode(op) => decode::attention(cx, op),
        Op::SelectPosition(op) => decode::select(cx, op),
        Op::GradNorm(op) => update::grad_norm(cx, op),
        Op::LossScaler(op) => update::loss_scaler(cx, op),
        Op::AdamW(op) => update::adamw(cx, op),
        Op::Transfer(op) => transfer(cx, op),
        Op::Clear(op) => ranks::clear(cx, op),
        Op::SquareSums(op) => update::square_sums(cx, op),
        Op::NormOfSums(op) => update::norm_of_sums(cx, op),
        Op::ReduceScatter(op) => ranks::reduce_scatter(cx, op),
        Op::AllGather(op) => ranks::all_gather(cx, op),
    }
}

fn transfer(cx: &mut Lowering<'_>, op: &Transfer) -> Result<(), BackendError> {
    let (from, to, bytes) = (cx.location(op.from)?, cx.location(op.to)?, cx.bytes(op.from));
    let on_host =
        [from, to].iter().filter(|location| matches!(location, Location::Host(_))).count();
    if on_host != 1 {
        return Err(unsupported("a transfer that is not between host and device".to_string()));
    }
    cx.copy(from, to, bytes);
    Ok(())
}

/// The error for something that no kernel here does.
fn unsupported(what: String) -> BackendError {
    BackendError::Unsupported { what }
}

/// A count as the 32 bits that a kernel takes.
fn count(number: u64, what: &str) -> Result<u32, BackendError> {
    u32::try_from(number)
        .map_err(|_| unsupported(format!("{number} {what}: lower batch_size or block_size")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_source::Source;
    use std::collections::BTreeSet;
    use std::path::Path;

    const SOURCES: &[&Source] = &[
        &attention::ATTENTION,
        &attention::ATTENTION_F32,
        &attention::ATTENTION_TF32,
        &attention_hopper::ATTENTION_HOPPER,
        &attention_hopper_backward::ATTENTION_HOPPER_NARROW,
        &attention_hopper_backward::ATTENTION_HOPPER_WIDE,
        &decode::DECODE,
        &embed::EMBED,
        &gelu::GELU,
        &head::HEAD,
        &layernorm::LAYERNORM,
        &layernorm_backward::LAYERNORM_BACKWARD,
        &linear_hopper::LINEAR_HOPPER,
        &ranks::RANKS,
        &sums::SUMS,
        &transpose::TRANSPOSE,
        &update::UPDATE,
    ];

    #[test]
    fn every_file_of_kernels_is_in_the_list() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let found: BTreeSet<String> = names.filter(|name| name.ends_with(".cu")).collect();
        let listed: BTreeSet<String> = SOURCES.iter().map(|source| source.file.into()).collect();
        assert_eq!(found, listed);
    }

    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
    }

    /// The compiler takes an undefined name in `#if` as 0.
    #[test]
    fn every_condition_is_a_constant_of_its_file() {
        for source in SOURCES {
            let text = source.parts.concat();
            for line in text.lines().filter(|line| line.trim_start().starts_with("#if ")) {
                for word in words(line).filter(|word| !["", "if"].contains(word)) {
                    assert!(source.constants.contains(&word), "{}: {line}", source.file);
                }
            }
            assert!(!text.contains("#elif") && !text.contains("#ifdef"), "{}", source.file);
        }
    }

    #[test]
    fn every_constant_is_used_by_its_file() {
        for source in SOURCES {
            let definitions = source.signatures.iter().map(|signature| signature.definition());
            let text = source.parts.concat() + &definitions.collect::<String>();
            let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
            let code = code.join("\n");
            let used: BTreeSet<&str> = words(&code).collect();
            for constant in source.constants {
                assert!(used.contains(constant), "{}: {constant}", source.file);
            }
        }
    }

    #[test]
    fn every_file_has_the_kernels_of_its_table_and_spells_no_parameter() {
        for source in SOURCES {
            let text = source.parts.concat();
            let kernels = text.matches("KERNEL ").count();
            assert_eq!(kernels, source.signatures.len(), "{}", source.file);
            for signature in source.signatures {
                let taken = format!("SIGNATURE({}) {{", signature.entry);
                assert_eq!(text.matches(&taken).count(), 1, "{} {taken}", source.file);
            }
        }
    }
}
