//! Times a checkpoint of 500 MB:
//! `cargo run --release -p fitgpt-checkpoint --example speed -- [directory]`.

use fitgpt_checkpoint::checksum::Checksum;
use fitgpt_checkpoint::{Dtype, Reader, TensorInfo, largest_bytes, save};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("fitgpt-checkpoint-speed-{}", std::process::id()));
    let tensors: Vec<TensorInfo> = (0..50)
        .map(|index| TensorInfo::new(format!("weights/{index}"), Dtype::F32, &[2500, 1000]))
        .collect();
    let mut buffer = vec![7; largest_bytes(&tensors).unwrap_or(0) as usize];
    for _ in 0..3 {
        let start = Instant::now();
        let bytes = save(&path, "{}", &tensors, &mut buffer, |index, content| {
            content[0] = index as u8;
            Ok::<(), String>(())
        })?;
        report("save", bytes, start);
        let start = Instant::now();
        let reader = Reader::open(&path)?;
        for index in 0..tensors.len() {
            reader.read(index, &mut buffer)?;
        }
        report("read", bytes, start);
        let start = Instant::now();
        reader.verify()?;
        report("verify", bytes, start);
        let start = Instant::now();
        let sum = (0..50).fold(0, |sum, _| sum ^ Checksum::of(std::hint::black_box(&buffer)));
        report(&format!("checksum {sum:x}"), bytes, start);
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

fn report(what: &str, bytes: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {seconds:.2} s, {:.2} GB/s", bytes as f64 / seconds / 1e9);
}
