//! Reports that are read while the next iteration runs.

use crate::fixture::gpu;
use crate::small_run::{ROWS, iterate, small_run};
use fitgpt_cuda::CudaOptions;
use train::engine::Report;

/// Six at once: more than there are slots, so the last ones are read at once.
#[test]
fn a_late_report_is_that_of_its_own_iteration() {
    let Some(gpu) = gpu() else { return };
    let mut engine = small_run().engine(&gpu, &CudaOptions::new(&gpu));
    let (mut reports, mut expected) = (Vec::new(), Vec::new());
    for iteration in 0..6 {
        let state = iterate(&mut engine, iteration);
        let mut report = Report::default();
        engine.begin_report(&mut report, ROWS).unwrap();
        reports.push(report);
        expected.push((state, engine.row_losses(ROWS).unwrap().to_vec()));
    }
    let is_here: Vec<bool> = reports.iter().map(Report::is_here).collect();
    assert_eq!(is_here, [false, false, true, true, true, true]);
    for (report, (state, losses)) in reports.iter_mut().zip(&expected) {
        assert_eq!(engine.finish_report(report).unwrap(), *state);
        assert_eq!(report.losses(), losses);
        assert!(report.is_here());
    }
    assert_ne!(expected[0].1, expected[1].1);
    // The slots are free again.
    engine.begin_report(&mut reports[5], ROWS).unwrap();
    assert!(!reports[5].is_here());
}
