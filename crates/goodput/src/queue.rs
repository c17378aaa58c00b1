//! `goodput queue`: what queueing theory says, with a reading in plain words.

pub mod answer;
pub mod input;
mod laws;
mod models;
mod plan;
mod serving;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use metrics_core::metric::Language;

use crate::explain::Lang;
use crate::output::{Format, check_outputs};
use input::in_options;

pub const EXAMPLES: &str = "\
Rates are per second unless they say otherwise (20/s, 1200/min, 50000/h);
times need a unit (250us, 30ms, 1.5s).
Open models take --rate and --service, and with them --percentiles, --within,
--states and --curve (as CSV with --format csv).

Examples:
  goodput queue little --rate 20/s --time 500ms
  goodput queue mm1 --rate 4/s --service 100ms
  goodput queue mmc --rate 8/s --service 200ms --servers 3 --within 100ms
  goodput queue mmc --rate 8/s --service 200ms --servers 3 --curve --format csv
  goodput queue mg1 --rate 4/s --service 100ms --law lognormal:1.5
  goodput queue erlang --load 8.5 --servers 10
  goodput queue plan --target 'p99(wait)<200ms' --rate 8/s --service 200ms
  goodput queue autoscaler --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 \\
      --output-tokens 512 --max-batch 48 --max-queue 128 --ttft 60ms
  goodput queue demand --rate 0.5/s --input-tokens 512 --output-tokens 128 \\
      --prefill 0.5ms --decode 10ms";

/// Arguments of `queue`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Language of the words.
    #[arg(long, value_enum, default_value_t, global = true)]
    lang: Lang,
    #[command(subcommand)]
    model: Model,
}

impl Arguments {
    /// Refuses to write over what is read.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let Model::Burst(burst) = &self.model else { return Ok(()) };
        let trace: Vec<PathBuf> = burst.trace.iter().cloned().collect();
        check_outputs(&trace, &[("-o", output)])
    }
}

