//! A chart as PNG: the format around zlib's stream, and the pixels.

use super::axis::By;
use super::chart::Chart;
use super::raster::{Pixels, raster};
use super::scene::scene;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::{Result, Write};

/// Draws a panel for each of these.
///
/// # Errors
///
/// None: compressing into memory does not fail.
pub fn png(chart: &Chart, over: &[By]) -> Result<Vec<u8>> {
    let Pixels { width, height, bytes, .. } = raster(&scene(chart, over));
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in bytes.chunks(3 * width) {
        // Each byte as the difference from the pixel to the left.
        let differences = (0..row.len()).map(|at| match at {
            0..3 => row[at],
            _ => row[at].wrapping_sub(row[at - 3]),
        });
        let line: Vec<u8> = std::iter::once(1).chain(differences).collect();
        rows.write_all(&line)?;
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let [width, height] = [width, height].map(|size| (size as u32).to_be_bytes());
    // Eight bits for each of three colours.
    chunk(&mut out, b"IHDR", &[&width[..], &height[..], &[8, 2, 0, 0, 0]].concat());
    chunk(&mut out, b"IDAT", &rows.finish()?);
    chunk(&mut out, b"IEND", &[]);
    Ok(out)
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    out.extend((content.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(kind);
    out.extend(content);
    let mut check = Crc::new();
    check.update(&out[start..]);
    out.extend(check.sum().to_be_bytes());
}
