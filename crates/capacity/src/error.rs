//! Why there is no fit, and why there is no plan.

/// Why measurements give no step time, or a question of capacity no answer.
///
/// Every message is one clause that names the input, the bound and the value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// A file that cannot be read.
    #[error("{0}")]
    Io(#[from] serving_io::IoError),
    /// A step time or a simulation that cannot be.
    #[error("{0}")]
    Simulation(#[from] sched_sim::SimError),
    /// A formula that has no value.
    #[error(transparent)]
    Metric(#[from] metrics_core::Error),
    /// A file whose content is no known source of points.
    #[error("{file}: found {found}, expected {expected}")]
    UnknownSource {
        /// The file.
        file: String,
        /// What it begins with.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A cell that is no number, or out of its bounds.
    #[error("{file}: line {line}, `{column}`: found {found}, expected {expected}")]
    Value {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// The cell.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A row that is not what its file's format has.
    #[error("{file}: line {line}: {problem}")]
    Row {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// Units that contradict each other.
    #[error("{file}: {problem}")]
    Units {
        /// The file.
        file: String,
        /// Which units, and what would be right.
        problem: String,
    },
    /// An option that does not fit the data.
    #[error("{option}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Fewer points than coefficients.
    #[error(
        "{regime}: {points} with {terms} coefficients ({names}), expected at least as many points, or a form with fewer (floored has one set for all steps, linear two coefficients)"
    )]
    TooFew {
        /// The regime.
        regime: &'static str,
        /// How many points there are, in words.
        points: String,
        /// How many coefficients the form has.
        terms: usize,
        /// Their names.
        names: String,
    },
    /// No point of a regime that is needed.
    #[error("no point is a {regime}: {remedy}")]
    NoPoints {
        /// The regime.
        regime: &'static str,
        /// What would help.
        remedy: String,
    },
    /// A point of a file that no step can be.
    #[error("{place}: {problem}")]
    Point {
        /// Its file and line.
        place: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A number that is beyond what a calculation can hold.
    #[error("{input} must be finite and from {} to {}, got {}", shown(*min), shown(*max), shown(*value))]
    Range {
        /// The input.
        input: &'static str,
        /// The least value.
        min: f64,
        /// The largest value.
        max: f64,
        /// What was given.
        value: f64,
    },
}

/// A result of this crate: of a fit unless it says otherwise.
pub type Result<T, E = FitError> = std::result::Result<T, E>;

/// Why there is no plan, no setting or no cost.
///
/// Every message is one clause that names the input, the bound and the value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A quantity or an objective that cannot be.
    #[error(transparent)]
    Metric(#[from] metrics_core::Error),
    /// An interval that the runs cannot give.
    #[error(transparent)]
    Interval(#[from] metrics_core::interval::NoInterval),
    /// A workload or a simulation that cannot be.
    #[error(transparent)]
    Simulation(#[from] sched_sim::SimError),
    /// A queue that cannot be.
    #[error(transparent)]
    Queue(#[from] queueing::QueueError),
    /// A step time that cannot be read or changed.
    #[error(transparent)]
    StepTime(#[from] FitError),
    /// A text that cannot be read.
    #[error(transparent)]
    Io(#[from] serving_io::IoError),
    /// A number out of its bounds.
    #[error("{input} must be above {above} and at most {most}{unit}, got {}", shown(*value))]
    Bounds {
        /// The input.
        input: &'static str,
        /// The number that it has to be above.
        above: f64,
        /// The largest value.
        most: f64,
        /// The unit, with a space before it where it needs one.
        unit: &'static str,
        /// What was given.
        value: f64,
    },
    /// Inputs that do not fit together.
    #[error("{0}")]
    Contradiction(String),
    /// An input that cannot be read, or that another one needs.
    #[error("{input}: {problem}")]
    Input {
        /// The input.
        input: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// A number without hundreds of zeros.
fn shown(x: f64) -> String {
    let size = x.abs();
    if x != 0.0 && !(1e-4..1e16).contains(&size) { format!("{x:e}") } else { x.to_string() }
}

impl PlanError {
    /// An input that cannot be read.
    pub(crate) fn input(input: &'static str, error: &dyn std::error::Error) -> Self {
        Self::Input { input, problem: error.to_string() }
    }

    /// Checks that a number is above one and at most another.
    pub(crate) fn bounds(
        input: &'static str,
        value: f64,
        (above, most): (f64, f64),
        unit: &'static str,
    ) -> Result<f64, Self> {
        if above < value && value <= most {
            Ok(value)
        } else {
            Err(Self::Bounds { input, above, most, unit, value })
        }
    }
}
