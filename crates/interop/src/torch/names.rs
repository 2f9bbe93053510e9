//! What a checkpoint's pickle may name. Nothing of it is called: a call is data with the meaning
//! that this table gives it.

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A tensor: its storage, offset, size and strides.
    Tensor,
    /// The same with an element type.
    TypedTensor,
    /// A tensor that is a parameter.
    Parameter,
    /// A dict.
    OrderedDict,
    /// A tuple of sizes.
    Size,
    /// A storage of these elements.
    Storage(Element),
    /// A storage of bytes, whose tensors name their type.
    UntypedStorage,
    /// An element type.
    Type(Element),
    /// A number of numpy: its type and bytes.
    Scalar,
    /// numpy's element type.
    NumpyType,
    /// Bytes that were written as text.
    Encode,
}

/// The type of a storage's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

impl Element {
    pub fn bytes(self) -> u64 {
        match self {
            Element::F64 | Element::I64 => 8,
            Element::F32 | Element::I32 => 4,
            Element::F16 | Element::BF16 | Element::I16 => 2,
            Element::I8 | Element::U8 | Element::Bool => 1,
        }
    }
}

/// A module, a name in it, and its meaning.
type Row = (&'static str, &'static str, Name);

/// All names.
#[rustfmt::skip]
const ROWS: [Row; 36] = [
    ("torch._utils",           "_rebuild_tensor_v2",  Name::Tensor),
    ("torch._utils",           "_rebuild_tensor_v3",  Name::TypedTensor),
    ("torch._utils",           "_rebuild_parameter",  Name::Parameter),
    ("collections",            "OrderedDict",         Name::OrderedDict),
    ("torch",                  "Size",                Name::Size),
    ("torch",                  "DoubleStorage",       Name::Storage(Element::F64)),
    ("torch",                  "FloatStorage",        Name::Storage(Element::F32)),
    ("torch",                  "HalfStorage",         Name::Storage(Element::F16)),
    ("torch",                  "BFloat16Storage",     Name::Storage(Element::BF16)),
    ("torch",                  "LongStorage",         Name::Storage(Element::I64)),
    ("torch",                  "IntStorage",          Name::Storage(Element::I32)),
    ("torch",                  "ShortStorage",        Name::Storage(Element::I16)),
    ("torch",                  "CharStorage",         Name::Storage(Element::I8)),
    ("torch",                  "ByteStorage",         Name::Storage(Element::U8)),
    ("torch",                  "BoolStorage",         Name::Storage(Element::Bool)),
    ("torch.storage",          "UntypedStorage",      Name::UntypedStorage),
    ("torch",                  "UntypedStorage",      Name::UntypedStorage),
    ("torch",                  "float64",             Name::Type(Element::F64)),
    ("torch",                  "float32",             Name::Type(Element::F32)),
    ("torch",                  "float16",             Name::Type(Element::F16)),
    ("torch",                  "bfloat16",            Name::Type(Element::BF16)),
    ("torch",                  "int64",               Name::Type(Element::I64)),
    ("torch",                  "int32",               Name::Type(Element::I32)),
    ("torch",                  "int16",               Name::Type(Element::I16)),
    ("torch",                  "int8",                Name::Type(Element::I8)),
    ("torch",                  "uint8",               Name::Type(Element::U8)),
    ("torch",                  "bool",                Name::Type(Element::Bool)),
    ("torch",                  "double",              Name::Type(Element::F64)),
    ("torch",                  "float",               Name::Type(Element::F32)),
    ("torch",                  "half",                Name::Type(Element::F16)),
    ("torch",                  "long",                Name::Type(Element::I64)),
    ("torch",                  "int",                 Name::Type(Element::I32)),
    ("numpy.core.multiarray",  "scalar",              Name::Scalar),
    ("numpy._core.multiarray", "scalar",              Name::Scalar),
    ("numpy",                  "dtype",               Name::NumpyType),
    ("_codecs",                "encode",              Name::Encode),
];

/// The names, for the pickle's reader.
pub fn listed() -> [(&'static str, &'static str); ROWS.len()] {
    ROWS.map(|(module, name, _)| (module, name))
}

/// The meaning of a name by its index.
pub fn meaning(index: usize) -> Option<Name> {
    ROWS.get(index).map(|row| row.2)
}

/// The index of the first name with a meaning, for the writer.
pub fn index_of(meaning: Name) -> usize {
    ROWS.iter().position(|row| row.2 == meaning).unwrap_or(ROWS.len())
}
