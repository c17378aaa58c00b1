//! The diagnosis tree: from symptoms to causes, with the evidence that decided.
