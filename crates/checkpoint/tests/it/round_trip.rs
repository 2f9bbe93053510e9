//! What is saved is what is read.

use crate::fixture::{Saved, TempDir, sample};
use fitgpt_checkpoint::{Dtype, Reader, TensorInfo, save};
use std::fs;

#[test]
fn every_kind_of_tensor_comes_back() {
    let dir = TempDir::new("every-kind");
    let path = dir.file("last");
    let bytes = sample().save(&path).unwrap();
    assert_eq!(bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(Saved::load(&path).unwrap(), sample().by_name());
    assert_eq!(dir.names(), ["last"]);
}

#[test]
fn a_file_without_tensors_is_a_checkpoint_too() {
    let dir = TempDir::new("no-tensors");
    let empty = Saved { document: "null".to_owned(), tensors: Vec::new() };
    empty.save(&dir.file("last")).unwrap();
    assert_eq!(Saved::load(&dir.file("last")).unwrap(), empty);
}

#[test]
fn tensors_are_aligned_and_keep_their_order_otherwise() {
    let dir = TempDir::new("aligned");
    let path = dir.file("last");
    sample().save(&path).unwrap();
    let file = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    assert_eq!(header % 8, 0);
    let reader = Reader::open(&path).unwrap();
    let mut offset = 0;
    for tensor in reader.tensors() {
        assert_eq!(offset % tensor.dtype.bytes(), 0, "{}", tensor.name);
        offset += tensor.bytes().unwrap();
    }
    let wide = |tensor: &&TensorInfo| tensor.dtype.bytes() == 4;
    let names: Vec<&str> = reader.tensors().iter().filter(wide).map(|t| &*t.name).collect();
    assert_eq!(names, ["weights/F32", "weights/I32", "weights/U32", "state", "empty"]);
}

#[test]
fn large_tensors_are_cut_into_chunks_and_back() {
    let dir = TempDir::new("large");
    let path = dir.file("last");
    let tensors = [TensorInfo::new("x", Dtype::U8, &[2_500_001])];
    let mut buffer = vec![0; 3_000_000];
    let content = |i: usize| ((i * 2_654_435_761) >> 13) as u8;
    save(&path, "{}", &tensors, &mut buffer, |index, bytes| {
        assert_eq!((index, bytes.len()), (0, 2_500_001));
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = content(i));
        Ok::<(), String>(())
    })
    .unwrap();
    let reader = Reader::open(&path).unwrap();
    let mut back = vec![0; 2_500_001];
    reader.read(0, &mut back).unwrap();
    assert!(back.iter().enumerate().all(|(i, byte)| *byte == content(i)));
    reader.verify().unwrap();
}

#[test]
fn an_open_checkpoint_stays_what_it_was() {
    let dir = TempDir::new("open");
    let path = dir.file("last");
    sample().save(&path).unwrap();
    let reader = Reader::open(&path).unwrap();
    let mut other = sample();
    other.tensors.iter_mut().for_each(|(_, content)| content.fill(0));
    other.save(&path).unwrap();
    let index = reader.find("state").unwrap();
    let mut content = [0; 64];
    reader.read(index, &mut content).unwrap();
    let saved = sample().tensors.into_iter().find(|(info, _)| info.name == "state").unwrap();
    assert_eq!(content.to_vec(), saved.1);
    assert_eq!(reader.find("State"), None);
}
