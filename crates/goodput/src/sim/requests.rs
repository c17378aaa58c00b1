//! The requests that settings run on: held from the start, or drawn when the first of them runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use sched_sim::Workload;
use sched_sim::workload::{Cancellations, WorkloadSpec};

use super::generate::Drawn;
use super::saturation::Saturation;

/// What arrives under some of the settings.
pub(super) struct Requests {
    from: From,
    held: Mutex<Option<Arc<Workload>>>,
    /// Settings that have still to run on them.
    left: AtomicUsize,
    /// What a server can complete of them; of all whose requests differ in their arrivals alone.
    pub(super) saturation: Arc<Saturation>,
}

/// Where requests come from.
#[derive(Clone)]
enum From {
    /// They are drawn.
    Drawn(Arc<Drawn>),
    /// They are there, with clients who go away by a law, if there is one, which draws from the seed,
    /// as some routers do.
    There { requests: Arc<Workload>, cancel: Option<Cancellations>, seed: u64 },
}

impl Requests {
    fn new(from: From, saturation: Arc<Saturation>) -> Self {
        Self { from, held: Mutex::default(), left: AtomicUsize::new(usize::MAX), saturation }
    }

    /// Requests that are there, with clients who go away by each of these laws, if there are any.
    pub(super) fn there(requests: Workload, laws: &[Cancellations], seed: u64) -> Vec<Self> {
        let requests = Arc::new(requests);
        let saturation = Arc::default();
        let laws = laws.iter().map(|law| Some(*law));
        let laws = if laws.len() == 0 { vec![None] } else { laws.collect() };
        let from = |cancel| From::There { requests: Arc::clone(&requests), cancel, seed };
        let all = laws.into_iter().map(from);
        all.map(|from| Self::new(from, Arc::clone(&saturation))).collect()
    }

    /// Requests that are drawn when they are needed.
    pub(super) fn drawn(all: Vec<Drawn>) -> Vec<Self> {
        let mut requests: Vec<Self> = Vec::with_capacity(all.len());
        for drawn in all {
            let before = requests.last();
            let alike = before.filter(|r| r.spec().is_some_and(|s| same_lengths(s, &drawn.spec)));
            let saturation = alike.map(|r| Arc::clone(&r.saturation)).unwrap_or_default();
            requests.push(Self::new(From::Drawn(Arc::new(drawn)), saturation));
        }
        requests
    }

    /// The same with another seed.
    pub(super) fn with_seed(all: &[Self], seed: u64) -> Vec<Self> {
        let mut drawn = Vec::new();
        let mut there = Vec::new();
        for requests in all {
            match &requests.from {
                From::Drawn(of) => {
                    let mut of = Drawn::clone(of);
                    of.spec.seed = seed;
                    drawn.push(of);
                }
                From::There { requests: own, cancel, .. } => {
                    let from = From::There { requests: Arc::clone(own), cancel: *cancel, seed };
                    there.push(Self::new(from, Arc::clone(&requests.saturation)));
                }
            }
        }
        // One command has one kind of them.
        there.extend(Self::drawn(drawn));
        there
    }

    /// What they are drawn from, if they are drawn.
    pub(super) fn spec(&self) -> Option<&WorkloadSpec> {
        match &self.from {
            From::Drawn(drawn) => Some(&drawn.spec),
            From::There { .. } => None,
        }
    }

    /// The same for settings, which outlive the requests.
    pub(super) fn source(&self) -> Option<Arc<Drawn>> {
        match &self.from {
            From::Drawn(drawn) => Some(Arc::clone(drawn)),
            From::There { .. } => None,
        }
    }

    /// The law by which their clients go away, if there is one.
    pub(super) fn cancellations(&self) -> Option<Cancellations> {
        match &self.from {
            From::Drawn(drawn) => drawn.spec.cancellations,
            From::There { cancel, .. } => *cancel,
        }
    }

    /// The seed of what is drawn.
    pub(super) fn seed(&self) -> u64 {
        match &self.from {
            From::Drawn(drawn) => drawn.spec.seed,
            From::There { seed, .. } => *seed,
        }
    }

    /// Says what is wrong with them before anything runs.
    pub(super) fn check(&self) -> Result<()> {
        match self.spec().filter(|spec| spec.waits_for_answers()) {
            Some(spec) => Ok(spec.feedback().map(drop)?),
            None => self.workload().map(drop),
        }
    }

    /// The requests, drawn now if they are not there.
    pub(super) fn workload(&self) -> Result<Arc<Workload>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workload) = &*held {
            return Ok(Arc::clone(workload));
        }
        let workload = match &self.from {
            From::There { requests, cancel: None, .. } => return Ok(Arc::clone(requests)),
            From::There { requests, cancel: Some(law), seed } => {
                Arc::new(Workload::clone(requests).cancelled(*law, *seed)?)
            }
            From::Drawn(drawn) => Arc::new(drawn.spec.generate()?),
        };
        *held = Some(Arc::clone(&workload));
        Ok(workload)
    }

    /// Says how many settings run on them.
    pub(super) fn used_by(&self, settings: usize) {
        self.left.store(settings, Ordering::Relaxed);
    }

    /// Takes note that a setting has run on them, and drops them after the last one.
    pub(super) fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
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
