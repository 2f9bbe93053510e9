//! What the kernels of a cubin use, read from the machine code itself: NVRTC's log has other words
//! in each version, and none where NVRTC 13 finds the code in its own cache.
//!
//! A cubin is an ELF file. A kernel's code is the section `.text.NAME`, its shared memory
//! `.nv.shared.NAME`. The section `.nv.info` is a list of attributes: a byte for the form, one
//! for the attribute, two for a value or, in the form `SIZED`, for the size of the value after it.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolIndex};
use std::collections::BTreeMap;

/// The forms: without a value, with one byte, with two bytes, with as many bytes as are named.
const UNSIZED: [u8; 3] = [1, 2, 3];
const SIZED: u8 = 4;

/// The attributes that we read. Their values are a function's symbol and a number.
const FRAME_SIZE: u8 = 0x11;
const MIN_STACK_SIZE: u8 = 0x12;
const REGISTERS: u8 = 0x2f;

/// From sm_90 on, shared memory begins with 1024 bytes of the system. A block's limit is without
/// them.
const RESERVED: (u32, u64) = (90, 1024);

/// What one kernel uses.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage {
    pub kernel: String,
    /// Of a thread.
    pub registers: u64,
    /// Bytes of local memory of a thread: spilled registers, and arrays that are indexed.
    pub frame: u64,
    /// The frames of the kernel and of the functions that it calls.
    pub stack: u64,
    /// Bytes of static shared memory.
    pub shared: u64,
}

/// All kernels of a cubin. A missing attribute is an error, not a zero.
pub fn usages(cubin: &[u8], sm: u32) -> Result<Vec<Usage>, String> {
    let file = ElfFile64::<LittleEndian>::parse(cubin).map_err(|error| error.to_string())?;
    let info = file.section_by_name_bytes(b".nv.info").ok_or("no section .nv.info")?;
    let info = info.data().map_err(|error| error.to_string())?;
    let mut numbers = BTreeMap::new();
    for (attribute, symbol, number) in attributes(info)? {
        let symbol = file.symbol_by_index(SymbolIndex(symbol as usize));
        let name = symbol.and_then(|symbol| symbol.name()).map_err(|error| error.to_string())?;
        numbers.insert((name.to_string(), attribute), u64::from(number));
    }
    let mut found = Vec::new();
    for section in file.sections() {
        let name = section.name().map_err(|error| error.to_string())?;
        let Some(kernel) = name.strip_prefix(".text.") else { continue };
        let number = |attribute: u8| match numbers.get(&(kernel.to_string(), attribute)) {
            Some(number) => Ok(*number),
            None => Err(format!("{kernel} has no attribute {attribute:#x}")),
        };
        let shared = file.section_by_name(&format!(".nv.shared.{kernel}"));
        let reserved = if sm >= RESERVED.0 { RESERVED.1 } else { 0 };
        found.push(Usage {
            kernel: kernel.to_string(),
            registers: number(REGISTERS)?,
            frame: number(FRAME_SIZE)?,
            stack: number(MIN_STACK_SIZE)?,
            shared: shared.map_or(0, |section| section.size().saturating_sub(reserved)),
        });
    }
    if found.is_empty() {
        return Err("the cubin has no kernel".to_string());
    }
    Ok(found)
}

/// (attribute, symbol, number) of the attributes that we read.
fn attributes(mut info: &[u8]) -> Result<Vec<(u8, u32, u32)>, String> {
    let mut found = Vec::new();
    while let [form, attribute, low, high, rest @ ..] = info {
        let size = match *form {
            SIZED => usize::from(u16::from_le_bytes([*low, *high])),
            form if UNSIZED.contains(&form) => 0,
            form => return Err(format!(".nv.info: attribute {attribute:#x} has the form {form}")),
        };
        let (value, after) = rest.split_at_checked(size).ok_or(".nv.info: too short a value")?;
        info = after;
        if [FRAME_SIZE, MIN_STACK_SIZE, REGISTERS].contains(attribute) {
            let word = |at: usize| {
                let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                bytes.map(u32::from_le_bytes).ok_or(".nv.info: not a symbol and a number")
            };
            found.push((*attribute, word(0)?, word(4)?));
        }
    }
    if info.is_empty() { Ok(found) } else { Err(".nv.info: too short an attribute".to_string()) }
}

#[test]
fn attributes_are_read_one_after_the_other() {
    let frame = [4, FRAME_SIZE, 8, 0, 7, 0, 0, 0, 0, 1, 0, 0];
    let other = [4, 0x37, 4, 0, 1, 2, 3, 4];
    let flag = [3, 0x50, 9, 9];
    let info = [&flag[..], &other, &frame].concat();
    assert_eq!(attributes(&info), Ok(vec![(FRAME_SIZE, 7, 256)]));
    for broken in [&frame[..11], &frame[..3], &[9, 1, 0, 0], &[4, REGISTERS, 4, 0, 1, 0, 0, 0]] {
        assert!(attributes(broken).is_err(), "{broken:?}");
    }
    assert!(usages(b"\x7fELF", 90).is_err());
}
