//! Requests in groups by a value that each has: numbers by value or in bins, texts by value.

use crate::error::{Error, Result, finite};
use crate::format;

/// How numbers become groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Bins {
    /// Each value alone where there are few, else four bins of like size.
    #[default]
    Auto,
    /// So many bins, with about as many requests in each.
    Count(usize),
    /// Bins from one edge to below the next, and one on either side; ascending.
    Edges(Vec<f64>),
}

/// Up to so many different numbers are groups of their own.
pub const FEW: usize = 12;

/// The bins of like size where there are more.
const QUARTERS: usize = 4;

/// The requests with one value, or with values in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The value, or the bin by its smallest and largest member.
    pub name: String,
    /// The places of the requests, ascending.
    pub members: Vec<usize>,
}

/// The name of the group of requests whose value is unknown.
pub const UNKNOWN: &str = "unknown";

/// Groups by a number that each request has, ascending, the unknown last.
///
/// A value on an edge belongs to the bin above it. Equal values are always in one bin, so that
/// bins of like size can be fewer than asked for.
///
/// # Errors
///
/// [`Error::NotFinite`] or [`Error::TooLarge`] for a value that is no number; [`Error::TooSmall`]
/// for less than one bin; [`Error::Order`] for edges that do not ascend.
///
/// # Examples
///
/// ```
/// use metrics_core::grouping::{Bins, by_number};
///
/// let lengths = [Some(10.0), Some(500.0), None, Some(30.0), Some(900.0)];
/// let groups = by_number(&lengths, &Bins::Count(2))?;
/// let names: Vec<&str> = groups.iter().map(|g| g.name.as_str()).collect();
/// assert_eq!(names, ["10..30", "500..900", "unknown"]);
/// assert_eq!(groups[0].members, [0, 3]);
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn by_number(values: &[Option<f64>], bins: &Bins) -> Result<Vec<Group>> {
    let mut sorted = Vec::with_capacity(values.len());
    for value in values.iter().flatten() {
        // Adding zero makes one zero of both.
        sorted.push(finite("the value to group by", *value)? + 0.0);
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let mut different = sorted.clone();
    different.dedup();
    let starts: Vec<f64> = match bins {
        Bins::Auto if different.len() <= FEW => different,
        Bins::Auto => like_size(&sorted, QUARTERS),
        Bins::Count(0) => {
            return Err(Error::TooSmall { input: "the number of bins", min: 1.0, value: 0.0 });
        }
        Bins::Count(n) => like_size(&sorted, *n),
        Bins::Edges(edges) => {
            for pair in edges.windows(2) {
                if let [a, b] = pair
                    && b <= a
                {
                    return Err(Error::Order {
                        later: "an edge",
                        later_value: *b,
                        earlier: "the edge before it",
                        earlier_value: *a,
                    });
                }
            }
            let mut starts = vec![f64::NEG_INFINITY];
            starts.extend(edges);
            starts
        }
    };
    let mut groups: Vec<(Vec<usize>, f64, f64)> =
        vec![(Vec::new(), f64::INFINITY, f64::NEG_INFINITY); starts.len()];
    let mut unknown = Vec::new();
    for (i, value) in values.iter().enumerate() {
        let Some(value) = value else {
            unknown.push(i);
            continue;
        };
        let bin = starts.partition_point(|s| s <= value).saturating_sub(1);
        if let Some((members, low, high)) = groups.get_mut(bin) {
            members.push(i);
            *low = low.min(*value + 0.0);
            *high = high.max(*value + 0.0);
        }
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .filter(|(members, ..)| !members.is_empty())
        .map(|(members, low, high)| Group { name: range(low, high), members })
        .collect();
    if !unknown.is_empty() {
        groups.push(Group { name: UNKNOWN.to_owned(), members: unknown });
    }
    Ok(groups)
}

/// Where bins of like size begin.
fn like_size(sorted: &[f64], bins: usize) -> Vec<f64> {
    let n = sorted.len();
    let bins = bins.min(n);
    let mut starts: Vec<f64> =
        (0..bins).filter_map(|k| sorted.get(n * k / bins)).copied().collect();
    starts.dedup();
    starts
}

/// A bin by its smallest and largest member.
fn range(low: f64, high: f64) -> String {
    if low == high {
        format::value(low)
    } else {
        format!("{}..{}", format::value(low), format::value(high))
    }
}

/// Groups by a text that each request has, in order of the text, the unknown last.
#[must_use]
pub fn by_text(values: &[Option<String>]) -> Vec<Group> {
    let mut order: Vec<(&str, usize)> =
        values.iter().enumerate().filter_map(|(i, v)| Some((v.as_deref()?, i))).collect();
    order.sort_unstable();
    let mut groups: Vec<Group> = Vec::new();
    for (text, i) in order {
        match groups.last_mut() {
            Some(last) if last.name == text => last.members.push(i),
            _ => groups.push(Group { name: text.to_owned(), members: vec![i] }),
        }
    }
    let unknown: Vec<usize> =
        values.iter().enumerate().filter(|(_, v)| v.is_none()).map(|(i, _)| i).collect();
    if !unknown.is_empty() {
        groups.push(Group { name: UNKNOWN.to_owned(), members: unknown });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[Group]) -> Vec<&str> {
        groups.iter().map(|g| g.name.as_str()).collect()
    }

    #[test]
    fn few_numbers_are_groups_and_many_are_quarters() {
        let few: Vec<Option<f64>> = [2.0, 1.0, 2.0].map(Some).to_vec();
        assert_eq!(names(&by_number(&few, &Bins::Auto).unwrap()), ["1", "2"]);
        let many: Vec<Option<f64>> = (0..100).map(|i| Some(f64::from(i))).collect();
        let groups = by_number(&many, &Bins::Auto).unwrap();
        assert_eq!(names(&groups), ["0..24", "25..49", "50..74", "75..99"]);
    }

    /// 90 equal values and 10 others: four bins of like size would cut the equal ones apart.
    #[test]
    fn equal_values_stay_together() {
        let mut values = vec![Some(5.0); 90];
        values.extend((10..20).map(|i| Some(f64::from(i))));
        let groups = by_number(&values, &Bins::Count(4)).unwrap();
        assert_eq!(names(&groups), ["5..19"]);
        assert_eq!(groups[0].members.len(), 100);
    }

    #[test]
    fn a_value_on_an_edge_is_above_it() {
        let values = [Some(1.0), Some(10.0), Some(99.0), Some(100.0), None];
        let groups = by_number(&values, &Bins::Edges(vec![10.0, 100.0])).unwrap();
        assert_eq!(names(&groups), ["1", "10..99", "100", "unknown"]);
        let say = |bins| by_number(&values, &bins).unwrap_err().to_string();
        assert_eq!(
            say(Bins::Edges(vec![2.0, 1.0])),
            "an edge must be at least the edge before it = 2, got 1"
        );
        assert_eq!(say(Bins::Count(0)), "the number of bins must be at least 1, got 0");
        assert!(by_number(&[Some(f64::NAN)], &Bins::Auto).is_err());
    }

    proptest::proptest! {
        /// Whatever the bins, each request is in exactly one group.
        #[test]
        fn every_request_is_in_one_group(
            values in proptest::collection::vec(proptest::option::of(-5_i8..5), 0..60),
            bins in 1_usize..9,
        ) {
            let values: Vec<Option<f64>> = values.iter().map(|v| v.map(f64::from)).collect();
            for bins in [Bins::Auto, Bins::Count(bins), Bins::Edges(vec![-1.0, 2.0])] {
                let groups = by_number(&values, &bins).unwrap();
                let mut all: Vec<usize> = groups.into_iter().flat_map(|g| g.members).collect();
                all.sort_unstable();
                proptest::prop_assert_eq!(all, (0..values.len()).collect::<Vec<_>>());
            }
        }
    }
}
