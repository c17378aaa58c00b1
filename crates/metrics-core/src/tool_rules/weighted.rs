//! Weighted distributions over values and over time, as GuideLLM forms them.
//!
//! Facts from guidellm 0.8.1, `guidellm/schemas/statistics.py`.

/// Instants at most this far apart are one, in seconds.
const MERGED: f64 = 1e-4;

/// The shortest time that the last point of a rate curve stands for, in seconds.
const SHORTEST: f64 = 1e-6;

/// Values with weights, ascending and each value once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weighted {
    /// Value and its share.
    points: Vec<(f64, f64)>,
}

impl Weighted {
    /// From values with weights in any order; `None` if no weight is above 0.
    pub(super) fn new(mut values: Vec<(f64, f64)>) -> Option<Self> {
        values.retain(|(_, w)| 0.0 < *w);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = values.iter().map(|(_, w)| w).sum();
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(values.len());
        for (value, weight) in values {
            match points.last_mut() {
                Some(last) if last.0 == value => last.1 += weight,
                _ => points.push((value, weight)),
            }
        }
        // Divided once a value, so that equal values have the share 1 and no spread.
        for point in &mut points {
            point.1 /= total;
        }
        (!points.is_empty()).then_some(Self { points })
    }

    /// The weighted mean.
    pub(super) fn mean(&self) -> f64 {
        self.points.iter().map(|(x, w)| x * w).sum()
    }

    /// The standard deviation about it.
    pub(super) fn std(&self) -> f64 {
        let mean = self.mean();
        self.points.iter().map(|(x, w)| (x - mean) * (x - mean) * w).sum::<f64>().sqrt()
    }

    /// The smallest value at which the cumulated share reaches `p`.
    pub(super) fn percentile(&self, p: f64) -> f64 {
        let mut reached = 0.0;
        for (value, share) in &self.points {
            reached += share;
            if p <= reached {
                return *value;
            }
        }
        self.points.last().map_or(0.0, |last| last.0)
    }
}

/// Events in order of time, those within [`MERGED`] of the first of a group joined to it.
fn merged(mut events: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut exact: Vec<(f64, f64)> = Vec::with_capacity(events.len());
    for (at, weight) in events {
        match exact.last_mut() {
            Some(last) if last.0 == at => last.1 += weight,
            _ => exact.push((at, weight)),
        }
    }
    // The first of a group is its instant, so groups can lie near each other afterwards.
    loop {
        let mut groups: Vec<(f64, f64)> = Vec::with_capacity(exact.len());
        for &(at, weight) in &exact {
            match groups.last_mut() {
                Some(last) if at <= last.0 + MERGED => last.1 += weight,
                _ => groups.push((at, weight)),
            }
        }
        if groups.len() == exact.len() {
            return groups;
        }
        exact = groups;
    }
}

/// The distribution of a rate over time: each event stands for the time up to half way to its
/// neighbours, and events outside of the window are dropped.
pub(super) fn rate(events: &[(f64, f64)], window: Option<(f64, f64)>) -> Option<Weighted> {
    let mut kept: Vec<(f64, f64)> = events.to_vec();
    if let Some((start, end)) = window {
        kept.retain(|(at, _)| start <= *at && *at <= end);
        kept.push((start, 0.0));
        kept.push((end, 0.0));
    }
    let points = merged(kept);
    let middle = |a: &(f64, f64), b: &(f64, f64)| (a.0 + b.0) / 2.0;
    let n = points.len();
    if n < 2 {
        return None;
    }
    let rates = points.iter().enumerate().map(|(i, point)| {
        let from = match i.checked_sub(1).and_then(|j| points.get(j)) {
            Some(before) => middle(before, point),
            None => point.0,
        };
        let lasts = match points.get(i + 1) {
            Some(after) => middle(point, after) - from,
            None => (point.0 - from).max(SHORTEST),
        };
        (point.1 / lasts, lasts)
    });
    Weighted::new(rates.collect())
}

/// The distribution of the number in flight over the window; `intervals` holds start and end.
pub(super) fn in_flight(intervals: &[(f64, f64)], window: (f64, f64)) -> Option<Weighted> {
    let (start, end) = window;
    let touching = intervals.iter().filter(|(a, b)| start <= *b && *a <= end);
    let changes = merged(touching.flat_map(|&(a, b)| [(a, 1.0), (b, -1.0)]).collect());
    let before: f64 = changes.iter().filter(|(at, _)| *at < start).map(|(_, d)| d).sum();
    let mut points = vec![(start, before)];
    points.extend(changes.into_iter().filter(|(at, _)| start <= *at && *at <= end));
    points.push((end, 0.0));
    let mut now: f64 = 0.0;
    let mut levels = Vec::with_capacity(points.len());
    for pair in points.windows(2) {
        if let [(at, change), (next, _)] = pair {
            now += change;
            levels.push((now.max(0.0), (next - at).max(0.0)));
        }
    }
    Weighted::new(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares 1/4 and 3/4: half of the weight is reached at the second value.
    #[test]
    fn a_percentile_is_the_nearest_rank_on_the_weights() {
        let w = Weighted::new(vec![(20.0, 3.0), (10.0, 1.0)]).unwrap();
        assert_eq!((w.mean(), w.percentile(0.25), w.percentile(0.5)), (17.5, 10.0, 20.0));
        assert_eq!(Weighted::new(vec![(1.0, 0.0)]), None);
    }

    /// Two events in a window of 4 s are 0.5 a second in the mean, whatever their instants; one
    /// behind the window is dropped.
    #[test]
    fn the_mean_of_a_rate_is_events_by_time() {
        let mean = |events: &[(f64, f64)]| rate(events, Some((0.0, 4.0))).unwrap().mean();
        assert!((mean(&[(1.0, 1.0), (2.5, 1.0)]) - 0.5).abs() < 1e-12);
        assert!((mean(&[(1.0, 1.0), (4.5, 1.0)]) - 0.25).abs() < 1e-12);
    }

    /// One in flight for the whole window and a second for half of it.
    #[test]
    fn levels_are_weighted_by_time() {
        let w = in_flight(&[(0.0, 4.0), (1.0, 3.0)], (0.0, 4.0)).unwrap();
        assert_eq!((w.mean(), w.percentile(0.5), w.percentile(0.51)), (1.5, 1.0, 2.0));
    }
}
