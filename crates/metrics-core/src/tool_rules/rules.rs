//! How each tool defines its figures, as data: the one place for tables, `--as` and findings.

use super::Tool;
use crate::metric::{Text, text};

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Topic {
    /// Time to first token.
    Ttft,
    /// Time per output token.
    Tpot,
    /// What becomes of answers with one token or none.
    OneToken,
    /// Gaps between outputs, under whatever name.
    Itl,
    /// Where the end-to-end latency ends.
    E2e,
    /// Failed requests in goodput and attainment.
    Failures,
    /// The time that rates and goodput are divided by.
    TimeBase,
    /// How percentiles and spreads are taken.
    Percentile,
    /// Requests in flight.
    InFlight,
    /// Which tokens are counted.
    Tokens,
}

impl Topic {
    /// All topics, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::Ttft,
        Self::Tpot,
        Self::OneToken,
        Self::Itl,
        Self::E2e,
        Self::Failures,
        Self::TimeBase,
        Self::Percentile,
        Self::InFlight,
        Self::Tokens,
    ];

    /// Its name for reading.
    #[must_use]
    pub const fn title(self) -> Text {
        match self {
            Self::Ttft => text("TTFT", "TTFT"),
            Self::Tpot => text("TPOT", "TPOT"),
            Self::OneToken => text("One token or none", "只有一个 token 或没有 token"),
            Self::Itl => text("What it calls ITL", "它所称的 ITL"),
            Self::E2e => text("E2E ends at", "E2E 止于"),
            Self::Failures => text("Failed requests in goodput", "goodput 中的失败请求"),
            Self::TimeBase => text("Time base of rates", "速率的时间基准"),
            Self::Percentile => text("Percentile", "百分位数"),
            Self::InFlight => text("In flight", "在途请求"),
            Self::Tokens => text("Tokens", "token 数"),
        }
    }
}

/// How a tool defines something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whose rule it is.
    pub tool: Tool,
    /// What it is about.
    pub topic: Topic,
    /// The rule as a clause, and where it differs from ours how.
    pub says: Text,
    /// Whether it gives another figure than ours on some run.
    pub differs: bool,
    /// The file of the tool that holds it, in the version of [`Tool::version`].
    pub source: &'static str,
}

/// A public fault of a tool: its figure is not what its own rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A stable name.
    pub id: &'static str,
    /// Whose fault.
    pub tool: Tool,
    /// What it does to which figure.
    pub says: Text,
    /// Where it is described or can be seen.
    pub source: &'static str,
}

const fn same(
    tool: Tool,
    topic: Topic,
    en: &'static str,
    zh: &'static str,
    source: &'static str,
) -> Rule {
    Rule { tool, topic, says: text(en, zh), differs: false, source }
}

const fn differs(
    tool: Tool,
    topic: Topic,
    en: &'static str,
    zh: &'static str,
    source: &'static str,
) -> Rule {
    Rule { tool, topic, says: text(en, zh), differs: true, source }
}

const VLLM: &str = "vllm/benchmarks/serve.py";
const VLLM_CLIENT: &str = "vllm/benchmarks/lib/endpoint_request_func.py";
const SGLANG: &str = "sglang/benchmark/serving.py";
const SGLANG_GOODPUT: &str = "sglang/benchmark/goodput.py";
const AIPERF: &str = "aiperf/metrics/types";
const GUIDELLM: &str = "guidellm/schemas/request_stats.py";
const GUIDELLM_STATISTICS: &str = "guidellm/schemas/statistics.py";
const GUIDELLM_SLO: &str = "guidellm/benchmark/schemas/generative/metrics.py";
const INFERENCE_PERF: &str = "inference_perf/reportgen/base.py";
const LLMPERF: &str = "token_benchmark_ray.py";
const LLMPERF_CLIENT: &str = "ray_clients/openai_chat_completions_client.py";
const MLPERF: &str = "loadgen/results.cc";
const DISTSERVE: &str = "evaluation/2-benchmark-serving";

