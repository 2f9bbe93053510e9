//! The step state: scalars that stay on the device between steps. One table lists its fields; the
//! Rust struct, its words and the struct that a device's compiler sees are generated from it.

use std::slice::{Iter, IterMut};

/// How a field is stored in the words of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateWords {
    /// An integer in two words, the lower first.
    Integer64,
    /// An integer in one word.
    Integer,
    /// An f32.
    Float,
    /// 1 or 0.
    Flag,
}

impl StateWords {
    /// How many words it takes.
    pub const fn count(self) -> usize {
        match self {
            StateWords::Integer64 => 2,
            StateWords::Integer | StateWords::Float | StateWords::Flag => 1,
        }
    }
}

/// A field of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateField {
    /// Its name on the device: the Rust name, unless the table gives another.
    pub name: &'static str,
    /// How it is stored.
    pub words: StateWords,
}

/// A type that a field can have.
trait StateValue: Sized {
    const WORDS: StateWords;
    fn put(self, to: &mut IterMut<'_, u32>);
    fn take(from: &mut Iter<'_, u32>) -> Self;
}

impl StateValue for u32 {
    const WORDS: StateWords = StateWords::Integer;

    fn put(self, to: &mut IterMut<'_, u32>) {
        if let Some(word) = to.next() {
            *word = self;
        }
    }

    fn take(from: &mut Iter<'_, u32>) -> u32 {
        from.next().copied().unwrap_or(0)
    }
}

impl StateValue for u64 {
    const WORDS: StateWords = StateWords::Integer64;

    fn put(self, to: &mut IterMut<'_, u32>) {
        (self as u32).put(to);
        ((self >> 32) as u32).put(to);
    }

    fn take(from: &mut Iter<'_, u32>) -> u64 {
        u64::from(u32::take(from)) | u64::from(u32::take(from)) << 32
    }
}

impl StateValue for f32 {
    const WORDS: StateWords = StateWords::Float;

    fn put(self, to: &mut IterMut<'_, u32>) {
        self.to_bits().put(to);
    }

    fn take(from: &mut Iter<'_, u32>) -> f32 {
        f32::from_bits(u32::take(from))
    }
}

impl StateValue for bool {
    const WORDS: StateWords = StateWords::Flag;

    fn put(self, to: &mut IterMut<'_, u32>) {
        u32::from(self).put(to);
    }

    fn take(from: &mut Iter<'_, u32>) -> bool {
        u32::take(from) != 0
    }
}

macro_rules! step_state {
    ($($(#[$doc:meta])* $field:ident $(($name:literal))?: $Type:ty),+ $(,)?) => {
        /// Scalars that live on the device between steps and in the checkpoint.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct StepState {
            $($(#[$doc])* pub $field: $Type),+
        }

        impl StepState {
            /// The fields in the order of their words.
            pub const FIELDS: &'static [StateField] = &[$(StateField {
                name: [$($name,)? stringify!($field)][0],
                words: <$Type as StateValue>::WORDS,
            }),+];

            /// As the words of its tensor.
            pub fn to_words(&self) -> [u32; StepState::WORDS] {
                let mut words = [0; StepState::WORDS];
                let mut to = words.iter_mut();
                $(self.$field.put(&mut to);)+
                words
            }

            /// From the words of its tensor.
            pub fn from_words(words: &[u32; StepState::WORDS]) -> StepState {
                let mut from = words.iter();
                StepState { $($field: StateValue::take(&mut from)),+ }
            }
        }

        const _: () = assert!(0 $(+ <$Type as StateValue>::WORDS.count())+ <= StepState::WORDS);
    };
}

step_state! {
    /// Updates done so far. Kernels call it `adam_t`.
    updates("adam_t"): u64,
    /// The factor on the loss before the backward pass.
    loss_scale: f32,
    /// Updates without inf or NaN since the scale last changed.
    growth: u32,
    /// Whether the last gradient norm was inf or NaN.
    found_inf: bool,
    /// Norm of the last update's gradients, unscaled and before clipping.
    grad_norm: f32,
    /// The factor on the gradients in the last update: clip factor over loss scale.
    grad_multiplier: f32,
    /// Whether the last update was skipped.
    skipped: bool,
}

impl StepState {
    /// Words of its tensor. More than the fields need, so that fields can be added.
    pub const WORDS: usize = 16;

    /// Before the first update.
    pub fn initial(loss_scale: f32) -> StepState {
        StepState {
            updates: 0,
            loss_scale,
            growth: 0,
            found_inf: false,
            grad_norm: 0.0,
            grad_multiplier: 0.0,
            skipped: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_its_words() {
        let state = StepState {
            updates: 0x1_2345_6789,
            loss_scale: 65536.0,
            growth: 1999,
            found_inf: true,
            grad_norm: 0.25,
            grad_multiplier: -1.5,
            skipped: true,
        };
        assert_eq!(StepState::from_words(&state.to_words()), state);
        let words = [
            0x2345_6789,
            1,
            65536.0f32.to_bits(),
            1999,
            1,
            0.25f32.to_bits(),
            (-1.5f32).to_bits(),
            1,
        ];
        assert_eq!(state.to_words()[..8], words, "a checkpoint has them in this order");
        assert_eq!(state.to_words()[8..], [0; 8]);
    }
}
