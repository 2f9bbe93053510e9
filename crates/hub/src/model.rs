//! A model of the hub as a folder on this machine: from the cache, or downloaded into it.

use crate::cache::{self, CONFIG, Cache, INDEX, Place, WEIGHTS};
use crate::checksum::Checksum;
use crate::disk::free_space;
use crate::download::{Client, Described, FetchError};
use crate::error::{HubError, Result};
use crate::lock::{Lock, no_locks};
use crate::part::{Part, Size};
use crate::repo::ModelRepo;
use pick::{MOST_INDEX_BYTES, weight_files};
use std::path::PathBuf;

/// Files beside the weights; a repository has some of them.
const BESIDE: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "generation_config.json",
];

/// A model has one of these if it has a tokenizer.
const TOKENIZER: [&str; 2] = ["tokenizer.json", "vocab.json"];

/// Most bytes of a `config.json`, of an index, and of a small file beside the weights.
const SMALL: u64 = MOST_INDEX_BYTES;
/// Most bytes of a tokenizer's file.
const VOCABULARY: u64 = 64 << 20;

/// Most bytes of a file, if it is not one with weights.
fn most(file: &str) -> Option<u64> {
    match file {
        "tokenizer.json" | "vocab.json" | "merges.txt" => Some(VOCABULARY),
        CONFIG | INDEX => Some(SMALL),
        _ => BESIDE.contains(&file).then_some(SMALL),
    }
}

/// Learns how a download goes on.
pub trait Watch {
    /// A line for the user.
    fn note(&mut self, line: &str);
    /// The download of a file begins; its size, if that is known.
    fn begin(&mut self, file: &str, bytes: Option<u64>);
    /// So many bytes of the current file are here.
    fn progress(&mut self, bytes: u64);
}

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFolder {
    /// The folder with `config.json` and the weights.
    pub path: PathBuf,
    /// The commit of the repository.
    pub commit: String,
    /// Whether anything was downloaded now.
    pub is_new: bool,
}

/// A file that is to be downloaded.
struct Wanted {
    file: String,
    etag: String,
    size: Size,
}

impl Client {
    /// Finds a model in the cache, or downloads what is missing of it.
    ///
    /// # Errors
    ///
    /// When the hub refuses, the connection fails too often, the disk has no room, or the user
    /// stops. What was received is kept, and the next call resumes.
    pub fn model(
        &self,
        cache: &Cache,
        repo: &ModelRepo,
        watch: &mut dyn Watch,
    ) -> Result<ModelFolder> {
        let place = cache.place(repo);
        if let Some(commit) = place.commit().filter(|commit| place.has_weights(commit))
            && place.snapshot(&commit).join(CONFIG).is_file()
        {
            let visit = Visit { client: self, repo, place: &place, commit: &commit };
            let is_new = visit.complete(watch)?;
            return Ok(ModelFolder { path: place.snapshot(&commit), commit, is_new });
        }
        self.check_online(cache, repo)?;
        let (commit, config) = self.head(&place, repo)?;
        let visit = Visit { client: self, repo, place: &place, commit: &commit };
        if let Some(config) = config {
            visit.download(&config, watch)?;
        }
        let mut wanted = visit.weights(watch)?;
        wanted.extend(visit.beside()?);
        visit.check_room(cache, &wanted)?;
        // The small files first: a stopped download of the weights then needs only them.
        wanted.sort_by_key(|wanted| (most(&wanted.file).is_none(), wanted.size.most()));
        for file in &wanted {
            visit.download(file, watch)?;
        }
        Ok(ModelFolder { path: place.snapshot(&commit), commit, is_new: true })
    }

    /// The `config.json` of a model, from the cache or downloaded into it.
    ///
    /// # Errors
    ///
    /// As [`Self::model`].
    pub fn model_config(
        &self,
        cache: &Cache,
        repo: &ModelRepo,
        watch: &mut dyn Watch,
    ) -> Result<PathBuf> {
        if let Some(path) = cache.config(repo) {
            return Ok(path);
        }
        self.check_online(cache, repo)?;
        let place = cache.place(repo);
        let (commit, config) = self.head(&place, repo)?;
        if let Some(config) = config {
            let visit = Visit { client: self, repo, place: &place, commit: &commit };
            visit.download(&config, watch)?;
        }
        Ok(place.snapshot(&commit).join(CONFIG))
    }

