//! The root of a rising function by bracketing.

use crate::error::{QueueError, Result};

/// Iterations after which the search gives up; halving alone needs a hundred.
const ITERATIONS: u32 = 400;

/// Where the rising `f` passes 0, at or above `low`; `step` is a first guess of its distance.
///
/// Infinities of `f` are fine, on either side.
pub(crate) fn root(name: &'static str, f: impl Fn(f64) -> f64, low: f64, step: f64) -> Result<f64> {
    let (mut low, mut high) = (low, low + step);
    let mut f_low = f(low);
    if 0.0 <= f_low {
        return Ok(low);
    }
    let mut f_high = f(high);
    let mut doublings = 0;
    while f_high < 0.0 {
        (low, f_low) = (high, f_high);
        high *= 2.0;
        f_high = f(high);
        doublings += 1;
        if 2000 < doublings || high.is_infinite() {
            return Err(QueueError::NotConverged { name, iterations: doublings, residual: 1.0 });
        }
    }
    let mut stale = 0;
    for _ in 0..ITERATIONS {
        let width = high - low;
        if width <= 2.0 * f64::EPSILON * high.abs() {
            return Ok(low + 0.5 * width);
        }
        // The chord, as long as it keeps cutting both sides; halves otherwise, by the geometric
        // mean where the ends are orders of magnitude apart.
        let mut x = low - f_low * (width / (f_high - f_low));
        let inside = low < x && x < high;
        if !inside || 3 <= stale {
            x = if 0.0 < low && 4.0 * low < high {
                low.sqrt() * high.sqrt()
            } else {
                low + 0.5 * width
            };
            stale = 0;
        } else {
            // A hair beyond the chord's point, so that the other end comes close as well.
            let hair = (2.0 * f64::EPSILON * high).max(1e-9 * width);
            x = if x - low < high - x { (x + hair).min(high) } else { (x - hair).max(low) };
        }
        if x <= low || high <= x {
            return Ok(x);
        }
        let f_x = f(x);
        if f_x == 0.0 {
            return Ok(x);
        }
        if f_x < 0.0 {
            (low, f_low) = (x, f_x);
        } else {
            (high, f_high) = (x, f_x);
        }
        if 0.5 * width < high - low {
            stale += 1;
        } else {
            stale = 0;
        }
    }
    Err(QueueError::NotConverged { name, iterations: ITERATIONS, residual: (high - low) / high })
}
