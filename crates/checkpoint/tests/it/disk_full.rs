//! A disk that is really full, and one that is really read-only. The test mounts a small in-memory
//! file system that only its child process sees. Skipped where mounting is not allowed.

use crate::fixture::{TempDir, rerun};
use fitgpt_checkpoint::{Dtype, Reader, SaveError, SaveProblem, TensorInfo, link_best, save};
use requires::{Need, absent};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = "FITGPT_CHECKPOINT_FULL_CHILD";
const SKIPPED: &str = "cannot mount";

#[test]
fn the_old_checkpoint_survives_a_full_disk() {
    let dir = TempDir::new("full");
    // In a user namespace where that is allowed, otherwise as root.
    for namespaces in ["-rm", "-m"] {
        let child = rerun("disk_full::child", CHILD, &dir.0);
        let mut command = Command::new("unshare");
        command.arg(namespaces).arg(child.get_program()).args(child.get_args());
        let Ok(output) = command.env(CHILD, &dir.0).output() else {
            return absent(Need::Mount, "there is no unshare here");
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        if text.contains(SKIPPED) || (text.is_empty() && errors.contains("unshare")) {
            continue;
        }
        assert!(output.status.success(), "{text}{errors}");
        assert!(text.contains("survived"), "the child did not run: {text}{errors}");
        return;
    }
    absent(Need::Mount, "mounting is not allowed here");
}

fn mount(options: &str, directory: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory);
    command.status().is_ok_and(|status| status.success())
}

fn save_bytes(path: &Path, bytes: u64) -> Result<u64, SaveError> {
    let tensors = [TensorInfo::new("x", Dtype::U8, &[bytes / 2])];
    let tensors = [&tensors[..], &[TensorInfo::new("y", Dtype::U8, &[bytes / 2])]].concat();
    save(path, &bytes.to_string(), &tensors, &mut vec![1; bytes as usize], |_, _| {
        Ok::<(), String>(())
    })
}

/// Does its work only in the process that the test above starts.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    if !mount("size=1m", &directory) {
        return println!("{SKIPPED}");
    }
    let [last, best] = ["last", "best"].map(|name| directory.join(name));
    let check = |bytes: u64, names: usize| {
        let reader = Reader::open(&last).unwrap();
        reader.verify().unwrap();
        assert_eq!(reader.document(), bytes.to_string());
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), names);
    };
    save_bytes(&last, 500_000).unwrap();
    link_best(&last, &best).unwrap();
    check(500_000, 2);
    let error = save_bytes(&last, 700_000).unwrap_err();
    println!("{error}");
    let SaveProblem::DiskFull { needed, free: Some(free) } = error.problem else {
        panic!("{error}");
    };
    assert!(needed > 700_000 && free < 600_000 && free > 400_000, "{needed} {free}");
    check(500_000, 2);
    // The failed save freed its space.
    save_bytes(&last, 400_000).unwrap();
    check(400_000, 2);
    assert!(mount("remount,ro,size=1m", &directory));
    for error in [save_bytes(&last, 10).unwrap_err(), link_best(&last, &best).unwrap_err()] {
        println!("{error}");
        let text = error.to_string();
        assert!(text.ends_with("; choose a directory that can be written to"), "{text}");
    }
    check(400_000, 2);
    println!("survived");
}
