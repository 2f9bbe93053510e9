//! Measures GPT-2's byte pairs in megabytes per second, on a whole text and line by line, on one
//! core and on all: `cargo run --release -p fitgpt-tokenizer --example tokenizer_speed -- TEXT`.
//! `tests/golden/speed.py` times Python's tiktoken on the same text and machine.

use fitgpt_tokenizer::Tokenizer;
use std::time::Instant;

/// The best of this many rounds counts, because other programs can only make a round slower.
const ROUNDS: usize = 3;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "text.txt".to_owned());
    let text = std::fs::read_to_string(path)?;
    let megabytes = text.len() as f64 / 1e6;
    let gpt2 = Tokenizer::Gpt2;
    let best = |work: &dyn Fn() -> usize| {
        let time = |_| {
            let start = Instant::now();
            let tokens = work();
            (start.elapsed().as_secs_f64(), tokens)
        };
        (0..ROUNDS).map(time).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    };
    let encode = |part: &str| {
        let mut ids = Vec::with_capacity(part.len() / 3);
        let known = gpt2.encoder().encode(part, &mut ids);
        known.map_or(0, |()| ids.len())
    };
    let by_line = |part: &str| {
        let mut encoder = gpt2.encoder();
        let (mut tokens, mut ids) = (0, Vec::new());
        for line in part.split_inclusive('\n') {
            ids.clear();
            if encoder.encode(line, &mut ids).is_ok() {
                tokens += ids.len();
            }
        }
        tokens
    };
    for (name, work) in [("whole", &encode as &(dyn Fn(&str) -> usize + Sync)), ("lines", &by_line)]
    {
        let (seconds, tokens) = best(&|| work(&text));
        println!("{name}, 1 core: {:.1} MB/s, {tokens} tokens", megabytes / seconds);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let size = text.len().div_ceil(cores);
        let cut = |index: usize| text.floor_char_boundary((index * size).min(text.len()));
        let (seconds, _) = best(&|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..cores)
                    .map(|index| {
                        let part = &text[cut(index)..cut(index + 1)];
                        scope.spawn(move || work(part))
                    })
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
            })
        });
        println!("{name}, {cores} cores: {:.1} MB/s", megabytes / seconds);
    }
    Ok(())
}
