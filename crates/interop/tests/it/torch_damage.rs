//! A checkpoint with any bit flipped, or cut anywhere: an error, or the same content as before.

use crate::torch::{File, fixture};
use fitgpt_interop::{ForeignModel, torch};
use std::path::Path;

/// Everything that a file says.
fn meaning(path: &Path) -> Result<String, String> {
    let model = torch::open(path).map_err(|error| error.to_string())?;
    let ForeignModel { dims, iteration, best_val_loss, config, optimizer, gelu, .. } = &model;
    let mut all =
        format!("{dims:?} {iteration} {best_val_loss:?} {config:?} {optimizer:?} {gelu:?}");
    for (index, tensor) in model.tensors.tensors().iter().enumerate() {
        let mut content = vec![0; tensor.bytes().unwrap() as usize];
        model.tensors.read(index, &mut content).map_err(|error| error.to_string())?;
        all += &format!("{tensor:?} {content:?}");
    }
    Ok(all)
}

#[test]
fn a_flipped_bit_changes_nothing_unnoticed() {
    let file = File::new("flip");
    for name in ["half", "stored", "strided"] {
        let good = meaning(&fixture(name)).unwrap();
        let bytes = std::fs::read(fixture(name)).unwrap();
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&file.0, &damaged).unwrap();
            match meaning(&file.0) {
                Ok(found) => assert_eq!(found, good, "{name}: byte {at}"),
                Err(error) => {
                    assert!(!error.contains('\n') && error.len() < 1000, "{error:?}");
                    refused += 1;
                }
            }
        }
        // The rest is padding, dates, and entries that nobody reads.
        assert!(refused * 15 > bytes.len() * 2, "{name}: {refused} of {}", bytes.len());
    }
}

#[test]
fn a_cut_file_is_refused() {
    let file = File::new("cut");
    let bytes = std::fs::read(fixture("plain")).unwrap();
    for length in (0..bytes.len()).step_by(37).chain([bytes.len() - 1]) {
        std::fs::write(&file.0, &bytes[..length]).unwrap();
        let error = meaning(&file.0).unwrap_err();
        assert!(error.contains("damaged") && !error.contains('\n'), "{length}: {error}");
    }
}
