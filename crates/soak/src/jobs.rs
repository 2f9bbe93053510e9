//! Small jobs for the real binary: their input, how to start and restart them, and what must exist
//! when they are done, whatever happened before.

use crate::draws::of_case;
use checkpoint::Reader;
use data::Meta;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tokenizer::CharTokenizer;
use train::save;

/// A command of the real binary to disturb.
#[derive(Debug)]
pub struct Job {
    /// Its name.
    pub name: &'static str,
    /// The folder that it writes to, relative to its working folder.
    pub writes: &'static str,
    words: &'static [&'static str],
    /// Whether it is `train`, which needs a flag to resume.
    trains: bool,
}

/// A tiny model that saves every other iteration, so that most moments are near a save. Its
/// learning rate is so high that the loss goes up and down, so the best checkpoint is often not the
/// last one.
const TRAIN: &[&str] = &[
    "train",
    "--dataset=tiny",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=32",
    "--block_size=16",
    "--batch_size=4",
    "--gradient_accumulation_steps=2",
    "--eval_interval=2",
    "--eval_iters=1",
    "--learning_rate=1e-1",
    "--min_lr=1e-1",
    "--warmup_iters=5",
    "--lr_decay_iters=40",
    "--dropout=0.1",
    "--device=cpu",
    "--max_iters=40",
];

/// All jobs.
pub const JOBS: [Job; 3] = [
    Job { name: "train", writes: "out", words: TRAIN, trains: true },
    Job {
        name: "prepare text",
        writes: "data/book",
        words: &["prepare", "book.txt", "--out", "data/book"],
        trains: false,
    },
    Job {
        name: "prepare jsonl.gz",
        writes: "data/lines",
        words: &["prepare", "lines.jsonl.gz", "--out", "data/lines"],
        trains: false,
    },
];

/// The same model on any of 1, 2, 3 and 6 ranks, with the same bits on all of them.
pub const GROUPED: Job = Job { name: "train on ranks", writes: "out", words: RANKS, trains: true };

const RANKS: &[&str] = &[
    "train",
    "--dataset=tiny",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=32",
    "--block_size=16",
    "--batch_size=2",
    "--gradient_accumulation_steps=6",
    "--reduce_groups=6",
    "--eval_interval=2",
    "--eval_iters=1",
    "--learning_rate=1e-1",
    "--min_lr=1e-1",
    "--warmup_iters=5",
    "--lr_decay_iters=12",
    "--dropout=0.1",
    "--device=cpu",
    "--max_iters=12",
];

/// The result of a job: tensors by name, or token files by path, with their bytes.
pub type Made = Vec<(String, Vec<u8>)>;

const CHARACTERS: &str = "\n abcdefghijklmnopqrstuvwxyz.";

/// How the binary exited.
#[derive(Debug)]
pub struct Exit {
    /// The exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// Its standard error.
    pub errors: String,
}

impl From<Output> for Exit {
    fn from(output: Output) -> Exit {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Exit { code: output.status.code(), errors }
    }
}

impl Exit {
    /// Checks that it succeeded.
    ///
    /// # Errors
    ///
    /// The exit code and standard error of a failure.
    pub fn succeeded(&self) -> Result<(), String> {
        match self.code {
            Some(0) => Ok(()),
            _ => Err(format!("ended with {:?}: {}", self.code, self.errors.trim())),
        }
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// Random words as text.
fn words(bytes: usize, case: u64) -> String {
    let mut draws = of_case(0, "words", case);
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        for _ in 0..draws.below(9) {
            text.push(char::from(b'a' + draws.below(26) as u8));
        }
        text.push_str(if draws.below(12) == 0 { ".\n" } else { " " });
    }
    text
}

/// Writes the input of all jobs into a folder: a character data set, and texts of about
/// `text_bytes` bytes.
///
/// # Errors
///
/// When it cannot be written.
pub fn furnish(place: &Path, text_bytes: usize) -> Result<(), String> {
    let tiny = place.join("data/tiny");
    std::fs::create_dir_all(&tiny).map_err(told)?;
    let count = CHARACTERS.chars().count() as u64;
    for (case, name) in ["train.bin", "val.bin"].iter().enumerate() {
        let mut draws = of_case(0, "tokens", case as u64);
        let mut here = 0;
        let mut next = || {
            here = (here * 5 + draws.below(4)) % count;
            here as u16
        };
        let bytes: Vec<u8> = (0..3000).flat_map(|_| next().to_le_bytes()).collect();
        std::fs::write(tiny.join(name), bytes).map_err(told)?;
    }
    let meta = Meta::new(count as u32, CharTokenizer::new(CHARACTERS.chars().collect()));
    std::fs::write(tiny.join("meta.pkl"), meta.to_pickle()).map_err(told)?;
    std::fs::write(place.join("book.txt"), words(text_bytes, 0)).map_err(told)?;
    let lines = words(text_bytes, 1);
    let lines = lines.as_bytes().chunks(700).map(|part| {
        let text = String::from_utf8_lossy(part);
        serde_json::json!({ "id": 1, "text": text }).to_string() + "\n"
    });
    let file = std::fs::File::create(place.join("lines.jsonl.gz")).map_err(told)?;
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(lines.collect::<String>().as_bytes()).map_err(told)?;
    packed.finish().map_err(told)?;
    Ok(())
}

impl Job {
    /// Its arguments in a folder. It resumes if there is something to resume.
    pub fn arguments(&self, place: &Path) -> Vec<&'static str> {
        let resumes = self.trains && place.join("out/last.safetensors").exists();
        let more = resumes.then_some("--init_from=resume");
        self.words.iter().copied().chain(more).collect()
    }

