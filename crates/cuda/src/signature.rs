//! Kernel signatures, each written once. Every file of kernels has a table of them (`signatures!`).
//! The table generates the C parameter lists, which are put before the file's text, and for each
//! kernel a struct with one typed field per parameter. A launch is such a struct. So an argument
//! that is missing, has another width, or is read-only where the kernel writes does not compile.
//! What depends on the plan (formats of tensors, what an op may write) is checked during lowering.

pub use crate::kernels::ColumnPartials;

use crate::context::{Arguments, MOST_ARGUMENTS};
use crate::lowering::Location;
use crate::step::Step;
use crate::tensor_map::{MatrixTiles, WORDS};
use plan::{StepState, TensorId};
use std::fmt;
use std::marker::PhantomData;

/// The element type of a kernel's pointer.
pub trait Element {
    /// The type's name in C, or the name of the module's constant that is the type.
    const NAME: &'static str;
}

/// The format that a file of kernels calls `T`: weights, activations, branches.
#[derive(Debug)]
pub enum T {}

/// The format of the residual stream.
#[derive(Debug)]
pub enum R {}

/// The format of AdamW's moments.
#[derive(Debug)]
pub enum Moment {}

/// The format of what the optimizer keeps of weights.
#[derive(Debug)]
pub enum Master {}

/// The format of the weights' copy.
#[derive(Debug)]
pub enum WeightCopy {}

/// The format in which gradients travel between ranks.
#[derive(Debug)]
pub enum Wire {}

/// The format of both inputs of a matmul.
#[derive(Debug)]
pub enum MatmulInput {}

/// The format of a matmul's output and of its bias.
#[derive(Debug)]
pub enum MatmulOutput {}

macro_rules! elements {
    ($($Type:ty = $name:literal),+ $(,)?) => {
        $(impl Element for $Type {
            const NAME: &'static str = $name;
        })+
    };
}

elements! {
    T = "T",
    R = "R",
    Moment = "MOMENT",
    Master = "MASTER",
    WeightCopy = "COPY",
    Wire = "WIRE",
    MatmulInput = "INPUT",
    MatmulOutput = "OUTPUT",
    f32 = "float",
    f64 = "double",
    i32 = "int",
    u32 = "u32",
    u64 = "u64",
    Step = "Step",
    StepState = "State",
}

/// Where a pointer leads, and what is known about the tensor there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) location: Location,
    /// The operand of the op. None for scratch, whose format the kernel chooses, and for pointers
    /// to other data.
    pub(crate) operand: Option<TensorId>,
    /// Whether the kernel writes there, in the form in which its module is compiled.
    pub(crate) written: bool,
}

/// A pointer that a kernel reads from: `const E *`.
pub struct In<E> {
    pointer: Pointer,
    of: PhantomData<E>,
}

/// A pointer that a kernel writes to, and may read from: `E *`.
pub struct Out<E> {
    pointer: Pointer,
    of: PhantomData<E>,
}

macro_rules! pointers {
    ($($Name:ident: $written:literal),+) => {
        $(impl<E> Clone for $Name<E> {
            fn clone(&self) -> $Name<E> {
                *self
            }
        }

        impl<E> Copy for $Name<E> {}

        impl<E> fmt::Debug for $Name<E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.pointer.fmt(f)
            }
        }

        impl<E> $Name<E> {
            /// No operand: a null pointer that the kernel does not dereference.
            pub fn nowhere() -> $Name<E> {
                $Name::at(Location::Nowhere)
            }

            /// A pointer to scratch, or to data that is not an operand.
            pub(crate) fn at(location: Location) -> $Name<E> {
                $Name::new(Pointer { location, operand: None, written: $written })
            }

            pub(crate) fn new(pointer: Pointer) -> $Name<E> {
                $Name { pointer, of: PhantomData }
            }

            pub(crate) fn pointer(self) -> Pointer {
                self.pointer
            }

            /// The pointer `bytes` further on.
            pub(crate) fn plus(self, bytes: u64) -> $Name<E> {
                let location = self.pointer.location.plus(bytes);
                $Name::new(Pointer { location, ..self.pointer })
            }
        })+
    };
}

pointers! { In: false, Out: true }

impl<E> Out<E> {
    /// The same pointer for a later kernel that reads what this one wrote.
    pub(crate) fn read(self) -> In<E> {
        In::new(Pointer { written: false, ..self.pointer })
    }
}

/// A matrix of which the copy engine brings tiles: `const TensorMap`. The kernel only reads it.
pub struct Map<E> {
    matrix: In<E>,
    tiles: MatrixTiles,
}

