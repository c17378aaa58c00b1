//! `goodput kv`: how much the KV cache holds.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use capacity::kv::{KvAnswer, KvFit, KvMemory, KvQuestion, answer};
use metrics_core::format;
use metrics_core::grammar;
use metrics_core::metric::Language;
use metrics_core::model::{Attention, KvShape, LayerGroup};
use metrics_core::units::Bytes;
use queueing::profile::Kind;
use serving_io::machine::{GPU_MEMORY_UTILIZATION, Gpu, Model, gib, kv_dtype_bytes};

use crate::explain::Lang;
use crate::output::{Format, check_outputs};
use crate::queue::answer::{Answer, say};
use crate::queue::input::{count, share};

pub const EXAMPLES: &str = "\
Sizes need a unit (80GB is 80·10^9 bytes, 80GiB is 80·2^30). The memory comes from --gpu or
--gpu-memory with the weights, from --memory-for-kv, or from --num-kv-blocks; without any of
them the bytes of a token and of a request are answered.

Examples:
  goodput kv --model llama-3.1-8b --gpu h100 --mean-tokens 2000
  goodput kv --model llama-3.1-70b --gpu h100 --tp 4 --kv-cache-dtype fp8 --reserved-memory 3GiB
  goodput kv --model gpt-oss-120b --gpu h100 --context 32k --input-tokens 4000 --output-tokens 500
  goodput kv --config config.json --memory-for-kv 16GiB --context 4096
  goodput kv --layers 28 --kv-heads 4 --head-dim 128 --memory-for-kv 16GiB --context 8192
  goodput kv --layers 61 --kv-lora-rank 512 --rope-dim 64
  goodput kv --num-kv-blocks 18724 --input-tokens 1000 --output-tokens 5000 --concurrency 128
  goodput kv --model qwen3-8b --gpu l40s --format json";

/// Arguments of `kv`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// A model by its name, such as llama-3.1-8b.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "layers"])]
    model: Option<String>,
    /// A model by its config.json, or the folder that has it.
    #[arg(long, value_name = "FILE", conflicts_with = "layers")]
    config: Option<PathBuf>,
    /// Layers that keep keys and values of all tokens, in place of a model.
    #[arg(long, value_name = "N")]
    layers: Option<String>,
    /// Heads that keep keys and values.
    #[arg(long, value_name = "N", requires_all = ["layers", "head_dim"])]
    kv_heads: Option<String>,
    /// Elements of one head.
    #[arg(long, value_name = "N", requires_all = ["layers", "kv_heads"])]
    head_dim: Option<String>,
    /// Elements of the latent vector of MLA, in place of heads.
    #[arg(long, value_name = "N", requires = "layers", conflicts_with = "kv_heads")]
    kv_lora_rank: Option<String>,
    /// Elements of the positional key of MLA [default: 64].
    #[arg(long, value_name = "N", requires = "kv_lora_rank")]
    rope_dim: Option<String>,
    /// Type of an element of the cache: auto, bf16, fp8, int8, nvfp4, … [default: the model's, or
    /// bf16].
    #[arg(long, visible_alias = "dtype", value_name = "TYPE")]
    kv_cache_dtype: Option<String>,
    /// A GPU by its name, such as h100.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["memory_for_kv", "num_kv_blocks"])]
    gpu: Option<String>,
    /// GPUs of one replica, by tensor parallelism [default: 1].
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N")]
    tp: Option<String>,
    /// Memory of one GPU, in place of the one that --gpu has.
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        conflicts_with_all = ["memory_for_kv", "num_kv_blocks"]
    )]
    gpu_memory: Option<String>,
    /// Share of the GPU's memory that the server takes [default: 0.92, as in vLLM 0.33.0].
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["memory_for_kv", "num_kv_blocks"])]
    gpu_memory_utilization: Option<String>,
    /// Weights of the whole model, where they are not known or of another type.
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        conflicts_with_all = ["memory_for_kv", "num_kv_blocks"]
    )]
    weights: Option<String>,
    /// Memory of each GPU for activations and CUDA graphs [default: 0].
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        conflicts_with_all = ["memory_for_kv", "num_kv_blocks"]
    )]
    reserved_memory: Option<String>,
    /// Memory of each GPU for the KV cache.
    #[arg(
        long,
        visible_aliases = ["kv-memory", "kv-cache-memory-bytes"],
        value_name = "SIZE",
        allow_hyphen_values = true,
        conflicts_with = "num_kv_blocks"
    )]
    memory_for_kv: Option<String>,
    /// KV blocks, as the engine's log says.
    #[arg(long, visible_alias = "num-gpu-blocks-override", value_name = "N")]
    num_kv_blocks: Option<String>,
    /// Tokens in a KV block [default: 16].
    #[arg(long, value_name = "N")]
    block_size: Option<String>,
    /// Longest request, prompt and answer [default: what the model was made for].
    #[arg(long, visible_alias = "max-model-len", value_name = "TOKENS")]
    context: Option<String>,
    /// Tokens that a request holds on average while it is served.
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["input_tokens", "output_tokens"])]
    mean_tokens: Option<String>,
    /// Mean prompt; with --output-tokens in place of --mean-tokens.
    #[arg(long, value_name = "TOKENS", requires = "output_tokens")]
    input_tokens: Option<String>,
    /// Mean answer, of which a request holds half on average.
    #[arg(long, value_name = "TOKENS", requires = "input_tokens")]
    output_tokens: Option<String>,
    /// Requests sent at once, to compare what they want with what there is.
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// Most tokens of a step, which layers with a sliding window hold beside it [default: 8192].
    #[arg(long, value_name = "TOKENS")]
    max_num_batched_tokens: Option<String>,
    /// Language of the words.
    #[arg(long, value_enum, default_value_t)]
    lang: Lang,
}

