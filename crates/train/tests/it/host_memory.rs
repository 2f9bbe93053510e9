//! The bill's host memory is what is allocated: one table of buffers for both. Counted by the
//! allocator of `memory.rs`, in a process of its own so that no other test is counted.

use crate::fixture::{TempDir, planned, run_spec};
use crate::memory::held_exactly;
use fitgpt_train::run::HostBuffers;

const CHILD: &str = "FITGPT_HOST_MEMORY_CHILD";

#[test]
fn the_host_allocates_what_the_bill_says() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host_memory::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("counted every buffer"), "the child did not run: {text}");
}

#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let folder = TempDir::new("host-memory");
    for more in [&[][..], &["--eval_batch_size=7"], &["--batch_size=5", "--eval_block_size=8"]] {
        let run = run_spec(&folder.0, more);
        let planned = planned(&run);
        let before = held_exactly();
        let buffers = HostBuffers::new(&run, &planned.host).unwrap();
        let allocated = (held_exactly() - before) as u64;
        drop(buffers);
        let billed: u64 = planned.host.rows().iter().map(|(_, bytes)| bytes.get()).sum();
        assert_eq!(allocated, billed, "{:?}", planned.host);
        assert_eq!(planned.host_bytes(), allocated, "nothing is offloaded");
    }
    println!("counted every buffer");
}
