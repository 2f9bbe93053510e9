//! The two structs that kernels read in addition to tensors: the inputs of a run, and the step
//! state. Each has one table of fields, from which its C text and its bytes are generated. The C
//! text is put before every file of kernels.

use plan::{StateWords, StepInputs, StepState};
use rng::dropout::{MaskKey, Site};
use std::fmt::Write as _;

/// A type that a field can have.
trait Field {
    /// What precedes and follows the field's name in C.
    const C: (&'static str, &'static str);

    /// Writes its bytes and returns the rest of the slice.
    fn put<'a>(&self, to: &'a mut [u8]) -> &'a mut [u8];
}

macro_rules! fields {
    ($($Type:ty = $name:literal),+ $(,)?) => {
        $(impl Field for $Type {
            const C: (&'static str, &'static str) = ($name, "");

            fn put<'a>(&self, to: &'a mut [u8]) -> &'a mut [u8] {
                let (here, behind) = to.split_at_mut(size_of::<$Type>());
                here.copy_from_slice(&self.to_le_bytes());
                behind
            }
        })+
    };
}

fields! { u32 = "unsigned int", u64 = "unsigned long long", f32 = "float", f64 = "double" }

impl Field for [u32; 2] {
    const C: (&'static str, &'static str) = ("unsigned int", "[2]");

    fn put<'a>(&self, to: &'a mut [u8]) -> &'a mut [u8] {
        self.iter().fold(to, |to, word| word.put(to))
    }
}

/// Whether C lays out fields of these sizes and alignments without gaps.
const fn has_no_gaps(fields: &[(usize, usize)]) -> bool {
    let (mut at, mut widest, mut index) = (0usize, 1, 0);
    while index < fields.len() {
        let (size, alignment) = fields[index];
        if !at.is_multiple_of(alignment) {
            return false;
        }
        if alignment > widest {
            widest = alignment;
        }
        at += size;
        index += 1;
    }
    at.is_multiple_of(widest)
}

/// A Rust struct and a C struct with the same fields in the same order.
macro_rules! device_struct {
    ($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $field:ident: $Type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $Name {
            $($(#[$field_doc])* pub(crate) $field: $Type),+
        }

        impl $Name {
            pub(crate) const BYTES: usize = 0 $(+ size_of::<$Type>())+;

            /// Its content as bytes, in the layout that kernels read.
            pub(crate) fn to_bytes(self) -> [u8; $Name::BYTES] {
                let mut bytes = [0; $Name::BYTES];
                let rest = bytes.as_mut_slice();
                $(let rest = self.$field.put(rest);)+
                debug_assert!(rest.is_empty());
                bytes
            }

            fn definition() -> String {
                let fields = [$((<$Type as Field>::C, stringify!($field))),+];
                let fields = fields.map(|((before, behind), name)| {
                    (before, format!("{name}{behind}"))
                });
                definition(stringify!($Name), &fields, $Name::BYTES)
            }
        }

        const _: () = assert!(has_no_gaps(&[$((size_of::<$Type>(), align_of::<$Type>())),+]));
    };
}

device_struct! {
    /// What the host passes to each run of a segment.
    Step {
        lr: f64,
        grad_clip: f64,
        iteration: u64,
        seed: u64,
        first_row: u64,
        position: u64,
        inverse_tokens: f32,
        /// Philox key for the dropout masks of this iteration.
        dropout_key: [u32; 2],
        unused: u32,
    }
}

impl Step {
    pub(crate) fn new(inputs: &StepInputs) -> Step {
        let &StepInputs { lr, grad_clip, iteration, seed, first_row, inverse_tokens, position } =
            inputs;
        let dropout_key = MaskKey::new(seed, iteration, 0, Site::Embedding).key();
        let unused = 0;
        Step {
            lr,
            grad_clip,
            iteration,
            seed,
            first_row,
            position,
            inverse_tokens,
            dropout_key,
            unused,
        }
    }
}

/// A struct in C. It does not compile if its size differs.
fn definition(name: &str, fields: &[(&str, String)], bytes: usize) -> String {
    let mut text = format!("struct {name} {{\n");
    for (kind, field) in fields {
        let _ = writeln!(text, "    {kind} {field};");
    }
    let _ = writeln!(text, "}};\nstatic_assert(sizeof({name}) == {bytes}, \"{name}\");");
    text
}

/// The step state's words in C.
fn state_definition() -> String {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for field in StepState::FIELDS {
        let name = field.name;
        fields.push(match field.words {
            StateWords::Integer64 => ("unsigned int", format!("{name}[2]")),
            StateWords::Float => ("float", name.to_string()),
            StateWords::Integer | StateWords::Flag => ("unsigned int", name.to_string()),
        });
    }
    let used: usize = StepState::FIELDS.iter().map(|field| field.words.count()).sum();
    fields.push(("unsigned int", format!("unused[{}]", StepState::WORDS - used)));
    definition("State", &fields, StepState::WORDS * 4)
}

/// Both structs in C.
pub(crate) fn definitions() -> String {
    Step::definition() + &state_definition()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_structs_are_what_kernels_were_written_for() {
        let want = "struct Step {\n    double lr;\n    double grad_clip;\n    \
                    unsigned long long iteration;\n    unsigned long long seed;\n    \
                    unsigned long long first_row;\n    unsigned long long position;\n    \
                    float inverse_tokens;\n    unsigned int dropout_key[2];\n    \
                    unsigned int unused;\n};\nstatic_assert(sizeof(Step) == 64, \"Step\");\n\
                    struct State {\n    unsigned int adam_t[2];\n    float loss_scale;\n    \
                    unsigned int growth;\n    unsigned int found_inf;\n    float grad_norm;\n    \
                    float grad_multiplier;\n    unsigned int skipped;\n    \
                    unsigned int unused[8];\n};\nstatic_assert(sizeof(State) == 64, \"State\");\n";
        assert_eq!(definitions(), want);
    }

    #[test]
    fn bytes_stand_in_the_order_of_the_fields() {
        let inputs = StepInputs { lr: 0.5, position: 3, inverse_tokens: 2.0, ..Default::default() };
        let bytes = Step::new(&inputs).to_bytes();
        assert_eq!(bytes[..8], 0.5f64.to_le_bytes());
        assert_eq!(bytes[40..48], 3u64.to_le_bytes());
        assert_eq!(bytes[48..52], 2.0f32.to_le_bytes());
    }

    #[test]
    fn a_gap_is_seen() {
        assert!(has_no_gaps(&[(8, 8), (4, 4), (8, 4), (4, 4)]));
        assert!(!has_no_gaps(&[(4, 4), (8, 8)]), "before a field");
        assert!(!has_no_gaps(&[(8, 8), (4, 4)]), "at the end");
    }
}
