//! Tables of queues with general service or arrivals, batches and other disciplines.

use super::Family;

/// The tables that this module compares.
pub const TABLES: &[Family] = &[];
