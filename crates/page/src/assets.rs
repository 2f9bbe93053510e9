//! The files of the page, inside the program: it works offline, and no request reaches the disk.

/// One file.
pub struct Asset {
    /// Its address.
    pub path: &'static str,
    /// Its type.
    pub kind: &'static str,
    /// Its bytes.
    pub content: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! assets {
    ($($path:literal $kind:ident $file:literal;)*) => {
        /// All files.
        pub const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            content: include_bytes!(concat!("../assets/", $file)),
        }),*];
    };
}

assets! {
    "/" HTML "index.html";
    "/style.css" STYLE "style.css";
    "/favicon.svg" PICTURE "favicon.svg";
    "/page.js" SCRIPT "page.js";
    "/dom.js" SCRIPT "dom.js";
    "/format.js" SCRIPT "format.js";
    "/chart.js" SCRIPT "chart.js";
    "/runs.js" SCRIPT "runs.js";
    "/store.js" SCRIPT "store.js";
    "/arena.js" SCRIPT "arena.js";
    "/memory.js" SCRIPT "memory.js";
    "/plan.js" SCRIPT "plan.js";
    "/doctor.js" SCRIPT "doctor.js";
    "/playground.js" SCRIPT "playground.js";
}

/// The file at an address.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a browser loads, with room to grow.
    const MOST_BYTES: usize = 300 << 10;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let all: usize = ASSETS.iter().map(|asset| asset.content.len()).sum();
        assert!(all < MOST_BYTES, "{all} bytes");
        for asset in ASSETS {
            let text = std::str::from_utf8(asset.content).unwrap();
            let own = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains("http://") && !own.contains("https://"), "{}", asset.path);
            // Texts of models and logs never become HTML.
            for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(way), "{}: {way}", asset.path);
            }
        }
    }
}
