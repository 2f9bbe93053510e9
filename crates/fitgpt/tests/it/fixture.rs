//! A folder with a small data set, and the binary started in it.

use checkpoint::Reader;
use data::Meta;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tokenizer::CharTokenizer;

/// The characters of the small data set, by id.
pub const CHARACTERS: &str = "\n abcdefghijklmnopqrstuvwxyz.";

/// A tiny model on the small data set; a second or less.
pub const TINY: &[&str] = &[
    "--dataset=tiny",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=32",
    "--block_size=16",
    "--batch_size=4",
    "--gradient_accumulation_steps=2",
    "--max_iters=30",
    "--eval_interval=10",
    "--eval_iters=2",
    "--learning_rate=3e-3",
    "--warmup_iters=5",
    "--lr_decay_iters=30",
    "--dropout=0.1",
    "--device=cpu",
];

/// A temporary folder.
pub struct TempDir(pub PathBuf);

impl TempDir {
    /// An empty one.
    pub fn empty(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("fitgpt-bin-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    /// One with `data/tiny`.
    pub fn new(name: &str) -> TempDir {
        let dir = TempDir::empty(name);
        let ids = |seed| walk(seed, 3000, CHARACTERS.chars().count() as u64);
        dir.data_set("tiny", &ids(1), &ids(2));
        let table = CharTokenizer::new(CHARACTERS.chars().collect());
        let meta = Meta::new(CHARACTERS.chars().count() as u32, table);
        dir.write("data/tiny/meta.pkl", &meta.to_pickle());
        dir
    }

    /// Writes `data/<name>/{train,val}.bin`.
    pub fn data_set(&self, name: &str, train: &[u16], val: &[u16]) {
        let bytes = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
        self.write(&format!("data/{name}/train.bin"), &bytes(train));
        self.write(&format!("data/{name}/val.bin"), &bytes(val));
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.0.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// The binary, in this folder, with an environment of its own.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fitgpt"));
        self.isolate(command.args(arguments));
        command
    }

    /// A shell's script with the binary as `$0` and the arguments as `$@`, in the same environment.
    pub fn shell(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        self.isolate(command.args(["-c", script, env!("CARGO_BIN_EXE_fitgpt")]).args(arguments));
        command
    }

    /// No cache, no variable of the machine's changes what a test sees.
    pub fn isolate(&self, command: &mut Command) {
        command.current_dir(&self.0).env("OMP_NUM_THREADS", "2");
        command.env("XDG_CACHE_HOME", self.0.join("no-cache")).env_remove("FITGPT_CACHE");
        for variable in ["CARGO_MANIFEST_DIR", "NO_COLOR", "CLICOLOR_FORCE", "WORLD_SIZE"] {
            command.env_remove(variable);
        }
        for variable in [
            "HF_HOME",
            "HF_HUB_CACHE",
            "HF_ENDPOINT",
            "HF_TOKEN",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
        ] {
            command.env_remove(variable);
        }
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::from(self.command(arguments).output().unwrap())
    }

    /// `train` with the tiny model and more.
    pub fn train(&self, more: &[&str]) -> Ended {
        self.run(&[&["train"], TINY, more].concat())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How the binary ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, error) = (text(output.stdout), text(output.stderr));
        Ended { code: output.status.code(), out, error }
    }
}

impl Ended {
    #[track_caller]
    pub fn succeeded(self) -> Ended {
        assert_eq!((self.code, self.error.as_str()), (Some(0), ""), "{}", self.out);
        self
    }

    /// One line of error, this exit code, these words.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.error.starts_with("error: "), "{self:?}");
        assert_eq!(self.error.trim_end().lines().count(), 1, "{}", self.error);
        for word in words {
            assert!(self.error.contains(word), "{word:?} is not in: {}", self.error);
        }
        self
    }

    /// The lines that begin like this.
    pub fn lines(&self, beginning: &str) -> Vec<&str> {
        self.out.lines().filter(|line| line.starts_with(beginning)).collect()
    }
}

/// A noisy walk over the vocabulary: the next id depends on the last one and on a linear
/// congruential generator. `nanogpt_run.py` has the same.
pub fn walk(seed: u64, length: usize, vocabulary: u64) -> Vec<u16> {
    let (mut noise, mut here) = (seed, 0);
    let mut step = || {
        noise = (noise * 1_103_515_245 + 12_345) % (1 << 31);
        here = (here * 5 + (noise >> 16) % 4) % vocabulary;
        here as u16
    };
    (0..length).map(|_| step()).collect()
}

/// Every tensor of a checkpoint, checked, by name.
pub fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let reader = Reader::open(path).unwrap();
    reader.verify().unwrap();
    let content = |index: usize, bytes: u64| {
        let mut content = vec![0; bytes as usize];
        reader.read(index, &mut content).unwrap();
        content
    };
    let named = reader.tensors().iter().enumerate();
    named.map(|(at, info)| (info.name.clone(), content(at, info.bytes().unwrap()))).collect()
}

/// What a checkpoint says of its run.
pub fn document(path: &Path) -> serde_json::Value {
    serde_json::from_str(Reader::open(path).unwrap().document()).unwrap()
}
