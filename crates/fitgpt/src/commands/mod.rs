//! The table of commands, their help, and what every command needs of the outside world.

mod bench;
mod data;
mod devices;
mod doctor;
pub mod plan;
mod prepare;
mod sample;
mod train;

use crate::screen;
use ::train::TrainError;
use spec::shell::quoted;
use spec::{Environment, SpecError, World, documents};
use std::io::{ErrorKind, Read};
use std::time::{SystemTime, UNIX_EPOCH};

/// The exit code of a run that was asked to stop.
const INTERRUPTED: u8 = 130;

/// Bytes of a config file that are read; the reader refuses it long before.
const MOST_CONFIG_BYTES: u64 = 2 << 20;

/// One row of the table.
struct Command {
    name: &'static str,
    /// One line.
    about: &'static str,
    /// What `--help` says before the keys.
    help: &'static str,
    /// Whose keys it takes; none where it takes none.
    keys: Option<spec::Command>,
    run: fn(&[String]) -> Result<u8, TrainError>,
}

const COMMANDS: [Command; 8] = [
    Command {
        name: "train",
        about: "train on your text (train book.txt), by a config, or the built-in demo",
        help: "\
Trains a GPT: without arguments a small character model on the built-in corpus, in two minutes on
two cores; on your own text with a model sized for this machine and the time you give it; or what a
config file says (nanoGPT's .py, or .toml), as nanoGPT's train.py does.

  fitgpt train [--key=value ...]                                        the built-in run
  fitgpt train TEXT|FOLDER|DATA_SET [--time 10min] [--key=value ...]    your own text
  fitgpt train config.py|config.toml ... [--key=value ...]              a config file

  fitgpt train --n_layer=4 --dropout=0.1               the built-in run with another model
  fitgpt train book.txt --time 30min                   prepares data/book, trains into out-book
  fitgpt train book.txt                                again: resumes what was interrupted
  fitgpt train config/train_shakespeare_char.py        on the GPU, if there is one
  fitgpt train config/case_a_124m_b64.py --vram=8GiB   never more than that of the GPU's memory
  fitgpt train --init_from=resume --out_dir=out        go on where a run stopped

Arguments are read from left to right, later wins. Ctrl-C saves and leaves with exit code 130; a
second Ctrl-C leaves at once. nanoGPT's bare train.py is `train config/train_gpt2.py`.
`fitgpt devices` shows what computes here; --device=cpu leaves the GPU alone. OMP_NUM_THREADS limits
the threads on the CPU.

flags:
  --time DURATION      for your own text: total time, preparation included, such as 90s, 10min (the
                       default), 2h
  --yes                start a run of more than a week without asking
",
        keys: Some(spec::Command::Train),
        run: train::run,
    },
    Command {
        name: "plan",
        about: "the bill before the run: memory by role and phase, the plan, its speed",
        help: "\
Plans a training run and shows the bill: every byte by role, the peak of each phase, how the batch
is cut, what is recomputed, how fast it will be. It needs no data set and no GPU.

  fitgpt plan [config.py|config.toml ...] [--key=value ...] [flags]

  fitgpt plan                                            the built-in run on this CPU
  fitgpt plan config/case_a_124m_b64.py --gpu 'RTX 4070'
  fitgpt plan config/case_a_124m_b64.py --vram 8GiB --json
  fitgpt plan config/train_gpt2.py --gpu 'RTX 3060' --sweep batch_size=8,16,32

flags:
  --gpu NAME           a card by name, with the memory a program gets of it; `--gpu list` lists them
  --vram SIZE          so much memory: '11.69GiB', '8GB', or '80%' of the card that --gpu names;
                       without --gpu, of the GPU that is here if it has as much
  --json               one JSON document (fitgpt.plan/1, docs/plan-json.md) on standard output
  --svg FILE           the arena as a picture: time across, address up, coloured by role; - is
                       standard output
  --sweep KEY=A,B,C    a row for each value of a key; a width gets heads that divide it; repeat
                       it for a grid
  --measure            run the plan's steps here once, and predict by their times from now on

Both --gpu and --vram plan for CUDA in the config's dtype. Exit code 3: it does not fit; what is
missing, the largest tensors and settings that fit are told.
",
        keys: Some(spec::Command::Train),
        run: plan::run,
    },
    Command {
        name: "doctor",
        about: "why a PyTorch run died of memory, and what to change",
        help: "\
Reads the log of a run that died with `CUDA out of memory` and says which tensor did not fit, in
which phase, where the rest of the memory was, which of the usual advice helps here, what to change
in nanoGPT, and the command that runs it with fitgpt as it was typed. No device, no network.

  fitgpt doctor [LOG|-] [config.py|config.toml ...] [--key=value ...] [flags]

  fitgpt doctor oom.log
  python train.py config/mine.py 2>&1 | tee run.log; fitgpt doctor run.log config/mine.py
  fitgpt doctor config/case_a_124m_b64.py --gpu 'RTX 4070'      would it die in PyTorch?

flags:
  --gpu NAME           the card, where the log does not name it
  --vram SIZE          memory that the run could have had: '11.69GiB', '8GB'
  --json               one JSON document (fitgpt.doctor/1, docs/doctor-json.md)
  --markdown           the report as a document
  --lang LANGUAGE      en, ja, zh, de, fr; else what LANG says

Keys are nanoGPT's and complete what the log echoes.
",
        keys: Some(spec::Command::Train),
        run: doctor::run,
    },
    Command {
        name: "sample",
        about: "write text with a trained model",
        help: "\
Writes text with a trained model, as nanoGPT's sample.py does. The text goes to standard output as
it is made, everything else to standard error.

  fitgpt sample [config.py|config.toml ...] [--key=value ...]

  fitgpt sample                                        the newest run in this folder
  fitgpt sample --out_dir=out --num_samples=1 --start='Once upon a time'
  fitgpt sample --out_dir=out --start=FILE:prompt.txt --temperature=1.0 --top_k=0
  fitgpt sample --out_dir=out/last.safetensors         this very checkpoint

Of a folder, best.safetensors is taken, or last.safetensors where there is no best one.
",
        keys: Some(spec::Command::Sample),
        run: sample::run,
    },
    Command {
        name: "prepare",
        about: "text, JSON, CSV, parquet or a known data set into train.bin and val.bin",
        help: "\
Turns text into nanoGPT's files: train.bin, val.bin and, for characters, meta.pkl. All cores, less
than 1 GiB of memory whatever the size. Ctrl-C, kill -9 or a full disk lose nothing: the same
command goes on where it stopped, and gives the same bytes.

  fitgpt prepare SOURCE ... --out FOLDER [flags]

  fitgpt prepare shakespeare_char                        into data/shakespeare_char
  fitgpt prepare book.txt --out data/book --tokenizer char
  fitgpt prepare fineweb-edu --out data/fineweb-edu --max-tokens 1B
  fitgpt prepare 'corpus/*.jsonl.zst' --field content --out data/mine
  zcat notes.gz | fitgpt prepare - --out data/notes

A source is a file, a folder, a pattern, an http(s) address, - for standard input, or a known name:
shakespeare_char, shakespeare, openwebtext, fineweb-edu, fineweb (sample-10BT, or another config
behind a slash: fineweb/sample-100BT), tinystories. .jsonl, .json (one object per line, or a list of
objects), .csv, .tsv, .parquet, .gz and .zst are known by their endings, JSON on standard input by
its first bytes; everything else is text, a file a document. A single text is divided by position,
as nanoGPT's shakespeare scripts do; documents as a whole, each followed by <|endoftext|>.

flags:
  --out FOLDER         the data set's folder; a known name goes to data/NAME without it
  --tokenizer NAME     gpt2, char, or the path of a tokenizer.json with byte-level BPE
  --val SHARE          for validation: 0.1 of a single text, 0.0005 of documents
  --field NAME         the field with the text in JSON: text
  --column NAME        the column with the text in parquet, .csv and .tsv: text
  --format FORMAT      of standard input and files of unknown ending: text, jsonl, json, csv, tsv or
                       parquet; text also reads .json, .csv and .tsv as plain text
  --max-tokens N       enough to train on, such as 50M or 1B
  --seed N             of the split of documents: 2357, as nanoGPT's
  --workers N          threads that encode: as many as there are cores, at most 64
  --dry-run            show what would be done
  --keep-downloads     leave downloaded files in FOLDER/downloads
  --overwrite          replace another data set in FOLDER
  --ignore-space       begin though the disk looks too small

HF_ENDPOINT names another hub, HF_TOKEN who asks it.
",
        keys: None,
        run: prepare::run,
    },
    Command {
        name: "data",
        about: "a look into a data set: its size, its first documents",
        help: "\
Looks into a data set, whoever made it.

  fitgpt data stats FOLDER                               tokens, documents, ids
  fitgpt data head FOLDER [--documents N] [--split val]  the first documents as text

A name that is no data set here is looked for in data/.
",
        keys: None,
        run: data::run,
    },
    Command {
        name: "devices",
        about: "what computes here, what it can do, who holds its memory",
        help: "\
Lists the CPU, every NVIDIA GPU and the libraries that plans need on one: memory, number formats,
load, and which processes hold memory. What is missing is a line that says what to install.
Nothing is taken of a GPU.

  fitgpt devices [flags]

  fitgpt devices
  fitgpt devices --watch 1                               a live view until Ctrl-C

flags:
  --watch SECONDS      look again every so many seconds; in a pipe a block each time
  --json               one JSON document (fitgpt.devices/1, docs/devices-json.md) on standard
                       output; with --watch one in each line
",
        keys: None,
        run: devices::run,
    },
    Command {
        name: "bench",
        about: "time a run's iterations and steps here, beside what bounds them",
        help: "\
Plans a training run as `train` does and times it on random tokens: whole iterations, evaluation
batches, then each step beside the ceiling that bounds it. It needs no data set and writes no
checkpoint. The times of steps are kept, and `plan` predicts by them.

  fitgpt bench [config.py|config.toml ...] [--key=value ...] [flags]

  fitgpt bench                                           the built-in run
  fitgpt bench config/case_a_124m_b64.py --vram=11.69GiB --json

flags:
  --iterations N       so many timed iterations; else up to 20 that fit in about ten seconds, at
                       least 5
  --json               one JSON document (fitgpt.bench/1, docs/bench-json.md) on standard output
  --no-keep            leave the kept times as they are
",
        keys: Some(spec::Command::Train),
        run: bench::run,
    },
];

/// Runs the command that the arguments name; gives the exit code.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let wants_help = |argument: &String| matches!(argument.as_str(), "-h" | "--help");
    match arguments.split_first() {
        None => {
            show(&overview())?;
            Ok(2)
        }
        Some((first, rest)) if wants_help(first) || first == "help" => {
            let named = rest.first().and_then(|name| find(name));
            show(&named.map_or_else(overview, help))?;
            Ok(0)
        }
        Some((first, _)) if first == "--version" || first == "-V" => {
            show(&format!("fitgpt {}\n", env!("CARGO_PKG_VERSION")))?;
            Ok(0)
        }
        Some((first, rest)) => {
            let command = find(first).ok_or_else(|| unknown(first))?;
            if rest.iter().any(wants_help) {
                show(&help(command))?;
                return Ok(0);
            }
            (command.run)(rest)
        }
    }
}