/// Every rule, by tool and topic.
///
/// Source: the files named in each rule, read in the version of [`Tool::version`], and files that
/// these versions wrote.
pub const RULES: &[Rule] = &[
    differs(
        Tool::Vllm,
        Topic::Ttft,
        "from sending to the first chunk with a choice, even one without a token; a wait in the client before sending is in no latency",
        "从发送到第一个带 choice 的块，即使其中没有 token；发送前在客户端的等待不计入任何时延",
        VLLM_CLIENT,
    ),
    differs(
        Tool::Vllm,
        Topic::Tpot,
        "(latency - TTFT) / (N - 1), as ours, but latency and TTFT end at chunks with a choice, whether or not they carry a token",
        "(latency - TTFT) / (N - 1)，与本项目相同，但 latency 与 TTFT 止于带 choice 的块，无论其中有无 token",
        VLLM,
    ),
    same(
        Tool::Vllm,
        Topic::OneToken,
        "left out of the statistics of TPOT, 0 for goodput",
        "不计入 TPOT 统计；计算 goodput 时取 0",
        VLLM,
    ),
    differs(
        Tool::Vllm,
        Topic::Itl,
        "gaps between the chunks of the stream, pooled over all answers; a chunk may hold several tokens",
        "流中块之间的间隔，汇总全部回答；一个块可含多个 token",
        VLLM_CLIENT,
    ),
    same(
        Tool::Vllm,
        Topic::E2e,
        "the last chunk with a choice",
        "最后一个带 choice 的块",
        VLLM_CLIENT,
    ),
    same(Tool::Vllm, Topic::Failures, "not good", "不算达标", VLLM),
    same(
        Tool::Vllm,
        Topic::TimeBase,
        "wall clock from the first send until the last answer",
        "从首次发送到最后回答的挂钟时间",
        VLLM,
    ),
    same(
        Tool::Vllm,
        Topic::Percentile,
        "numpy, linear; std with n in the denominator",
        "numpy 线性插值；标准差的分母为 n",
        VLLM,
    ),
    differs(
        Tool::Vllm,
        Topic::InFlight,
        "requests that touch a one-second bucket, which is more than are in flight at any instant: 20 where the exact peak is 2",
        "与某个一秒区间有交集的请求数，多于任一时刻的在途请求数：精确峰值为 2 时可印出 20",
        VLLM,
    ),
    differs(
        Tool::Vllm,
        Topic::Tokens,
        "tokens of completed requests; the peak counts chunks, not tokens, in one-second buckets",
        "已完成请求的 token 数；峰值按一秒区间统计块而非 token",
        VLLM,
    ),
    differs(
        Tool::Sglang,
        Topic::Ttft,
        "from sending to the first line of the stream with text",
        "从发送到流中第一个含文本的行",
        SGLANG,
    ),
    differs(
        Tool::Sglang,
        Topic::Tpot,
        "(latency - TTFT) / (N - 1), where the latency runs on to the last line of the stream, usage and [DONE] included",
        "(latency - TTFT) / (N - 1)，但 latency 计到流的最后一行，含 usage 与 [DONE]",
        SGLANG,
    ),
    same(
        Tool::Sglang,
        Topic::OneToken,
        "left out of the statistics of TPOT, 0 for goodput",
        "不计入 TPOT 统计；计算 goodput 时取 0",
        SGLANG_GOODPUT,
    ),
    differs(
        Tool::Sglang,
        Topic::Itl,
        "native endpoint: gap divided by the new tokens and repeated for each; OpenAI endpoints: gap between chunks",
        "原生接口：间隔除以新增 token 数并逐一重复；OpenAI 接口：块之间的间隔",
        SGLANG,
    ),
    differs(
        Tool::Sglang,
        Topic::E2e,
        "the last line of the stream, usage and [DONE] included: later than the last token",
        "流的最后一行，含 usage 与 [DONE]：晚于最后一个 token",
        SGLANG,
    ),
    same(
        Tool::Sglang,
        Topic::Failures,
        "attainment is good of all sent; failures are misses",
        "达标率为达标数除以全部已发送请求；失败算未达标",
        SGLANG_GOODPUT,
    ),
    same(Tool::Sglang, Topic::TimeBase, "wall clock of the run", "整个运行的挂钟时间", SGLANG),
    same(
        Tool::Sglang,
        Topic::Percentile,
        "numpy, linear; std with n in the denominator",
        "numpy 线性插值；标准差的分母为 n",
        SGLANG,
    ),
    differs(
        Tool::Sglang,
        Topic::InFlight,
        "`concurrency` is the sum of the latencies divided by the wall clock; the peak counts requests that touch a one-second bucket",
        "`concurrency` 为时延之和除以挂钟时间；峰值统计与某个一秒区间有交集的请求",
        SGLANG,
    ),
    differs(
        Tool::Sglang,
        Topic::Tokens,
        "on OpenAI completions the output count can be the requested one, and the total of input tokens the length that the client asked for",
        "在 OpenAI completions 上，输出 token 数可能是请求值，输入 token 总数可能是客户端要求的长度",
        SGLANG,
    ),
    differs(
        Tool::Aiperf,
        Topic::Ttft,
        "from the start of the request, not from the instant at which it was due (`credit_issued_ns`)",
        "从请求开始计，而非从应发送时刻（`credit_issued_ns`）",
        AIPERF,
    ),
    same(
        Tool::Aiperf,
        Topic::Tpot,
        "named `inter_token_latency`: (request latency - TTFT) / (N - 1)",
        "名为 `inter_token_latency`：(请求时延 - TTFT) / (N - 1)",
        AIPERF,
    ),
    differs(
        Tool::Aiperf,
        Topic::OneToken,
        "has no value, so that a request with one token is never good under a limit on it",
        "没有值，因此一个 token 的请求在对其设限时永不达标",
        AIPERF,
    ),
    differs(
        Tool::Aiperf,
        Topic::Itl,
        "its `inter_token_latency` is TPOT; the gaps between chunks are `inter_chunk_latency`",
        "它的 `inter_token_latency` 即 TPOT；块之间的间隔名为 `inter_chunk_latency`",
        AIPERF,
    ),
    same(Tool::Aiperf, Topic::E2e, "the last chunk with content", "最后一个有内容的块", AIPERF),
    same(
        Tool::Aiperf,
        Topic::Failures,
        "good of completed and failed; failures are misses",
        "达标数除以已完成与失败之和；失败算未达标",
        AIPERF,
    ),
    differs(
        Tool::Aiperf,
        Topic::TimeBase,
        "phase end minus phase start, which is longer than the `benchmark_duration` it prints",
        "阶段结束减阶段开始，长于它所印出的 `benchmark_duration`",
        AIPERF,
    ),
    same(
        Tool::Aiperf,
        Topic::Percentile,
        "numpy, linear; std with n in the denominator",
        "numpy 线性插值；标准差的分母为 n",
        AIPERF,
    ),
    differs(
        Tool::Aiperf,
        Topic::InFlight,
        "time-weighted over the span of all requests, failed ones included",
        "在全部请求（含失败）的时间跨度上按时间加权",
        AIPERF,
    ),
    same(
        Tool::Aiperf,
        Topic::Tokens,
        "tokens of completed requests",
        "已完成请求的 token 数",
        AIPERF,
    ),
    differs(
        Tool::Guidellm,
        Topic::Ttft,
        "from the start of the request, not from the instant at which it was due",
        "从请求开始计，而非从应发送时刻",
        GUIDELLM,
    ),
    differs(
        Tool::Guidellm,
        Topic::Tpot,
        "`time_per_output_token` is (t_last - start) / N, prefill included, and its mean is weighted by N",
        "`time_per_output_token` 为 (t_last - start) / N，含预填充，均值按 N 加权",
        GUIDELLM,
    ),
    differs(
        Tool::Guidellm,
        Topic::OneToken,
        "left out of its `inter_token_latency`, and neither good nor bad under a limit on TPOT",
        "不计入其 `inter_token_latency`；在对 TPOT 设限时既不算达标也不算未达标",
        GUIDELLM_SLO,
    ),
    differs(
        Tool::Guidellm,
        Topic::Itl,
        "`inter_token_latency` is our TPOT for each request, but weighted by N - 1",
        "`inter_token_latency` 即每个请求的 TPOT，但按 N - 1 加权",
        GUIDELLM,
    ),
    differs(
        Tool::Guidellm,
        Topic::E2e,
        "the closing of the stream, after the last token",
        "流关闭之时，晚于最后一个 token",
        GUIDELLM,
    ),
    differs(
        Tool::Guidellm,
        Topic::Failures,
        "failed ones are misses, incomplete ones are left out, and so are requests whose latency is unknown",
        "失败算未达标；未完成的以及时延未知的请求不计",
        GUIDELLM_SLO,
    ),
    differs(
        Tool::Guidellm,
        Topic::TimeBase,
        "time-weighted mean of a rate curve over the measured window; events after its end are dropped",
        "测量窗口上速率曲线的时间加权均值；窗口结束之后的事件被丢弃",
        GUIDELLM_STATISTICS,
    ),
    differs(
        Tool::Guidellm,
        Topic::Percentile,
        "nearest rank on the weighted distribution",
        "加权分布上的最近秩",
        GUIDELLM_STATISTICS,
    ),
    differs(
        Tool::Guidellm,
        Topic::InFlight,
        "time-weighted over the measured window, failed requests included, each until its stream is closed",
        "在测量窗口上按时间加权，含失败请求，每个计到其流关闭",
        GUIDELLM_STATISTICS,
    ),
    differs(
        Tool::Guidellm,
        Topic::Tokens,
        "rates of tokens count failed requests too in its table of the server",
        "其服务器表中的 token 速率也计入失败请求",
        GUIDELLM_SLO,
    ),
    same(
        Tool::InferencePerf,
        Topic::Ttft,
        "from sending to the first token",
        "从发送到第一个 token",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::Tpot,
        "(t_last - t_first) / (N - 1), where N is counted by the client's own tokenizer",
        "(t_last - t_first) / (N - 1)，其中 N 由客户端的分词器统计",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::OneToken,
        "TTFT and TPOT have no value, so that the request is never good under a limit on either",
        "TTFT 与 TPOT 均无值，因此在对其一设限时该请求永不达标",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::Itl,
        "gaps between token stamps, 0 between the tokens of one chunk",
        "token 时间戳之间的间隔，同一块内为 0",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::E2e,
        "the end of the request, after the last token",
        "请求结束之时，晚于最后一个 token",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::Failures,
        "left out: goodput is a share of the successes",
        "不计：goodput 为成功请求中的占比",
        INFERENCE_PERF,
    ),
    differs(
        Tool::InferencePerf,
        Topic::TimeBase,
        "first start to last end of the successes",
        "成功请求的最早开始到最晚结束",
        INFERENCE_PERF,
    ),
    same(Tool::InferencePerf, Topic::Percentile, "numpy, linear", "numpy 线性插值", INFERENCE_PERF),
    differs(Tool::InferencePerf, Topic::InFlight, "not reported", "不报告", INFERENCE_PERF),
    differs(
        Tool::InferencePerf,
        Topic::Tokens,
        "`token_goodput` counts input and output tokens of good requests",
        "`token_goodput` 计入达标请求的输入与输出 token",
        INFERENCE_PERF,
    ),
    same(
        Tool::Llmperf,
        Topic::Ttft,
        "from sending to the first line of the stream with content",
        "从发送到流中第一个有内容的行",
        LLMPERF_CLIENT,
    ),
    differs(Tool::Llmperf, Topic::Tpot, "not reported", "不报告", LLMPERF),
    differs(
        Tool::Llmperf,
        Topic::OneToken,
        "kept: the one line counts as a gap of TTFT",
        "保留：唯一的一行按 TTFT 的间隔计",
        LLMPERF_CLIENT,
    ),
    differs(
        Tool::Llmperf,
        Topic::Itl,
        "(TTFT + gaps) / number of lines of the stream: the wait for the first token is in it",
        "(TTFT + 各间隔) / 流的行数：含首个 token 的等待",
        LLMPERF,
    ),
    differs(
        Tool::Llmperf,
        Topic::E2e,
        "the end of the stream, after the last token",
        "流结束之时，晚于最后一个 token",
        LLMPERF_CLIENT,
    ),
    differs(
        Tool::Llmperf,
        Topic::Failures,
        "no goodput; failed requests are in no latency",
        "没有 goodput；失败请求不计入任何时延",
        LLMPERF,
    ),
    differs(
        Tool::Llmperf,
        Topic::TimeBase,
        "wall clock of the run, the start of its workers included",
        "整个运行的挂钟时间，含其工作进程的启动",
        LLMPERF,
    ),
    same(
        Tool::Llmperf,
        Topic::Percentile,
        "pandas, linear; std with n - 1 in the denominator",
        "pandas 线性插值；标准差的分母为 n - 1",
        LLMPERF,
    ),
    differs(Tool::Llmperf, Topic::InFlight, "not reported", "不报告", LLMPERF),
    differs(
        Tool::Llmperf,
        Topic::Tokens,
        "counted by its own Llama tokenizer, whatever the model",
        "无论何种模型，均由其自带的 Llama 分词器统计",
        LLMPERF,
    ),
    same(
        Tool::Mlperf,
        Topic::Ttft,
        "from the instant at which the query was scheduled",
        "从查询的计划时刻计",
        MLPERF,
    ),
    same(
        Tool::Mlperf,
        Topic::Tpot,
        "(latency - TTFT) / (n - 1)",
        "(latency - TTFT) / (n - 1)",
        MLPERF,
    ),
    differs(
        Tool::Mlperf,
        Topic::OneToken,
        "divides by n - 1 all the same: an answer without a token divides by -1, and one with a token by 0",
        "仍除以 n - 1：没有 token 的回答除以 -1，一个 token 的除以 0",
        MLPERF,
    ),
    differs(Tool::Mlperf, Topic::Itl, "not reported", "不报告", MLPERF),
    same(Tool::Mlperf, Topic::E2e, "completion of the query", "查询完成之时", MLPERF),
    differs(
        Tool::Mlperf,
        Topic::Failures,
        "no goodput: the run is valid if the P99 of TTFT and of TPOT keep their limits",
        "没有 goodput：TTFT 与 TPOT 的 P99 不超限即为有效",
        MLPERF,
    ),
    differs(
        Tool::Mlperf,
        Topic::TimeBase,
        "first scheduled to last completed query",
        "最早计划到最晚完成的查询",
        MLPERF,
    ),
    differs(
        Tool::Mlperf,
        Topic::Percentile,
        "sorted[floor(n * p)], without interpolation: never below ours",
        "sorted[floor(n * p)]，不插值：不低于本项目的值",
        MLPERF,
    ),
    differs(Tool::Mlperf, Topic::InFlight, "not reported", "不报告", MLPERF),
    same(
        Tool::Mlperf,
        Topic::Tokens,
        "tokens of completed queries",
        "已完成查询的 token 数",
        MLPERF,
    ),
    same(Tool::DistServe, Topic::Ttft, "our rule", "与本项目相同", DISTSERVE),
    same(Tool::DistServe, Topic::Tpot, "our rule", "与本项目相同", DISTSERVE),
    same(Tool::DistServe, Topic::OneToken, "0", "0", DISTSERVE),
    differs(Tool::DistServe, Topic::Itl, "not reported", "不报告", DISTSERVE),
    same(Tool::DistServe, Topic::E2e, "the end of the request", "请求结束之时", DISTSERVE),
    differs(
        Tool::DistServe,
        Topic::Failures,
        "attainment is good of all requests, whatever became of them",
        "达标率为达标数除以全部请求，无论其结局",
        DISTSERVE,
    ),
    differs(
        Tool::DistServe,
        Topic::TimeBase,
        "goodput is the highest sending rate at which attainment holds, which one run cannot give",
        "goodput 为达标率仍能保持的最高发送速率，单次运行无法给出",
        DISTSERVE,
    ),
    same(Tool::DistServe, Topic::Percentile, "numpy, linear", "numpy 线性插值", DISTSERVE),
    differs(Tool::DistServe, Topic::InFlight, "not reported", "不报告", DISTSERVE),
    same(Tool::DistServe, Topic::Tokens, "not reported", "不报告", DISTSERVE),
];

