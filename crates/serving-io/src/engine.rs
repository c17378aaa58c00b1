//! Options of a server under vLLM's own names, and what they come to.
//!
//! The same names serve a command line of `vllm serve`, the flags of `goodput sim` and the table
//! `engine` of a scenario. What is not given follows vLLM 0.33.0: limits by the memory of the GPU,
//! and as many KV blocks as fit into `gpu_memory_utilization` of it beside the weights.
//!
//! # Examples
//!
//! ```
//! use serving_io::engine::EngineOptions;
//! use serving_io::machine::Machine;
//!
//! let line = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --enable-lora";
//! let options = EngineOptions::from_command_line(line)?;
//! assert_eq!(options.left_out(), ["--enable-lora: LoRA is not modelled"]);
//!
//! let machine = Machine::named("meta-llama/Meta-Llama-3.1-8B", "NVIDIA H100 SXM", 1)?;
//! let resolved = options.resolve(Some(&machine))?;
//! assert_eq!(resolved.config.max_num_batched_tokens, 8192);
//! // 0.92 of 79.65 GiB less 14.96 GiB of weights, in blocks of 16 · 128 KiB.
//! assert_eq!(resolved.config.num_blocks, 29_858);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use metrics_core::kv_pool::KvPool;
use metrics_core::model::{KvShape, kv_blocks};
use metrics_core::units::{Bytes, BytesPerToken};
use metrics_core::{Error, grammar};
use sched_sim::vllm_v1::{EngineVersion, QueuePolicy, Usage, VllmConfig};

use crate::error::{IoError, Result, shown};
use crate::machine::{GPU_MEMORY_UTILIZATION, Machine, gib, kv_dtype_bytes};

/// Options by name, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    given: Vec<(&'static str, String)>,
    left_out: Vec<String>,
}

/// A configuration, with what was decided on the way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// What the scheduler is told.
    pub config: VllmConfig,
    /// Where the KV capacity comes from, and what was assumed.
    pub notes: Vec<String>,
}

/// Options with a value.
const VALUES: [&str; 23] = [
    "engine_version",
    "block_size",
    "num_kv_blocks",
    "kv_memory",
    "kv_bytes_per_token",
    "kv_cache_dtype",
    "reserved_memory",
    "gpu_memory",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_num_active_seqs",
    "max_num_scheduled_tokens",
    "scheduling_policy",
    "long_prefill_token_threshold",
    "watermark",
    "prefill_schedule_interval",
    // Switches, which may stand alone on a command line.
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "async_scheduling",
    "long_prefill_token_threshold_adaptive",
    "scheduler_reserve_full_isl",
];
const FIRST_SWITCH: usize = 18;

/// What says how much of a machine's memory is the KV cache's; the first also sets vLLM's default
/// limits.
const OF_MACHINE: [&str; 3] = ["gpu_memory", "gpu_memory_utilization", "reserved_memory"];

/// Other names of the same options.
const ALIASES: [(&str, &str); 5] = [
    ("num_gpu_blocks_override", "num_kv_blocks"),
    ("num_gpu_blocks", "num_kv_blocks"),
    ("kv_cache_memory_bytes", "kv_memory"),
    ("max_running_requests", "max_num_seqs"),
    ("max_batch_size", "max_num_seqs"),
];

/// Flags that change what is scheduled in a way that is not modelled.
const NOT_MODELLED: [(&str, &str); 14] = [
    ("speculative_config", "speculative decoding is not modelled"),
    ("speculative_model", "speculative decoding is not modelled"),
    ("num_speculative_tokens", "speculative decoding is not modelled"),
    ("enable_lora", "LoRA is not modelled"),
    ("lora_modules", "LoRA is not modelled"),
    ("max_loras", "LoRA is not modelled"),
    ("pipeline_parallel_size", "pipeline parallelism is not modelled"),
    ("data_parallel_size", "data parallelism is not modelled: this is one engine"),
    ("decode_context_parallel_size", "context parallelism is not modelled"),
    ("kv_transfer_config", "KV connectors are not modelled"),
    ("kv_offloading_size", "KV offloading is not modelled"),
    ("cpu_offload_gb", "offloading of weights is not modelled"),
    ("quantization", "quantized weights are not known: give --kv-memory or --num-kv-blocks"),
    ("limit_mm_per_prompt", "images are not modelled"),
];

