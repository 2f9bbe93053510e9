//! Decides what the update does: PyTorch's GradScaler and `clip_grad_norm_`, on the step state.

use crate::executor::StepContext;
use plan::ops::{LossScaler, Scaling};
use plan::{BackendError, StepState};

/// Sets `skipped`, `grad_multiplier`, `updates`, and the next `loss_scale`.
pub(crate) fn run(cx: &StepContext<'_>, op: &LossScaler) -> Result<(), BackendError> {
    let words = cx.state_words_mut(op.state)?;
    let state = decide(StepState::from_words(words), op.scaling, cx.inputs.grad_clip);
    *words = state.to_words();
    Ok(())
}

fn decide(mut state: StepState, scaling: Scaling, grad_clip: f64) -> StepState {
    let clip = if grad_clip > 0.0 {
        let factor = grad_clip as f32 / (state.grad_norm + 1e-6);
        // Not `min`, which would replace a NaN factor by 1: in nanoGPT the NaN propagates.
        if factor > 1.0 { 1.0 } else { factor }
    } else {
        1.0
    };
    state.grad_multiplier = clip / state.loss_scale;
    state.skipped = false;
    if let Scaling::Dynamic { growth_interval } = scaling {
        state.skipped = state.found_inf;
        if state.found_inf {
            state.loss_scale *= 0.5;
            state.growth = 0;
        } else {
            state.growth = state.growth.saturating_add(1);
            if state.growth >= growth_interval {
                let doubled = state.loss_scale * 2.0;
                if doubled.is_finite() {
                    state.loss_scale = doubled;
                }
                state.growth = 0;
            }
        }
    }
    if !state.skipped {
        state.updates = state.updates.saturating_add(1);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(norm: f32, scale: f32, growth: u32) -> StepState {
        StepState {
            grad_norm: norm,
            found_inf: !norm.is_finite(),
            growth,
            ..StepState::initial(scale)
        }
    }

    #[test]
    fn clips_as_pytorch_does() {
        for (norm, clip, want) in
            [(0.5, 1.0, 1.0), (3.0, 1.0, 1.0 / (3.0f32 + 1e-6)), (9.0, 0.0, 1.0)]
        {
            let state = decide(state(norm, 1.0, 0), Scaling::Off, clip);
            assert_eq!((state.grad_multiplier, state.updates, state.skipped), (want, 1, false));
        }
        let nan = decide(state(f32::NAN, 1.0, 0), Scaling::Off, 1.0);
        assert!(nan.grad_multiplier.is_nan() && !nan.skipped);
    }

    #[test]
    fn scales_as_gradscaler_does() {
        let dynamic = Scaling::Dynamic { growth_interval: 3 };
        let grown = decide(state(1.0, 1024.0, 2), dynamic, 0.0);
        assert_eq!((grown.loss_scale, grown.growth, grown.updates), (2048.0, 0, 1));
        assert_eq!(grown.grad_multiplier, 1.0 / 1024.0);
        let clean = decide(state(1.0, 1024.0, 0), dynamic, 0.0);
        assert_eq!((clean.loss_scale, clean.growth), (1024.0, 1));
        let largest = decide(state(1.0, f32::MAX, 2), dynamic, 0.0);
        assert_eq!((largest.loss_scale, largest.growth), (f32::MAX, 0));
        assert_eq!(decide(state(1.0, 1.0, u32::MAX), dynamic, 0.0).growth, 0);
        let inf = decide(state(f32::INFINITY, 1024.0, 2), dynamic, 0.0);
        assert_eq!((inf.loss_scale, inf.growth, inf.updates, inf.skipped), (512.0, 0, 0, true));
    }
}
