//! Alert thresholds and the state of an observed value against them.