#[derive(Debug, Subcommand)]
enum Model {
    /// Little's law, L = λ·W, in three directions: give two of the three.
    #[command(after_help = "Example:\n  goodput queue little --rate 20/s --time 500ms")]
    Little(laws::Little),
    /// One server, Poisson arrivals, exponential service.
    #[command(
        after_help = "Examples:\n  goodput queue mm1 --rate 4/s --service 100ms\n  goodput queue mm1 --rate 4/s --service 100ms --within 250ms --states 3"
    )]
    Mm1(models::Plain),
    /// Several servers with one queue, Poisson arrivals, exponential service.
    #[command(
        after_help = "Examples:\n  goodput queue mmc --rate 8/s --service 200ms --servers 3\n  goodput queue mmc --rate 8/s --service 200ms --servers 3 --curve"
    )]
    Mmc(models::Pool),
    /// Finite room: at most K in the system, the others are turned away.
    #[command(
        visible_alias = "mm1k",
        after_help = "Examples:\n  goodput queue mmck --rate 20/s --service 200ms --servers 3 --places 10\n  goodput queue mm1k --rate 20/s --service 100ms --places 8"
    )]
    Mmck(models::Room),
    /// A server for everyone: how many are busy.
    #[command(after_help = "Example:\n  goodput queue mminf --rate 20/s --service 1s")]
    Mminf(models::Plain),
    /// Finitely many sources that wait for their answer: M/M/c//N.
    #[command(
        after_help = "Example:\n  goodput queue finite-source --sources 16 --think 1s --service 200ms --servers 2"
    )]
    FiniteSource(laws::Population),
    /// Finitely many sources and nobody may wait: time and call congestion.
    #[command(
        after_help = "Example:\n  goodput queue engset --sources 16 --think 1s --service 200ms --servers 4"
    )]
    Engset(laws::Population),
    /// Several servers, and who waits leaves after a while: M/M/c+M.
    #[command(
        after_help = "Example:\n  goodput queue erlang-a --rate 20/s --service 200ms --servers 4 --patience 2s --within 100ms"
    )]
    ErlangA(models::Impatient),
    /// Erlang B (blocked are lost) and Erlang C (blocked wait), for whole and real numbers.
    #[command(
        visible_aliases = ["erlang-b", "erlang-c"],
        after_help = "Examples:\n  goodput queue erlang --load 8.5 --servers 10\n  goodput queue erlang-c --load 10 --servers 13.04"
    )]
    Erlang(laws::Erlang),
    /// One server, arrivals of any regularity, exponential service.
    #[command(
        after_help = "Example:\n  goodput queue gim1 --rate 4/s --service 100ms --gaps hyperexp:2"
    )]
    Gim1(models::Irregular),
    /// One server, Poisson arrivals, any service time (Pollaczek-Khinchine).
    #[command(
        after_help = "Examples:\n  goodput queue mg1 --rate 4/s --service 100ms --cv 1.5\n  goodput queue mg1 --rate 4/s --service 100ms --law pareto:2.5"
    )]
    Mg1(models::General),
    /// One server, answers cut at a number of tokens.
    #[command(
        after_help = "Example:\n  goodput queue tokens --rate 0.2/s --base 200ms --per-token 20ms \\\n      --output-tokens geometric:150 --max-tokens 256"
    )]
    Tokens(models::CutAnswers),
    /// One server, Poisson arrivals, constant service: exact distribution.
    #[command(after_help = "Example:\n  goodput queue md1 --rate 4/s --service 100ms")]
    Md1(models::Plain),
    /// Several servers, constant service: exact distribution.
    #[command(after_help = "Example:\n  goodput queue mdc --rate 8/s --service 200ms --servers 3")]
    Mdc(models::Pool),
    /// One server, service in exponential phases: exact distribution.
    #[command(
        after_help = "Example:\n  goodput queue mph1 --rate 4/s --service 100ms --law hyperexp:3"
    )]
    Mph1(models::Phases),
    /// One server and classes of priority.
    #[command(
        after_help = "Example:\n  goodput queue priority --class 2/s,100ms --class 5/s,100ms,lognormal:2"
    )]
    Priority(laws::Priority),
    /// All share one server: M/G/1-PS.
    #[command(after_help = "Example:\n  goodput queue ps --rate 4/s --service 100ms")]
    Ps(models::Plain),
    /// A limited number is served at once, at rates that depend on how many they are.
    #[command(
        after_help = "Example:\n  goodput queue lps --rate 4/s --rates 2/s,3.5/s,4.5/s,5/s --queue 20 --response"
    )]
    Lps(models::Sharing),
    /// An LLM server as autoscalers model it, with the tail that they leave out.
    #[command(
        after_help = "Examples:\n  goodput queue autoscaler --rate 3/s --alpha 12ms --beta 50us --gamma 0.5us \\\n      --input-tokens 128 --output-tokens 512 --max-batch 48 --max-queue 128\n  goodput queue autoscaler --alpha 12ms --beta 50us --gamma 0.5us --input-tokens 128 \\\n      --output-tokens 512 --max-batch 256 --max-queue 128 --ttft 60ms --itl 20ms --smallest-batch"
    )]
    Autoscaler(serving::Autoscaler),
    /// Dynamic batching: a free server takes what waits (Inoue), up to a cap.
    #[command(
        after_help = "Example:\n  goodput queue batch --rate 100/s --per-request 2ms --fixed 10ms --cap 16"
    )]
    Batch(models::Batch),
    /// Batches of up to K with an exponential time: M/M^[K]/1.
    #[command(after_help = "Example:\n  goodput queue bulk --rate 20/s --service 100ms --batch 4")]
    Bulk(models::Bulk),
    /// Several arrive at once: M^[X]/M/1.
    #[command(
        after_help = "Example:\n  goodput queue batch-arrivals --rate 1/s --size 4 --service 100ms"
    )]
    BatchArrivals(models::Arrivals),
    /// A fixed number of clients: mean value analysis and the interactive law.
    #[command(
        after_help = "Examples:\n  goodput queue closed --clients 16 --think 1s --demand 100ms\n  goodput queue closed --clients 1 --throughput 17924/s"
    )]
    Closed(laws::ClosedArgs),
    /// A chain from its rates up and down.
    #[command(
        after_help = "Example:\n  goodput queue birth-death --births 2/s,2/s,2/s --deaths 1/s,2/s,2/s"
    )]
    BirthDeath(laws::Chain),
    /// Approximations from means and variations, each with where it holds.
    #[command(
        after_help = "Example:\n  goodput queue ggc --rate 8/s --service 200ms --servers 2 --gap-cv 2 --cv 0.5"
    )]
    Ggc(laws::Approximations),
    /// How much a continuously batching server can take at all: token budget and KV memory.
    #[command(
        after_help = "Example:\n  goodput queue stability --iteration 20ms --token-budget 512 --kv-tokens 400k \\\n      --input-tokens 256 --output-tokens 128 --rate 60/s"
    )]
    Stability(serving::Stability),
    /// How much longer waits are under bursts than a model with Poisson arrivals says.
    #[command(after_help = "Example:\n  goodput queue burst --gap-cv 2 --cv 1")]
    Burst(serving::Burst),
    /// The least servers or replicas, or the largest rate, for a target; pooled against split.
    #[command(
        after_help = "Examples:\n  goodput queue plan --target 'p_wait<10%' --rate 40/s --service 1s --parts 4\n  goodput queue plan --target 'p99(response)<2s' --rate 40/s --service 200ms --slots 8\n  goodput queue plan --target 'blocking<1%' --servers 15 --service 1s"
    )]
    Plan(plan::Plan),
    /// The service rate that an M/M/1 server needs for a mean or percentile of the response.
    #[command(
        after_help = "Examples:\n  goodput queue required --rate 4/s --mean 250ms\n  goodput queue required --rate 4/s --percentile 99% --within 1s"
    )]
    Required(laws::Required),
    /// From the tokens of a request to its service demand, μ and ρ of one replica.
    #[command(
        after_help = "Example:\n  goodput queue demand --rate 0.5/s --input-tokens 512 --output-tokens 128 \\\n      --prefill 0.5ms --decode 10ms"
    )]
    Demand(laws::Demand),
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let language = Language::from(arguments.lang);
    let answer = match &arguments.model {
        Model::Little(a) => laws::little(a, language),
        Model::Mm1(a) => models::mm1(a, language),
        Model::Mmc(a) => models::mmc(a, language),
        Model::Mmck(a) => models::mmck(a, language),
        Model::Mminf(a) => models::mminf(a, language),
        Model::FiniteSource(a) => laws::finite_source(a, language),
        Model::Engset(a) => laws::engset(a, language),
        Model::ErlangA(a) => models::erlang_a(a, language),
        Model::Erlang(a) => laws::erlang(a, language),
        Model::Gim1(a) => models::gim1(a, language),
        Model::Mg1(a) => models::mg1(a, language),
        Model::Tokens(a) => models::tokens(a, language),
        Model::Md1(a) => models::md1(a, language),
        Model::Mdc(a) => models::mdc(a, language),
        Model::Mph1(a) => models::mph1(a, language),
        Model::Priority(a) => laws::priority(a, language),
        Model::Ps(a) => models::ps(a, language),
        Model::Lps(a) => models::lps(a, language),
        Model::Autoscaler(a) => {
            serving::autoscaler(a, language).map_err(|e| in_options(&e, serving::OPTIONS))
        }
        Model::Batch(a) => models::batch(a, language),
        Model::Bulk(a) => models::bulk(a, language),
        Model::BatchArrivals(a) => models::arrivals(a, language),
        Model::Closed(a) => laws::closed(a, language),
        Model::BirthDeath(a) => laws::birth_death(a, language),
        Model::Ggc(a) => laws::ggc(a, language),
        Model::Stability(a) => serving::stable(a, language),
        Model::Burst(a) => serving::burst(a, language),
        Model::Plan(a) => plan::plan(a, language).map_err(|e| in_options(&e, plan::OPTIONS)),
        Model::Required(a) => laws::required(a, language),
        Model::Demand(a) => laws::demand(a, language),
    }?;
    answer.render(format)
}
