//! A disk that is full when the run saves: the run ends with a clear word, the old checkpoint stays
//! and the run goes on from it once there is room. Skipped where mounting is not allowed.

use crate::fixture::{Ended, Place, TINY, tensors};
use std::process::Command;

/// Runs in a mount namespace of its own with a small file system in `out`; copies what is left.
const SCRIPT: &str = "\
mount -t tmpfs -o size=$SIZE tmpfs out || { echo cannot mount >&2; exit 77; }
\"$@\" --max_iters=10 && head -c 200000 /dev/zero > out/filler
\"$@\" --init_from=resume --max_iters=30
code=$?
cp out/last.safetensors kept/
rm out/filler
\"$@\" --init_from=resume --max_iters=30 > /dev/null && cp out/last.safetensors kept/whole
exit $code
";

#[test]
fn the_old_checkpoint_survives_a_full_disk() {
    let place = Place::new("disk-full");
    std::fs::create_dir_all(place.path("out")).unwrap();
    std::fs::create_dir_all(place.path("kept")).unwrap();
    place.train(&["--out_dir=reference", "--max_iters=10"]).succeeded();
    let saved = place.path("reference/last.safetensors");
    // Room for the first run's two files while it saves, not for a third beside the filler.
    let room = std::fs::metadata(&saved).unwrap().len() * 3 + 100_000;
    let inner = place.command(&[&["train"], TINY].concat());
    for namespaces in ["-rm", "-m"] {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-c", SCRIPT, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.current_dir(&place.0).env("SIZE", room.to_string());
        let Ok(output) = command.output() else {
            return println!("skipped: there is no unshare here");
        };
        let ended = Ended::from(output);
        if ended.code == Some(77) || ended.error.contains("unshare") {
            continue;
        }
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.error.contains("last.safetensors"), "{ended:?}");
        assert!(ended.error.contains("full"), "{ended:?}");
        assert!(tensors(&place.path("kept/last.safetensors")) == tensors(&saved));
        place.train(&["--out_dir=undisturbed"]).succeeded();
        let undisturbed = place.path("undisturbed/last.safetensors");
        assert!(tensors(&place.path("kept/whole")) == tensors(&undisturbed));
        return;
    }
    println!("skipped: mounting is not allowed here");
}
