//! The largest model that fits: shapes as wide for their depth as GPT-2's, tried by bisection, with
//! everything else as asked.

use super::here::Here;
use super::plan::PagePlan;
use ::page::{Query, Refused};
use search::plan_for;
use serde_json::{Value, json};

/// Layers and heads of 64, smallest first: GPT-2's four sizes and steps between and beyond.
const SHAPES: [[u64; 2]; 34] = [
    [1, 1],
    [2, 2],
    [3, 3],
    [4, 4],
    [5, 5],
    [6, 6],
    [7, 7],
    [8, 8],
    [10, 10],
    [11, 11],
    [12, 12],
    [14, 12],
    [16, 14],
    [18, 14],
    [20, 15],
    [24, 16],
    [26, 17],
    [28, 18],
    [32, 19],
    [36, 20],
    [38, 21],
    [40, 22],
    [44, 24],
    [48, 25],
    [48, 28],
    [48, 32],
    [48, 36],
    [48, 40],
    [56, 48],
    [64, 56],
    [72, 64],
    [80, 80],
    [96, 96],
    [96, 128],
];

/// Values of a head.
const HEAD: u64 = 64;

/// The largest shape that fits, as settings.
pub fn document(query: &Query, here: &Here) -> Result<Value, Refused> {
    // Invariant: all shapes below `low` fit, those from `high` on do not.
    let (mut low, mut high) = (0, SHAPES.len());
    let mut best = None;
    while low < high {
        let middle = usize::midpoint(low, high);
        match fitting(query, here, SHAPES[middle])? {
            Some(found) => (low, best) = (middle + 1, Some(found)),
            None => high = middle,
        }
    }
    match best {
        Some(found) => Ok(found),
        None => Err(Refused("not even one layer of width 64 fits".to_string())),
    }
}

/// The settings of a shape, if it fits.
fn fitting(query: &Query, here: &Here, shape: [u64; 2]) -> Result<Option<Value>, Refused> {
    let [layers, heads] = shape;
    let mut query = query.to_vec();
    query.retain(|(name, _)| !["n_layer", "n_head", "n_embd"].contains(&name.as_str()));
    let settings = [("n_layer", layers), ("n_head", heads), ("n_embd", heads * HEAD)];
    query.extend(settings.map(|(name, value)| (name.to_string(), value.to_string())));
    let asked = PagePlan::new(&query, here)?;
    if plan_for(&asked.run, asked.dims, &asked.machine).is_err() {
        return Ok(None);
    }
    let parameters = asked.run.architecture().reported_parameters(&asked.dims).ok();
    let [n_layer, n_head, n_embd] = settings.map(|(_, value)| value);
    Ok(Some(json!({ "n_layer": n_layer, "n_head": n_head, "n_embd": n_embd,
                    "parameters": parameters })))
}