/// Text that was asked for. Who has stopped reading has read enough.
fn show(text: &str) -> Result<(), TrainError> {
    match screen::out(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(TrainError::Output(error)),
        _ => Ok(()),
    }
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

fn unknown(first: &str) -> TrainError {
    let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    let shown: String = first.chars().take(40).collect();
    let what = format!("unknown command '{shown}'; commands: {} (fitgpt --help)", names.join(", "));
    SpecError::Conflict { what }.into()
}

fn overview() -> String {
    let mut text = format!(
        "fitgpt {}: trains GPT-2-class models in memory that is planned before the first step\n\n\
         fitgpt <command> [config.py|config.toml ...] [--key=value ...]\n\n",
        env!("CARGO_PKG_VERSION")
    );
    for Command { name, about, .. } in &COMMANDS {
        text += &format!("  {name:<8} {about}\n");
    }
    text += "\nfitgpt <command> --help lists the keys of a command with their defaults.\n\
             Exit codes: 0 done, 1 failed, 2 usage or config, 3 does not fit, \
             4 data or checkpoint,\n5 device, 130 interrupted.\n";
    text
}

fn help(command: &'static Command) -> String {
    let keys = command.keys.map(|keys| documents::help(keys, screen::width()));
    format!("{}{}", command.help, keys.unwrap_or_default())
}

/// Settings from the arguments behind a command.
pub fn settings(
    command: spec::Command,
    arguments: &[String],
) -> Result<spec::Settings, TrainError> {
    crate::device::check_memory()?;
    Ok(with_world(|world| spec::Settings::read(command, arguments, world))?)
}

/// Files and the clock, for those who read settings.
fn with_world<T>(work: impl FnOnce(&World<'_>) -> T) -> T {
    let read = |path: &str| {
        let mut content = Vec::new();
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        std::fs::File::open(path)?.take(MOST_CONFIG_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MOST_CONFIG_BYTES {
            let what = format!("it has more than {MOST_CONFIG_BYTES} bytes: is it a config?");
            return Err(std::io::Error::other(what));
        }
        Ok(content)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    work(&World { read: &read, unix_time: now })
}

/// What the process was started with.
pub fn environment() -> Environment {
    Environment {
        world_size: std::env::var("WORLD_SIZE").ok(),
        cuda_devices: crate::device::gpu_count(),
    }
}

/// How this program was started, for commands that are printed to be typed.
pub fn program() -> String {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return "cargo run --release --".to_string();
    }
    let typed = std::env::args_os().next().map(|name| name.to_string_lossy().into_owned());
    quoted(&typed.unwrap_or_else(|| "fitgpt".to_string()))
}
