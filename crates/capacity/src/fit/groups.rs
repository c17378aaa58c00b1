//! Points of several files by deployment, and whether the files agree on their units.

use std::collections::BTreeMap;

use super::model::Fitted;
use super::point::{Point, Source};
use crate::error::{FitError, Result};

/// The points of all sources by group, in the order of the names.
#[must_use]
pub fn groups(sources: &[Source]) -> Vec<(String, Vec<Point>)> {
    let mut all: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for p in sources.iter().flat_map(|s| &s.points) {
        all.entry(&p.group).or_default().push(p.clone());
    }
    all.into_iter().map(|(name, points)| (name.to_owned(), points)).collect()
}

/// Two files whose times for the same work differ by more than this hardly have one unit.
const FACTOR: f64 = 100.0;

/// Checks that no file of a group is a hundred times slower than another against their common fit.
///
/// # Errors
///
/// [`FitError::Units`] with both files.
pub fn check_units(sources: &[Source], group: &str, fitted: &Fitted) -> Result<()> {
    let mut medians: Vec<(f64, &str)> = Vec::new();
    for source in sources {
        let mut ratios: Vec<f64> = source
            .points
            .iter()
            .filter(|p| p.group == group)
            .filter_map(|p| fitted.seconds(p).map(|s| p.time_s / s))
            .filter(|r| r.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        if let Some(&median) = ratios.get(ratios.len() / 2) {
            medians.push((median, &source.name));
        }
    }
    medians.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(least), Some(most)) = (medians.first(), medians.last()) else { return Ok(()) };
    if FACTOR < most.0 / least.0 {
        return Err(FitError::Units {
            file: most.1.to_owned(),
            problem: format!(
                "times are {:.0} times those of {} for the same work: is one in milliseconds and the other in seconds? name the unit with --map time_ms=… or time_s=…",
                most.0 / least.0,
                least.1
            ),
        });
    }
    Ok(())
}
