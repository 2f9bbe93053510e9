//! The page's view of the rest of the program: plans, arenas, diagnoses, samples. It never creates
//! a CUDA context: what it says about this machine's GPU comes from the driver's table and from
//! kept measurements.

mod arena;
mod diagnosis;
mod here;
mod largest;
mod plan;
pub mod playground;
pub mod serve;

use crate::version;
use ::page::{Answers, Hardware, Query, Refused};
use ::train::TrainError;
use here::Here;
use plan::{PagePlan, choices};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Reads the GPU's load.
pub type ReadHardware = Box<dyn Fn() -> Option<Hardware> + Send>;

/// Answers the page's questions.
pub struct UiAnswers {
    here: Here,
    /// The arena of this process's own run, by phase.
    own_arena: Vec<(&'static str, Value)>,
    hardware: Option<Mutex<ReadHardware>>,
}

impl UiAnswers {
    /// For a page that only reads.
    pub fn new() -> UiAnswers {
        UiAnswers { here: Here::measured_on_demand(), own_arena: Vec::new(), hardware: None }
    }

    /// For the page of a run that this process trains.
    pub fn of_run(
        own_arena: Vec<(&'static str, Value)>,
        hardware: Option<ReadHardware>,
    ) -> UiAnswers {
        UiAnswers { here: Here::from_cache(), own_arena, hardware: hardware.map(Mutex::new) }
    }
}

fn refused(error: &TrainError) -> Refused {
    Refused(error.to_string())
}

impl Answers for UiAnswers {
    fn about(&self) -> Value {
        json!({ "version": version::line().trim(), "here": self.here.document(),
                "choices": choices() })
    }

    fn plan(&self, query: &Query) -> Result<Value, Refused> {
        PagePlan::new(query, &self.here)?.document()
    }

    fn largest(&self, query: &Query) -> Result<Value, Refused> {
        largest::document(query, &self.here)
    }

    fn arena(&self, query: &Query) -> Result<Value, Refused> {
        let report = PagePlan::new(query, &self.here)?.report()?;
        let phase = arena::phase_of(query);
        Ok(arena::document(&report.planned, &report.machine, phase))
    }

    fn arena_of_run(
        &self,
        start: &events::Start,
        is_own: bool,
        query: &Query,
    ) -> Result<Value, Refused> {
        let phase = arena::phase_of(query);
        let own = self.own_arena.iter().find(|(name, _)| is_own && *name == phase);
        match own {
            Some((_, document)) => Ok(document.clone()),
            None => arena::of_log(start, phase),
        }
    }

    fn diagnose(
        &self,
        text: &str,
        language: Option<&str>,
        query: &Query,
    ) -> Result<Value, Refused> {
        diagnosis::document(text, language, query)
    }

    fn sampler(&self, checkpoint: &Path) -> Result<Command, Refused> {
        playground::command(checkpoint)
    }

    fn hardware(&self) -> Option<Hardware> {
        let read = self.hardware.as_ref()?.lock().ok()?;
        read()
    }
}

pub use arena::all_phases;
