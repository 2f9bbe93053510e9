//! What is no text: our own files in a folder that is prepared in place, and pipes.

use crate::fixture::{Place, client, run_with};
use fitgpt_prepare::Job;

const TEXT: &[u8] = b"It was the best of times, it was the worst of times. ".as_slice();

#[test]
fn a_folder_that_is_prepared_in_place_reads_nothing_of_its_own() {
    let place = Place::new("in-place");
    place.write("set/input.txt", &TEXT.repeat(50));
    let set = place.path("set").to_str().unwrap().to_owned();
    let client = client("http://127.0.0.1:9");
    let done = run_with(place.request(&set, "set"), &client).unwrap();
    let (train, val) = (place.read("set/train.bin"), place.read("set/val.bin"));
    let again = run_with(place.request(&set, "set"), &client).unwrap();
    assert_eq!(again, done);
    // As a kill would leave it: parts and a journal, no names.
    std::fs::rename(place.path("set/train.bin"), place.path("set/train.bin.part")).unwrap();
    let job = Job::new(place.request(&set, "set"), &client).unwrap();
    assert_eq!(job.sources.len(), 1, "{:?}", job.sources);
    run_with(place.request(&set, "set"), &client).unwrap();
    assert!(place.read("set/train.bin") == train && place.read("set/val.bin") == val);
}

#[test]
fn a_pipe_is_refused_with_the_way_that_works() {
    let place = Place::new("pipe");
    let pipe = place.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return println!("skipped: no mkfifo");
    }
    let request = place.request(pipe.to_str().unwrap(), "out");
    let message = Job::new(request, &client("http://127.0.0.1:9")).unwrap_err().to_string();
    assert!(message.contains("give it as `-`"), "{message}");
}
