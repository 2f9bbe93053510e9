//! What a test needs from the machine: a GPU, NVRTC, Python, … A test that does not find it calls
//! [`absent`] and returns. `cargo xtask check` counts these calls and lists them at its end, and
//! `FITGPT_REQUIRE=nvrtc,python` turns them into failures. For tests only.
//!
//! ```no_run
//! use fitgpt_requires::{Need, absent};
//!
//! fn a_test() {
//!     let Ok(compiler) = std::env::var("A_COMPILER") else {
//!         return absent(Need::Nvrtc, "A_COMPILER names none");
//!     };
//!     assert!(!compiler.is_empty());
//! }
//! a_test();
//! ```

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write;
use std::panic::Location;

/// The variable with the needs, separated by commas, whose absence is a failure.
pub const REQUIRE: &str = "FITGPT_REQUIRE";

/// The variable with the file that skipped tests are recorded in.
pub const SKIPS: &str = "FITGPT_SKIPS";

/// Declares the needs, each with its name in `FITGPT_REQUIRE` and its label in the summary.
macro_rules! needs {
    ($($(#[$about:meta])* $need:ident = $name:literal, $label:literal;)+) => {
        /// Something that a machine may lack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Need { $($(#[$about])* $need,)+ }

        impl Need {
            const ALL: &'static [Need] = &[$(Need::$need),+];

            /// Its name in `FITGPT_REQUIRE`.
            pub const fn name(self) -> &'static str {
                match self { $(Need::$need => $name,)+ }
            }

            /// Its label in the summary.
            const fn label(self) -> &'static str {
                match self { $(Need::$need => $label,)+ }
            }
        }
    };
}

needs! {
    /// An NVIDIA GPU with a driver.
    Gpu = "gpu", "GPU";
    /// NVRTC, which compiles the kernels without a GPU.
    Nvrtc = "nvrtc", "NVRTC";
    /// An NVRTC new enough for every architecture that we compile for.
    Architectures = "architectures", "NVRTC for all architectures";
    /// A CPU with AVX-512.
    Avx512 = "avx512", "AVX-512";
    /// A CPU with AVX2.
    Avx2 = "avx2", "AVX2";
    /// Python with safetensors and numpy.
    Python = "python", "Python";
    /// Python with the programs that plot: tensorboard and trackio.
    Peers = "peers", "TensorBoard and trackio";
    /// NCCL, which moves bytes between GPUs.
    Nccl = "nccl", "NCCL";
    /// An MPI with the standard ABI, and its `mpiexec`.
    Mpi = "mpi", "MPI";
    /// Linux with `/proc`.
    Linux = "linux", "Linux";
    /// Permission to mount a small file system.
    Mount = "mount", "mount";
    /// Permission to make control groups.
    Cgroup = "cgroup", "control groups";
    /// Permission to make network namespaces, and `ip`.
    Netns = "netns", "network namespaces";
    /// A second file system.
    FileSystem = "filesystem", "second file system";
    /// Root's rights.
    Root = "root", "root";
    /// A user without root's rights, to whom the system refuses things.
    User = "user", "user other than root";
    /// `rustc`, to build a library for one test.
    Rustc = "rustc", "rustc";
    /// `script`, which makes a pseudo-terminal.
    Script = "script", "script";
    /// `bash` and its `ulimit`.
    Bash = "bash", "bash";
    /// `mkfifo`.
    Mkfifo = "mkfifo", "mkfifo";
    /// `openssl`, for a server with a certificate that nobody trusts.
    Openssl = "openssl", "openssl";
}

/// The needs in the value of `FITGPT_REQUIRE`; the error names a word that is none.
pub fn required(value: &str) -> Result<Vec<Need>, String> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    let need = |word: &str| match Need::ALL.iter().find(|need| need.name() == word) {
        Some(need) => Ok(*need),
        None => {
            let known: Vec<&str> = Need::ALL.iter().map(|need| need.name()).collect();
            Err(format!("{REQUIRE}: nothing is called '{word}'; known: {}", known.join(", ")))
        }
    };
    words.map(need).collect()
}

/// Says that the running test checks nothing because the machine lacks something. Fails the test
/// where `FITGPT_REQUIRE` names it; else prints why and records it in the file of `FITGPT_SKIPS`.
#[track_caller]
pub fn absent(need: Need, why: impl Display) {
    let value = std::env::var(REQUIRE).unwrap_or_default();
    match required(&value) {
        Ok(all) => {
            let name = need.name();
            assert!(!all.contains(&need), "{REQUIRE} names {name}, which is missing here: {why}");
        }
        Err(problem) => assert!(problem.is_empty(), "{problem}"),
    }
    println!("skipped: {why}");
    if let Some(path) = std::env::var_os(SKIPS) {
        let why = why.to_string().replace(['\n', '\t'], " ");
        let line = format!("{}\t{}\t{why}\n", need.name(), running_test(Location::caller()));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{SKIPS}: {}: {written:?}", path.display());
    }
}

