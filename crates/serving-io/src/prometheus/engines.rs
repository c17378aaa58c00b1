//! Under which names engines export what: the table that a snapshot is read by.
//!
//! The names of the metrics that have an entry in the catalog stand there too, with what differs;
//! a test compares the two.

/// What a metric of an engine says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Histogram of TTFT.
    Ttft,
    /// Histogram of TPOT by request.
    Tpot,
    /// Histogram of the gaps between tokens.
    Itl,
    /// Histogram of E2E.
    E2e,
    /// Histogram of the wait from arrival until scheduled.
    QueueTime,
    /// Histogram of the time from scheduled to the first token.
    Prefill,
    /// Histogram of the time from the first to the last token.
    Decode,
    /// Histogram of prompt lengths.
    PromptLength,
    /// Histogram of output lengths.
    OutputLength,
    /// Requests in the batch at the scrape.
    Running,
    /// Requests waiting at the scrape.
    Waiting,
    /// Share of the KV cache in use at the scrape.
    KvUtilization,
    /// Preemptions, each one counted.
    Preemptions,
    /// Prompt tokens processed.
    PromptTokens,
    /// Output tokens produced.
    OutputTokens,
    /// Tokens (or blocks) found in the prefix cache.
    PrefixHits,
    /// Tokens (or blocks) looked up in the prefix cache.
    PrefixQueries,
    /// Tokens (or blocks) looked up and not found.
    PrefixMisses,
    /// Requests that ended, by reason where there is one.
    Finished,
    /// Prompt tokens of retracted requests.
    RetractedInput,
    /// Output tokens of retracted requests.
    RetractedOutput,
}

/// How a metric is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `_bucket`, `_sum`, `_count`.
    Histogram,
    /// A total that rises.
    Counter,
    /// A level.
    Gauge,
}

impl What {
    /// How it is exported.
    #[must_use]
    pub const fn form(self) -> Form {
        match self {
            Self::Ttft
            | Self::Tpot
            | Self::Itl
            | Self::E2e
            | Self::QueueTime
            | Self::Prefill
            | Self::Decode
            | Self::PromptLength
            | Self::OutputLength => Form::Histogram,
            Self::Running | Self::Waiting | Self::KvUtilization => Form::Gauge,
            _ => Form::Counter,
        }
    }

    /// Its name in keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2e => "e2e",
            Self::QueueTime => "queue_time",
            Self::Prefill => "prefill_time",
            Self::Decode => "decode_time",
            Self::PromptLength => "input_tokens_per_request",
            Self::OutputLength => "output_tokens_per_request",
            Self::Running => "running_requests",
            Self::Waiting => "waiting_requests",
            Self::KvUtilization => "kv_utilization",
            Self::Preemptions => "preemptions",
            Self::PromptTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::PrefixHits => "prefix_cache_hits",
            Self::PrefixQueries => "prefix_cache_queries",
            Self::PrefixMisses => "prefix_cache_misses",
            Self::Finished => "finished_requests",
            Self::RetractedInput => "retracted_input_tokens",
            Self::RetractedOutput => "retracted_output_tokens",
        }
    }
}

/// An engine whose metrics are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Engine {
    /// Its name.
    pub name: &'static str,
    /// The version whose source was read, and the file.
    pub source: &'static str,
    /// What its names begin with; proxies and wrappers put their own before it.
    pub prefixes: &'static [&'static str],
    /// The rest of the names, without `_bucket`, `_sum` and `_count`. Of several names for one
    /// thing the first that a text has counts, since some versions export the old one beside.
    pub names: &'static [(&'static str, What)],
}

/// The engines, in the order of the catalog.
pub const ENGINES: &[Engine] = &[VLLM, SGLANG, TRTLLM, DYNAMO, TGI];

const VLLM: Engine = Engine {
    name: "vLLM",
    source: "vLLM 0.33.0 vllm/v1/metrics/loggers.py",
    prefixes: &["vllm:", "ray_vllm_", "ray_vllm:", "kserve_vllm:", "vllm_"],
    names: &[
        ("time_to_first_token_seconds", What::Ttft),
        ("request_time_per_output_token_seconds", What::Tpot),
        ("inter_token_latency_seconds", What::Itl),
        // Up to 0.10, where the name says TPOT and the value is a gap.
        ("time_per_output_token_seconds", What::Itl),
        ("e2e_request_latency_seconds", What::E2e),
        ("request_queue_time_seconds", What::QueueTime),
        ("request_prefill_time_seconds", What::Prefill),
        ("request_decode_time_seconds", What::Decode),
        ("request_prompt_tokens", What::PromptLength),
        ("request_generation_tokens", What::OutputLength),
        ("num_requests_running", What::Running),
        ("num_requests_waiting", What::Waiting),
        ("kv_cache_usage_perc", What::KvUtilization),
        // Up to 0.9.
        ("gpu_cache_usage_perc", What::KvUtilization),
        ("num_preemptions_total", What::Preemptions),
        ("prompt_tokens_total", What::PromptTokens),
        ("generation_tokens_total", What::OutputTokens),
        ("prefix_cache_hits_total", What::PrefixHits),
        ("prefix_cache_queries_total", What::PrefixQueries),
        ("gpu_prefix_cache_hits_total", What::PrefixHits),
        ("gpu_prefix_cache_queries_total", What::PrefixQueries),
        ("request_success_total", What::Finished),
    ],
};

