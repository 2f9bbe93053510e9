//! The table of all instructions of protocols 0 to 5.
//!
//! `Opcode` lists what the machine can execute. Every other instruction of Python is in the second
//! table with the form of its operand, so that the error can name what it refers to. To support one
//! more, move its row to `Opcode` and fix the compiler errors in `machine.rs`. Those in both tables
//! are executed only for a caller that has listed names, and build data, not objects.

macro_rules! opcodes {
    ($($name:ident = $byte:literal $text:literal,)*) => {
        /// An instruction that builds plain values.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode {
            $($name,)*
        }

        impl Opcode {
            /// The instruction that a byte stands for.
            pub(crate) fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name in `pickletools`.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

opcodes! {
    Proto = 0x80 "PROTO",
    Frame = 0x95 "FRAME",
    Stop = b'.' "STOP",
    Mark = b'(' "MARK",
    Pop = b'0' "POP",
    PopMark = b'1' "POP_MARK",
    Dup = b'2' "DUP",
    None = b'N' "NONE",
    NewTrue = 0x88 "NEWTRUE",
    NewFalse = 0x89 "NEWFALSE",
    Int = b'I' "INT",
    BinInt = b'J' "BININT",
    BinInt1 = b'K' "BININT1",
    BinInt2 = b'M' "BININT2",
    Long = b'L' "LONG",
    Long1 = 0x8a "LONG1",
    Long4 = 0x8b "LONG4",
    Float = b'F' "FLOAT",
    BinFloat = b'G' "BINFLOAT",
    String = b'S' "STRING",
    BinString = b'T' "BINSTRING",
    ShortBinString = b'U' "SHORT_BINSTRING",
    Unicode = b'V' "UNICODE",
    BinUnicode = b'X' "BINUNICODE",
    ShortBinUnicode = 0x8c "SHORT_BINUNICODE",
    BinUnicode8 = 0x8d "BINUNICODE8",
    BinBytes = b'B' "BINBYTES",
    ShortBinBytes = b'C' "SHORT_BINBYTES",
    BinBytes8 = 0x8e "BINBYTES8",
    ByteArray8 = 0x96 "BYTEARRAY8",
    EmptyList = b']' "EMPTY_LIST",
    List = b'l' "LIST",
    Append = b'a' "APPEND",
    Appends = b'e' "APPENDS",
    EmptyTuple = b')' "EMPTY_TUPLE",
    Tuple1 = 0x85 "TUPLE1",
    Tuple2 = 0x86 "TUPLE2",
    Tuple3 = 0x87 "TUPLE3",
    Tuple = b't' "TUPLE",
    EmptyDict = b'}' "EMPTY_DICT",
    Dict = b'd' "DICT",
    SetItem = b's' "SETITEM",
    SetItems = b'u' "SETITEMS",
    EmptySet = 0x8f "EMPTY_SET",
    AddItems = 0x90 "ADDITEMS",
    FrozenSet = 0x91 "FROZENSET",
    Put = b'p' "PUT",
    BinPut = b'q' "BINPUT",
    LongBinPut = b'r' "LONG_BINPUT",
    Memoize = 0x94 "MEMOIZE",
    Get = b'g' "GET",
    BinGet = b'h' "BINGET",
    LongBinGet = b'j' "LONG_BINGET",
    Global = b'c' "GLOBAL",
    StackGlobal = 0x93 "STACK_GLOBAL",
    Reduce = b'R' "REDUCE",
    Build = b'b' "BUILD",
    BinPersId = b'Q' "BINPERSID",
}

/// How many lines of text follow the opcode and name what it refers to.
type SubjectLines = usize;

/// The instructions that Python executes and this reader refuses, some of them only without names.
const REFUSED: [(u8, &str, SubjectLines); 15] = [
    (b'c', "GLOBAL", 2),
    (0x93, "STACK_GLOBAL", 0),
    (b'R', "REDUCE", 0),
    (b'b', "BUILD", 0),
    (b'i', "INST", 2),
    (b'o', "OBJ", 0),
    (0x81, "NEWOBJ", 0),
    (0x92, "NEWOBJ_EX", 0),
    (0x82, "EXT1", 0),
    (0x83, "EXT2", 0),
    (0x84, "EXT4", 0),
    (b'P', "PERSID", 1),
    (b'Q', "BINPERSID", 0),
    (0x97, "NEXT_BUFFER", 0),
    (0x98, "READONLY_BUFFER", 0),
];

/// Name and number of subject lines of a refused instruction.
pub(crate) fn refused(byte: u8) -> Option<(&'static str, SubjectLines)> {
    REFUSED.iter().find(|row| row.0 == byte).map(|row| (row.1, row.2))
}