/// Public faults of the tools, which make a printed figure differ from the tool's own rule.
pub const FAULTS: &[Fault] = &[
    Fault {
        id: "vllm-empty-prints-zero",
        tool: Tool::Vllm,
        says: text(
            "without a completed request the tool prints 0.00 for every latency, which is no measurement",
            "没有已完成请求时，工具将每个时延印为 0.00，这并非测量值",
        ),
        source: "vllm-project/vllm#4987",
    },
    Fault {
        id: "vllm-gap-per-chunk",
        tool: Tool::Vllm,
        says: text(
            "the gap between chunks is printed as the gap between tokens although a chunk holds several",
            "块之间的间隔被印为 token 之间的间隔，而一个块含多个 token",
        ),
        source: "vllm-project/vllm#27485",
    },
    Fault {
        id: "vllm-role-chunk",
        tool: Tool::Vllm,
        says: text(
            "the first chunk carries a role and no token, yet its time is printed as TTFT",
            "第一个块只有角色而无 token，其时间却被印为 TTFT",
        ),
        source: "vllm-project/vllm#15106",
    },
    Fault {
        id: "sglang-latency-to-done",
        tool: Tool::Sglang,
        says: text(
            "the latency, and with it TPOT and concurrency, runs on to the last line of the stream, and the file has no latency per request",
            "时延（以及 TPOT 与并发度）计到流的最后一行，而文件中没有逐请求的时延",
        ),
        source: "sglang 0.5.23, sglang/benchmark/serving.py",
    },
    Fault {
        id: "sglang-requested-input-tokens",
        tool: Tool::Sglang,
        says: text(
            "`total_input_tokens` adds the lengths that the client asked for, while `input_lens` holds what the server counted",
            "`total_input_tokens` 累加客户端要求的长度，而 `input_lens` 为服务器统计的长度",
        ),
        source: "sglang 0.5.23, sglang/benchmark/serving.py",
    },
    Fault {
        id: "guidellm-tpot-with-prefill",
        tool: Tool::Guidellm,
        says: text(
            "TPOT is (t_last - start) / N: it counts the prefill and is averaged by tokens",
            "TPOT 为 (t_last - start) / N：含预填充，并按 token 平均",
        ),
        source: "vllm-project/guidellm#1144",
    },
    Fault {
        id: "guidellm-tail-dropped",
        tool: Tool::Guidellm,
        says: text(
            "requests and tokens after the end of the measured window are dropped from the rates but not from the counts",
            "测量窗口结束之后的请求与 token 从速率中丢弃，却仍在计数中",
        ),
        source: "guidellm 0.8.1, guidellm/schemas/statistics.py",
    },
    Fault {
        id: "inference-perf-half",
        tool: Tool::InferencePerf,
        says: text(
            "versions up to 0.2 tokenize each chunk with a begin token, so that TPOT and ITL are half the truth",
            "0.2 及更早版本对每个块分词时加入起始 token，使 TPOT 与 ITL 只有真值的一半",
        ),
        source: "kubernetes-sigs/inference-perf#566",
    },
    Fault {
        id: "llmperf-itl-with-ttft",
        tool: Tool::Llmperf,
        says: text(
            "ITL is (TTFT + gaps) / number of lines of the stream",
            "ITL 为 (TTFT + 各间隔) / 流的行数",
        ),
        source: "ray-project/llmperf#99",
    },
    Fault {
        id: "llmperf-failures-vanish",
        tool: Tool::Llmperf,
        says: text(
            "a worker whose request fails dies on a division by zero, so that failed requests are in neither the counts nor the file",
            "请求失败的工作线程因除以零而终止，失败请求既不在计数中也不在文件中",
        ),
        source: "llmperf f1d6bed, token_benchmark_ray.py",
    },
    Fault {
        id: "aiperf-duration-is-not-the-base",
        tool: Tool::Aiperf,
        says: text(
            "the printed `benchmark_duration` is not the time that the printed rates are divided by",
            "印出的 `benchmark_duration` 并非印出速率的除数",
        ),
        source: "aiperf 0.13.0, aiperf/metrics/types",
    },
    Fault {
        id: "mlperf-divides-by-minus-one",
        tool: Tool::Mlperf,
        says: text(
            "TPOT of an answer without a token is divided by -1",
            "没有 token 的回答的 TPOT 除以 -1",
        ),
        source: "mlcommons/inference, loadgen/results.cc",
    },
];

/// The rule of a tool on a topic; every tool has one for each.
#[must_use]
pub fn rule(tool: Tool, topic: Topic) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.tool == tool && r.topic == topic)
}

/// The fault with that id.
#[must_use]
pub fn fault(id: &str) -> Option<&'static Fault> {
    FAULTS.iter().find(|f| f.id == id)
}
