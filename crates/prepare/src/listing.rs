//! Lists the parquet files of a data set on the Hugging Face hub, with sizes and checksums.

use crate::error::{PrepareError, Result};
use crate::limits;
use crate::readers::Packing;
use crate::sources::{Format, Locator, Source, natural};
use data::known::{Known, Origin, names};
use hub::{Client, FetchError, Hub, HubError};
use pick::{Pick, Scalar, ScalarRef};
use serde_core::de::{IgnoredAny, MapAccess, SeqAccess};

/// The files of a known data set, in order.
///
/// # Errors
///
/// When the config is not in the table, the hub cannot be reached, or it has no such files.
pub fn list(known: &Known, config: Option<&str>, client: &Client) -> Result<Vec<Source>> {
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
        match list_folder(repository, revision, &folder, client) {
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
            Err(FetchError::Missing { error, .. }) => missing = Some(error),
            Err(FetchError::Other(error)) => return Err(error.into()),
        }
    }
    let missing = missing.unwrap_or_else(|| HubError::Network {
        url: format!("{}/datasets/{repository}", client.hub().endpoint),
        what: format!("has no parquet files for '{typed}'; known names are {}", names()),
    });
    Err(missing.into())
}

fn list_folder(
    repository: &str,
    revision: &str,
    folder: &str,
    client: &Client,
) -> std::result::Result<Vec<Source>, FetchError> {
    let revision = revision.replace('/', "%2F");
    let api = format!("{}/api/datasets/{repository}/tree/{revision}", client.hub().endpoint);
    let mut url = format!("{api}/{folder}?recursive=true");
    let mut found = Vec::new();
    for _ in 0..limits::LISTING_PAGES {
        let (page, next) = client.page(&url, limits::LISTING)?;
        let more = files(client.hub(), repository, &revision, &page);
        found.extend(more.map_err(|what| HubError::Network { url: url.clone(), what })?);
        if found.len() > limits::FILES {
            let what = format!("the listing has more than {} files", limits::FILES);
            return Err(HubError::Network { url, what }.into());
        }
        match next {
            Some(next) => url = next,
            None => return Ok(found),
        }
    }
    let what = format!(
        "the listing has more than {} pages; name a folder or a single file instead",
        limits::LISTING_PAGES
    );
    Err(HubError::Network { url, what }.into())
}

/// Parses one page of a listing in the hub's JSON format. Separate, so that the soak can give
/// it any bytes without a server.
///
/// # Errors
///
/// When it is not a listing or has too many files.
pub fn files(
    hub: &Hub,
    repository: &str,
    revision: &str,
    page: &[u8],
) -> std::result::Result<Vec<Source>, String> {
    let listing: Page = pick::read(page)
        .map_err(|error| format!("is not JSON ({error}); is HF_ENDPOINT a hub?"))?;
    if !listing.is_list {
        return Err("the answer is not a list of files; is HF_ENDPOINT a hub?".to_owned());
    }
    if listing.entries.len() > limits::FILES {
        return Err(format!("the listing has more than {} files", limits::FILES));
    }
    let source = |entry: Entry| {
        let Entry { path, bytes, lfs } = entry;
        let url = format!("{}/datasets/{repository}/resolve/{revision}/{path}", hub.endpoint);
        Source {
            name: format!("{repository}/{path}"),
            locator: Locator::Url { url, sha256: lfs.sha256 },
            format: Format::Parquet,
            packing: Packing::None,
            bytes: lfs.bytes.or(bytes),
            split: None,
        }
    };
    Ok(listing.entries.into_iter().map(source).collect())
}

/// A page of a listing: its parquet files, up to one more than the limit.
#[derive(Default)]
struct Page {
    entries: Vec<Entry>,
    is_list: bool,
}

impl Pick for Page {
    fn element<'de, S: SeqAccess<'de>>(
        &mut self,
        list: &mut S,
    ) -> std::result::Result<Option<()>, S::Error> {
        self.is_list = true;
        let Some(entry) = pick::element::<Entry, S>(list)? else {
            return Ok(None);
        };
        if entry.path.ends_with(".parquet") && self.entries.len() <= limits::FILES {
            self.entries.push(entry);
        }
        Ok(Some(()))
    }
}

/// A file of a listing.
#[derive(Default)]
struct Entry {
    path: String,
    bytes: Option<u64>,
    lfs: Stored,
}

impl Pick for Entry {
    fn field<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut M,
    ) -> std::result::Result<(), M::Error> {
        match name {
            "path" => self.path = pick::value::<Text, M>(map)?.0,
            "size" => self.bytes = pick::value::<Scalar, M>(map)?.whole(),
            "lfs" => self.lfs = pick::value(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// How the hub stores large files (LFS), with their checksum.
#[derive(Default)]
struct Stored {
    bytes: Option<u64>,
    sha256: Option<String>,
}

impl Pick for Stored {
    fn field<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut M,
    ) -> std::result::Result<(), M::Error> {
        match name {
            "size" => self.bytes = pick::value::<Scalar, M>(map)?.whole(),
            "oid" => {
                let oid: Scalar = pick::value(map)?;
                self.sha256 = oid.text().map(|oid| oid.trim_start_matches("sha256:").to_owned());
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A string of any length.
#[derive(Default)]
struct Text(String);

impl Pick for Text {
    fn scalar(&mut self, found: ScalarRef<'_>) {
        if let ScalarRef::Text(text) = found {
            self.0 = text.to_owned();
        }
    }
}
