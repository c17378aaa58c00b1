//! Work that runs at the same time and answers as if it ran in order.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// Runs all items, some at the same time in the threads that there are.
///
/// # Errors
///
/// That of the first one in their order that fails, with its place, whichever fails first by the
/// clock: it does not depend on how many run at a time.
///
/// # Examples
///
/// ```
/// use capacity::order::in_order;
///
/// let odd = |n: u32| if n % 2 == 1 { Ok(n) } else { Err(format!("{n} is even")) };
/// assert_eq!(in_order(vec![1, 3, 5], odd), Ok(vec![1, 3, 5]));
/// assert_eq!(in_order(vec![1, 4, 5, 2], odd), Err((1, "4 is even".to_owned())));
/// ```
pub fn in_order<I: Send, T: Send, E: Send>(
    items: Vec<I>,
    run: impl Fn(I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, (usize, E)> {
    let failed = AtomicUsize::new(usize::MAX);
    let one = |(i, item)| {
        // Nobody asks for what comes behind a failure.
        if failed.load(Ordering::Relaxed) < i {
            return None;
        }
        let ran = run(item).map_err(|error| (i, error));
        if ran.is_err() {
            failed.fetch_min(i, Ordering::Relaxed);
        }
        Some(ran)
    };
    let ran: Vec<Option<_>> = items.into_par_iter().with_max_len(1).enumerate().map(one).collect();
    // What did not run is behind the failure, which ends this.
    ran.into_iter().flatten().collect()
}