/// The crate and test that runs. On the main thread (one test at a time) its place in the source.
fn running_test(caller: &Location) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let package = package.strip_prefix("fitgpt-").unwrap_or(&package);
    match std::thread::current().name() {
        None | Some("main") => format!("{package}::{}:{}", caller.file(), caller.line()),
        Some(test) => format!("{package}::{test}"),
    }
}

/// What was skipped, read from the file of `FITGPT_SKIPS`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    tests: BTreeMap<String, BTreeSet<String>>,
}

impl Skipped {
    /// Reads the records; a test that says the same twice counts once.
    pub fn read(records: &str) -> Skipped {
        let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in records.lines() {
            let (need, rest) = line.split_once('\t').unwrap_or((line, ""));
            let test = rest.split('\t').next().unwrap_or_default();
            tests.entry(need.to_owned()).or_default().insert(test.to_owned());
        }
        Skipped { tests }
    }

    /// One line for each need with its tests, then the counts: `skipped: 9 GPU, 1 NVRTC`.
    pub fn report(&self) -> String {
        let row = |need: &Need| Some((need.label(), self.tests.get(need.name())?));
        let rows = Need::ALL.iter().filter_map(row);
        let mut lines = Vec::new();
        let mut counts = Vec::new();
        for (label, tests) in rows {
            let names: Vec<&str> = tests.iter().map(String::as_str).collect();
            lines.push(format!("no {label}: {}", names.join(", ")));
            counts.push(format!("{} {label}", tests.len()));
        }
        if counts.is_empty() {
            counts.push("nothing".to_owned());
        }
        lines.push(format!("skipped: {}", counts.join(", ")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    const CHILD: &str = "FITGPT_REQUIRES_CHILD";

    /// Skips only in the process that the tests below start.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_some() {
            absent(Need::Nvrtc, "there is\nno compiler");
        }
    }

    fn run_child(require: &str, skips: &std::path::Path) -> (bool, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::child", "--nocapture", "--test-threads=2"]);
        command.env(CHILD, "1").env(REQUIRE, require).env(SKIPS, skips);
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (status.success(), text.concat())
    }

    #[test]
    fn absence_is_recorded_or_a_failure() {
        let name = format!("fitgpt-requires-{}", std::process::id());
        let skips = std::env::temp_dir().join(name);
        let (passed, text) = run_child("gpu, python", &skips);
        assert!(passed && text.contains("skipped: there is\nno compiler"), "{text}");
        let records = std::fs::read_to_string(&skips).unwrap();
        std::fs::remove_file(&skips).unwrap();
        assert!(records.ends_with("::tests::child\tthere is no compiler\n"), "{records}");
        assert!(Skipped::read(&records).report().ends_with("\nskipped: 1 NVRTC"), "{records}");
        for (require, want) in [
            ("gpu,nvrtc", "FITGPT_REQUIRE names nvrtc, which is missing here: there is"),
            ("nvtrc", "nothing is called 'nvtrc'; known: gpu, nvrtc, "),
        ] {
            let (passed, text) = run_child(require, &skips);
            assert!(!passed && text.contains(want), "{require}: {text}");
            assert!(!skips.exists(), "a failure is no skip");
        }
    }

    /// Two needs with one name would be counted together.
    #[test]
    fn every_need_has_a_name_of_its_own_and_is_reported() {
        let names: BTreeSet<&str> = Need::ALL.iter().map(|need| need.name()).collect();
        assert_eq!(names.len(), Need::ALL.len());
        for need in Need::ALL {
            assert_eq!(required(need.name()), Ok(vec![*need]));
            let records = format!("{}\ta::x\twhy\n", need.name());
            let want = format!("no {0}: a::x\nskipped: 1 {0}", need.label());
            assert_eq!(Skipped::read(&records).report(), want);
        }
    }

    #[test]
    fn a_test_counts_once_and_needs_are_in_order() {
        let records = "python\ta::x\twhy\ngpu\ta::y\twhy\ngpu\ta::y\twhy\ngpu\tb::z\twhy\n";
        let want = "no GPU: a::y, b::z\nno Python: a::x\nskipped: 2 GPU, 1 Python";
        assert_eq!(Skipped::read(records).report(), want);
        assert_eq!(Skipped::read("").report(), "skipped: nothing");
    }
}
