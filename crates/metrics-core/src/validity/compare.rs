//! Findings about the comparison of two runs.