/// Flags that change nothing here: addresses, names, logs, and what the step time stands for.
const NO_EFFECT: [&str; 21] = [
    "model",
    "tokenizer",
    "host",
    "port",
    "api_key",
    "served_model_name",
    "dtype",
    "seed",
    "download_dir",
    "load_format",
    "revision",
    "tensor_parallel_size",
    "disable_log_requests",
    "disable_log_stats",
    "enable_log_requests",
    "trust_remote_code",
    "uvicorn_log_level",
    "chat_template",
    "enforce_eager",
    "compilation_config",
    "distributed_executor_backend",
];

/// The short forms of a command line.
const SHORT: [(&str, &str); 2] = [("tp", "tensor_parallel_size"), ("pp", "pipeline_parallel_size")];

fn fault(problem: impl Into<String>) -> IoError {
    IoError::Engine { problem: problem.into() }
}

impl EngineOptions {
    /// The names of all options that are read.
    pub fn names() -> impl Iterator<Item = &'static str> {
        VALUES.into_iter()
    }

    /// Sets an option by its name in vLLM, with `-` or `_`; a later value replaces an earlier one.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] for a name that is not read, or a value that has another form.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let plain = name.trim_start_matches('-').replace('-', "_");
        let plain = ALIASES.iter().find(|a| a.0 == plain).map_or(plain.as_str(), |a| a.1);
        let Some(known) = VALUES.into_iter().find(|n| *n == plain) else {
            let known = crate::error::listed(VALUES);
            return Err(fault(format!(
                "`{}` is no engine option; expected one of {known}",
                shown(name)
            )));
        };
        self.given.retain(|g| g.0 != known);
        self.given.push((known, value.trim().to_owned()));
        self.checked(known)
    }

    /// The options of a `vllm serve` command line, or of its flags alone.
    ///
    /// What is not modelled, and what is not known, is kept in [`left_out`](Self::left_out).
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] for a quote that is not closed, a flag without its value, or a value of
    /// another form.
    pub fn from_command_line(line: &str) -> Result<Self> {
        let words = words(line)?;
        let mut options = Self::default();
        let mut at = words.iter().position(|w| w.starts_with('-')).unwrap_or(words.len());
        while let Some(word) = words.get(at) {
            at += 1;
            let (flag, mut value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if !flag.starts_with('-') {
                options.left_out.push(format!("`{}`: belongs to no flag", shown(word)));
                continue;
            }
            let name = flag.trim_start_matches('-').replace('-', "_").to_lowercase();
            let name = SHORT.iter().find(|s| s.0 == name).map_or(name.as_str(), |s| s.1).to_owned();
            let name =
                ALIASES.iter().find(|a| a.0 == name).map_or(name.as_str(), |a| a.1).to_owned();
            if value.is_none()
                && let Some(next) = words.get(at).filter(|next| !next.starts_with('-'))
            {
                value = Some(next.clone());
                at += 1;
            }
            let off = name.strip_prefix("no_").map(str::to_owned);
            let plain = off.as_deref().unwrap_or(&name);
            if let Some(place) = VALUES.iter().position(|n| *n == plain) {
                let value = match value {
                    None if FIRST_SWITCH <= place => {
                        (if off.is_some() { "false" } else { "true" }).to_owned()
                    }
                    None => return Err(fault(format!("{flag}: expected a value after it"))),
                    Some(_) if off.is_some() => {
                        return Err(fault(format!("{flag}: takes no value")));
                    }
                    Some(value) => value,
                };
                options.set(plain, &value)?;
            } else if let Some((_, why)) = NOT_MODELLED.iter().find(|n| n.0 == plain) {
                let one = name.ends_with("parallel_size") && value.as_deref() == Some("1");
                if !one {
                    options.left_out.push(format!("{flag}: {why}"));
                }
            } else if !NO_EFFECT.contains(&plain) {
                options.left_out.push(format!("{flag}: not known, left out"));
            }
        }
        Ok(options)
    }

    /// What a command line asked for that a run leaves out, one line each.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// What was given, as names with their values.
    #[must_use]
    pub fn given(&self) -> &[(&'static str, String)] {
        &self.given
    }

    /// These options, and those of `common` where there are none.
    #[must_use]
    pub fn over(mut self, common: &Self) -> Self {
        for (name, value) in &common.given {
            if self.get(name).is_none() {
                self.given.push((name, value.clone()));
            }
        }
        for line in &common.left_out {
            if !self.left_out.contains(line) {
                self.left_out.push(line.clone());
            }
        }
        self
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|g| g.0 == name).map(|g| g.1.as_str())
    }

    fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        parse(text)
            .map(Some)
            .ok_or_else(|| fault(format!("{name}: found `{}`, expected {expected}", shown(text))))
    }

    fn count(&self, name: &str) -> Result<Option<u64>> {
        self.parsed(name, "a whole number such as 8192 or 8k", |t| grammar::count(t).ok())
    }

    fn size(&self, name: &str) -> Result<Option<Bytes>> {
        self.parsed(name, "a size such as 60GiB or 64000000000", |t| {
            let plain = || t.parse::<f64>().ok().and_then(|n| Bytes::new(n).ok());
            grammar::size(t).ok().or_else(plain)
        })
    }

    fn share(&self, name: &str) -> Result<Option<f64>> {
        self.parsed(name, "a share from 0 to 1", |t| {
            t.parse::<f64>().ok().filter(|x| (0.0..=1.0).contains(x))
        })
    }

    fn switch(&self, name: &str) -> Result<Option<bool>> {
        self.parsed(name, "true or false", |t| match t.to_lowercase().as_str() {
            "true" | "on" | "1" | "" => Some(true),
            "false" | "off" | "0" => Some(false),
            _ => None,
        })
    }

    /// That one option has the form that its name wants.
    fn checked(&self, name: &'static str) -> Result<()> {
        match name {
            "engine_version" => self.version().map(|_| ()),
            "kv_memory" | "kv_bytes_per_token" | "reserved_memory" | "gpu_memory" => {
                self.size(name).map(|_| ())
            }
            "gpu_memory_utilization" | "watermark" => self.share(name).map(|_| ()),
            "scheduling_policy" => self.queue().map(|_| ()),
            "kv_cache_dtype" => self.kv_dtype().map(|_| ()),
            _ if VALUES.iter().skip(FIRST_SWITCH).any(|n| *n == name) => {
                self.switch(name).map(|_| ())
            }
            _ => self.count(name).map(|_| ()),
        }
    }

    fn version(&self) -> Result<Option<EngineVersion>> {
        self.parsed("engine_version", "a release of vLLM such as 0.33.0", |t| {
            t.trim_start_matches('v').parse().ok()
        })
    }

    /// Bytes of an element of the KV cache, if a type is given.
    fn kv_dtype(&self) -> Result<Option<f64>> {
        let named = |e: IoError| fault(format!("kv_cache_dtype: {e}"));
        Ok(self.get("kv_cache_dtype").map(kv_dtype_bytes).transpose().map_err(named)?.flatten())
    }

    /// The KV cache of a machine's model, in the type that these options say.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`](crate::error::IoError::Engine) for a type that is not known.
    pub fn kv_of(&self, machine: &Machine) -> Result<KvShape> {
        machine.model.kv(self.kv_dtype()?)
    }

    fn queue(&self) -> Result<Option<QueuePolicy>> {
        self.parsed("scheduling_policy", "fcfs or priority", |t| match t {
            "fcfs" => Some(QueuePolicy::Fcfs),
            "priority" => Some(QueuePolicy::Priority),
            _ => None,
        })
    }

    /// The configuration that these options come to on a machine.
    ///
    /// # Errors
    ///
    /// [`IoError::Engine`] if the KV capacity is neither given nor follows from a machine.
    pub fn resolve(&self, machine: Option<&Machine>) -> Result<Resolved> {
        let mut notes = Vec::new();
        let block_size = self.count("block_size")?.unwrap_or(16);
        let num_blocks = self.blocks(machine, block_size, &mut notes)?;
        let longest = num_blocks.saturating_sub(1).saturating_mul(block_size);
        let own = machine.and_then(|m| m.model.max_model_len());
        let max_model_len = match (self.count("max_model_len")?, own) {
            (Some(len), _) | (None, Some(len)) => len,
            (None, None) => {
                notes.push(format!(
                    "max_model_len {longest}: all of the KV cache, as no model says more"
                ));
                longest
            }
        };
        let mut config = VllmConfig::new(num_blocks, max_model_len);
        config.block_size = block_size;
        if let Some(version) = self.version()? {
            config.engine_version = version;
        }
        if let Some(on) = self.switch("enable_chunked_prefill")? {
            config.enable_chunked_prefill = on;
        }
        let memory = self.size("gpu_memory")?.or(machine.map(|m| m.gpu.memory));
        let in_gib = memory.map_or(0.0, |m| m.get() / 1_073_741_824.0);
        let small = machine.is_some_and(|m| m.gpu.has_small_defaults());
        let mut uncut = VllmConfig::new(num_blocks, u64::MAX).with_gpu_defaults(
            in_gib,
            small,
            Usage::ApiServer,
        );
        if !config.enable_chunked_prefill {
            uncut.max_num_batched_tokens = uncut.max_num_batched_tokens.max(max_model_len);
        }
        config = config.with_gpu_defaults(in_gib, small, Usage::ApiServer);
        let seqs = self.count("max_num_seqs")?;
        if let Some(seqs) = seqs {
            config.max_num_seqs = seqs;
            config.max_num_batched_tokens =
                config.max_num_batched_tokens.min(max_model_len.saturating_mul(seqs));
        }
        if let Some(tokens) = self.count("max_num_batched_tokens")? {
            config.max_num_batched_tokens = tokens;
            // vLLM lowers its default, not a value that was asked for.
            if seqs.is_none() {
                config.max_num_seqs = config.max_num_seqs.min(tokens);
            }
        }
        notes.extend(self.own_limits(&config, &uncut, memory.is_some()));
        config.max_num_active_seqs = self.count("max_num_active_seqs")?;
        config.max_num_scheduled_tokens = self.count("max_num_scheduled_tokens")?;
        config.async_scheduling = self.switch("async_scheduling")?;
        config.scheduler_reserve_full_isl = self.switch("scheduler_reserve_full_isl")?;
        if let Some(on) = self.switch("enable_prefix_caching")? {
            config.enable_prefix_caching = on;
        }
        if let Some(on) = self.switch("long_prefill_token_threshold_adaptive")? {
            config.long_prefill_token_threshold_adaptive = on;
        }
        if let Some(tokens) = self.count("long_prefill_token_threshold")? {
            config.long_prefill_token_threshold = tokens;
        }
        if config.long_prefill_token_threshold_adaptive && config.long_prefill_token_threshold == 0
        {
            notes.push(
                "no effect without --long-prefill-token-threshold: \
                 --long-prefill-token-threshold-adaptive"
                    .to_owned(),
            );
        }
        if let Some(steps) = self.count("prefill_schedule_interval")? {
            config.prefill_schedule_interval = steps;
        }
        if let Some(share) = self.share("watermark")? {
            config.watermark = share;
        }
        if let Some(policy) = self.queue()? {
            config.policy = policy;
        }
        Ok(Resolved { config, notes })
    }

    /// The limits that are vLLM's own, where it has to be said: those of a GPU that is not known, and
    /// those that another limit cuts.
    fn own_limits(&self, config: &VllmConfig, uncut: &VllmConfig, known: bool) -> Vec<String> {
        let gpu = if known { "" } else { " for a small GPU, as none is known," };
        let (tokens, seqs) = (config.max_num_batched_tokens, config.max_num_seqs);
        let of = [
            ("max_num_batched_tokens", tokens, uncut.max_num_batched_tokens, {
                format!("max_num_seqs {seqs} times max_model_len {}", config.max_model_len)
            }),
            ("max_num_seqs", seqs, uncut.max_num_seqs, format!("max_num_batched_tokens {tokens}")),
        ];
        let mut notes = Vec::new();
        let mut kept = Vec::new();
        for (name, value, own, by) in of {
            if self.get(name).is_some() {
                continue;
            }
            if value < own {
                notes.push(format!("{name} {value}: vLLM's own{gpu} is {own}, cut to {by}"));
            } else if !known {
                kept.push(format!("{name} {value}"));
            }
        }
        if !kept.is_empty() {
            let kept = kept.join(" and ");
            notes.push(format!("{kept}: vLLM's own for a small GPU, as none is known"));
        }
        notes
    }

    /// Blocks of the pool: given, or those of a memory, or those that a machine has room for.
    fn blocks(
        &self,
        machine: Option<&Machine>,
        block_size: u64,
        notes: &mut Vec<String>,
    ) -> Result<u64> {
        // What decides the pool alone leaves the rest without effect, but for limits by the memory.
        let limits = ["max_num_batched_tokens", "max_num_seqs"];
        let both_given = limits.iter().all(|name| self.get(name).is_some());
        let of_machine = if both_given { &OF_MACHINE[..] } else { &OF_MACHINE[1..] };
        let mut unused = |names: &[&str], by: &str| {
            let given: Vec<String> = names
                .iter()
                .filter(|name| self.get(name).is_some())
                .map(|name| format!("--{}", name.replace('_', "-")))
                .collect();
            if !given.is_empty() {
                notes.push(format!("no effect, as {by} is given: {}", given.join(", ")));
            }
        };
        if let Some(blocks) = self.count("num_kv_blocks")? {
            unused(of_machine, "--num-kv-blocks");
            unused(&["kv_memory", "kv_cache_dtype"], "--num-kv-blocks");
            return Ok(blocks);
        }
        let core = |e: Error| fault(e.to_string());
        let said = self.size("kv_bytes_per_token")?;
        if said.is_some() {
            unused(&["kv_cache_dtype"], "--kv-bytes-per-token");
        } else if machine.is_none() {
            return Err(fault(
                "no KV capacity: give --num-kv-blocks, or --kv-memory with \
                 --kv-bytes-per-token, or a step-time preset whose model and GPU are known",
            ));
        }
        let memory = self.size("kv_memory")?;
        if memory.is_some() {
            unused(of_machine, "--kv-memory");
        }
        if let (Some(memory), Some(bytes)) = (memory, said) {
            let per_token = BytesPerToken::new(bytes.get()).map_err(core)?;
            return kv_blocks(memory, per_token, block_size).map_err(core);
        }
        let Some(machine) = machine else {
            return Err(fault("no KV capacity: give --num-kv-blocks or --kv-memory"));
        };
        let kv = self.kv_of(machine)?;
        let kv = kv.of_one_gpu(u64::from(machine.tensor_parallel)).map_err(core)?;
        let blocks_in = |memory: Bytes, notes: &mut Vec<String>| {
            if let Some(bytes) = said {
                let per_token = BytesPerToken::new(bytes.get()).map_err(core)?;
                return kv_blocks(memory, per_token, block_size).map_err(core);
            }
            let pool = KvPool::of_memory(&kv, memory, block_size).map_err(core)?;
            if pool.is_plain() {
                return Ok(pool.blocks());
            }
            // The scheduler here has one group of layers: blocks of the same worth for the longest.
            let longest = self.count("max_model_len")?.or(machine.model.max_model_len());
            let step = self.count("max_num_batched_tokens")?.unwrap_or(8192);
            let tokens = pool.tokens(longest.unwrap_or(step), step).map_err(core)?;
            notes.push(format!(
                "{} has layers with a sliding window: its {} blocks are counted as those that hold \
                 as many of the longest requests; shorter ones take more of them than here",
                machine.model.name,
                pool.blocks()
            ));
            Ok(tokens / block_size)
        };
        if let Some(memory) = memory {
            return blocks_in(memory, notes);
        }
        let mut machine = machine.clone();
        machine.gpu.memory = self.size("gpu_memory")?.unwrap_or(machine.gpu.memory);
        let share = self.share("gpu_memory_utilization")?.unwrap_or(GPU_MEMORY_UTILIZATION);
        let version = self.version()?.unwrap_or(EngineVersion::V0_33_0);
        if self.get("gpu_memory_utilization").is_none() && version != EngineVersion::V0_33_0 {
            notes.push(format!(
                "gpu_memory_utilization {share} is the default of 0.33.0; that of {version} was not \
                 looked up: give it as the server has it"
            ));
        }
        let reserved = self.size("reserved_memory")?.unwrap_or(Bytes::ZERO);
        let blocks = blocks_in(machine.kv_memory(share, reserved)?, notes)?;
        let mut note = format!(
            "{blocks} KV blocks: {share} of {} GiB ({}) less {} GiB of weights ({})",
            gib(machine.gpu.memory.get()),
            machine.gpu.name,
            gib(machine.model.weights()?.get() / f64::from(machine.tensor_parallel)),
            machine.model.name
        );
        note.push_str(&if reserved == Bytes::ZERO {
            "; a server has fewer, as activations and CUDA graphs take memory too: give \
             --reserved-memory, or --num-kv-blocks from its log"
                .to_owned()
        } else {
            format!(" and {} GiB reserved", gib(reserved.get()))
        });
        notes.push(note);
        Ok(blocks)
    }
}

