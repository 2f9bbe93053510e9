//! Times the generators: `cargo run --release -p fitgpt-rng --example draws`.

use fitgpt_rng::torch::Generator;
use std::time::Instant;

fn main() {
    let n = 124_373_760_usize;
    let mut values = vec![0.0_f32; n];
    for _ in 0..2 {
        let mut generator = Generator::new(1337);
        let start = Instant::now();
        generator.normal_fill(&mut values, 0.0, 0.02);
        report("normal_fill", n, start);
        let start = Instant::now();
        generator.skip(n as u64);
        report("skip", n, start);
        let start = Instant::now();
        let mut sum = 0;
        for _ in 0..n {
            sum ^= generator.randint(1_003_790);
        }
        report(&format!("randint {sum}"), n, start);
    }
}

fn report(what: &str, n: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {seconds:.2} s, {:.2} ns each", seconds * 1e9 / n as f64);
}