    /// The command line of this job in a folder.
    pub fn command(&self, binary: &Path, place: &Path) -> Command {
        let mut command = Job::program(binary, place);
        command.args(self.arguments(place));
        command
    }

    /// A program in a folder, with the environment of jobs.
    pub fn program(program: &Path, place: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(place);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // One thread each, because two jobs run at a time on two cores.
        command.env("OMP_NUM_THREADS", "1").env("XDG_CACHE_HOME", place.join("no-cache"));
        for variable in ["CARGO_MANIFEST_DIR", "NO_COLOR", "CLICOLOR_FORCE", "WORLD_SIZE"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// When the binary cannot be started.
    pub fn run(&self, binary: &Path, place: &Path) -> Result<Exit, String> {
        let output = self.command(binary, place).output();
        output.map(Exit::from).map_err(|error| format!("{}: {error}", binary.display()))
    }

    /// Runs for some time and kills it; `None` if it ended by itself.
    ///
    /// # Errors
    ///
    /// When the binary cannot be started.
    pub fn run_for(
        &self,
        binary: &Path,
        place: &Path,
        time: Duration,
    ) -> Result<Option<Exit>, String> {
        let mut child = self.command(binary, place).spawn().map_err(told)?;
        let start = Instant::now();
        while start.elapsed() < time {
            if child.try_wait().map_err(told)?.is_some() {
                return Ok(Some(child.wait_with_output().map_err(told)?.into()));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        child.kill().map_err(told)?;
        child.wait().map_err(told)?;
        Ok(None)
    }

    /// Reads and checks its complete result.
    ///
    /// # Errors
    ///
    /// When something is missing or damaged.
    pub fn made(&self, place: &Path) -> Result<Made, String> {
        let folder = place.join(self.writes);
        if self.trains {
            return trained(&folder);
        }
        let read = |name: &str| {
            let bytes = std::fs::read(folder.join(name));
            Ok((name.to_owned(), bytes.map_err(|error| format!("{name}: {error}"))?))
        };
        ["train.bin", "val.bin"].into_iter().map(read).collect()
    }

    /// Checks that every file with its final name is complete.
    ///
    /// # Errors
    ///
    /// When a checkpoint is damaged, or a data set looks complete but is not.
    pub fn whole_or_absent(&self, place: &Path) -> Result<(), String> {
        let folder = place.join(self.writes);
        if self.trains {
            for name in ["last.safetensors", "best.safetensors"] {
                let path = folder.join(name);
                if path.exists() {
                    tensors(&path)?;
                }
            }
        } else if folder.join("train.bin").exists() {
            self.made(place)?;
        }
        Ok(())
    }
}

/// Both checkpoints of a run: every tensor, and the loss that `best` records.
///
/// # Errors
///
/// When one is missing or damaged.
pub fn trained(folder: &Path) -> Result<Made, String> {
    let mut all = tensors(&folder.join("last.safetensors"))?;
    let best = save::best_path(folder);
    let of_best = tensors(&best).map_err(|what| format!("best.safetensors: {what}"))?;
    all.extend(of_best.into_iter().map(|(name, content)| (format!("best: {name}"), content)));
    let (_, document) = save::open(&best).map_err(told)?;
    let loss = document.progress.best_val_loss.to_bits();
    all.push(("best: its loss".to_owned(), loss.to_le_bytes().to_vec()));
    Ok(all)
}

/// Every tensor of a checkpoint, checked, by name.
fn tensors(path: &Path) -> Result<Made, String> {
    let reader = Reader::open(path).map_err(told)?;
    let mut all = Vec::new();
    for (index, info) in reader.tensors().iter().enumerate() {
        let bytes = info.bytes().ok_or("a tensor without a size")?;
        let mut content = vec![0; bytes as usize];
        reader.read(index, &mut content).map_err(told)?;
        all.push((info.name.clone(), content));
    }
    Ok(all)
}

/// Compares two results.
///
/// # Errors
///
/// The first difference.
pub fn same(found: &Made, want: &Made) -> Result<(), String> {
    for ((name, found), (other, want)) in found.iter().zip(want) {
        if name != other || found != want {
            let lengths = (found.len(), want.len());
            return Err(format!("{name} differs from the undisturbed run's ({lengths:?} bytes)"));
        }
    }
    match found.len() == want.len() {
        true => Ok(()),
        false => Err(format!("{} parts, {} in the undisturbed run", found.len(), want.len())),
    }
}