/// The words of a command line: quotes as a shell reads them, a backslash before a line's end
/// joins lines.
fn words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(fault(format!("the quote {quote} is not closed")));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_flag_by_flag() {
        let line = "vllm serve some/model --max-num-seqs=64 --max-num-batched-tokens 4096 \\\n \
                    --no-enable-prefix-caching --async-scheduling --num-gpu-blocks-override 500 \
                    -tp 1 --pipeline-parallel-size 2 --speculative-config '{\"method\": \"eagle\"}' \
                    --kv-transfer-config x --brand-new 3 --port 80";
        let options = EngineOptions::from_command_line(line).unwrap();
        assert_eq!(
            options.left_out(),
            [
                "--pipeline-parallel-size: pipeline parallelism is not modelled",
                "--speculative-config: speculative decoding is not modelled",
                "--kv-transfer-config: KV connectors are not modelled",
                "--brand-new: not known, left out",
            ]
        );
        let config = options.resolve(None).unwrap().config;
        assert_eq!((config.max_num_seqs, config.max_num_batched_tokens), (64, 4096));
        assert_eq!((config.num_blocks, config.max_model_len), (500, 499 * 16));
        assert!(!config.enable_prefix_caching);
        assert_eq!(config.async_scheduling, Some(true));
    }

    #[test]
    fn what_has_another_form_is_named_with_what_would_be_right() {
        let said = |line: &str| EngineOptions::from_command_line(line).unwrap_err().to_string();
        assert_eq!(
            said("--max-num-seqs many"),
            "max_num_seqs: found `many`, expected a whole number such as 8192 or 8k"
        );
        assert_eq!(said("--block-size"), "--block-size: expected a value after it");
        assert_eq!(
            said("--no-enable-chunked-prefill=true"),
            "--no-enable-chunked-prefill: takes no value"
        );
        assert_eq!(said("--seed '1"), "the quote ' is not closed");
        assert_eq!(
            said("--gpu-memory-utilization 90"),
            "gpu_memory_utilization: found `90`, expected a share from 0 to 1"
        );
        let none = EngineOptions::default().resolve(None).unwrap_err().to_string();
        assert!(none.contains("--num-kv-blocks"), "{none}");
    }

    /// 16 GiB over 57,344 B a token and 16 tokens a block: 18,724 blocks.
    #[test]
    fn memory_becomes_whole_blocks() {
        let options =
            EngineOptions::from_command_line("--kv-memory 16GiB --kv-bytes-per-token 57344");
        let config = options.unwrap().resolve(None).unwrap().config;
        assert_eq!(config.num_blocks, 18_724);
    }

    /// The share that vLLM takes by default is known of one release.
    #[test]
    fn a_default_of_another_release_is_not_passed_off_as_its_own() {
        let machine = Machine::named("meta-llama/Meta-Llama-3.1-8B", "NVIDIA H100 SXM", 1).unwrap();
        let said = |line: &str| {
            let options = EngineOptions::from_command_line(line).unwrap();
            options.resolve(Some(&machine)).unwrap().notes.join(" ")
        };
        let warns = |line: &str| said(line).contains("was not looked up");
        assert!(warns("--engine-version 0.19.0"));
        assert!(!warns("--engine-version 0.19.0 --gpu-memory-utilization 0.9"));
        assert!(!warns("--engine-version 0.33.0"));
    }

    /// 70B on four H100: 0.9 · 79.65 − 131.42 / 4 GiB over 80 KiB a token and GPU.
    #[test]
    fn weights_and_kv_are_shared_by_tensor_parallel_gpus() {
        let machine =
            Machine::named("meta-llama/Meta-Llama-3.1-70B", "NVIDIA H100 SXM", 4).unwrap();
        let options = EngineOptions::from_command_line("--gpu-memory-utilization 0.9").unwrap();
        let resolved = options.resolve(Some(&machine)).unwrap();
        let by_hand: f64 = (0.9 * 81_559.0 / 1024.0
            - 70_553_706_496.0 * 2.0 / 4.0 / 1_073_741_824.0)
            * 1_048_576.0
            / (80.0 * 16.0);
        assert_eq!(resolved.config.num_blocks as f64, by_hand.floor());
        assert_eq!(resolved.config.max_num_batched_tokens, 8192);
        assert!(resolved.notes[0].contains("--reserved-memory"), "{:?}", resolved.notes);
    }

    /// What is reserved stands in the message that it causes, and in a note where it has no effect.
    #[test]
    fn reserved_memory_is_named_where_it_decides_and_where_it_cannot() {
        let machine = Machine::named("llama-3.1-8b", "h100", 1).unwrap();
        let resolved =
            |line: &str| EngineOptions::from_command_line(line).unwrap().resolve(Some(&machine));
        let none = resolved("--reserved-memory 60GiB").unwrap_err().to_string();
        assert!(none.ends_with(" and 60.00 GiB are reserved"), "{none}");
        let notes = |line: &str| resolved(line).unwrap().notes.join("; ");
        assert_eq!(
            notes("--reserved-memory 1GiB --num-kv-blocks 500"),
            "no effect, as --num-kv-blocks is given: --reserved-memory"
        );
        assert_eq!(
            notes("--gpu-memory-utilization 0.9 --kv-memory 16GiB"),
            "no effect, as --kv-memory is given: --gpu-memory-utilization"
        );
        assert_eq!(notes("--num-kv-blocks 500"), "");
        // Of a card of 1 GiB vLLM takes the small limits, whoever gives the pool.
        let given = "--gpu-memory 1GiB --num-kv-blocks 1000 --max-model-len 4096";
        let small = resolved(given).unwrap();
        assert_eq!((small.config.max_num_batched_tokens, small.config.max_num_seqs), (2048, 256));
        assert_eq!(notes(given), "");
        assert_eq!(notes(&format!("{given} --max-num-seqs 8")), "");
        assert_eq!(
            notes(&format!("{given} --max-num-seqs 8 --max-num-batched-tokens 64")),
            "no effect, as --num-kv-blocks is given: --gpu-memory"
        );
        let adaptive = "--num-kv-blocks 500 --long-prefill-token-threshold-adaptive";
        assert_eq!(
            notes(adaptive),
            "no effect without --long-prefill-token-threshold: \
             --long-prefill-token-threshold-adaptive"
        );
        assert_eq!(notes(&format!("{adaptive} --long-prefill-token-threshold 64")), "");
        // 4 requests of 96 tokens are 384, less than the 8192 of an H100; a step of 100 tokens has
        // room for a token of 100 requests.
        assert_eq!(
            notes("--num-kv-blocks 500 --max-num-seqs 4 --max-model-len 96"),
            "max_num_batched_tokens 384: vLLM's own is 8192, cut to max_num_seqs 4 times \
             max_model_len 96"
        );
        assert_eq!(
            notes("--num-kv-blocks 500 --max-num-batched-tokens 100"),
            "max_num_seqs 100: vLLM's own is 1024, cut to max_num_batched_tokens 100"
        );
    }

    /// No note says a limit that the scheduler is not told.
    #[test]
    fn limits_of_no_gpu_are_those_that_hold() {
        let resolved = |line: &str| {
            let options = EngineOptions::from_command_line(line).unwrap();
            let resolved = options.resolve(None).unwrap();
            (resolved.config.max_num_batched_tokens, resolved.config.max_num_seqs, resolved.notes)
        };
        let given = "--num-kv-blocks 7 --max-model-len 96";
        let (tokens, seqs, notes) = resolved(&format!("{given} --max-num-seqs 4"));
        assert_eq!((tokens, seqs), (384, 4));
        assert_eq!(
            notes,
            [
                "max_num_batched_tokens 384: vLLM's own for a small GPU, as none is known, is 2048, cut \
              to max_num_seqs 4 times max_model_len 96"
            ]
        );
        let (tokens, seqs, notes) = resolved(given);
        assert_eq!((tokens, seqs), (2048, 256));
        assert_eq!(
            notes,
            [
                "max_num_batched_tokens 2048 and max_num_seqs 256: vLLM's own for a small GPU, as none \
              is known"
            ]
        );
        let (tokens, _, notes) = resolved(&format!("{given} --enable-chunked-prefill=false"));
        assert_eq!((tokens, notes.len()), (2048, 1), "{notes:?}");
    }

    /// A cache of one byte an element holds twice the tokens: 2 · 32 · 8 · 128 = 64 KiB each.
    #[test]
    fn the_type_of_the_cache_is_followed() {
        let machine = Machine::named("llama-3.1-8b", "h100", 1).unwrap();
        let resolved = |line: &str| {
            EngineOptions::from_command_line(line).unwrap().resolve(Some(&machine)).unwrap()
        };
        let left: f64 = 0.92 * 81_559.0 * 1_048_576.0 - 2.0 * 8_030_261_248.0;
        let fp8 = resolved("--kv-cache-dtype fp8");
        assert_eq!(fp8.config.num_blocks as f64, (left / (65_536.0 * 16.0)).floor());
        assert_eq!(resolved("--kv-cache-dtype auto"), resolved(""));
        let idle = resolved("--kv-cache-dtype fp8 --num-gpu-blocks-override 100").notes.join(" ");
        assert!(idle.contains("--num-kv-blocks is given: --kv-cache-dtype"), "{idle}");
        let wrong =
            EngineOptions::from_command_line("--kv-cache-dtype fp9").unwrap_err().to_string();
        assert!(wrong.contains("`fp9`") && wrong.contains("fp8_e5m2"), "{wrong}");
    }
}
