//! The report as data: every figure, ready to be rendered.
