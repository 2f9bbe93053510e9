//! TensorBoard's file format: protobuf messages in TFRecord frames, as far as scalars and texts
//! need it. A frame is the length (8 bytes), its checksum, the message, its checksum; a checksum is
//! CRC-32C, rotated and shifted so that a checksum of data that has checksums inside is not weak.

/// The version that a file begins with.
const VERSION: &str = "brain.Event:2";

/// Bytes of a frame before and after its message.
pub const HEAD: usize = 12;
pub const TAIL: usize = 4;

/// What an event says. The numbers of the fields are those of TensorBoard's `event.proto`,
/// `summary.proto` and `tensor.proto`.
pub enum Body<'a> {
    /// The file's version.
    Version,
    /// A session starts: TensorBoard forgets what it has of this step and later ones.
    SessionStart,
    /// Names and values.
    Scalars(&'a mut dyn Iterator<Item = (&'static str, f64)>),
    /// A text in Markdown.
    Text {
        /// Its name.
        tag: &'static str,
        /// The text.
        text: &'a str,
    },
}

/// Appends a framed event.
pub fn frame(out: &mut Vec<u8>, wall_time: f64, step: u64, body: Body<'_>) {
    let start = out.len();
    out.extend([0; HEAD]);
    event(out, wall_time, step, body);
    let length = (out.len() - start - HEAD) as u64;
    out[start..start + 8].copy_from_slice(&length.to_le_bytes());
    let check = masked(&out[start..start + 8]).to_le_bytes();
    out[start + 8..start + HEAD].copy_from_slice(&check);
    let check = masked(&out[start + HEAD..]).to_le_bytes();
    out.extend(check);
}

/// Whether the message of a frame is as it was written.
pub fn is_whole(frame: &[u8]) -> bool {
    let end = frame.len().saturating_sub(TAIL);
    let message = frame.get(HEAD..end);
    message.is_some_and(|message| frame[end..] == masked(message).to_le_bytes())
}

fn event(out: &mut Vec<u8>, wall_time: f64, step: u64, body: Body<'_>) {
    double(out, 1, wall_time);
    integer(out, 2, step);
    match body {
        Body::Version => bytes(out, 3, VERSION.as_bytes()),
        Body::SessionStart => message(out, 7, |session| integer(session, 1, 1)),
        Body::Scalars(values) => message(out, 5, |summary| {
            for (name, value) in values {
                message(summary, 1, |found| {
                    bytes(found, 1, name.as_bytes());
                    float(found, 2, value as f32);
                });
            }
        }),
        Body::Text { tag, text } => message(out, 5, |summary| {
            message(summary, 1, |found| {
                bytes(found, 1, tag.as_bytes());
                message(found, 9, |metadata| message(metadata, 1, |it| bytes(it, 1, b"text")));
                message(found, 8, |tensor| {
                    integer(tensor, 1, 7); // a string
                    message(tensor, 2, |shape| message(shape, 2, |it| integer(it, 1, 1)));
                    bytes(tensor, 8, text.as_bytes());
                });
            });
        }),
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn integer(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    varint(out, field << 3 | 1);
    out.extend(value.to_le_bytes());
}

fn float(out: &mut Vec<u8>, field: u64, value: f32) {
    varint(out, field << 3 | 5);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, content.len() as u64);
    out.extend(content);
}

/// A message inside a message. Its length comes first, but is known last: it is moved there.
fn message(out: &mut Vec<u8>, field: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    varint(out, field << 3 | 2);
    let start = out.len();
    fill(out);
    let end = out.len();
    varint(out, (end - start) as u64);
    let digits = out.len() - end;
    out[start..].rotate_right(digits);
}

fn masked(content: &[u8]) -> u32 {
    crc32c(content).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(content: &[u8]) -> u32 {
    let next = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !content.iter().fold(!0, next)
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { 0x82f6_3b78 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C.
    #[test]
    fn checksums_are_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    /// A file's first record, byte by byte as TensorFlow writes it.
    #[test]
    fn the_version_is_framed() {
        let mut out = Vec::new();
        frame(&mut out, 1.0, 0, Body::Version);
        let message = b"\x09\0\0\0\0\0\0\xf0\x3f\x10\0\x1a\x0dbrain.Event:2";
        assert_eq!(out[..8], (message.len() as u64).to_le_bytes());
        assert_eq!(out[12..out.len() - 4], *message);
        assert_eq!(out.len(), 16 + message.len());
    }

    #[test]
    fn long_messages_have_long_lengths() {
        let mut out = vec![9];
        message(&mut out, 1, |out| out.extend([7; 300]));
        assert_eq!(out[..4], [9, 0x0a, 0xac, 0x02]);
        assert_eq!(out[4..], [7; 300]);
    }
}
