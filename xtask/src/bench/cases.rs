//! The cases of `cargo xtask bench --case`: what both programs train, and the commands that time
//! them.

use super::options::Options;
use super::record::Who;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Script around nanoGPT's model; it takes settings as nanoGPT's configurator does.
pub const PEER_SCRIPT: &str = "xtask/peers/nanogpt_gpu.py";

/// GPU memory that fitgpt may use, unless `--vram` says otherwise: what a 12 GB card has free.
pub const VRAM: &str = "11.69GiB";

/// The case that every lot begins and ends with.
pub const ANCHOR: &str = "a";

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Iterations on random tokens.
    Iterations,
    /// Iterations of ours; nanoGPT's work is that of the anchor, and is not repeated.
    AnchorOfPeer,
    /// A run from start to end with its evaluations, on nanoGPT's own data folder; and iterations
    /// of ours.
    WholeRun,
    /// Iterations of our `train`, with an empty cache and again; and of our `bench`.
    Loop,
}

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it is, for the table.
    pub about: &'static str,
    config: &'static str,
    /// Settings on top of the config, for both programs.
    settings: &'static str,
    /// Settings that only fitgpt has.
    ours: &'static str,
    /// Settings on top of these for nanoGPT alone.
    theirs: &'static str,
    limited: bool,
    /// What is timed.
    pub work: Work,
}

const GPT2: &str = "config/train_gpt2.py";
const LEVERS: &str = "--offload=auto --optimizer_state=auto";
const XL: &str = "--n_layer=48 --n_head=25 --n_embd=1600 --batch_size=4 \
                  --gradient_accumulation_steps=16";

/// GPT-2 124M with a limit on memory: the cases change what they name.
const USUAL: Case = Case {
    name: "",
    about: "",
    config: GPT2,
    settings: "",
    ours: "",
    theirs: "",
    limited: true,
    work: Work::Iterations,
};

/// All cases.
pub static CASES: [Case; 15] = [
    Case {
        name: ANCHOR,
        about: "124M, 64 x 1024, bfloat16",
        config: "config/case_a_124m_b64.py",
        ..USUAL
    },
    Case {
        name: "a-no-limit",
        about: "the same, without a limit",
        config: "config/case_a_124m_b64.py",
        limited: false,
        work: Work::AnchorOfPeer,
        ..USUAL
    },
    Case {
        name: "b",
        about: "77M, 16 x 32, float16",
        config: "config/case_b_77m_fp16.py",
        ..USUAL
    },
    Case {
        name: "350m",
        about: "350M, 12 x 8",
        settings: "--n_layer=24 --n_head=16 --n_embd=1024 --batch_size=12 \
                   --gradient_accumulation_steps=8",
        ..USUAL
    },
    Case {
        name: "774m",
        about: "774M, 4 x 16, levers permitted",
        settings: "--n_layer=36 --n_head=20 --n_embd=1280 --batch_size=4 \
                   --gradient_accumulation_steps=16",
        ours: LEVERS,
        ..USUAL
    },
    Case {
        name: "1558m",
        about: "1558M, 4 x 16, levers permitted",
        settings: XL,
        ours: LEVERS,
        ..USUAL
    },
    Case {
        name: "1558m-4x2",
        about: "1558M, 4 x 16; nanoGPT 4 x 2",
        settings: XL,
        ours: LEVERS,
        theirs: "--gradient_accumulation_steps=2",
        ..USUAL
    },
    Case {
        name: "t4096",
        about: "124M, T = 4096, 4 x 4",
        settings: "--block_size=4096 --batch_size=4 --gradient_accumulation_steps=4",
        ..USUAL
    },
    Case {
        name: "t256",
        about: "124M, T = 256, 64 x 4",
        settings: "--block_size=256 --batch_size=64 --gradient_accumulation_steps=4",
        ..USUAL
    },
    Case {
        name: "heads-of-128",
        about: "124M, 6 heads of 128, 12 x 8",
        settings: "--n_head=6 --batch_size=12 --gradient_accumulation_steps=8",
        ..USUAL
    },
    Case {
        name: "fp16",
        about: "124M, float16, 12 x 8",
        settings: "--dtype=float16 --batch_size=12 --gradient_accumulation_steps=8",
        ..USUAL
    },
    Case {
        name: "dropout",
        about: "124M, bias and dropout 0.1, 12 x 8",
        settings: "--dropout=0.1 --bias=True --batch_size=12 --gradient_accumulation_steps=8",
        ..USUAL
    },
    Case {
        name: "float32",
        about: "124M, float32 (TF32), 12 x 2",
        settings: "--dtype=float32 --batch_size=12 --gradient_accumulation_steps=2",
        ..USUAL
    },
    Case {
        name: "char",
        about: "the character model, 64 x 256, dropout 0.2",
        config: "config/train_shakespeare_char.py",
        work: Work::WholeRun,
        ..USUAL
    },
    Case {
        name: "loop",
        about: "124M, 64 x 1024: train beside bench",
        config: "config/case_a_124m_b64.py",
        work: Work::Loop,
        ..USUAL
    },
];