impl Arguments {
    /// Refuses to write over what is read.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let config: Vec<PathBuf> = self.config.iter().cloned().collect();
        check_outputs(&config, &[("-o", output)])
    }
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let model = model(arguments)?;
    let question = question(arguments, model.as_ref())?;
    let found = answer(&question)?;
    if arguments.max_num_batched_tokens.is_some() && !found.has_windows {
        bail!(
            "--max-num-batched-tokens: changes nothing here: without layers with a sliding window, \
             or without a memory, no figure depends on it"
        );
    }
    if arguments.concurrency.is_some() && found.pool.as_ref().is_none_or(|p| p.demand.is_none()) {
        bail!(
            "--concurrency: needs --mean-tokens, or --input-tokens and --output-tokens, and a memory"
        );
    }
    rendered(arguments, model.as_ref(), &question, found).render(format)
}

fn size(option: &str, text: &str) -> Result<Bytes> {
    let bytes = grammar::size(text).map_err(|e| anyhow!("{option}: {e}"))?;
    if bytes == Bytes::ZERO {
        bail!("{option}: must be above 0");
    }
    Ok(bytes)
}

fn counted(option: &str, text: Option<&String>) -> Result<Option<u64>> {
    text.map(|text| count(option, text)).transpose()
}

fn model(arguments: &Arguments) -> Result<Option<Model>> {
    match (&arguments.model, &arguments.config) {
        (Some(name), _) => Model::named(name).map(Some).map_err(|e| anyhow!("--model: {e}")),
        (None, Some(path)) => {
            Model::read_path(path).map(Some).map_err(|e| anyhow!("--config: {e}"))
        }
        (None, None) => Ok(None),
    }
}

/// The layers: a model's, or those of the numbers.
fn layers(arguments: &Arguments, model: Option<&Model>) -> Result<Option<KvShape>> {
    let dtype = arguments.kv_cache_dtype.as_deref().map(kv_dtype_bytes).transpose();
    let dtype = dtype.map_err(|e| anyhow!("--kv-cache-dtype: {e}"))?.flatten();
    if let Some(model) = model {
        return Ok(Some(model.kv(dtype)?));
    }
    // An option that conflicts with one that is given needs nothing, as the parser sees it.
    for (option, given, of) in [
        ("--rope-dim", arguments.rope_dim.is_some(), "--kv-lora-rank"),
        ("--head-dim", arguments.head_dim.is_some(), "--kv-heads"),
    ] {
        let mla = arguments.kv_lora_rank.is_some();
        if given && mla == (option == "--head-dim") {
            bail!("{option}: goes with {of}, which is not given");
        }
    }
    let need = |option: &str, text: Option<&String>| -> Result<u64> {
        let n = counted(option, text)?;
        n.ok_or_else(|| anyhow!("--layers: needs --kv-heads and --head-dim, or --kv-lora-rank"))
    };
    let Some(layers) = counted("--layers", arguments.layers.as_ref())? else {
        if arguments.kv_cache_dtype.is_some() {
            bail!("--kv-cache-dtype: needs --model, --config or --layers");
        }
        return Ok(None);
    };
    let attention = match counted("--kv-lora-rank", arguments.kv_lora_rank.as_ref())? {
        Some(kv_lora_rank) => {
            let rope = counted("--rope-dim", arguments.rope_dim.as_ref())?;
            Attention::Mla { kv_lora_rank, qk_rope_head_dim: rope.unwrap_or(64) }
        }
        None => Attention::Gqa {
            kv_heads: need("--kv-heads", arguments.kv_heads.as_ref())?,
            head_dim: need("--head-dim", arguments.head_dim.as_ref())?,
            heads: None,
        },
    };
    let dtype_bytes = dtype.unwrap_or(2.0);
    Ok(Some(KvShape::new(vec![LayerGroup { layers, attention, dtype_bytes }])?))
}

