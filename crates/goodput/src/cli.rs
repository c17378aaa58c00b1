//! The arguments.

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::output::Output;
use crate::{check, cost, diagnose, diff, explain, fit, kv, plan, queue, report, sim, trace, tune};

/// Exit code for a wrong command line, an input that cannot be read, or a result that cannot be
/// written.
pub const USAGE: u8 = 2;

/// Exit code where the reader of standard output is gone: what a shell reports of a program that
/// SIGPIPE ended, as it does most others.
pub const CLOSED_PIPE: u8 = 141;

const EXIT_CODES: &str = "\
Examples:
  goodput report result.json --slo 'ttft<200ms,tpot<50ms'
  goodput check new.json --base old.json --no-regress 5%
  goodput diagnose result.json metrics.txt --goodput ttft:200 tpot:50
  goodput sim --max-num-seqs 16,64
  goodput kv --model llama-3.1-8b --gpu h100 --mean-tokens 2000
  goodput queue mmc --rate 8/s --service 200ms --servers 3
  goodput plan --users 5000 --requests-per-user 10/h --e2e 5s
  goodput explain tpot

Exit codes:
  0  fine
  1  an objective is missed, or a figure regressed (check); no setting keeps it (tune);
     a claimed cost is too low (cost)
  2  wrong command line, or an input that cannot be read
  3  indeterminate (check, plan), or a run that is not valid (report)
  141  the reader of standard output is gone, as after `| head`";

/// One set of books for LLM serving: exact metrics, goodput and queueing theory.
///
/// Throughput is not goodput: only requests that meet their SLO count.
#[derive(Debug, Parser)]
#[command(name = "goodput", version, after_help = EXIT_CODES, propagate_version = true)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// Lets the value of an option begin with a hyphen, so that a negative number is told its bound.
fn takes_hyphens(option: clap::Arg) -> clap::Arg {
    // An option whose value may be left out, or that takes several, would take the next option for one.
    let one_value =
        option.get_num_args().is_none_or(|n| n.min_values() == 1 && n.max_values() == 1);
    let takes = option.get_action().takes_values() && one_value;
    if takes { option.allow_hyphen_values(true) } else { option }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// TTFT, TPOT, E2E, throughput and goodput of a benchmark result or request log.
    #[command(after_help = report::EXAMPLES)]
    Report(report::Arguments),
    /// A gate: objectives, and regressions against a base; the exit code says the answer.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Arguments),
    /// Two runs side by side: what changed, and whether it is more than chance.
    #[command(after_help = diff::EXAMPLES)]
    Diff(diff::Arguments),
    /// From symptoms to a cause and the first action, with the evidence that decided.
    #[command(after_help = diagnose::EXAMPLES)]
    Diagnose(Box<diagnose::Arguments>),
    /// Simulate a workload or a trace under one or several settings.
    #[command(after_help = sim::EXAMPLES, mut_args(takes_hyphens))]
    Sim(Box<sim::Arguments>),
    /// What a trace is like; traces in our form, converted or drawn from a seed.
    #[command(after_help = trace::EXAMPLES)]
    Trace(trace::Arguments),
    /// How many replicas a load needs, by closed form, queueing and simulation.
    #[command(after_help = plan::EXAMPLES, mut_args(takes_hyphens))]
    Plan(Box<plan::Arguments>),
    /// Which settings of a server keep the SLO, and which of those are best.
    #[command(after_help = tune::EXAMPLES, mut_args(takes_hyphens), mut_args(sim::takes_one))]
    Tune(Box<tune::Arguments>),
    /// What tokens cost at a real load, at the limit of the SLO, and against an API.
    #[command(after_help = cost::EXAMPLES, mut_args(takes_hyphens))]
    Cost(cost::Arguments),
    /// A step time from measured steps, with its error per regime and what the data cannot tell.
    #[command(after_help = fit::EXAMPLES)]
    Fit(Box<fit::Arguments>),
    /// How much the KV cache holds: bytes per token, blocks, and requests that fit at once.
    #[command(after_help = kv::EXAMPLES, mut_args(takes_hyphens))]
    Kv(Box<kv::Arguments>),
    /// What queueing theory says: thirty models and laws, percentiles, curves, inverse problems.
    #[command(after_help = queue::EXAMPLES)]
    Queue(Box<queue::Arguments>),
    /// What a figure is: formula, units, source, code path, with your numbers put in.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Arguments),
    /// Completions for a shell, to be sourced or saved.
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  goodput completions bash
  goodput completions zsh -o _goodput";

impl Cli {
    /// Runs the command; what it prints and the exit code.
    pub fn run(self) -> Result<(String, u8)> {
        let format = self.output.format;
        let output = self.output.file();
        match &self.command {
            Command::Report(arguments) => arguments.check_files(output)?,
            Command::Check(arguments) => arguments.check_files(output)?,
            Command::Diff(arguments) => arguments.check_files(output)?,
            Command::Diagnose(arguments) => arguments.check_files(output)?,
            Command::Sim(arguments) => arguments.check_files(output)?,
            Command::Plan(arguments) => arguments.check_files(output)?,
            Command::Tune(arguments) => arguments.check_files(output)?,
            Command::Queue(arguments) => arguments.check_files(output)?,
            Command::Kv(arguments) => arguments.check_files(output)?,
            // A fit and a trace are written where they are made, and looked at there.
            Command::Cost(_)
            | Command::Fit(_)
            | Command::Explain(_)
            | Command::Trace(_)
            | Command::Completions { .. } => {}
        }
        let mut code = 0;
        let text = match self.command {
            Command::Check(arguments) => {
                let (text, answer) = check::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Diff(arguments) => diff::run(&arguments, format)?,
            Command::Diagnose(arguments) => {
                let (text, answer) = diagnose::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Report(arguments) => {
                let (text, answer) = report::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Sim(arguments) => sim::run(&arguments, format, output)?,
            // A trace goes to -o line by line.
            Command::Trace(arguments) => {
                return Ok((trace::run(&arguments, format, output)?, 0));
            }
            // Here -o is the step-time file, and what was found goes to standard output.
            Command::Fit(arguments) => {
                return Ok((fit::run(&arguments, format, self.output.output.as_deref())?, 0));
            }
            Command::Kv(arguments) => kv::run(&arguments, format)?,
            Command::Plan(arguments) => {
                let (text, answer) = plan::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Tune(arguments) => {
                let (text, answer) = tune::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Cost(arguments) => {
                let (text, answer) = cost::run(&arguments, format)?;
                code = answer;
                text
            }
            Command::Queue(arguments) => queue::run(&arguments, format)?,
            Command::Explain(arguments) => explain::run(&arguments, format)?,
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "goodput", &mut script);
                String::from_utf8(script)?
            }
        };
        Ok((self.output.deliver(text)?, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_raised_by_commands_that_exist() {
        let cli = Cli::command();
        for check in metrics_core::validity::CHECKS {
            for by in check.raised_by {
                assert!(cli.find_subcommand(by.name()).is_some(), "{}: {}", check.id, by.name());
            }
        }
    }

    /// An option of several values that took hyphens would swallow all options behind it.
    #[test]
    fn no_option_takes_those_behind_it() {
        for command in Cli::command().get_subcommands() {
            for option in command.get_arguments().filter(|a| a.is_allow_hyphen_values_set()) {
                let most = option.get_num_args().map_or(1, |n| n.max_values());
                assert_eq!(most, 1, "{} --{}", command.get_name(), option.get_id());
            }
        }
    }

    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }
}
