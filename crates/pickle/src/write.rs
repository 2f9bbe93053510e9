//! Writes values, one or two instructions per value, no memo: in protocol 4, for Python 3.4 and
//! later, or in protocol 2 with calls, for readers that know nothing newer.

use crate::value::{Call, Value};

/// The pickle of a plain value, which Python's `pickle.loads` reads as the same value.
#[must_use]
pub fn write(value: &Value) -> Vec<u8> {
    pickled(value, Style { protocol: 4, names: &[] })
}

/// The pickle of a value whose names are indices in `names`, in protocol 2.
#[must_use]
pub fn write_calls(value: &Value, names: &[(&str, &str)]) -> Vec<u8> {
    pickled(value, Style { protocol: 2, names })
}

#[derive(Clone, Copy)]
struct Style<'a> {
    protocol: u8,
    names: &'a [(&'a str, &'a str)],
}

fn pickled(value: &Value, style: Style) -> Vec<u8> {
    let mut out = vec![0x80, style.protocol];
    write_value(&mut out, style, value);
    out.push(b'.');
    out
}

fn write_value(out: &mut Vec<u8>, style: Style, value: &Value) {
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
        Value::Str(text) => {
            let short = if style.protocol < 4 { b'X' } else { 0x8c };
            write_counted(out, [short, b'X', 0x8d], text.as_bytes());
        }
        Value::Bytes(bytes) => write_counted(out, [b'C', b'B', 0x8e], bytes),
        Value::List(parts) => write_parts(out, style, b"](", parts, b'e'),
        Value::Tuple(parts) => write_parts(out, style, b"(", parts, b't'),
        Value::Set(parts) => write_parts(out, style, &[0x8f, b'('], parts, 0x90),
        Value::FrozenSet(parts) => write_parts(out, style, b"(", parts, 0x91),
        Value::Dict(entries) => {
            out.extend(b"}(");
            for (key, value) in entries {
                write_value(out, style, key);
                write_value(out, style, value);
            }
            out.push(b'u');
        }
        Value::Global(index) => write_name(out, style, *index),
        Value::Call(call) => write_call(out, style, call),
        Value::Persistent(id) => {
            write_value(out, style, id);
            out.push(b'Q');
        }
    }
}

/// A name that is not listed becomes `None`.
fn write_name(out: &mut Vec<u8>, style: Style, index: usize) {
    match style.names.get(index) {
        Some((module, name)) => out.extend(format!("c{module}\n{name}\n").as_bytes()),
        None => out.push(b'N'),
    }
}

fn write_call(out: &mut Vec<u8>, style: Style, call: &Call) {
    write_name(out, style, call.function);
    write_parts(out, style, b"(", &call.arguments, b't');
    out.push(b'R');
    if let Some(state) = &call.state {
        write_value(out, style, state);
        out.push(b'b');
    }
}

fn write_parts(out: &mut Vec<u8>, style: Style, open: &[u8], parts: &[Value], close: u8) {
    out.extend(open);
    for part in parts {
        write_value(out, style, part);
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
    if let (Ok(count), true) = (u8::try_from(bytes.len()), short != medium) {
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