fn memory(arguments: &Arguments, model: Option<&Model>) -> Result<KvMemory> {
    if let Some(n) = counted("--num-kv-blocks", arguments.num_kv_blocks.as_ref())? {
        if n == 0 {
            bail!("--num-kv-blocks: must be at least 1, got 0");
        }
        return Ok(KvMemory::Blocks(n));
    }
    if let Some(text) = &arguments.memory_for_kv {
        return Ok(KvMemory::PerGpu(size("--memory-for-kv", text)?));
    }
    let gpu = arguments.gpu.as_deref().map(Gpu::named).transpose();
    let gpu = gpu.map_err(|e| anyhow!("--gpu: {e}"))?;
    let gpu_memory = match (&arguments.gpu_memory, gpu) {
        (Some(text), _) => size("--gpu-memory", text)?,
        (None, Some(gpu)) => gpu.memory,
        (None, None) => {
            for (option, given) in [
                ("--gpu-memory-utilization", &arguments.gpu_memory_utilization),
                ("--weights", &arguments.weights),
                ("--reserved-memory", &arguments.reserved_memory),
            ] {
                if given.is_some() {
                    bail!("{option}: needs --gpu or --gpu-memory");
                }
            }
            return Ok(KvMemory::Unknown);
        }
    };
    let given = arguments.weights.as_deref().map(|text| size("--weights", text)).transpose()?;
    let weights = match (given, model) {
        (Some(weights), _) => weights,
        (None, Some(model)) => model.weights().map_err(|e| anyhow!("--weights: {e}"))?,
        (None, None) => bail!("--weights: is needed, as no model says how large they are"),
    };
    let utilization = match arguments.gpu_memory_utilization.as_deref() {
        Some(text) => share("--gpu-memory-utilization", text)?,
        None => GPU_MEMORY_UTILIZATION,
    };
    let reserved = arguments.reserved_memory.as_deref();
    let reserved = reserved.map(|text| size("--reserved-memory", text)).transpose()?;
    let reserved = reserved.unwrap_or(Bytes::ZERO);
    Ok(KvMemory::Share { gpu_memory, utilization, weights, reserved })
}

fn question(arguments: &Arguments, model: Option<&Model>) -> Result<KvQuestion> {
    let mut q = KvQuestion::new(layers(arguments, model)?);
    q.memory = memory(arguments, model)?;
    if q.kv.is_none() && q.memory == KvMemory::Unknown {
        bail!("give --model, --config or --layers, or --num-kv-blocks");
    }
    if q.memory == KvMemory::Unknown && arguments.block_size.is_some() {
        bail!("--block-size: changes nothing here: it needs a memory, or --num-kv-blocks");
    }
    if q.kv.is_none() && arguments.tp.is_some() {
        bail!("--tp: changes nothing here: it needs --model, --config or --layers");
    }
    let gpus = counted("--tp", arguments.tp.as_ref())?.unwrap_or(1);
    q.tensor_parallel = u32::try_from(gpus)
        .ok()
        .filter(|&n| n <= 1024)
        .ok_or_else(|| anyhow!("--tp: at most 1024 GPUs hold one replica, got {gpus}"))?;
    if let Some(n) = counted("--block-size", arguments.block_size.as_ref())? {
        q.block_size = n;
    }
    let longest = model.and_then(Model::max_model_len);
    q.context = counted("--context", arguments.context.as_ref())?.or(longest);
    if let (Some(context), Some(longest)) = (q.context, longest)
        && longest < context
    {
        bail!("--context: {context} is beyond the {longest} tokens that the model was made for");
    }
    let (input, output) = (
        counted("--input-tokens", arguments.input_tokens.as_ref())?,
        counted("--output-tokens", arguments.output_tokens.as_ref())?,
    );
    if let (Some(input), Some(output), Some(context)) = (input, output, q.context)
        && context < input.saturating_add(output)
    {
        bail!(
            "--input-tokens, --output-tokens: {input} and {output} tokens are a mean request of {}, beyond the longest of {context}",
            input.saturating_add(output)
        );
    }
    q.mean_tokens = counted("--mean-tokens", arguments.mean_tokens.as_ref())?
        .or(input.zip(output).map(|(input, output)| input.saturating_add(output.div_ceil(2))));
    q.concurrency = counted("--concurrency", arguments.concurrency.as_ref())?;
    if let Some(n) = counted("--max-num-batched-tokens", arguments.max_num_batched_tokens.as_ref())?
    {
        q.step_tokens = n;
    }
    Ok(q)
}

