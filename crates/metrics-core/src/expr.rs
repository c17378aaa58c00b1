//! The expression language of the catalog.
