//! The settings that a text suggests, taken together: would the run fit with them?

use crate::fixes::device_bytes;
use crate::log::Log;
use crate::recovered::RecoveredRun;
use crate::room::Room;
use model::Dims;

/// What the suggested settings come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Device memory, and what is missing for a safe fit.
    Needs {
        /// Bytes.
        bytes: u64,
        /// Bytes; 0 if it fits.
        missing: u64,
    },
    /// `n_head` does not divide `n_embd`, so the program stops at once.
    Heads {
        /// Width of the model.
        n_embd: u64,
        /// Heads.
        n_head: u64,
    },
}

/// The suggested settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggested {
    /// Keys that change the memory of nanoGPT, with their values.
    pub settings: Vec<(String, String)>,
    /// Keys that nanoGPT does not have.
    pub ignored: Vec<String>,
    /// What they come to.
    pub outcome: Outcome,
}

/// Keys that nanoGPT does not have.
const NOT_NANOGPT: [&str; 4] =
    ["eval_batch_size", "eval_block_size", "grad_checkpoint", "gradient_checkpointing"];

impl Suggested {
    /// Applies what the text suggests to its run; none if it suggests nothing.
    pub fn find(recovered: &RecoveredRun, log: &Log, room: Room) -> Option<Suggested> {
        let mut run = recovered.torch.clone();
        let mut dims = run.dims;
        let mut settings = Vec::new();
        for (key, value) in &log.suggestions {
            let number: Option<u64> = value.parse().ok().filter(|n| (1..1 << 20).contains(n));
            match (key.as_str(), number) {
                ("batch_size", Some(n)) => (run.batch, run.eval_batch) = (n, n),
                ("gradient_accumulation_steps", Some(n)) => run.accumulation = n,
                ("block_size", Some(n)) => dims.block_size = n,
                ("n_embd", Some(n)) => dims.n_embd = n,
                ("n_head", Some(n)) => dims.n_head = n,
                ("n_layer", Some(n)) => dims.n_layer = n.min(512),
                ("compile", _) => run.compiled = value == "True",
                _ => continue,
            }
            settings.retain(|(known, _)| known != key);
            settings.push((key.clone(), value.clone()));
        }
        let is_ours = |key: &&str| log.suggestions.iter().any(|(known, _)| known == *key);
        let ignored = NOT_NANOGPT.iter().filter(|key| is_ours(key)).map(ToString::to_string);
        let Dims { n_embd, n_head, .. } = dims;
        let outcome = match n_embd.is_multiple_of(n_head.max(1)) {
            false => Outcome::Heads { n_embd, n_head },
            true => {
                (run.dims, run.positions) = (dims, run.positions.min(dims.block_size));
                // Sizes that nobody could run are no suggestion.
                let Ok(bytes) = device_bytes(&run) else {
                    return None;
                };
                Outcome::Needs { bytes, missing: bytes.saturating_sub(room.target()) }
            }
        };
        let found = Suggested { settings, ignored: ignored.collect(), outcome };
        Some(found).filter(|found| !found.settings.is_empty())
    }
}
