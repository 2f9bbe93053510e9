//! Generation: a context is stored in the cache, then one token after another attends to it. Each
//! result must equal attention over the whole sequence at that position.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, Normal, STANDARD};
use crate::values::Values;
use plan::ops::{Attention, AttentionDecode, CacheStore, SelectPosition};
use plan::{
    Dtype, Io, Phase, PlanError, Role, Scope, Scratch, Shape, StepInputs, Tensor, TensorId,
};
use std::rc::Rc;

const TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-5,
    relative: 1e-5,
    reason: "f32 products over a head and sums over up to 70 keys, exp of scores of order 1",
};

struct Sizes {
    name: &'static str,
    rows: u64,
    heads: u64,
    head_size: u64,
    block: u64,
    /// Tokens that the prefill segment takes.
    prefill: u64,
    /// How many of those tokens are real. The padding after them must never be used.
    context: u64,
    /// Tokens of the whole sequence.
    positions: u64,
}

const TABLE: [Sizes; 3] = [
    Sizes {
        name: "decode",
        rows: 2,
        heads: 3,
        head_size: 5,
        block: 9,
        prefill: 4,
        context: 4,
        positions: 9,
    },
    Sizes {
        name: "decode_padded",
        rows: 3,
        heads: 2,
        head_size: 7,
        block: 12,
        prefill: 8,
        context: 5,
        positions: 10,
    },
    Sizes {
        name: "decode_long",
        rows: 1,
        heads: 2,
        head_size: 16,
        block: 72,
        prefill: 65,
        context: 65,
        positions: 70,
    },
];

/// The old content of the cache. Any use of it gives a wrong result at once.
const OLD_CACHE: Normal = Normal { mean: 50.0, deviation: 10.0 };

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    TABLE.iter().map(|sizes| case(sizes, scratch)).collect()
}

fn case(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let &Sizes { rows, heads, head_size, prefill, context, positions, .. } = sizes;
    let width = heads * head_size;
    let mut case = CaseBuilder::with_scratch(sizes.name, "decode", TOLERANCE, scratch);
    case.attribute("heads", Attribute::Int(heads as i64));
    case.attribute("context", Attribute::Int(context as i64));
    case.attribute("prefill", Attribute::Int(prefill as i64));
    let cache = cache(&mut case, sizes)?;
    let qkv = case.tensor("qkv", &[rows, prefill, 3 * width])?;
    let att = case.tensor("att", &[rows, prefill, width])?;
    let lse = case.tensor("lse", &[rows, heads, prefill])?;
    let last = case.tensor("last", &[rows, 1, width])?;
    let token = case.tensor("token", &[rows, 1, 3 * width])?;
    let out = case.tensor("out", &[rows, 1, width])?;

    let mut segment = case.schedule.segment("prefill", Phase::Generate);
    segment.push_with_workspace(|workspace| Attention {
        qkv,
        out: att,
        lse,
        heads,
        dropout: None,
        workspace,
    })?;
    segment.push(CacheStore { qkv, cache })?;
    segment.push(SelectPosition { x: att, out: last })?;
    let prefill_segment = segment.finish();
    let mut segment = case.schedule.segment("decode", Phase::Generate);
    let attend = |workspace| AttentionDecode { qkv: token, cache, out, workspace };
    segment.push_with_workspace(attend)?;
    let decode_segment = segment.finish();

    let dims = [rows, prefill, 3 * width];
    let values = case.drawn("prefill", &dims, STANDARD)?;
    case.write("prefill", qkv, &dims, Values::F32(values));
    let at = |position| StepInputs { position, ..StepInputs::default() };
    case.run(prefill_segment, at(context - 1));
    case.read("last", last);
    for position in context..positions {
        let name = format!("token.{position}");
        let dims = [rows, 1, 3 * width];
        let values = case.drawn(&name, &dims, STANDARD)?;
        case.write(&name, token, &dims, Values::F32(values));
        case.run(decode_segment, at(position));
        case.read(&format!("out.{position}"), out);
    }
    case.read("cache", cache);
    Ok(case.finish())
}

/// The cache belongs to the phase, as in a program.
fn cache(case: &mut CaseBuilder, sizes: &Sizes) -> Result<TensorId, PlanError> {
    let dims = [2, sizes.rows, sizes.heads, sizes.block, sizes.head_size];
    let tensor = case.schedule.tensor(Tensor {
        name: "cache".to_string(),
        dtype: Dtype::F32,
        shape: Shape::new(&dims)?,
        role: Role::Cache,
        scope: Scope::Phase(Phase::Generate),
        layer: None,
        io: Io::Device,
        view: None,
    })?;
    let values = case.drawn("cache", &dims, OLD_CACHE)?;
    case.write("cache", tensor, &dims, Values::F32(values));
    Ok(tensor)
}
