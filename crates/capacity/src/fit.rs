//! From measurements to a step time, with its errors and what the data cannot tell.
//!
//! A [`Point`] says what a step processed and how long it took; [`sources`] finds points in files
//! of several kinds. [`fit`](model::fit) finds the coefficients of a [`Form`] by relative
//! non-negative least squares: the squares of (fitted / measured − 1) are least, since a step of
//! 5 ms that is 2 ms off spoils a simulation as much as one of 50 ms that is 20 ms off.
//!
//! Ordinary least squares is computed beside it to show why not: it fits the long steps, and its R²
//! looks good while short steps are off by more than their own length.
//!
//! # Examples
//!
//! ```
//! use capacity::fit::{Form, Point, fit};
//!
//! // 10 ms and 0.5 ms per request: decode steps of 1 to 64 requests.
//! let points: Vec<Point> = (0..7)
//!     .map(|i| f64::from(1 << i))
//!     .map(|b| Point::decode(b, 100.0 * b, 0.010 + 0.0005 * b))
//!     .collect();
//! let fitted = fit(&points, Form::TwoRegime)?;
//! let decode = fitted.decode.as_ref().expect("there are decode points");
//! assert!(decode.errors.mean_absolute < 1e-9);
//! # Ok::<(), capacity::FitError>(())
//! ```

pub mod file;
pub mod groups;
pub mod judge;
pub mod model;
pub mod point;
pub mod solve;
pub mod sources;
pub mod validate;

pub use judge::{Errors, Outlier, Range, Weakness};
pub use model::{Fitted, Form, RegimeFit, Term, fit};
pub use point::{Excluded, Point, Regime, Source};