    fn check_online(&self, cache: &Cache, repo: &ModelRepo) -> Result<()> {
        if !self.is_offline {
            return Ok(());
        }
        let what = format!(
            "is not complete in {}, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids requests to \
             the hub; unset it to download the model, or give a folder that holds it",
            cache.root().display()
        );
        Err(HubError::Model { name: repo.id().to_owned(), what })
    }

    /// The commit of the main revision, and its `config.json` if that is not here yet.
    fn head(&self, place: &Place, repo: &ModelRepo) -> Result<(String, Option<Wanted>)> {
        let url = repo.url(&self.hub().endpoint, ModelRepo::REVISION, CONFIG);
        let described = self.describe(&url)?;
        let commit = described.commit.clone().filter(|commit| cache::is_name(commit));
        let Some(commit) = commit else {
            let what = "the answer names no commit of the repository; is HF_ENDPOINT a hub?";
            return Err(HubError::network(&url, what));
        };
        place.set_commit(&commit)?;
        if place.snapshot(&commit).join(CONFIG).is_file() {
            return Ok((commit, None));
        }
        let wanted = Wanted::new(&url, CONFIG, described)?;
        Ok((commit, Some(wanted)))
    }
}

/// One commit of a repository, while its files are downloaded.
struct Visit<'a> {
    client: &'a Client,
    repo: &'a ModelRepo,
    place: &'a Place,
    commit: &'a str,
}

