//! The hub's way of naming files: which parquet files a data set has, with sizes and checksums.

use crate::download::{Client, Failure};
use crate::error::{PrepareError, Result};
use crate::known::{Known, Origin, names};
use crate::readers::Packing;
use crate::sources::{Format, Place, Source, natural};
use serde_json::Value;

/// Where the hub is, and who asks.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Its address without a final slash.
    pub endpoint: String,
    /// For data sets that ask for one.
    pub token: Option<String>,
}

/// The hub that everybody uses.
pub const ENDPOINT: &str = "https://huggingface.co";

/// Most pages of a listing: a thousand files each.
const PAGES: usize = 64;

impl Hub {
    /// As `HF_ENDPOINT` and `HF_TOKEN` say.
    #[must_use]
    pub fn from_environment() -> Hub {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), token: set("HF_TOKEN") }
    }

    /// The files of a known data set, in order.
    ///
    /// # Errors
    ///
    /// When the config is none of the table's, or the hub cannot be asked or has no such files.
    pub fn list(
        &self,
        known: &Known,
        config: Option<&str>,
        client: &Client,
    ) -> Result<Vec<Source>> {
        let Origin::Hub { repository, configs, halves, .. } = known.origin else {
            return Ok(Vec::new());
        };
        let typed = config.unwrap_or_else(|| configs.first().map_or("", |first| first.name));
        let Some(folders) = configs.iter().find_map(|config| config.folders(typed)) else {
            let all: Vec<&str> = configs.iter().map(|config| config.name).collect();
            return Err(PrepareError::Usage(format!(
                "{} has no config '{typed}'; it has {}",
                known.name,
                all.join(", ")
            )));
        };
        let mut missing = None;
        for (revision, folder) in folders {
            match self.list_folder(repository, revision, &folder, client) {
                Ok(mut files) if !files.is_empty() => {
                    files.sort_by(|a, b| natural(&a.name, &b.name));
                    for file in &mut files {
                        let name = file.file_name();
                        let half = halves.iter().find(|(start, _)| name.starts_with(start));
                        file.split = half.map(|(_, split)| *split);
                    }
                    return Ok(files);
                }
                Ok(_) => {}
                Err(Failure::Missing(error)) => missing = Some(error),
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        Err(missing.unwrap_or_else(|| PrepareError::Network {
            url: format!("{}/datasets/{repository}", self.endpoint),
            what: format!("has no parquet files for '{typed}'; known names are {}", names()),
        }))
    }

    fn list_folder(
        &self,
        repository: &str,
        revision: &str,
        folder: &str,
        client: &Client,
    ) -> std::result::Result<Vec<Source>, Failure> {
        let revision = revision.replace('/', "%2F");
        let api = format!("{}/api/datasets/{repository}/tree/{revision}", self.endpoint);
        let mut url = format!("{api}/{folder}?recursive=true");
        let mut files = Vec::new();
        for _ in 0..PAGES {
            let (entries, next) = client.json(&url)?;
            let wrong = || PrepareError::Network {
                url: url.clone(),
                what: "the answer is no list of files; is HF_ENDPOINT a hub?".to_owned(),
            };
            for entry in entries.as_array().ok_or_else(wrong)? {
                files.extend(self.source(repository, &revision, entry));
            }
            match next {
                Some(next) => url = next,
                None => break,
            }
        }
        Ok(files)
    }

    /// A parquet file of a listing.
    fn source(&self, repository: &str, revision: &str, entry: &Value) -> Option<Source> {
        let path = entry["path"].as_str().filter(|path| path.ends_with(".parquet"))?;
        let lfs = &entry["lfs"];
        let bytes = lfs["size"].as_u64().or_else(|| entry["size"].as_u64());
        let sha256 = lfs["oid"].as_str().map(|oid| oid.trim_start_matches("sha256:").to_owned());
        let url = format!("{}/datasets/{repository}/resolve/{revision}/{path}", self.endpoint);
        Some(Source {
            name: format!("{repository}/{path}"),
            place: Place::Url { url, sha256 },
            format: Format::Parquet,
            packing: Packing::None,
            bytes,
            split: None,
        })
    }
}
