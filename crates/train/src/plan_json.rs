//! How a run was cut, as its checkpoints keep it: a resumed run is cut the same way, whatever is
//! free today, and so goes on bit for bit.

use model::Level;
use plan::Dtype;
use search::plan_for::MOST_SEQUENCES;
use search::{Cut, Levers};
use serde_json::{Value, json};

/// As `[sequences, times]` for runs of equal slices: an iteration may have a million of them.
pub fn to_json(cut: Option<&Cut>) -> Value {
    let Some(cut) = cut else {
        return Value::Null;
    };
    let runs = cut.slices.chunk_by(|a, b| a == b).map(|run| json!([run[0], run.len()]));
    let levels = cut.levels.iter().map(|level| json!(level.name()));
    json!({
        "slices": runs.collect::<Vec<_>>(),
        "head_chunk_tokens": cut.head_chunk,
        "recompute": levels.collect::<Vec<_>>(),
        "optimizer_state": match cut.levers.moments {
            Dtype::Bf16 => "bfloat16",
            _ => "float32",
        },
        "offload": cut.levers.offload,
    })
}

/// The same back; none where it is no plan.
pub fn from_json(json: &Value) -> Option<Option<Cut>> {
    if json.is_null() {
        return Some(None);
    }
    // Counted first: a short text may stand for many slices, which then are had at once.
    let (mut runs, mut total) = (Vec::new(), 0u64);
    for run in json.get("slices")?.as_array()? {
        let (rows, times) = (run.get(0)?.as_u64()?, run.get(1)?.as_u64()?);
        total = total.checked_add(times)?;
        if rows == 0 || total > MOST_SEQUENCES {
            return None;
        }
        runs.push((rows, times));
    }
    let mut slices = Vec::with_capacity(total as usize);
    runs.iter().for_each(|&(rows, times)| slices.resize(slices.len() + times as usize, rows));
    let level = |name: &Value| Level::parse(name.as_str()?);
    let moments = match json.get("optimizer_state")?.as_str()? {
        "float32" => Dtype::F32,
        "bfloat16" => Dtype::Bf16,
        _ => return None,
    };
    let offload = json.get("offload")?.as_bool()?;
    Some(Some(Cut {
        slices,
        head_chunk: json.get("head_chunk_tokens")?.as_u64()?,
        levels: json.get("recompute")?.as_array()?.iter().map(level).collect::<Option<_>>()?,
        levers: Levers { moments, offload },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_survives_its_json() {
        let levers = Levers { moments: Dtype::Bf16, offload: true };
        let levels = vec![Level::R3q, Level::R0];
        let cut = Cut { slices: vec![10, 9, 9], head_chunk: 512, levels, levers };
        let json = to_json(Some(&cut));
        assert_eq!(json["slices"], json!([[10, 1], [9, 2]]));
        assert_eq!(from_json(&json), Some(Some(cut)));
        assert_eq!(from_json(&to_json(None)), Some(None));
    }

    #[test]
    fn nonsense_is_no_plan() {
        let good = json!({
            "slices": [[1, 1]], "head_chunk_tokens": 1, "recompute": ["R0"],
            "optimizer_state": "float32", "offload": false
        });
        assert!(from_json(&good).is_some());
        for (key, value) in [
            ("slices", json!([[0, 1]])),
            ("slices", json!([[1, u64::MAX]])),
            ("slices", json!([[1, 1u64 << 40], [2, 1]])),
            ("slices", json!("all")),
            ("recompute", json!(["R7"])),
            ("optimizer_state", json!("int4")),
            ("offload", json!(1)),
            ("head_chunk_tokens", json!(-1)),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert_eq!(from_json(&bad), None, "{bad}");
        }
    }
}