/// The case of a name.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// What one program does in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Times iterations.
    Iterations,
    /// Times iterations of our N-th best plan.
    Plan(u32),
    /// Trains from start to end.
    WholeRun,
    /// Trains a while with an empty cache: kernels are compiled, matmuls timed.
    ColdTrain,
    /// Trains a while with what `ColdTrain` left in the cache.
    WarmTrain,
}

impl Task {
    /// Its name in records.
    pub fn name(self) -> String {
        match self {
            Task::Iterations => "iterations".to_owned(),
            Task::Plan(rank) => format!("plan {rank}"),
            Task::WholeRun => "whole run".to_owned(),
            Task::ColdTrain => "train, empty cache".to_owned(),
            Task::WarmTrain => "train".to_owned(),
        }
    }

    /// The task of a name.
    pub fn of_name(name: &str) -> Option<Task> {
        let named = [Task::Iterations, Task::WholeRun, Task::ColdTrain, Task::WarmTrain];
        let rank = || name.strip_prefix("plan ")?.parse().ok().map(Task::Plan);
        named.into_iter().find(|task| task.name() == name).or_else(rank)
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Places {
    /// The folder that holds `config/` and `xtask/peers/`.
    pub root: PathBuf,
    /// Our binary.
    pub fitgpt: PathBuf,
    /// A checkout of nanoGPT.
    pub nanogpt: PathBuf,
    /// A folder for what the programs write.
    pub scratch: PathBuf,
}

impl Places {
    /// Our cache in the case `loop`.
    pub fn cache(&self) -> PathBuf {
        self.scratch.join("cache")
    }
}

impl Case {
    /// Layers, if the settings say so: how long it takes to compile.
    pub fn layers(&self) -> u32 {
        let said =
            self.settings.split_whitespace().find_map(|word| word.strip_prefix("--n_layer="));
        said.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// The programs of the case, in order, with this many of our best plans.
    pub fn turns(&self, best: u32) -> Vec<(Who, Task)> {
        let ours = |task| (Who::Fitgpt, task);
        match self.work {
            Work::Iterations => {
                let plans = (1..=best).map(|rank| ours(Task::Plan(rank)));
                let both = [ours(Task::Iterations), (Who::Nanogpt, Task::Iterations)];
                both.into_iter().chain(plans).collect()
            }
            Work::AnchorOfPeer => vec![ours(Task::Iterations)],
            Work::WholeRun => {
                let peer = (Who::Nanogpt, Task::WholeRun);
                vec![ours(Task::Iterations), ours(Task::WholeRun), peer]
            }
            Work::Loop => [Task::ColdTrain, Task::WarmTrain, Task::Iterations].map(ours).to_vec(),
        }
    }

    /// The command of one program.
    pub fn command(&self, who: Who, task: Task, places: &Places, options: &Options) -> Command {
        let mut command = match (who, task) {
            (Who::Fitgpt, Task::Iterations) => self.ours(places, options),
            (Who::Fitgpt, Task::Plan(rank)) => {
                let mut command = self.ours(places, options);
                command.arg(format!("--rank={rank}"));
                command
            }
            (Who::Fitgpt, Task::WholeRun | Task::ColdTrain | Task::WarmTrain) => {
                self.our_run(places, options)
            }
            (Who::Nanogpt, Task::Iterations) => self.theirs(places, options),
            (Who::Nanogpt, _) => self.their_run(places, options),
        };
        if self.work == Work::Loop {
            command.env("XDG_CACHE_HOME", places.cache());
        }
        if who == Who::Nanogpt {
            // Compiled once, read by every later run.
            command.env("TORCHINDUCTOR_CACHE_DIR", compile_cache());
            command.env("PYTHONUNBUFFERED", "1");
        }
        command
    }

    /// nanoGPT's command for a program that compiles, then waits to be asked.
    pub fn waiting(&self, places: &Places, options: &Options) -> Command {
        let mut command = self.command(Who::Nanogpt, Task::Iterations, places, options);
        command.arg("--wait");
        command
    }

    /// Times our iteration. It does not change the user's kept step times.
    fn ours(&self, places: &Places, options: &Options) -> Command {
        let mut command = Command::new(&places.fitgpt);
        command.current_dir(self.folder(places)).arg("bench").arg(places.root.join(self.config));
        command.args(self.settings.split_whitespace());
        command.args(self.our_settings(options));
        let iterations = match self.work {
            Work::Loop => LOOP_ITERATIONS,
            Work::Iterations | Work::AnchorOfPeer | Work::WholeRun => options.steps,
        };
        command.args(["--json", "--no-keep"]).arg(format!("--iterations={iterations}"));
        command
    }

    /// Times nanoGPT's iteration: our script around its model.
    fn theirs(&self, places: &Places, options: &Options) -> Command {
        let mut command = Command::new(&options.python);
        command.arg(places.root.join(PEER_SCRIPT)).arg("--nanogpt").arg(&places.nanogpt);
        command.arg("--config").arg(places.root.join(self.config));
        command.args(["--steps", &options.peer_steps().to_string()]);
        command.args(["--warmup", &options.warmup.to_string()]);
        command.args(["--compile", if options.compile { "1" } else { "0" }]);
        command.args(self.settings.split_whitespace());
        command.args(self.theirs.split_whitespace());
        command
    }

    fn our_run(&self, places: &Places, options: &Options) -> Command {
        let mut command = Command::new(&places.fitgpt);
        command.current_dir(self.folder(places)).arg("train").arg(places.root.join(self.config));
        command.args(self.settings.split_whitespace());
        command.args(self.our_settings(options));
        match self.work {
            Work::Loop => {
                command.args(LOOP.split_whitespace()).arg(out_dir(Who::Fitgpt, places));
                command.arg(format!("--max_iters={LOOP_ITERATIONS}"));
            }
            _ => {
                command.args(run_settings(Who::Fitgpt, places, options));
            }
        }
        command
    }

    /// nanoGPT's own train.py, in its own folder.
    fn their_run(&self, places: &Places, options: &Options) -> Command {
        let mut command = Command::new(&options.python);
        command.current_dir(self.folder(places)).arg("train.py");
        command.arg(places.root.join(self.config)).args(self.settings.split_whitespace());
        command.args(self.theirs.split_whitespace());
        command.arg(format!("--compile={}", if options.compile { "True" } else { "False" }));
        command.args(run_settings(Who::Nanogpt, places, options));
        command
    }

    /// Where the programs start, and so whose data they read.
    fn folder<'a>(&self, places: &'a Places) -> &'a Path {
        match self.work {
            Work::WholeRun => &places.nanogpt,
            Work::Loop => &places.scratch,
            Work::Iterations | Work::AnchorOfPeer => &places.root,
        }
    }

    fn our_settings(&self, options: &Options) -> Vec<String> {
        let mut settings = vec!["--device=cuda".to_owned()];
        if self.limited {
            settings.push(format!("--vram={}", options.vram()));
        }
        settings.extend(self.ours.split_whitespace().map(str::to_owned));
        settings
    }
}

/// Iterations of the case `loop`, in `train` and in `bench`. As many in both: a GPU that has
/// reached its power limit, after about ten seconds, is 2 % slower than a cool one.
const LOOP_ITERATIONS: u32 = 100;

/// Settings of `train` in the case `loop`: a line for each iteration, and one short evaluation
/// before the first.
const LOOP: &str = "--dataset=tokens --log_interval=1 --eval_iters=1 --eval_interval=1000";

/// Tokens of that data set, and its vocabulary: GPT-2's.
const TOKENS: usize = 1 << 20;
const VOCABULARY: f64 = 50257.0;

/// Writes the data set of the case `loop`: random tokens by Zipf's law, as text has.
pub fn write_tokens(scratch: &Path) -> std::io::Result<()> {
    let folder = scratch.join("data/tokens");
    std::fs::create_dir_all(&folder)?;
    let mut state: u64 = 1337;
    let token = || {
        // Knuth's generator; its upper bits are the better ones.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        (VOCABULARY.powf(uniform) - 1.0) as u16
    };
    let bytes: Vec<u8> =
        std::iter::repeat_with(token).take(TOKENS).flat_map(u16::to_le_bytes).collect();
    ["train.bin", "val.bin"].iter().try_for_each(|name| std::fs::write(folder.join(name), &bytes))
}

/// A folder for a run's checkpoint.
fn out_dir(who: Who, places: &Places) -> String {
    format!("--out_dir={}", places.scratch.join(who.name()).display())
}

/// Settings of a whole run: a new folder for its checkpoint, and a length.
fn run_settings(who: Who, places: &Places, options: &Options) -> Vec<String> {
    let mut settings = vec![out_dir(who, places)];
    settings.extend(options.char_iters.map(|iters| format!("--max_iters={iters}")));
    settings
}

/// The folder of nanoGPT's compiled kernels; it stays for the next lot.
pub fn compile_cache() -> PathBuf {
    std::env::var_os("TORCHINDUCTOR_CACHE_DIR")
        .map_or_else(|| std::env::temp_dir().join("fitgpt-bench-inductor"), PathBuf::from)
}

/// What must be there before anything runs.
pub fn check(places: &Places, cases: &[&Case]) -> Result<(), String> {
    if !places.fitgpt.is_file() {
        let what = "does not exist; run `cargo build --release`, or name it with --fitgpt";
        return Err(format!("{} {what}", places.fitgpt.display()));
    }
    let runs = cases.iter().any(|case| case.work == Work::WholeRun);
    let data = places.nanogpt.join("data/shakespeare_char/train.bin");
    if runs && !data.is_file() {
        return Err(format!(
            "the case char needs {}: run `fitgpt prepare shakespeare_char`, or nanoGPT's own \
             prepare.py, in the checkout",
            data.display()
        ));
    }
    Ok(())
}

/// The name of the GPU that torch would use, or why no comparison is possible.
pub fn gpu_by_torch(python: &str) -> Result<String, String> {
    const PROBE: &str = "import torch; c = torch.cuda; \
                         print(c.get_device_name(0) if c.is_available() else '')";
    let said = process::ask(Command::new(python).args(["-c", PROBE]));
    let said = said.ok_or(format!(
        "{python} has no torch; name a Python that has it with FITGPT_PYTHON or --python"
    ))?;
    match said.trim() {
        "" => Err("torch sees no GPU here".to_owned()),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, who: Who, task: Task, line: &str) -> String {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let places = Places {
            root: "/r".into(),
            fitgpt: "/r/fitgpt".into(),
            nanogpt: "/n".into(),
            scratch: "/s".into(),
        };
        let options = Options::parse(&args).unwrap();
        process::shown(&find(name).unwrap().command(who, task, &places, &options))
    }

    #[test]
    fn every_case_has_its_files_and_its_own_name() {
        let root = process::workspace_root();
        assert!(root.join(PEER_SCRIPT).is_file());
        for case in &CASES {
            assert!(root.join(case.config).is_file(), "{}", case.config);
            assert!(std::ptr::eq(find(case.name).unwrap(), case), "{}", case.name);
        }
    }

    #[test]
    fn both_programs_get_the_same_settings() {
        let line = "--case 774m --steps 7 --peer-steps 5 --compile 0 --python py";
        let settings = "--n_layer=36 --n_head=20 --n_embd=1280 --batch_size=4 \
                        --gradient_accumulation_steps=16";
        assert_eq!(
            shown("774m", Who::Fitgpt, Task::Iterations, line),
            format!(
                "/r/fitgpt bench /r/config/train_gpt2.py {settings} --device=cuda \
                 --vram=11.69GiB --offload=auto --optimizer_state=auto --json --no-keep \
                 --iterations=7"
            )
        );
        assert_eq!(
            shown("774m", Who::Nanogpt, Task::Iterations, line),
            format!(
                "py /r/xtask/peers/nanogpt_gpu.py --nanogpt /n --config /r/config/train_gpt2.py \
                 --steps 5 --warmup 3 --compile 0 {settings}"
            )
        );
    }

    #[test]
    fn settings_of_nanogpt_alone_come_last() {
        let of = |who| shown("1558m-4x2", who, Task::Iterations, "--case 1558m-4x2");
        assert!(of(Who::Nanogpt).ends_with("_steps=16 --gradient_accumulation_steps=2"));
        assert!(!of(Who::Fitgpt).contains("_steps=2"), "{}", of(Who::Fitgpt));
    }

    #[test]
    fn memory_is_limited_unless_the_case_says_otherwise() {
        let ours = |name| shown(name, Who::Fitgpt, Task::Iterations, "--case a --vram 9.7GiB");
        assert!(ours("a").contains(" --vram=9.7GiB "), "{}", ours("a"));
        assert!(!ours("a-no-limit").contains("--vram"), "{}", ours("a-no-limit"));
        let turns = find("a-no-limit").unwrap().turns(3);
        assert_eq!(turns, [(Who::Fitgpt, Task::Iterations)]);
    }

    #[test]
    fn whole_runs_have_one_length_and_folders_of_their_own() {
        let line = "--case char --char-iters 500 --python py";
        assert_eq!(
            shown("char", Who::Nanogpt, Task::WholeRun, line),
            "py train.py /r/config/train_shakespeare_char.py --compile=True \
             --out_dir=/s/nanogpt --max_iters=500"
        );
        assert_eq!(
            shown("char", Who::Fitgpt, Task::WholeRun, line),
            "/r/fitgpt train /r/config/train_shakespeare_char.py --device=cuda --vram=11.69GiB \
             --out_dir=/s/fitgpt --max_iters=500"
        );
        assert!(!shown("char", Who::Fitgpt, Task::WholeRun, "--case char").contains("max_iters"));
    }

    #[test]
    fn the_best_plans_are_timed_by_rank() {
        let turns = find("b").unwrap().turns(2);
        let (ours, theirs) = (Who::Fitgpt, Who::Nanogpt);
        let want = [
            (ours, Task::Iterations),
            (theirs, Task::Iterations),
            (ours, Task::Plan(1)),
            (ours, Task::Plan(2)),
        ];
        assert_eq!(turns, want);
        assert!(shown("b", ours, Task::Plan(2), "--case b").ends_with(" --rank=2"));
        for (_, task) in turns.into_iter().chain(find("loop").unwrap().turns(0)) {
            assert_eq!(Task::of_name(&task.name()), Some(task));
        }
        assert_eq!(Task::of_name("plan x"), None);
    }

    #[test]
    fn the_loop_trains_on_its_own_data_with_its_own_cache() {
        let line = shown("loop", Who::Fitgpt, Task::WarmTrain, "--case loop");
        assert!(line.contains("--vram=11.69GiB --dataset=tokens "), "{line}");
        assert!(line.ends_with(" --out_dir=/s/fitgpt --max_iters=100"), "{line}");
        let bench = shown("loop", Who::Fitgpt, Task::Iterations, "--case loop --steps 8");
        assert!(bench.ends_with(" --iterations=100"), "{bench}");
        let scratch = crate::scratch::ScratchFolder::new("tokens").unwrap();
        write_tokens(&scratch.path).unwrap();
        let read = std::fs::read(scratch.path.join("data/tokens/train.bin")).unwrap();
        let ids = || read.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        assert_eq!(read.len(), 2 * TOKENS);
        assert!(ids().all(|id| f64::from(id) < VOCABULARY) && ids().any(|id| id > 50_000));
        // Half of all tokens are among the first 224: the square root of the vocabulary.
        let frequent = ids().filter(|id| *id < 223).count() as f64 / TOKENS as f64;
        assert!((frequent - 0.5).abs() < 0.01, "{frequent}");
    }

    #[test]
    fn a_python_without_torch_is_named() {
        let why = gpu_by_torch("/no/such/python").unwrap_err();
        assert!(why.starts_with("/no/such/python has no torch"), "{why}");
    }
}
