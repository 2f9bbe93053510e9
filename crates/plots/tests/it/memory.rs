//! The memory of a comparison does not grow with the log. Counted by the allocator, in a process of
//! its own so that no other test is counted.

use events::LogReader;
use fitgpt_plots::compare::{LOSS, RunLog, VAL_LOSS};
use std::io::{BufReader, Read};
use std::process::Command;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// A log that is never in memory as a whole. Every second line is an evaluation, and each is a new
/// best.
struct Long {
    iter: u64,
    line: Vec<u8>,
    at: usize,
}

const LINES: u64 = 60_000;

fn line(iter: u64) -> String {
    let (loss, begin) = (3.0 - iter as f64 / 1e6, r#"{"unix_time":1.0,"seconds":1.0,"kind":"#);
    let more = r#""arena_bytes":1,"device_bytes_seen":null}"#;
    let rest = match iter {
        0 => r#""start","schema":"fitgpt.log/2","iter":0,"config":{},"vocab_size":1,
                "steps_hash":"","version":"","device":"","#
            .replace('\n', ""),
        iter if iter.is_multiple_of(2) => format!(
            "\"eval\",\"iter\":{iter},\"val_loss\":{loss},\"train_loss\":1,{}",
            r#""train_standard_error":0,"val_standard_error":0,"tokens":1,"note":null,"#,
        ),
        iter => format!(
            "\"iter\",\"iter\":{iter},\"loss\":{loss},{}",
            r#""lr":1,"grad_norm":1,"loss_scale":1,"tokens_per_second":1,"ms":1,"#,
        ),
    };
    format!("{begin}{rest}{more}\n")
}

impl Read for Long {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.line.len() && self.iter < LINES {
            self.line = line(self.iter).into_bytes();
            (self.at, self.iter) = (0, self.iter + 1);
        }
        let count = out.len().min(self.line.len() - self.at);
        out[..count].copy_from_slice(&self.line[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

const CHILD: &str = "FITGPT_PLOTS_CHILD";

#[test]
fn memory_does_not_grow_with_the_log() {
    if std::env::var_os(CHILD).is_some() {
        return read_long_log();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "memory::memory_does_not_grow_with_the_log", "--nocapture"]);
    let output = child.env(CHILD, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

fn read_long_log() {
    let long = Long { iter: 0, line: Vec::new(), at: 0 };
    let held = counting::held();
    counting::forget_most();
    let log = RunLog::read(LogReader::new(BufReader::new(long)), &[VAL_LOSS, LOSS]);
    let most = counting::most().saturating_sub(held);
    assert!(most < 2 << 20, "{most}");
    assert_eq!((log.iterations, log.unreadable), (LINES, 0));
    assert!(log.curves.iter().all(|(_, curve)| (2048..=4096).contains(&curve.points().count())));
    assert_eq!(log.best().unwrap().0, LINES - 2);
}