const SGLANG: Engine = Engine {
    name: "SGLang",
    source: "SGLang 0.5.23 srt/observability/metrics_collector.py",
    prefixes: &["sglang:", "ray_sglang_", "sglang_"],
    names: &[
        ("time_to_first_token_seconds", What::Ttft),
        ("request_time_per_output_token_seconds", What::Tpot),
        ("inter_token_latency_seconds", What::Itl),
        ("e2e_request_latency_seconds", What::E2e),
        ("queue_time_seconds", What::QueueTime),
        ("prompt_tokens_histogram", What::PromptLength),
        ("generation_tokens_histogram", What::OutputLength),
        ("num_running_reqs", What::Running),
        ("num_queue_reqs", What::Waiting),
        ("token_usage", What::KvUtilization),
        ("num_retracted_requests_total", What::Preemptions),
        ("num_retracted_input_tokens_total", What::RetractedInput),
        ("num_retracted_output_tokens_total", What::RetractedOutput),
        ("prompt_tokens_total", What::PromptTokens),
        ("generation_tokens_total", What::OutputTokens),
        // Its gauge `cache_hit_rate` is 0 on decode steps and is not read.
        ("cached_tokens_total", What::PrefixHits),
    ],
};

const TRTLLM: Engine = Engine {
    name: "TensorRT-LLM",
    source: "TensorRT-LLM tensorrt_llm/metrics/collector.py",
    prefixes: &["trtllm_", "trtllm:"],
    names: &[
        ("time_to_first_token_seconds", What::Ttft),
        ("time_per_output_token_seconds", What::Tpot),
        ("e2e_request_latency_seconds", What::E2e),
        ("request_queue_time_seconds", What::QueueTime),
        ("num_requests_running", What::Running),
        ("num_requests_waiting", What::Waiting),
        ("kv_cache_utilization", What::KvUtilization),
        ("kv_cache_reused_blocks_total", What::PrefixHits),
        ("kv_cache_missed_blocks_total", What::PrefixMisses),
        ("generation_tokens_total", What::OutputTokens),
        ("request_success_total", What::Finished),
    ],
};

const DYNAMO: Engine = Engine {
    name: "Dynamo",
    source: "Dynamo lib/llm/src/http/service/metrics.rs",
    prefixes: &["dynamo_"],
    names: &[
        ("frontend_time_to_first_token_seconds", What::Ttft),
        ("frontend_inter_token_latency_seconds", What::Itl),
        ("frontend_request_duration_seconds", What::E2e),
        ("frontend_output_tokens_total", What::OutputTokens),
        ("component_kvstats_gpu_cache_usage_percent", What::KvUtilization),
    ],
};

const TGI: Engine = Engine {
    name: "TGI",
    source: "TGI 3.3 router/src/server.rs",
    prefixes: &["tgi_"],
    names: &[
        ("request_duration", What::E2e),
        ("request_queue_duration", What::QueueTime),
        ("batch_current_size", What::Running),
        ("queue_size", What::Waiting),
        ("request_success", What::Finished),
    ],
};

/// What a name of an engine's metric means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The engine.
    pub engine: &'static Engine,
    /// The meaning.
    pub what: What,
    /// Its place in the engine's names.
    pub place: usize,
}

/// The engine and the meaning of a name without its `_bucket`, `_sum` or `_count`.
#[must_use]
pub fn known(name: &str) -> Option<Known> {
    ENGINES.iter().find_map(|engine| {
        let rest = engine.prefixes.iter().find_map(|p| name.strip_prefix(p))?;
        let place = engine.names.iter().position(|(n, _)| *n == rest)?;
        let what = engine.names.get(place)?.1;
        Some(Known { engine, what, place })
    })
}

/// What names of known engines begin with, for messages.
pub(super) fn prefixes() -> String {
    let first = ENGINES.iter().filter_map(|e| e.prefixes.first());
    first.map(|p| format!("`{p}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The catalog says for each metric how engines call it; the reader knows each of these names
    /// but those that are another figure.
    #[test]
    fn the_reader_knows_every_name_of_the_catalog() {
        let other = [
            // Preemptions by request, which the total of the counter sums up.
            "vllm:request_num_preemptions",
            // Everything in the system, with what is still in prefill.
            "dynamo_frontend_inflight_requests",
            // Another definition: inference time over all N tokens; gaps of a whole batch.
            "tgi_request_mean_time_per_token_duration",
            "tgi_batch_decode_duration",
        ];
        let mut seen = 0;
        for metric in metrics_core::catalog::metrics() {
            for exported in metric.exported {
                let name = exported.name;
                assert!(known(name).is_some() != other.contains(&name), "{name}");
                seen += 1;
            }
        }
        assert!(30 <= seen, "{seen}");
    }
}