impl Visit<'_> {
    fn url(&self, file: &str) -> String {
        self.repo.url(&self.client.hub().endpoint, self.commit, file)
    }

    fn has(&self, file: &str) -> bool {
        self.place.snapshot(self.commit).join(file).is_file()
    }

    /// What is to be downloaded for a file: nothing if it is here, `None` if the commit has no such
    /// file.
    fn wanted(&self, file: &str) -> Result<Option<Vec<Wanted>>> {
        if self.has(file) {
            return Ok(Some(Vec::new()));
        }
        // One wrong note must not hide the weights for good: they are asked for each time.
        if BESIDE.contains(&file) && self.place.is_absent(self.commit, file) {
            return Ok(None);
        }
        let url = self.url(file);
        match self.client.describe(&url) {
            Ok(described) => Ok(Some(vec![Wanted::new(&url, file, described)?])),
            Err(FetchError::Missing { is_certain, .. }) => {
                if is_certain {
                    self.place.set_absent(self.commit, file);
                }
                Ok(None)
            }
            Err(FetchError::Other(error)) => Err(error),
        }
    }

    /// The files beside the weights that are still missing.
    fn beside(&self) -> Result<Vec<Wanted>> {
        let mut wanted = Vec::new();
        for file in BESIDE {
            wanted.extend(self.wanted(file)?.unwrap_or_default());
        }
        Ok(wanted)
    }

    /// Downloads the tokenizer of a model that another program cached without it. The model is
    /// usable as it is, so that a failure is only noted. Returns whether there is anything new.
    fn complete(&self, watch: &mut dyn Watch) -> Result<bool> {
        let is_known = |file: &str| self.has(file) || self.place.is_absent(self.commit, file);
        let has_one = TOKENIZER.iter().any(|file| self.has(file));
        if self.client.is_offline || has_one || TOKENIZER.iter().all(|file| is_known(file)) {
            return Ok(false);
        }
        let mut fetch = || {
            let wanted = self.beside()?;
            wanted.iter().try_for_each(|file| self.download(file, watch))?;
            Ok(!wanted.is_empty())
        };
        match fetch() {
            Err(HubError::Stopped) => Err(HubError::Stopped),
            Err(error) => {
                watch.note(&format!("the cache has no tokenizer of {}: {error}", self.repo));
                Ok(false)
            }
            fetched => fetched,
        }
    }

    /// The files with the weights that are still missing.
    fn weights(&self, watch: &mut dyn Watch) -> Result<Vec<Wanted>> {
        if let Some(single) = self.wanted(WEIGHTS)? {
            return Ok(single);
        }
        let Some(index) = self.wanted(INDEX)? else {
            let what = format!(
                "the repository has neither {WEIGHTS} nor {INDEX}; convert the model to \
                 safetensors, e.g. with transformers' save_pretrained, and give its folder"
            );
            return Err(HubError::network(&self.url(""), what));
        };
        for file in &index {
            self.download(file, watch)?;
        }
        let content = cache::read(&self.place.snapshot(self.commit).join(INDEX), MOST_INDEX_BYTES)?;
        let files =
            weight_files(&content).map_err(|what| HubError::network(&self.url(INDEX), what))?;
        let mut wanted = Vec::new();
        for file in files {
            let Some(shard) = self.wanted(&file)? else {
                let what = format!("does not exist (404), though {INDEX} names it");
                return Err(HubError::network(&self.url(&file), what));
            };
            wanted.extend(shard);
        }
        Ok(wanted)
    }

    /// Refuses before anything is downloaded if the disk has no room for it.
    fn check_room(&self, cache: &Cache, wanted: &[Wanted]) -> Result<()> {
        let part = |file: &Wanted| file.part(self.place).bytes();
        let missing =
            |file: &Wanted| file.announced().map(|bytes| bytes.saturating_sub(part(file)));
        let needed = wanted.iter().filter(|file| !self.place.blob(&file.etag).exists());
        let needed = needed.filter_map(missing).fold(0_u64, u64::saturating_add);
        let free = free_space(cache.root())?;
        if needed <= free {
            return Ok(());
        }
        let what = format!(
            "{} needs {needed} bytes more, but the disk has {free} free; make room, or set \
             HF_HUB_CACHE to a folder on another disk",
            self.repo
        );
        Err(HubError::Local { path: cache.root().to_owned(), what })
    }

    /// Downloads a file, unless another process does so first.
    fn download(&self, wanted: &Wanted, watch: &mut dyn Watch) -> Result<()> {
        let Wanted { file, etag, .. } = wanted;
        let blob = self.place.blob(etag);
        let folder = self.place.blob("");
        std::fs::create_dir_all(&folder).map_err(HubError::io(&folder, "create the folder"))?;
        let mut waiting = || {
            watch.note(&format!("another process downloads {file} of {}: waiting", self.repo));
        };
        let is_over = || self.client.is_over();
        let at = self.place.lock(etag);
        let lock = Lock::take(&at, self.client.try_lock, &is_over, &mut waiting)?;
        if !lock.is_locked && self.client.says_no_locks() {
            watch.note(&no_locks(&folder, "download the same model"));
        }
        if !blob.is_file() && !self.has(file) {
            let checksum = Checksum::of_etag(etag);
            let part = wanted.part(self.place);
            watch.begin(file, wanted.announced());
            let mut progress = |bytes| watch.progress(bytes);
            let to = (&part, blob.as_path());
            self.client.fetch_into(&self.url(file), checksum.as_ref(), to, &mut progress)?;
        }
        self.place.link(self.commit, file, etag)
    }
}

impl Wanted {
    fn new(url: &str, file: &str, described: Described) -> Result<Wanted> {
        let etag = described.etag.filter(|etag| cache::is_name(etag)).ok_or_else(|| {
            let what = "the answer has no usable ETag; is HF_ENDPOINT a hub?";
            HubError::network(url, what)
        })?;
        let size = match (described.bytes, most(file)) {
            (Some(bytes), Some(most)) if bytes > most => {
                let what = format!("has {bytes} bytes, but a {file} has at most {most}");
                return Err(HubError::network(url, what));
            }
            (Some(bytes), _) => Size::Exactly(bytes),
            (None, Some(most)) => Size::AtMost(most),
            (None, None) => {
                let what = "the answer does not say the file's size; is HF_ENDPOINT a hub?";
                return Err(HubError::network(url, what));
            }
        };
        Ok(Wanted { file: file.to_owned(), etag, size })
    }

    /// Its size, if the server announced it.
    fn announced(&self) -> Option<u64> {
        match self.size {
            Size::Exactly(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn part(&self, place: &Place) -> Part {
        Part::of_blob(&place.blob(&self.etag), self.size, Checksum::of_etag(&self.etag).is_some())
    }
}
