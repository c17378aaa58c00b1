//! How people write durations, rates, sizes, counts and prices.
