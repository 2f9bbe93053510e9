//! Writes values in protocol 4, for Python 3.4 and later: one or two instructions per value, no
//! memo.

use crate::value::Value;

const PROTOCOL: [u8; 2] = [0x80, 4];

/// The pickle of `value`, which Python's `pickle.loads` reads as the same value.
#[must_use]
pub fn write(value: &Value) -> Vec<u8> {
    let mut out = PROTOCOL.to_vec();
    write_value(&mut out, value);
    out.push(b'.');
    out
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::None => out.push(b'N'),
        Value::Bool(true) => out.push(0x88),
        Value::Bool(false) => out.push(0x89),
        Value::Int(number) => write_int(out, *number),
        Value::BigInt(bytes) => write_long(out, bytes),
        Value::Float(number) => {
            out.push(b'G');
            out.extend(number.to_be_bytes());
        }
        Value::Str(text) => write_counted(out, [0x8c, b'X', 0x8d], text.as_bytes()),
        Value::Bytes(bytes) => write_counted(out, [b'C', b'B', 0x8e], bytes),
        Value::List(parts) => write_parts(out, b"](", parts, b'e'),
        Value::Tuple(parts) => write_parts(out, b"(", parts, b't'),
        Value::Set(parts) => write_parts(out, &[0x8f, b'('], parts, 0x90),
        Value::FrozenSet(parts) => write_parts(out, b"(", parts, 0x91),
        Value::Dict(entries) => {
            out.extend(b"}(");
            for (key, value) in entries {
                write_value(out, key);
                write_value(out, value);
            }
            out.push(b'u');
        }
    }
}

fn write_parts(out: &mut Vec<u8>, open: &[u8], parts: &[Value], close: u8) {
    out.extend(open);
    for part in parts {
        write_value(out, part);
    }
    out.push(close);
}

fn write_int(out: &mut Vec<u8>, number: i64) {
    if let Ok(small) = u8::try_from(number) {
        out.extend([b'K', small]);
    } else if let Ok(small) = i32::try_from(number) {
        out.push(b'J');
        out.extend(small.to_le_bytes());
    } else {
        write_long(out, &number.to_le_bytes());
    }
}

fn write_long(out: &mut Vec<u8>, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(count) => out.extend([0x8a, count]),
        Err(_) => {
            out.push(0x8b);
            out.extend((bytes.len() as u32).to_le_bytes());
        }
    }
    out.extend(bytes);
}

/// Writes the length and then the bytes, with the opcode for a length of 1, 4 or 8 bytes.
fn write_counted(out: &mut Vec<u8>, [short, medium, long]: [u8; 3], bytes: &[u8]) {
    if let Ok(count) = u8::try_from(bytes.len()) {
        out.extend([short, count]);
    } else if let Ok(count) = u32::try_from(bytes.len()) {
        out.push(medium);
        out.extend(count.to_le_bytes());
    } else {
        out.push(long);
        out.extend((bytes.len() as u64).to_le_bytes());
    }
    out.extend(bytes);
}
