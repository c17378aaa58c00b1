//! What a server can complete of one workload, for sweeps over its rate and over replicas.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use metrics_core::measured::Cuts;
use sched_sim::fleet::RouterKind;
use sched_sim::workload::RateScale;
use sched_sim::{OfferedLoad, Workload};

use super::Setting;
use super::setting::Places;

/// The loads of requests under the settings met so far; of all workloads whose requests differ in
/// when they arrive alone.
///
/// What one server can complete is measured by a run in which all come at once, so that settings
/// which differ in when requests arrive and leave, in what is measured, and in how many servers there
/// are, share one.
#[derive(Default)]
pub struct Saturation(Mutex<Met>);

/// The settings that were met, and where each of them is.
#[derive(Default)]
struct Met {
    all: Vec<(Setting, OfferedLoad)>,
    places: Places,
}

impl Met {
    fn load(&self, key: &Setting) -> Option<OfferedLoad> {
        let place = self.places.find(key, |place| &self.all[place].0)?;
        self.all.get(place).map(|(_, load)| *load)
    }
}

impl Saturation {
    /// The load under a setting, of which `measure` is asked if no alike was met; two threads may
    /// measure the same at once, and find the same.
    pub fn load(
        &self,
        setting: &Setting,
        workload: &Workload,
        measure: impl FnOnce() -> Result<OfferedLoad>,
    ) -> Result<OfferedLoad> {
        let key = Setting {
            // Workloads that share this differ in their arrivals alone.
            workload: 0,
            drawn: None,
            cancel: None,
            rate_scale: RateScale::new(1, 1)?,
            timeout: None,
            until: None,
            cuts: Cuts::default(),
            replicas: 1,
            router: RouterKind::RoundRobin,
            ..setting.clone()
        };
        let met = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = met().load(&key);
        if let Some(mut load) = known {
            load.arrival_rate = setting.arrival_rate(workload);
            return Ok(load);
        }
        let load = measure()?;
        let mut met = met();
        let place = met.all.len();
        met.places.note(&key, place);
        met.all.push((key, load));
        Ok(load)
    }
}