/// Bytes, and how many GiB or KiB they are.
fn bytes_shown(bytes: f64) -> String {
    if bytes < 1_048_576.0 {
        let kib = format::fixed(bytes / 1024.0, 2);
        return format!("{} B ({kib} KiB)", thousands(bytes));
    }
    format!("{} GiB", gib(bytes))
}

/// A whole number with commas, as vLLM's log has it.
fn thousands(n: f64) -> String {
    let digits = format::count(n);
    let (whole, rest) = digits.split_once('.').map_or((digits.as_str(), ""), |(w, r)| (w, r));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if 0 < i && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if rest.is_empty() { out } else { format!("{out}.{rest}") }
}

fn rendered(
    arguments: &Arguments,
    model: Option<&Model>,
    q: &KvQuestion,
    found: KvAnswer,
) -> Answer {
    let language = Language::from(arguments.lang);
    let name = match (model, &arguments.layers) {
        (Some(model), _) => crate::output::one_line(&model.name),
        (None, Some(layers)) => {
            say!(language, "a model of {layers} layers", "{layers} 层的模型")
        }
        (None, None) => say!(language, "a pool of blocks", "给定的块数"),
    };
    let gpus = q.tensor_parallel;
    let title = say!(language, "KV cache of {name}", "{name} 的 KV cache");
    let title = if 1 < gpus {
        say!(language, "{title} on {gpus} GPUs", "{title}，{gpus} 张 GPU")
    } else {
        title
    };
    let mut out = Answer::new(language, title);
    token_figures(&mut out, q, &found);
    if let Some(fit) = found.pool {
        fit_figures(&mut out, q, &fit);
        out.reading = reading(language, q, &fit);
        out.findings.extend(fit.finding);
    } else {
        out.reading = say!(
            language,
            "How many requests fit follows with a memory: --gpu, --memory-for-kv or --num-kv-blocks.",
            "给出显存（--gpu、--memory-for-kv 或 --num-kv-blocks）后才能算出可容纳的请求数。"
        );
    }
    notes(&mut out, q, model, found.has_windows);
    out
}

/// What tokens and requests take.
fn token_figures(out: &mut Answer, q: &KvQuestion, found: &KvAnswer) {
    let language = out.language;
    let mut add = |key: &str, label: String, bytes: Option<f64>| {
        if let Some(bytes) = bytes {
            out.add_shown(key, label, bytes, bytes_shown(bytes));
        }
    };
    let per_token = say!(language, "each further token", "每增加一个 token");
    add("kv_bytes_per_token", per_token, found.bytes_per_token);
    if 1 < q.tensor_parallel {
        let label =
            say!(language, "each further token, on each GPU", "每增加一个 token（每张 GPU）");
        add("kv_bytes_per_token_per_gpu", label, found.bytes_per_token_per_gpu);
    }
    if let Some(n) = q.context {
        let label = say!(language, "a request of {n} tokens", "{n} token 的请求");
        add("request_bytes", label, found.request_bytes);
    }
    if let Some(n) = q.mean_tokens {
        let label = say!(language, "a request of {n} tokens (mean)", "{n} token 的请求（平均）");
        add("mean_request_bytes", label, found.mean_request_bytes);
    }
    let weights = say!(language, "weights on each GPU", "每张 GPU 的权重");
    add("weights_bytes_per_gpu", weights, found.weights_per_gpu.map(Bytes::get));
    let memory = say!(language, "KV cache on each GPU", "每张 GPU 的 KV cache");
    add("kv_memory_bytes_per_gpu", memory, found.memory_per_gpu.map(Bytes::get));
}

