//! The learning rate of an iteration, as in nanoGPT: linear warm-up, cosine decay, then `min_lr`.

/// The parameters of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Peak rate.
    pub learning_rate: f64,
    /// Lowest rate.
    pub min_lr: f64,
    /// Iterations of linear warm-up.
    pub warmup_iters: u64,
    /// Iteration at which the cosine ends.
    pub lr_decay_iters: u64,
    /// False: the rate is constant, even in the first iterations.
    pub decay_lr: bool,
}

/// The rate of iteration `iter`.
pub fn learning_rate(schedule: &Schedule, iter: u64) -> f64 {
    let Schedule { learning_rate, min_lr, warmup_iters, lr_decay_iters, decay_lr } = *schedule;
    if !decay_lr {
        return learning_rate;
    }
    if iter < warmup_iters {
        return learning_rate * (iter + 1) as f64 / (warmup_iters + 1) as f64;
    }
    if iter > lr_decay_iters || lr_decay_iters <= warmup_iters {
        return min_lr;
    }
    let done = (iter - warmup_iters) as f64 / (lr_decay_iters - warmup_iters) as f64;
    let share = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
    min_lr + share * (learning_rate - min_lr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_nanogpt() {
        let gpt2 = Schedule {
            learning_rate: 6e-4,
            min_lr: 6e-5,
            warmup_iters: 2000,
            lr_decay_iters: 600_000,
            decay_lr: true,
        };
        for (iter, want) in [
            (0, 6e-4 / 2001.0),
            (1999, 6e-4 * 2000.0 / 2001.0),
            (2000, 6e-4),
            (301_000, 3.3e-4),
            (600_000, 6e-5),
            (600_001, 6e-5),
        ] {
            let got = learning_rate(&gpt2, iter);
            assert!((got - want).abs() < 1e-12, "{iter}: {got} {want}");
        }
        let constant = Schedule { decay_lr: false, ..gpt2 };
        assert_eq!(learning_rate(&constant, 0), 6e-4);
        // A warm-up as long as the decay must not divide by zero.
        let short = Schedule { warmup_iters: 10, lr_decay_iters: 10, ..gpt2 };
        assert_eq!(learning_rate(&short, 10), 6e-5);
    }
}