impl<E> Clone for Map<E> {
    fn clone(&self) -> Map<E> {
        *self
    }
}

impl<E> Copy for Map<E> {}

impl<E> fmt::Debug for Map<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.tiles, self.matrix)
    }
}

impl<E> Map<E> {
    pub(crate) fn new(matrix: In<E>, tiles: MatrixTiles) -> Map<E> {
        Map { matrix, tiles }
    }
}

/// The parameter that counts a kernel's work. If it is 0, the kernel does nothing and dereferences
/// no pointer. Every kernel has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCount<N>(pub N);

/// What kind of parameter it is, with its C type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The count of work.
    Work(&'static str),
    /// A number.
    Number(&'static str),
    /// A pointer that is read.
    Reads(&'static str),
    /// A pointer that is written.
    Writes(&'static str),
    /// A matrix that is read by tiles.
    Maps(&'static str),
}

/// One argument, before there are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// A number, in the low bytes.
    Word(u64),
    /// A pointer.
    At(Pointer),
    /// A matrix at a pointer.
    Tiles(Pointer, MatrixTiles),
}

impl Argument {
    /// Where it leads, if it leads anywhere.
    pub(crate) fn pointer(self) -> Option<Pointer> {
        match self {
            Argument::Word(_) => None,
            Argument::At(pointer) | Argument::Tiles(pointer, _) => Some(pointer),
        }
    }
}

/// A type that a parameter can have.
pub(crate) trait ParameterType {
    const KIND: Kind;
    fn argument(self) -> Argument;
}

macro_rules! numbers {
    ($($Type:ty = $name:literal, $bits:expr);+ $(;)?) => {
        $(impl ParameterType for $Type {
            const KIND: Kind = Kind::Number($name);
            fn argument(self) -> Argument {
                Argument::Word($bits(self))
            }
        })+
    };
}

numbers! {
    u32 = "u32", u64::from;
    u64 = "u64", u64::from;
    f32 = "float", |number: f32| u64::from(number.to_bits());
    f64 = "double", f64::to_bits;
}

impl ParameterType for WorkCount<u32> {
    const KIND: Kind = Kind::Work("u32");
    fn argument(self) -> Argument {
        self.0.argument()
    }
}

impl ParameterType for WorkCount<u64> {
    const KIND: Kind = Kind::Work("u64");
    fn argument(self) -> Argument {
        self.0.argument()
    }
}

impl<E: Element> ParameterType for In<E> {
    const KIND: Kind = Kind::Reads(E::NAME);
    fn argument(self) -> Argument {
        Argument::At(self.pointer)
    }
}

impl<E: Element> ParameterType for Out<E> {
    const KIND: Kind = Kind::Writes(E::NAME);
    fn argument(self) -> Argument {
        Argument::At(self.pointer)
    }
}

impl<E: Element> ParameterType for Map<E> {
    const KIND: Kind = Kind::Maps(E::NAME);
    fn argument(self) -> Argument {
        Argument::Tiles(self.matrix.pointer, self.tiles)
    }
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// A kernel's name and parameters. The struct for its launch accepts only matching arguments:
///
/// ```
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (d_out, partials) = (In::nowhere(), Out::nowhere());
/// ColumnPartials { blocks: WorkCount(8), rows: 512, d_out, partials };
/// ```
///
/// A missing argument:
///
/// ```compile_fail,E0063
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (d_out, partials) = (In::nowhere(), Out::nowhere());
/// ColumnPartials { blocks: WorkCount(8), d_out, partials };
/// ```
///
/// Two swapped arguments, pointers or numbers:
///
/// ```compile_fail,E0308
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (partials, d_out) = (In::nowhere(), Out::nowhere());
/// ColumnPartials { blocks: WorkCount(8), rows: 512, d_out, partials };
/// ```
///
/// ```compile_fail,E0308
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (d_out, partials) = (In::nowhere(), Out::nowhere());
/// ColumnPartials { blocks: 512, rows: WorkCount(8), d_out, partials };
/// ```
///
/// 8 bytes where the kernel takes 4:
///
/// ```compile_fail,E0308
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (d_out, partials) = (In::nowhere(), Out::nowhere());
/// ColumnPartials { blocks: WorkCount(8), rows: 512u64, d_out, partials };
/// ```
///
/// A pointer to elements of another type:
///
/// ```compile_fail,E0308
/// use fitgpt_cuda::signature::{ColumnPartials, In, Out, WorkCount};
/// let (d_out, partials) = (In::nowhere(), Out::<f64>::nowhere());
/// ColumnPartials { blocks: WorkCount(8), rows: 512, d_out, partials };
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Signature {
    pub(crate) entry: &'static str,
    pub(crate) parameters: &'static [Parameter],
}

impl Signature {
    /// Whether exactly one parameter counts the work, and a launch has room for all of them.
    pub(crate) const fn is_sound(&self) -> bool {
        let (mut counts, mut at) = (0, 0);
        while at < self.parameters.len() {
            if let Kind::Work(_) = self.parameters[at].kind {
                counts += 1;
            }
            at += 1;
        }
        counts == 1 && at <= MOST_ARGUMENTS
    }

    /// The parameter list as a C macro, which the kernel's file uses as `SIGNATURE(entry)`.
    pub(crate) fn definition(&self) -> String {
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|Parameter { name, kind }| match kind {
                Kind::Work(number) | Kind::Number(number) => format!("{number} {name}"),
                Kind::Reads(element) => format!("const {element} *{name}"),
                Kind::Writes(element) => format!("{element} *{name}"),
                Kind::Maps(_) => format!("const __grid_constant__ TensorMap {name}"),
            })
            .collect();
        format!("#define PARAMETERS_OF_{} {}\n", self.entry, parameters.join(", "))
    }

    /// Arguments with which the kernel does nothing: the work is 0, and pointers are null.
    pub(crate) fn without_work(&self, arguments: &[Argument]) -> Arguments {
        let mut nothing = Arguments::default();
        for (parameter, argument) in self.parameters.iter().zip(arguments) {
            match (parameter.kind, argument) {
                (Kind::Work(_), _) | (_, Argument::At(_)) => nothing.push(&[0]),
                (_, Argument::Word(word)) => nothing.push(&[*word]),
                (_, Argument::Tiles(..)) => nothing.push(&[0; WORDS]),
            }
        }
        nothing
    }
}

/// A kernel with its arguments.
pub(crate) trait Launch {
    const SIGNATURE: &'static Signature;

    /// In the order of the parameters.
    fn arguments(self) -> Vec<Argument>;
}

/// A table of kernels: for each, the struct's name, the kernel's name, and its parameters with
/// types.
macro_rules! signatures {
    ($(
        $(#[$doc:meta])*
        $Name:ident = $entry:ident($($parameter:ident: $Type:ty),+ $(,)?);
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[allow(missing_docs, reason = "the kernel says what its parameters are")]
            pub struct $Name {
                $(pub $parameter: $Type),+
            }

            impl $crate::signature::Launch for $Name {
                const SIGNATURE: &'static $crate::signature::Signature =
                    &$crate::signature::Signature {
                        entry: stringify!($entry),
                        parameters: &[$($crate::signature::Parameter {
                            name: stringify!($parameter),
                            kind: <$Type as $crate::signature::ParameterType>::KIND,
                        }),+],
                    };

                fn arguments(self) -> Vec<$crate::signature::Argument> {
                    vec![$($crate::signature::ParameterType::argument(self.$parameter)),+]
                }
            }

            const _: () = assert!(<$Name as $crate::signature::Launch>::SIGNATURE.is_sound());
        )+

        /// Every kernel of the table.
        pub(crate) static SIGNATURES: &[&$crate::signature::Signature] =
            &[$(<$Name as $crate::signature::Launch>::SIGNATURE),+];
    };
}

pub(crate) use signatures;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_list_is_that_of_the_table() {
        let made = ColumnPartials::SIGNATURE.definition();
        let list = "u32 blocks, u32 rows, const T *d_out, float *partials";
        assert_eq!(made, format!("#define PARAMETERS_OF_column_partials {list}\n"));
    }

    #[test]
    fn work_is_what_the_table_marks_wherever_it_stands() {
        signatures! {
            /// The third parameter counts its work.
            Odd = odd(x: In<f32>, scale: f32, count: WorkCount<u64>, rows: u32);
        }
        assert_eq!(SIGNATURES.len(), 1);
        let arguments =
            Odd { x: In::at(Location::Arena(64)), scale: 2.0, count: WorkCount(9), rows: 7 }
                .arguments();
        let two = u64::from(2.0f32.to_bits());
        let mut nothing = Arguments::default();
        [0, two, 0, 7].iter().for_each(|word| nothing.push(&[*word]));
        assert_eq!(Odd::SIGNATURE.without_work(&arguments), nothing);
    }
}
