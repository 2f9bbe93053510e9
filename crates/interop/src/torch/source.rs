//! The tensors of a `ckpt.pt`, one at a time, in 32 bits. Content is checked against its checksum
//! before it is used.

use super::archive::{Archive, CHUNK, check};
use super::names::Element;
use super::view::{View, decode};
use crate::error::ForeignProblem;
use checkpoint::{Dtype, ReadError, ReadProblem, TensorInfo, TensorSource};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;

/// What a tensor's content is.
pub enum Content {
    /// A tensor of the file, and another one that must have the same values.
    View(View, Option<View>),
    /// Words that the file does not have in this form.
    Words(Vec<u32>),
}

/// An open `ckpt.pt`.
pub struct TorchSource {
    path: PathBuf,
    archive: Archive,
    tensors: Vec<TensorInfo>,
    contents: Vec<Content>,
    /// Storages whose checksum was compared, by their place.
    verified: RefCell<HashSet<u64>>,
}

impl TorchSource {
    pub fn new(path: PathBuf, archive: Archive) -> TorchSource {
        let (tensors, contents) = (Vec::new(), Vec::new());
        TorchSource { path, archive, tensors, contents, verified: RefCell::default() }
    }

    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    pub fn add(&mut self, name: String, content: Content) {
        let (dtype, shape) = match &content {
            Content::View(view, _) => (Dtype::F32, view.shape.clone()),
            Content::Words(words) => (Dtype::U32, vec![words.len() as u64]),
        };
        self.tensors.push(TensorInfo { name, dtype, shape });
        self.contents.push(content);
    }

    fn fill(&self, index: usize, content: &mut [u8]) -> Result<(), ForeignProblem> {
        match &self.contents[index] {
            Content::Words(words) => {
                for (word, place) in words.iter().zip(content.chunks_exact_mut(4)) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                Ok(())
            }
            Content::View(view, same) => {
                let mut rest = &mut *content;
                self.stream(view, &mut |elements| {
                    let bytes = 4 * elements.len() / view.element.bytes() as usize;
                    let (place, after) = std::mem::take(&mut rest).split_at_mut(bytes);
                    to_f32(view.element, elements, place);
                    rest = after;
                    Ok(())
                })?;
                same.as_ref().map_or(Ok(()), |same| self.compare(same, content))
            }
        }
    }

    /// Compares a second tensor with the content of the first.
    fn compare(&self, view: &View, content: &[u8]) -> Result<(), ForeignProblem> {
        let mut place = [0; 4];
        let bytes = view.element.bytes() as usize;
        let mut rest = content.chunks_exact(4);
        self.stream(view, &mut |elements| {
            for element in elements.chunks_exact(bytes) {
                to_f32(view.element, element, &mut place);
                if rest.next() != Some(&place) {
                    let what = "its lm_head differs from its token embedding: this is not \
                                nanoGPT's model, which uses one matrix for both";
                    return Err(ForeignProblem::Refused { what: what.to_owned() });
                }
            }
            Ok(())
        })
    }

    /// Reads a tensor's elements in their order, in pieces.
    fn stream(
        &self,
        view: &View,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), ForeignProblem>,
    ) -> Result<(), ForeignProblem> {
        let (bytes, elements) = (view.element.bytes(), view.elements());
        let is_whole = elements * bytes == view.entry.bytes;
        if !view.is_contiguous() {
            self.verify(view)?;
            return self.gather(view, sink);
        }
        if !is_whole {
            self.verify(view)?;
        }
        let mut checksum = crc32fast::Hasher::new();
        let mut buffer = vec![0; CHUNK.min((elements * bytes) as usize)];
        let (mut done, top) = (0, elements * bytes);
        while done < top {
            let piece = &mut buffer[..(top - done).min(CHUNK as u64) as usize];
            self.archive.read(view.entry, view.offset * bytes + done, piece)?;
            checksum.update(piece);
            sink(piece)?;
            done += piece.len() as u64;
        }
        match is_whole {
            true => check(view.entry, checksum.finalize(), &view.storage),
            false => Ok(()),
        }
    }

    /// Compares a storage's checksum once.
    fn verify(&self, view: &View) -> Result<(), ForeignProblem> {
        if self.verified.borrow().contains(&view.entry.start) {
            return Ok(());
        }
        self.archive.verify(view.entry, &view.storage)?;
        self.verified.borrow_mut().insert(view.entry.start);
        Ok(())
    }

    /// Elements that are not one after the other: reads everything between the first and the last.
    fn gather(
        &self,
        view: &View,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), ForeignProblem>,
    ) -> Result<(), ForeignProblem> {
        let bytes = view.element.bytes() as usize;
        let extents = view.shape.iter().zip(&view.strides);
        let last: u64 = extents.map(|(&extent, &stride)| extent.saturating_sub(1) * stride).sum();
        let mut span = Vec::new();
        let count = (last as usize + 1) * bytes;
        if view.elements() == 0 {
            return Ok(());
        }
        span.try_reserve_exact(count).map_err(|_| ForeignProblem::Io {
            doing: "read a tensor that is not contiguous",
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        span.resize(count, 0);
        self.archive.read(view.entry, view.offset * bytes as u64, &mut span)?;
        let mut piece = Vec::with_capacity(CHUNK);
        let mut index = vec![0; view.shape.len()];
        for _ in 0..view.elements() {
            let at: u64 = index.iter().zip(&view.strides).map(|(at, stride)| at * stride).sum();
            let at = at as usize * bytes;
            piece.extend_from_slice(&span[at..at + bytes]);
            if piece.len() == CHUNK {
                sink(&piece)?;
                piece.clear();
            }
            advance(&mut index, &view.shape);
        }
        sink(&piece)
    }
}

/// The next index in row-major order.
fn advance(index: &mut [u64], shape: &[u64]) {
    for (at, &extent) in index.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < extent {
            return;
        }
        *at = 0;
    }
}

/// Converts elements to 32 bits, of which `place` has exactly as many.
fn to_f32(element: Element, elements: &[u8], place: &mut [u8]) {
    if element == Element::F32 {
        return place.copy_from_slice(elements);
    }
    let mut number = [0; 8];
    let bytes = element.bytes() as usize;
    for (from, to) in elements.chunks_exact(bytes).zip(place.chunks_exact_mut(4)) {
        number[..bytes].copy_from_slice(from);
        to.copy_from_slice(&(decode(element, &number) as f32).to_le_bytes());
    }
}

impl TensorSource for TorchSource {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        let named = |problem| ReadError { path: self.path.clone(), problem };
        let Some(tensor) = self.tensors.get(index) else {
            let count = self.tensors.len();
            return Err(named(ReadProblem::NoSuchTensor { index, count }));
        };
        let (needed, given) = (tensor.bytes().unwrap_or(u64::MAX), content.len() as u64);
        if needed != given {
            let tensor = tensor.name.clone();
            return Err(named(ReadProblem::BufferSize { tensor, needed, given }));
        }
        self.fill(index, content).map_err(|problem| named(problem.into()))
    }
}
