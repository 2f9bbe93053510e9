//! Small changes to nanoGPT's own code, for what its keys cannot do: as a unified diff for
//! `patch -p1`, with the memory that it is expected to need.

use crate::fixes::{Fix, FixKind, LARGEST_BATCH, device_bytes};
use crate::recovered::RecoveredRun;
use crate::room::{Fit, Room};
use crate::torch::TorchRun;
use search::SearchError;

/// One of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Evaluation has a batch size of its own, and no logits stay referenced.
    Evaluation,
    /// Blocks are computed again in the backward pass.
    Checkpointing,
    /// A checkpoint is loaded into host memory.
    Loading,
}

impl Change {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Evaluation => "evaluation",
            Change::Checkpointing => "checkpointing",
            Change::Loading => "loading",
        }
    }
}

/// Sequences of an evaluation batch in the patch.
pub const EVAL_BATCH: u64 = 4;

/// A piece of a diff: its file, where it begins in the old file, and its lines.
struct Hunk(Change, &'static str, usize, &'static [&'static str]);

/// In the order of the files. Lines without context are unique in their file.
const HUNKS: [Hunk; 9] = [
    Hunk(
        Change::Checkpointing,
        "model.py",
        16,
        &[
            " from torch.nn import functional as F",
            "+from torch.utils.checkpoint import checkpoint",
            " ",
        ],
    ),
    Hunk(
        Change::Checkpointing,
        "model.py",
        180,
        &[
            "         for block in self.transformer.h:",
            "-            x = block(x)",
            "+            x = checkpoint(block, x, use_reentrant=False) if self.training else \
             block(x)",
            "         x = self.transformer.ln_f(x)",
        ],
    ),
    Hunk(Change::Evaluation, "train.py", 38, &["-eval_iters = 200", "+eval_iters = 200", EVAL_KEY]),
    Hunk(
        Change::Evaluation,
        "train.py",
        116,
        &["-def get_batch(split):", "+def get_batch(split, rows=None):"],
    ),
    Hunk(
        Change::Evaluation,
        "train.py",
        123,
        &[
            "-    ix = torch.randint(len(data) - block_size, (batch_size,))",
            "+    ix = torch.randint(len(data) - block_size, (rows or batch_size,))",
        ],
    ),
    Hunk(
        Change::Loading,
        "train.py",
        162,
        &[
            "-    checkpoint = torch.load(ckpt_path, map_location=device)",
            "+    checkpoint = torch.load(ckpt_path, map_location='cpu')",
        ],
    ),
    Hunk(
        Change::Loading,
        "train.py",
        201,
        &[
            "     optimizer.load_state_dict(checkpoint['optimizer'])",
            "-checkpoint = None # free up memory",
            "+checkpoint = state_dict = None # free up memory",
            " ",
        ],
    ),
    Hunk(
        Change::Evaluation,
        "train.py",
        221,
        &[
            "         for k in range(eval_iters):",
            "-            X, Y = get_batch(split)",
            "+            X, Y = get_batch(split, eval_batch_size)",
            "             with ctx:",
            "-                logits, loss = model(X, Y)",
            "+                loss = model(X, Y)[1] # drop the logits at once",
            "             losses[k] = loss.item()",
        ],
    ),
    Hunk(
        Change::Evaluation,
        "train.py",
        300,
        &[
            "-            logits, loss = model(X, Y)",
            "+            loss = model(X, Y)[1] # drop the logits at once",
        ],
    ),
];

const EVAL_KEY: &str = "+eval_batch_size = 4 # sequences of an evaluation batch";

/// A diff, and what the run needs with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// What it changes.
    pub changes: Vec<Change>,
    /// Settings that have to change as well: the largest batch that fits.
    pub settings: Vec<(&'static str, String)>,
    /// Device memory of the run with it.
    pub device_bytes: u64,
    /// What is still missing for a safe fit; 0 if nothing.
    pub missing: u64,
}

impl Patch {
    /// The smallest set of changes with which the run fits as it is. If there is none: all of them
    /// with a smaller batch, if that batch is larger than the one that fits without them.
    pub fn find(
        recovered: &RecoveredRun,
        room: &Room,
        fixes: &[Fix],
    ) -> Result<Option<Patch>, SearchError> {
        let torch = &recovered.torch;
        if room.fit(device_bytes(torch)?) == Fit::Fits && !torch.resumed {
            return Ok(None);
        }
        let loading = torch.resumed.then_some(Change::Loading);
        let sets: [&[Change]; 4] = [
            &[],
            &[Change::Evaluation],
            &[Change::Checkpointing],
            &[Change::Checkpointing, Change::Evaluation],
        ];
        let sets = sets.map(|set| set.iter().copied().chain(loading).collect::<Vec<Change>>());
        for changes in sets.iter().filter(|changes| !changes.is_empty()) {
            let device_bytes = device_bytes(&changed(torch, changes))?;
            if room.fit(device_bytes) == Fit::Fits {
                let changes = changes.clone();
                return Ok(Some(Patch { changes, settings: Vec::new(), device_bytes, missing: 0 }));
            }
        }
        let [.., all] = sets;
        with_batch(recovered, room, fixes, all)
    }

    /// The unified diff.
    pub fn diff(&self) -> String {
        let mut text = String::new();
        let (mut file, mut moved) = ("", 0);
        for Hunk(change, name, line, lines) in &HUNKS {
            if !self.changes.contains(change) {
                continue;
            }
            if *name != file {
                text += &format!("--- a/{name}\n+++ b/{name}\n");
                (file, moved) = (*name, 0);
            }
            let count =
                |mark: char| lines.iter().filter(|line| line.starts_with([' ', mark])).count();
            let (old, new) = (count('-'), count('+'));
            text += &format!("@@ -{line},{old} +{},{new} @@\n", line + moved);
            moved += new - old;
            for line in *lines {
                text += line;
                text.push('\n');
            }
        }
        text
    }
}

/// All changes, with the largest batch that fits then and divides the iteration's sequences.
fn with_batch(
    recovered: &RecoveredRun,
    room: &Room,
    fixes: &[Fix],
    changes: Vec<Change>,
) -> Result<Option<Patch>, SearchError> {
    let torch = &recovered.torch;
    let sequences = recovered.run.sequences_per_iteration();
    let plain = fixes.iter().find(|fix| fix.kind == FixKind::SmallerBatch);
    let plain = plain.and_then(|fix| fix.settings.first()?.1.parse().ok()).unwrap_or(0);
    let largest = torch.batch.min(LARGEST_BATCH);
    for batch in (plain + 1..largest).rev().filter(|batch| sequences.is_multiple_of(*batch)) {
        let accumulation = sequences / batch;
        let run = TorchRun { batch, eval_batch: batch, accumulation, ..torch.clone() };
        let device_bytes = device_bytes(&changed(&run, &changes))?;
        if room.fit(device_bytes) == Fit::Fits {
            let settings = vec![
                ("batch_size", batch.to_string()),
                ("gradient_accumulation_steps", accumulation.to_string()),
            ];
            return Ok(Some(Patch { changes, settings, device_bytes, missing: 0 }));
        }
    }
    // The checkpoint is worth loading elsewhere even if that is not enough.
    let device_bytes = device_bytes(torch)?;
    let missing = device_bytes.saturating_sub(room.target());
    let (changes, settings) = (vec![Change::Loading], Vec::new());
    Ok(torch.resumed.then_some(Patch { changes, settings, device_bytes, missing }))
}

/// The run with these changes.
fn changed(torch: &TorchRun, changes: &[Change]) -> TorchRun {
    let mut run = torch.clone();
    for change in changes {
        match change {
            Change::Evaluation => {
                run.eval_batch = run.batch.min(EVAL_BATCH);
                run.keeps_logits = false;
            }
            Change::Checkpointing => run.checkpointed = true,
            Change::Loading => {}
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_counts_its_lines() {
        let changes = vec![Change::Checkpointing, Change::Evaluation, Change::Loading];
        let diff = Patch { changes, settings: Vec::new(), device_bytes: 0, missing: 0 }.diff();
        assert!(diff.starts_with("--- a/model.py\n+++ b/model.py\n@@ -16,2 +16,3 @@\n"), "{diff}");
        assert!(diff.contains("--- a/train.py\n"), "{diff}");
        assert!(
            diff.contains("@@ -38,1 +38,2 @@") && diff.contains("@@ -116,1 +117,1 @@"),
            "{diff}"
        );
        assert!(EVAL_KEY.contains(&format!(" = {EVAL_BATCH} ")));
        let changes = vec![Change::Loading];
        let one = Patch { changes, settings: Vec::new(), device_bytes: 0, missing: 0 }.diff();
        assert!(!one.contains("model.py") && one.contains("map_location='cpu'"), "{one}");
    }
}
