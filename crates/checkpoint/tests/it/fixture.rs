//! A directory for each test, and a small checkpoint of every kind of tensor.

use fitgpt_checkpoint::{Dtype, Reader, SaveError, TensorInfo, largest_bytes, save};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory that belongs to one test and is removed when the test ends.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(test: &str) -> TempDir {
        let name = format!("{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names in the directory, sorted.
    pub fn names(&self) -> Vec<OsString> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a checkpoint holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    pub document: String,
    pub tensors: Vec<(TensorInfo, Vec<u8>)>,
}

/// Every dtype, a scalar, an empty tensor, and names that JSON must escape.
pub fn sample() -> Saved {
    let mut shapes: Vec<(String, Dtype, &[u64])> = Dtype::ALL
        .iter()
        .map(|dtype| (format!("weights/{}", dtype.name()), *dtype, &[3u64, 5] as &[u64]))
        .collect();
    shapes.push(("state".to_owned(), Dtype::U32, &[16]));
    shapes.push(("scalar".to_owned(), Dtype::I64, &[]));
    shapes.push(("empty".to_owned(), Dtype::F32, &[4, 0]));
    shapes.push(("\"ü\\\n".to_owned(), Dtype::U8, &[1]));
    let tensor = |(seed, (name, dtype, shape)): (usize, (String, Dtype, &[u64]))| {
        let info = TensorInfo::new(name, dtype, shape);
        let bytes = info.bytes().unwrap() as usize;
        let content = (0..bytes).map(|i| (i * 37 + seed * 101 + i * i) as u8).collect();
        (info, content)
    };
    let document = r#"{"schema":"fitgpt.run/1","iteration":7,"quote":"\"\n","list":[1.5,null]}"#;
    Saved {
        document: document.to_owned(),
        tensors: shapes.into_iter().enumerate().map(tensor).collect(),
    }
}

impl Saved {
    pub fn save(&self, path: &Path) -> Result<u64, SaveError> {
        let infos: Vec<TensorInfo> = self.tensors.iter().map(|(info, _)| info.clone()).collect();
        let mut buffer = vec![0xAA; largest_bytes(&infos).unwrap() as usize];
        save(path, &self.document, &infos, &mut buffer, |index, content| {
            content.copy_from_slice(&self.tensors[index].1);
            Ok::<(), Infallible>(())
        })
    }

    /// The same tensors sorted by name, for comparison.
    pub fn by_name(mut self) -> Saved {
        self.tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        self
    }

    /// Reads a whole file and checks every checksum.
    pub fn load(path: &Path) -> Result<Saved, fitgpt_checkpoint::ReadError> {
        let reader = Reader::open(path)?;
        reader.verify()?;
        let mut tensors = Vec::new();
        for (index, info) in reader.tensors().iter().enumerate() {
            let mut content = vec![0; info.bytes().unwrap() as usize];
            reader.read(index, &mut content)?;
            tensors.push((info.clone(), content));
        }
        Ok(Saved { document: reader.document().to_owned(), tensors }.by_name())
    }
}

/// The bytes of a checkpoint of [`sample`].
pub fn sample_bytes(dir: &TempDir) -> Vec<u8> {
    let path = dir.file("sample");
    sample().save(&path).unwrap();
    fs::read(&path).unwrap()
}

/// A safetensors file of this header and data.
pub fn raw_file(json: &str, data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat()
}

/// Starts this test binary again for one test; the variable tells that test to do its work.
pub fn rerun(test: &str, variable: &str, value: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(variable, value);
    command
}
