//! Samples as figures: exact percentiles, mean, and what they rest on.
