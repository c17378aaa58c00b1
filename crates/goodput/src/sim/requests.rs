//! The requests that settings run on: held from the start, or drawn when the first of them runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow};
use sched_sim::Workload;
use sched_sim::workload::WorkloadSpec;

use super::generate::Drawn;
use super::saturation::Saturation;

/// What arrives under some of the settings.
pub(super) struct Requests {
    /// What they are drawn from, if they are drawn.
    drawn: Option<Arc<Drawn>>,
    held: Mutex<Option<Arc<Workload>>>,
    /// Settings that have still to run on them.
    left: AtomicUsize,
    /// What a server can complete of them; of all whose requests differ in their arrivals alone.
    pub(super) saturation: Arc<Saturation>,
}

impl Requests {
    /// Requests that are there.
    pub(super) fn held(workload: Workload, drawn: Option<Drawn>) -> Self {
        Self {
            drawn: drawn.map(Arc::new),
            held: Mutex::new(Some(Arc::new(workload))),
            left: AtomicUsize::new(usize::MAX),
            saturation: Arc::default(),
        }
    }

    /// Requests that are drawn when they are needed.
    pub(super) fn drawn(all: Vec<Drawn>) -> Vec<Self> {
        let mut requests: Vec<Self> = Vec::with_capacity(all.len());
        for drawn in all {
            let before = requests.last();
            let alike = before.filter(|r| r.spec().is_some_and(|s| same_lengths(s, &drawn.spec)));
            let saturation = alike.map(|r| Arc::clone(&r.saturation)).unwrap_or_default();
            requests.push(Self {
                drawn: Some(Arc::new(drawn)),
                held: Mutex::default(),
                left: AtomicUsize::new(usize::MAX),
                saturation,
            });
        }
        requests
    }

    /// The same with another seed; nothing of requests that are not drawn.
    pub(super) fn with_seed(all: &[Self], seed: u64) -> Vec<Self> {
        let of_seed = |drawn: &Drawn| {
            let mut drawn = drawn.clone();
            drawn.spec.seed = seed;
            drawn
        };
        Self::drawn(all.iter().filter_map(|r| r.drawn.as_deref()).map(of_seed).collect())
    }

    /// What they are drawn from, if they are drawn.
    pub(super) fn spec(&self) -> Option<&WorkloadSpec> {
        self.drawn.as_ref().map(|drawn| &drawn.spec)
    }

    /// The same for settings, which outlive the requests.
    pub(super) fn source(&self) -> Option<Arc<Drawn>> {
        self.drawn.clone()
    }

    /// The requests, drawn now if they are not there.
    pub(super) fn workload(&self) -> Result<Arc<Workload>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workload) = &*held {
            return Ok(Arc::clone(workload));
        }
        let spec = self.spec().ok_or_else(|| anyhow!("requests that are not drawn are gone"))?;
        let workload = Arc::new(spec.generate()?);
        *held = Some(Arc::clone(&workload));
        Ok(workload)
    }

    /// Says how many settings run on them.
    pub(super) fn used_by(&self, settings: usize) {
        self.left.store(settings, Ordering::Relaxed);
    }

    /// Takes note that a setting has run on them, and drops them after the last one.
    pub(super) fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 && self.drawn.is_some() {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Whether the requests of two specs differ in nothing but when they arrive.
fn same_lengths(a: &WorkloadSpec, b: &WorkloadSpec) -> bool {
    // How turns follow each other depends on when their sessions arrive.
    a.sessions.is_none()
        && b.sessions.is_none()
        && (a.requests, a.seed) == (b.requests, b.seed)
        && a.system_prompts == b.system_prompts
        && a.lengths == b.lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rates: &[f64]) -> Vec<Requests> {
        let spec = |rate| Drawn::of(sched_sim::workload::chat(10, rate, 1));
        Requests::drawn(rates.iter().copied().map(spec).collect())
    }

    /// Two settings run on them: after the first they are still there, after the second no more.
    #[test]
    fn requests_are_kept_until_their_last_setting_has_run() {
        let all = drawn(&[1.0]);
        let requests = &all[0];
        requests.used_by(2);
        let is_held = || requests.held.lock().unwrap().is_some();
        assert!(!is_held());
        let first = requests.workload().unwrap();
        assert!(Arc::ptr_eq(&first, &requests.workload().unwrap()));
        requests.done();
        assert!(is_held());
        requests.done();
        assert!(!is_held());
    }

    /// Another rate brings the same prompts and answers at other times, so that what a server can
    /// complete of them is measured once; other lengths and turns are other requests.
    #[test]
    fn rates_share_what_a_server_can_complete() {
        let all = drawn(&[1.0, 2.0]);
        assert!(Arc::ptr_eq(&all[0].saturation, &all[1].saturation));
        let tokens = |requests: &Requests| -> Vec<(u64, u64)> {
            let workload = requests.workload().unwrap();
            workload.requests().iter().map(|r| (r.input_tokens, r.output_tokens)).collect()
        };
        assert_eq!(tokens(&all[0]), tokens(&all[1]));
        let seeds = Requests::with_seed(&all, 2);
        assert!(Arc::ptr_eq(&seeds[0].saturation, &seeds[1].saturation));
        assert_ne!(tokens(&seeds[0]), tokens(&all[0]));
        let mut longer = sched_sim::workload::chat(10, 1.0, 1);
        longer.requests = 11;
        let others = Requests::drawn(vec![
            Drawn::of(sched_sim::workload::chat(10, 1.0, 1)),
            Drawn::of(longer),
        ]);
        assert!(!Arc::ptr_eq(&others[0].saturation, &others[1].saturation));
    }
}
