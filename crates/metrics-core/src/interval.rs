//! Confidence intervals for means, percentiles and proportions.
