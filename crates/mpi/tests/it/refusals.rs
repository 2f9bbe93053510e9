//! Machines without a usable MPI: one line that names the package. Each case is this program in a
//! process of its own, with its own environment.

use fitgpt_mpi::{ENVIRONMENT, World};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = "FITGPT_MPI_REFUSED";

/// Prints what `World::start` says; nothing in an ordinary run of the tests.
#[test]
fn a_process() {
    if std::env::var_os(CHILD).is_some() {
        match World::start() {
            Ok(world) => println!("said: {world:?}"),
            Err(error) => println!("said: {error}"),
        }
    }
}

fn start_with(folder: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "refusals::a_process", "--nocapture"]);
    let output = command.env(CHILD, "1").env(ENVIRONMENT, folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| Some(line.split_once("said: ")?.1));
    line.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fitgpt-mpi-{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    folder
}

#[test]
fn a_folder_without_mpi_is_named() {
    let folder = scratch("none");
    let said = start_with(&folder);
    let want = format!("FITGPT_MPI={}: there is no lib/libmpi_abi.so.1; ", folder.display());
    assert!(said.contains(&want) && said.contains("`pip install mpich`"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_that_is_no_library_is_told_with_the_loaders_words() {
    let folder = scratch("rubbish");
    std::fs::write(folder.join("lib/libmpi_abi.so.1"), "no library").unwrap();
    let said = start_with(&folder);
    assert!(
        said.contains("MPI (libmpi_abi.so.1) was not found; install it with `pip install mpich`")
    );
    assert!(said.contains("(the loader said: "), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// libc under MPI's name: it loads and has none of the functions.
#[test]
fn a_library_without_the_functions_is_too_old() {
    let places = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    let Some(libc) = places.iter().find(|path| Path::new(path).exists()) else {
        return requires::absent(
            requires::Need::Linux,
            "there is no libc.so.6 in the usual places",
        );
    };
    let folder = scratch("old");
    std::os::unix::fs::symlink(libc, folder.join("lib/libmpi_abi.so.1")).unwrap();
    let said = start_with(&folder);
    assert!(said.contains("is too old: it has no MPI_Initialized; update it"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}
