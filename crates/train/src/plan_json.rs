//! How a run is cut, as JSON in its checkpoints. A resumed run is cut the same way, however much
//! memory is free by then, and so it continues bit for bit.

use model::Level;
use plan::Dtype;
use search::plan_for::MOST_SEQUENCES;
use search::{Cut, StateOptions};
use serde::{Deserialize, Serialize};

/// The cut as JSON. Keys and their order are the format.
#[derive(Debug, Serialize, Deserialize)]
pub struct CutJson {
    /// `[sequences, times]` for each run of equal slices: an iteration may have a million slices.
    slices: Vec<(u64, u64)>,
    head_chunk_tokens: u64,
    /// Names of the recompute levels.
    recompute: Vec<String>,
    optimizer_state: MomentsJson,
    offload: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MomentsJson {
    Float32,
    Bfloat16,
}

impl From<&Cut> for CutJson {
    fn from(cut: &Cut) -> CutJson {
        let runs = cut.slices.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64));
        CutJson {
            slices: runs.collect(),
            head_chunk_tokens: cut.head_chunk,
            recompute: cut.levels.iter().map(|level| level.name().to_owned()).collect(),
            optimizer_state: match cut.state_options.format {
                Dtype::Bf16 => MomentsJson::Bfloat16,
                _ => MomentsJson::Float32,
            },
            offload: cut.state_options.offload,
        }
    }
}

impl CutJson {
    /// Converts it back; none if it is not a valid cut.
    pub fn cut(&self) -> Option<Cut> {
        // Count first: a short text can encode many slices, and all are allocated below.
        let add = |total: u64, &(rows, times): &(u64, u64)| {
            total.checked_add(times).filter(|&total| rows > 0 && total <= MOST_SEQUENCES)
        };
        let total = self.slices.iter().try_fold(0, add)?;
        let mut slices = Vec::with_capacity(total as usize);
        for &(rows, times) in &self.slices {
            slices.resize(slices.len() + times as usize, rows);
        }
        let format = match self.optimizer_state {
            MomentsJson::Float32 => Dtype::F32,
            MomentsJson::Bfloat16 => Dtype::Bf16,
        };
        Some(Cut {
            slices,
            head_chunk: self.head_chunk_tokens,
            levels: self.recompute.iter().map(|name| Level::parse(name)).collect::<Option<_>>()?,
            state_options: StateOptions { format, offload: self.offload },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn from_json(json: &Value) -> Option<Cut> {
        serde_json::from_value::<CutJson>(json.clone()).ok()?.cut()
    }

    #[test]
    fn a_choice_survives_its_json() {
        let state_options = StateOptions { format: Dtype::Bf16, offload: true };
        let levels = vec![Level::R3q, Level::R0];
        let cut = Cut { slices: vec![10, 9, 9], head_chunk: 512, levels, state_options };
        let json = json!(CutJson::from(&cut));
        assert_eq!(json["slices"], json!([[10, 1], [9, 2]]));
        assert_eq!(from_json(&json), Some(cut));
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
