//! `cargo xtask`: the chores of this repository.
//!
//! Plain `cargo test` runs the same checks as tests, so that nothing here has to be remembered.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod blocks;
mod ci;
mod conformance;
mod docs;
mod faults;
mod fuzz;
mod new;
mod reference;
mod repo;
mod request_log;
mod snapshots;
mod source;
mod tidy;
mod validate;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// The chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Write the generated blocks of README and docs, and docs/catalog.json
    Docs {
        /// Only say what is stale, and compare the catalog with its source
        #[arg(long)]
        check: bool,
    },
    /// Find what no lint sees: crate edges, paths in ARCHITECTURE.md, translations, snapshots
    Tidy {
        /// The same; tidy never changes a file
        #[arg(long)]
        check: bool,
    },
    /// Stamp a Chinese page as translated from the English page as it is now
    Translated {
        /// The page, from docs/en or docs/zh, for example `reference/metrics.md`
        page: String,
    },
    /// Re-run every scenario and show old, new and relative change of each figure
    Snapshots {
        /// Only look for pending or orphaned snapshots; run nothing
        #[arg(long, conflicts_with_all = ["accept", "discard"])]
        check: bool,
        /// Accept the pending snapshot of this name (may be repeated)
        #[arg(long, value_name = "NAME", conflicts_with = "discard")]
        accept: Vec<String>,
        /// Throw the pending snapshots away
        #[arg(long)]
        discard: bool,
    },
    /// Start something new from a skeleton
    New {
        #[command(subcommand)]
        what: New,
    },
    /// Plant one fault at a time in a copy of the tree and see that a test fails; takes a while
    Faults(faults::FaultsArguments),
    /// Fuzz every reader and parser in turn, one line each; needs cargo-fuzz
    Fuzz(fuzz::FuzzArguments),
    /// Write a made-up request log, to measure how large logs are read
    RequestLog {
        /// How many requests
        #[arg(long, default_value_t = 10_000_000)]
        requests: u64,
        /// Same seed, same bytes
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How it is written
        #[arg(long, value_enum, default_value_t)]
        form: request_log::Form,
        /// Where to
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Compare models with tables of reference values
    Reference {
        #[command(subcommand)]
        what: Reference,
    },
    /// Compare a policy, step by step, with recorded decisions of the real scheduler
    Conformance {
        /// The policy
        #[arg(value_parser = ["vllm-v1"])]
        policy: String,
        /// A folder in the format of crates/sched-sim/tests/golden
        dir: PathBuf,
    },
    /// Compare predictions with what real engines measured, case by case
    Validate {
        /// A folder of cases of schema goodput-validation/2
        dir: PathBuf,
        /// Predict with our presets, which know nothing of the cases: errors without a gate
        #[arg(long)]
        fits: bool,
        /// Predict with our presets and overheads calibrated on all rates but the highest
        #[arg(long, conflicts_with = "fits")]
        lower_rates: bool,
        /// Write what these give to docs/validation.json, for the table of the pages
        #[arg(long, conflicts_with_all = ["fits", "lower_rates"])]
        write: bool,
    },
    /// The simulator against queueing theory with so many requests that 1 % shows
    Theory,
    /// All that continuous integration runs, up to the first failure
    Ci,
}

#[derive(Subcommand)]
enum Reference {
    /// The queueing models with every CSV table of a known name in a folder
    Queueing {
        /// The folder
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum New {
    /// A metric of metrics-core: function, doc comment, catalog entry
    Metric(new::MetricArguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Without the backtrace that `fn main() -> Result` prints: a fault is no crash.
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    let root = repo::root();
    match chore {
        Chore::Docs { check: true } => repo::settle(&docs::check(&root)?, "docs are fresh"),
        Chore::Docs { check: false } => {
            for page in docs::write(&root)? {
                println!("wrote {page}");
            }
            repo::settle(&docs::check(&root)?, "docs are fresh")
        }
        Chore::Tidy { check: _ } => repo::settle(&tidy::check(&root)?, "the tree is tidy"),
        Chore::Translated { page } => {
            println!("{}", tidy::stamp(&root, &page)?);
            Ok(())
        }
        Chore::RequestLog { requests, seed, form, output } => {
            let file = std::fs::File::create(&output)
                .with_context(|| format!("cannot write {}", output.display()))?;
            let mut out = std::io::BufWriter::new(file);
            Ok(request_log::write(&mut out, requests, seed, form)?)
        }
        Chore::Snapshots { check: true, .. } => {
            repo::settle(&snapshots::check(&root)?, "snapshots are settled")
        }
        Chore::Snapshots { discard: true, .. } => {
            println!("{}", snapshots::discard(&root)?);
            Ok(())
        }
        Chore::Snapshots { accept, .. } if !accept.is_empty() => {
            println!("{}", snapshots::accept(&root, &accept)?);
            Ok(())
        }
        Chore::Snapshots { .. } => {
            println!("{}", snapshots::run(&root)?);
            Ok(())
        }
        Chore::New { what: New::Metric(arguments) } => {
            println!("{}", new::metric(&root, &arguments)?);
            Ok(())
        }
        Chore::Fuzz(arguments) => fuzz::run(&root, &arguments),
        Chore::Faults(arguments) => faults::run(&root, &arguments),
        Chore::Reference { what: Reference::Queueing { dir } } => {
            let found = reference::queueing(&dir)?;
            print!("{}", found.text);
            if !found.out.is_empty() {
                bail!("out of bounds: {}", found.out.join(", "));
            }
            println!("all tables within bounds");
            Ok(())
        }
        Chore::Conformance { policy: _, dir } => {
            let tally = conformance::run(&dir)?;
            println!("{}", tally.report());
            if tally.matched < tally.total {
                bail!("{} of {} differ", tally.total - tally.matched, tally.total);
            }
            Ok(())
        }
        Chore::Validate { dir, write: true, .. } => {
            let text = validate::Recorded::fresh(&dir)?.text()?;
            std::fs::write(root.join(validate::FILE), text)
                .with_context(|| format!("cannot write {}", validate::FILE))?;
            println!("wrote {}: now run `cargo xtask docs`", validate::FILE);
            Ok(())
        }
        Chore::Validate { dir, fits, lower_rates, write: false } => {
            let from = match (fits, lower_rates) {
                (true, _) => validate::From::OwnFits,
                (_, true) => validate::From::LowerRates,
                _ => validate::From::Case,
            };
            let all = validate::run(&dir, from)?;
            println!("{}", validate::report(&all, from)?);
            let outside = all.iter().filter(|o| !o.holds()).count();
            if from == validate::From::Case && 0 < outside {
                bail!("{outside} of {} cases are outside of their tolerance", all.len());
            }
            Ok(())
        }
        Chore::Theory => ci::theory(&root),
        Chore::Ci => ci::run(&root),
    }
}
