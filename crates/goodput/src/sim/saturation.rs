//! What a server can complete of one workload, for sweeps over its rate and over replicas.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use metrics_core::measured::Cuts;
use sched_sim::fleet::RouterKind;
use sched_sim::workload::RateScale;
use sched_sim::{OfferedLoad, Workload};

use super::Setting;
use super::setting::same;

/// The loads of a workload's requests under the settings met so far.
///
/// What one server can complete is measured by a run in which all come at once, so that settings
/// which differ in when requests arrive and leave, in what is measured, and in how many servers there
/// are, share one.
#[derive(Default)]
pub struct Saturation(Mutex<Vec<(Setting, OfferedLoad)>>);

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
            rate_scale: RateScale::new(1, 1)?,
            timeout: None,
            until: None,
            cuts: Cuts::default(),
            replicas: 1,
            router: RouterKind::RoundRobin,
            ..setting.clone()
        };
        let met = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = met().iter().find(|(s, _)| same(s, &key)).map(|(_, load)| *load);
        if let Some(mut load) = known {
            load.arrival_rate = setting.arrival_rate(workload);
            return Ok(load);
        }
        let load = measure()?;
        met().push((key, load));
        Ok(load)
    }
}
