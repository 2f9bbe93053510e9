//! The other files next to a checkpoint: temporary files of dead runs, and `best`.

use crate::fixture::{Saved, TempDir, sample};
use fitgpt_checkpoint::{BestLink, link_best, save};
use requires::{Need, absent};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

#[test]
fn files_of_dead_runs_are_removed() {
    let dir = TempDir::new("stale");
    // The second name has the number of a running process: this one.
    let own = format!("last.tmp-{}", std::process::id());
    for name in ["last.tmp-999999999", &own, "last.tmp-x", "best.tmp-999999999", "other"] {
        fs::write(dir.file(name), "left").unwrap();
    }
    sample().save(&dir.file("last")).unwrap();
    assert_eq!(dir.names(), ["best.tmp-999999999", "last", "last.tmp-x", "other"]);
    link_best(&dir.file("last"), &dir.file("best")).unwrap();
    assert_eq!(dir.names(), ["best", "last", "last.tmp-x", "other"]);
}

#[test]
fn files_that_are_being_written_are_left_alone() {
    let dir = TempDir::new("alive");
    let path = dir.file("last.tmp-999999999");
    let file = File::create(&path).unwrap();
    file.lock().unwrap();
    sample().save(&dir.file("last")).unwrap();
    assert!(path.exists());
    drop(file);
    sample().save(&dir.file("last")).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_save_inside_a_save_is_refused_and_does_no_harm() {
    let dir = TempDir::new("nested");
    let path = dir.file("last");
    let infos: Vec<_> = sample().tensors.into_iter().map(|(info, _)| info).collect();
    let mut refusals = 0;
    save(&path, &sample().document, &infos, &mut [0; 4096], |index, content| {
        let error = sample().save(&path).unwrap_err().to_string();
        assert!(error.contains("another save is under way in "), "{error}");
        refusals += 1;
        content.copy_from_slice(&sample().tensors[index].1);
        Ok::<(), String>(())
    })
    .unwrap();
    assert_eq!(refusals, infos.len());
    assert_eq!(Saved::load(&path).unwrap(), sample().by_name());
    assert_eq!(dir.names(), ["last"]);
}

#[test]
fn best_survives_the_next_save() {
    let dir = TempDir::new("best");
    let [last, best] = ["last", "best"].map(|name| dir.file(name));
    let version = |iteration: u32| Saved { document: iteration.to_string(), ..sample() };
    let document = |path| Saved::load(path).unwrap().document;
    version(1).save(&last).unwrap();
    // The second time, both names already refer to one file.
    for _ in 0..2 {
        assert_eq!(link_best(&last, &best).unwrap(), BestLink::Linked);
        assert_eq!(fs::metadata(&last).unwrap().ino(), fs::metadata(&best).unwrap().ino());
        assert_eq!(dir.names(), ["best", "last"]);
    }
    version(2).save(&last).unwrap();
    assert_eq!([document(&last), document(&best)], ["2", "1"]);
    link_best(&last, &best).unwrap();
    version(3).save(&last).unwrap();
    assert_eq!([document(&last), document(&best)], ["3", "2"]);
    assert_eq!(dir.names(), ["best", "last"]);
}

#[test]
fn best_of_nothing_is_refused() {
    let dir = TempDir::new("no-best");
    let error = link_best(&dir.file("last"), &dir.file("best")).unwrap_err().to_string();
    assert!(error.contains("cannot link the last checkpoint: No such file"), "{error}");
    assert!(dir.names().is_empty());
}

#[test]
fn best_elsewhere_is_a_copy() {
    let dir = TempDir::new("elsewhere");
    sample().save(&dir.file("last")).unwrap();
    let memory = std::path::Path::new("/dev/shm");
    let device = |path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(memory).is_none_or(|found| Some(found) == device(&dir.0)) {
        return absent(Need::FileSystem, "no other file system here");
    }
    let best = memory.join(format!("fitgpt-checkpoint-best-{}", std::process::id()));
    assert_eq!(link_best(&dir.file("last"), &best).unwrap(), BestLink::Copied);
    let copied = Saved::load(&best);
    fs::remove_file(&best).unwrap();
    assert_eq!(copied.unwrap(), sample().by_name());
}
