//! Statistics of the built-in corpus: `cargo run --release -p fitgpt-data --example corpus
//! [FOLDER]`.
//!
//! With a folder, also writes `train.txt`, `val.txt` and `floor` there, for experiments elsewhere.

use fitgpt_data::Ngram;
use fitgpt_data::corpus::Corpus;
use std::collections::HashSet;
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let start = Instant::now();
    let corpus = Corpus::builtin();
    let made = start.elapsed();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (train, val) = (text(&corpus.train), text(&corpus.val));
    let stories = |text: &str| text.split_terminator("\n\n").map(str::to_owned).collect::<Vec<_>>();
    let (train_stories, val_stories) = (stories(&train), stories(&val));
    println!("made in {made:?}: train {} bytes, val {} bytes", train.len(), val.len());
    println!("stories: {} and {}", train_stories.len(), val_stories.len());
    println!("vocabulary: {} characters", corpus.vocabulary.len());
    let seen: HashSet<&String> = train_stories.iter().collect();
    let repeats = val_stories.iter().filter(|story| seen.contains(story)).count();
    println!(
        "val stories also in train: {repeats}; train repeats: {}",
        train_stories.len() - seen.len()
    );
    let start = Instant::now();
    let ngram = Ngram::train(&corpus.tokens(&corpus.train), corpus.vocabulary.len() as u32);
    let loss = ngram.loss(&corpus.tokens(&corpus.val));
    println!(
        "floor {:.4}, 5-gram {loss:.4} ({:.3} x floor) in {:?}",
        corpus.floor,
        loss / corpus.floor,
        start.elapsed()
    );
    println!("\n{}", train_stories[..6].join("\n\n"));
    if let Some(folder) = std::env::args().nth(1) {
        let folder = std::path::PathBuf::from(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("train.txt"), &train)?;
        std::fs::write(folder.join("val.txt"), &val)?;
        std::fs::write(folder.join("floor"), corpus.floor.to_string())?;
    }
    Ok(())
}
