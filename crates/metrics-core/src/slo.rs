//! Service-level objectives: per-request limits, attainment targets, percentile targets; one grammar.