/// What fits.
fn fit_figures(out: &mut Answer, q: &KvQuestion, fit: &KvFit) {
    let language = out.language;
    let blocks = fit.blocks as f64;
    let size = q.block_size;
    let label = say!(language, "blocks of {size} tokens", "块数（每块 {size} token）");
    out.add_shown("kv_blocks", label, blocks, thousands(blocks));
    let tokens = fit.tokens as f64;
    let label = say!(language, "tokens in the cache", "可容纳的 token");
    out.add_shown("kv_tokens", label, tokens, thousands(tokens));
    if let (Some(n), Some(x)) = (q.context, fit.requests_at_context) {
        let label = say!(language, "requests of {n} tokens", "{n} token 的请求数");
        out.add_shown("requests_at_context", label, x, format::fixed(x, 2));
    }
    if let (Some(n), Some(x)) = (q.mean_tokens, fit.requests_at_mean) {
        let label = say!(language, "requests of {n} tokens (mean)", "{n} token 的请求数（平均）");
        out.add_shown("requests_at_mean", label, x, format::fixed(x, 2));
    }
    if let (Some(n), Some(x)) = (q.concurrency, fit.demand) {
        let label = say!(language, "what {n} at once want of it", "{n} 个并发请求所需的倍数");
        out.add(Kind::Share, "demand", label, x);
    }
}

/// What the engine's start-up lines mean.
fn reading(language: Language, q: &KvQuestion, fit: &KvFit) -> String {
    let tokens = thousands(fit.tokens as f64);
    let Some((context, requests)) = q.context.zip(fit.requests_at_context) else {
        return say!(
            language,
            "vLLM prints at its start: GPU KV cache size: {tokens} tokens.",
            "vLLM 启动时会打印：GPU KV cache size: {tokens} tokens。"
        );
    };
    let (length, times) = (thousands(context as f64), format::fixed(requests, 2));
    let mut text = say!(
        language,
        "vLLM prints at its start: GPU KV cache size: {tokens} tokens; Maximum concurrency for {length} tokens per request: {times}x. It is a floor for the longest requests, no prediction.",
        "vLLM 启动时会打印：GPU KV cache size: {tokens} tokens；Maximum concurrency for {length} tokens per request: {times}x。这是按最长请求计的下限，不是预测。"
    );
    if let (Some(mean), Some(fits)) = (q.mean_tokens, fit.requests_at_mean) {
        let fits = format::significant(fits, 3);
        text += &say!(
            language,
            " At {mean} tokens on average {fits} fit, and more wait or are preempted.",
            "平均 {mean} token 时可容纳 {fits} 个，更多的请求会排队或被抢占。"
        );
    }
    if let (Some(n), Some(x)) = (q.concurrency, fit.demand) {
        let times = format::significant(x, 3);
        text += &if x <= 1.0 {
            say!(language, " {n} at once fit.", "{n} 个并发可以容纳。")
        } else {
            say!(
                language,
                " {n} at once want {times} times what there is.",
                "{n} 个并发需要现有容量的 {times} 倍。"
            )
        };
    }
    text
}

/// What was assumed, and what is not counted.
fn notes(out: &mut Answer, q: &KvQuestion, model: Option<&Model>, has_windows: bool) {
    let language = out.language;
    if let KvMemory::Share { reserved, .. } = q.memory
        && reserved == Bytes::ZERO
    {
        out.notes.push(say!(
            language,
            "A server has less: activations and CUDA graphs take memory too. Give --reserved-memory, or --memory-for-kv from its log.",
            "实际服务器更少：激活和 CUDA graph 也占显存。请给出 --reserved-memory，或日志中的 --memory-for-kv。"
        ));
    }
    if has_windows {
        out.notes.push(say!(
            language,
            "Layers with a sliding window and others share the blocks in groups, as vLLM's hybrid KV cache manager does; switched off, all layers hold all tokens.",
            "滑动窗口层与其他层按组共享块，与 vLLM 的混合 KV cache 管理器一致；若关闭该管理器，所有层都保存全部 token。"
        ));
    }
    for line in model.iter().flat_map(|m| m.assumptions()) {
        out.notes.push(say!(language, "Assumed: {line}.", "假设：{line}。"));
    }
    for line in model.iter().flat_map(|m| m.limitations()) {
        out.notes.push(say!(language, "Not counted: {line}.", "未计入：{line}。"));
    }
}
