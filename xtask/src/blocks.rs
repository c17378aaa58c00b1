//! The generated blocks: one function each, and one line in [`BLOCKS`].

use std::fmt::Write as _;

use anyhow::{Result, bail};
use metrics_core::alerts::THRESHOLDS;
use metrics_core::diagnosis::{ROWS, Tolerance};
use metrics_core::format::{fixed, percent};
use metrics_core::metric::{Formula, Language, Layer, Metric, Source, Text, text};
use metrics_core::tool_rules::{FAULTS, Tool, Topic, rule};
use metrics_core::validity::CHECKS;

use queueing::{Mm1, Mmc, Queue, WaitDistribution};
use serving_io::policy::{RULES, VLLM_V1};
use serving_io::scenario::Scenario;

use crate::{docs, repo};

/// A block's name in its markers, and what writes it in one language.
pub type Block = (&'static str, fn(Language) -> Result<String>);

/// Every block that a page may hold. To add one: a function below, a line here, and its markers
/// in an English and a Chinese page.
pub const BLOCKS: &[Block] = &[
    ("metrics-latency", |l| Ok(metrics(l, Layer::Latency))),
    ("metrics-throughput", |l| Ok(metrics(l, Layer::Throughput))),
    ("metrics-resources", |l| Ok(metrics(l, Layer::Resources))),
    ("metrics-diagnosis", |l| Ok(metrics(l, Layer::Diagnosis))),
    ("metrics-capacity", |l| Ok(metrics(l, Layer::Capacity))),
    ("metrics-scheduling", |l| Ok(metrics(l, Layer::Scheduling))),
    ("queueing", |l| Ok(metrics(l, Layer::Queueing))),
    ("diagnosis", |l| Ok(diagnosis(l))),
    ("thresholds", |l| Ok(thresholds(l))),
    ("findings", |l| Ok(findings(l))),
    ("rho-w", rho_w),
    ("erlang-c", erlang_c),
    ("queue-models", queue_models),
    ("approximation-errors", approximation_errors),
    ("exported", |l| Ok(exported(l))),
    ("tool-rules", |l| Ok(tool_rules(l))),
    ("tool-faults", |l| Ok(tool_faults(l))),
    ("worked-examples", |l| Ok(worked_examples(l))),
    ("policies", policies),
    ("validation", crate::validate::block),
    ("presets", presets),
    ("sample-report", |_| sample_report()),
    ("sample-check", |_| sample_check()),
    ("sample-sim", |_| printed(&["sim"], 0)),
];

/// Words of the sources' titles that the Chinese pages say in Chinese.
const WORKS: &[(&str, &str)] =
    &[("metric dictionary", "服务指标"), ("formula walkthrough", "Serving 公式到源码对照")];

/// A Markdown table: its head, and rows of cells.
struct Table {
    language: Language,
    text: String,
}

impl Table {
    fn new(language: Language, head: &[Text]) -> Self {
        Self::headed(language, head.iter().map(|cell| cell.in_language(language).to_owned()))
    }

    fn headed(language: Language, head: impl IntoIterator<Item = String>) -> Self {
        let mut table = Self { language, text: String::new() };
        let head: Vec<String> = head.into_iter().collect();
        let columns = head.len();
        table.row(head);
        table.text.push_str(&"|---".repeat(columns));
        table.text.push_str("|\n");
        table
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        for cell in cells {
            // A bar would end the cell, and a line break the row.
            let cell = cell.replace('|', r"\|").replace('\n', " ");
            let space = if cell.is_empty() { "" } else { " " };
            let _ = write!(self.text, "|{space}{cell} ");
        }
        self.text.push_str("|\n");
    }

    /// A metric as a row's first cell: name with id.
    fn named(&self, m: &Metric) -> String {
        format!("{} (`{}`)", m.name.in_language(self.language), m.id)
    }

    fn done(self) -> String {
        self.text.trim_end().to_owned()
    }
}

/// The built-in step times, with the errors of their fits.
fn presets(language: Language) -> Result<String> {
    let mut table = Table::new(
        language,
        &[
            text("Preset", "预设"),
            text("Model", "模型"),
            text("GPU", "GPU"),
            text("Tensor parallel", "张量并行"),
            text("Mean error (decode; prefill)", "平均误差（decode；prefill）"),
            text("Largest error", "最大误差"),
        ],
    );
    for name in serving_io::preset::names() {
        let p = serving_io::preset::named(name)?;
        let mean: Vec<String> = p.regimes.iter().map(|r| percent(r.mean_absolute)).collect();
        let largest = p.regimes.iter().filter_map(|r| r.max_absolute.or(r.worst.map(f64::abs)));
        table.row([
            format!("`{name}`"),
            p.model.split('/').next_back().unwrap_or_default().to_owned(),
            p.gpu.clone(),
            p.tensor_parallel.to_string(),
            mean.join("; "),
            percent(largest.fold(0.0, f64::max)),
        ]);
    }
    Ok(table.done())
}

/// The metrics of one layer, in catalog order.
fn metrics(language: Language, layer: Layer) -> String {
    let mut table = Table::new(
        language,
        &[
            text("Metric", "指标"),
            text("Formula", "公式"),
            text("Unit", "单位"),
            text("Note", "注意"),
            text("Source", "出处"),
        ],
    );
    for m in docs::catalog().into_iter().filter(|m| m.layer == layer) {
        table.row([
            table.named(m),
            format!("${}$", m.latex()),
            m.unit.to_string(),
            m.note.in_language(language).to_owned(),
            source(m.source, language),
        ]);
    }
    table.done()
}

/// Every policy with its rule, and the scenarios that run it.
fn policies(language: Language) -> Result<String> {
    let root = repo::root();
    let mut scenarios = Vec::new();
    for file in repo::walk(&root, "scenarios")? {
        let scenario = Scenario::parse(&file, &repo::read(&root, &file)?)?;
        scenarios.push((format!("`{file}`"), scenario));
    }
    let mut table = Table::new(
        language,
        &[
            text("Policy", "策略"),
            text("Rule in one sentence", "一句话说明规则"),
            text("Favours", "有利于"),
            text("Can starve", "可能饿死"),
            text("Options of its own", "自有选项"),
            text("Source", "出处"),
            text("Scenario", "场景"),
        ],
    );
    for rule in RULES {
        let runs = |s: &Scenario| s.variants.iter().any(|v| v.policy == rule.name);
        let named = scenarios.iter().filter(|(_, s)| runs(s)).map(|(file, _)| file.as_str());
        let named: Vec<&str> = named.collect();
        let comma = text(", ", "、").in_language(language);
        let texts = [rule.rule, rule.favours, rule.can_starve, rule.source];
        let [does, favours, can_starve, source] = texts.map(|t| t.in_language(language).to_owned());
        let name = format!("`{}`", rule.name);
        let chunk = rule.chunk.map(|of| format!("`chunk` ({})", of.in_language(language)));
        let tokens = rule.takes_batched_tokens.then(|| "`max_num_batched_tokens`".to_owned());
        let swap = rule.may_swap.then(|| "`preemption`".to_owned());
        let cache = rule.caches_prefixes.then(|| "`enable_prefix_caching`".to_owned());
        let engine = (rule.name == VLLM_V1).then(|| "`engine`".to_owned());
        let own: Vec<String> = [chunk, tokens, swap, cache, engine].into_iter().flatten().collect();
        let (own, named) = (own.join(comma), named.join(comma));
        table.row([name, does, favours, can_starve, own, source, named]);
    }
    Ok(table.done())
}

/// Every finding of the validity verdict, in the order of the ids.
fn findings(language: Language) -> String {
    let mut table = Table::new(
        language,
        &[
            text("Finding", "发现"),
            text("Rule", "规则"),
            text("Level", "级别"),
            text("Affects", "影响"),
            text("Why", "原因"),
            text("Do", "处理"),
            text("Seen in", "见于"),
            text("Raised by", "由谁给出"),
        ],
    );
    let joint = if language == Language::En { ", " } else { "、" };
    for c in CHECKS {
        let affects: Vec<&str> = c.affects.iter().map(|s| s.text().in_language(language)).collect();
        let seen = match c.source.section {
            "" => c.source.work.to_owned(),
            section => format!("{} ({section})", c.source.work),
        };
        table.row([
            format!("{} {} (`{}`)", c.id, c.title.in_language(language), c.name),
            c.rule.in_language(language).to_owned(),
            c.level_names(language),
            affects.join(joint),
            c.why.in_language(language).to_owned(),
            c.advice.in_language(language).to_owned(),
            seen,
            c.command_names(language),
        ]);
    }
    table.done()
}

/// Work and section; several of each are paired one to one.
fn source(source: Source, language: Language) -> String {
    let works: Vec<&str> = source.work.split("; ").collect();
    let sections: Vec<&str> = source.section.split("; ").collect();
    let paired = works.len() == sections.len();
    let mut parts: Vec<String> = Vec::new();
    for (i, work) in works.iter().enumerate() {
        let known = WORKS.iter().find(|(en, _)| en == work).filter(|_| language == Language::Zh);
        let (work, joint) = known.map_or((*work, ", "), |(_, zh)| (*zh, " "));
        match sections.get(i) {
            Some(section) if paired && !section.is_empty() => {
                parts.push(format!("{work}{joint}{section}"));
            }
            _ => parts.push(work.to_owned()),
        }
    }
    if !paired && !source.section.is_empty() {
        parts.push(source.section.to_owned());
    }
    parts.join(if language == Language::Zh { "；" } else { "; " })
}

/// The rows of the diagnosis tree, in the order in which they are read when several fire, with
/// the default numbers in their conditions.
fn diagnosis(language: Language) -> String {
    let mut table = Table::new(
        language,
        &[
            text("Order", "次序"),
            text("Symptom", "症状"),
            text("When", "判定条件"),
            text("Look first at", "先看"),
            text("Likely cause", "可能原因"),
            text("Do", "处理"),
            text("Batch", "batch"),
            text("Source", "出处"),
        ],
    );
    let mut rows = ROWS.to_vec();
    rows.sort_by_key(|row| row.precedence);
    for row in rows {
        table.row([
            row.precedence.to_string(),
            format!("{} (`{}`)", row.symptom.in_language(language), row.id),
            row.in_language(Tolerance::default(), language).to_string(),
            row.look_first.in_language(language).to_owned(),
            row.cause.in_language(language).to_owned(),
            row.action.in_language(language).to_owned(),
            row.batch.text().in_language(language).to_owned(),
            source(row.source, language),
        ]);
    }
    table.done()
}

/// From which value on to warn, and from which on it is critical.
fn thresholds(language: Language) -> String {
    let mut table = Table::new(
        language,
        &[
            text("Figure", "指标"),
            text("Warn", "预警"),
            text("Critical", "紧急"),
            text("What it announces", "含义"),
            text("Do", "处理"),
            text("Source", "出处"),
        ],
    );
    for t in THRESHOLDS {
        table.row([
            format!("{} (`{}`)", t.name.in_language(language), t.metric),
            t.warn_text(language),
            t.critical_text(language),
            t.meaning.in_language(language).to_owned(),
            t.action.in_language(language).to_owned(),
            source(t.source, language),
        ]);
    }
    table.done()
}

/// What each queueing model gives, from what it does give.
fn queue_models(language: Language) -> Result<String> {
    use queueing::profile::Quantity as Q;
    let groups: &[(Text, &[Q])] = &[
        (text("ρ", "ρ"), &[Q::Utilization]),
        (text("L, W, Wq", "L、W、Wq"), &[Q::L, Q::W, Q::Wq]),
        (text("Lq", "Lq"), &[Q::Lq]),
        (text("P(wait)", "等待概率"), &[Q::PWait]),
        (text("p0", "p0"), &[Q::P0]),
        (text("wait > 0", "大于 0 的等待"), &[Q::WqGivenWait]),
        (text("lost", "丢失"), &[Q::PBlock]),
        (text("Var N", "N 的方差"), &[Q::VarN]),
        (text("Var W, Wq", "W、Wq 的方差"), &[Q::VarW, Q::VarWq]),
    ];
    let mut head = vec![text("Model", "模型"), text("Command", "命令")];
    head.extend(groups.iter().map(|(name, _)| *name));
    head.extend([text("pₙ", "pₙ"), text("wait law", "等待分布"), text("response law", "响应分布")]);
    let mut table = Table::new(language, &head);
    // Cells without a figure, by their place after the command: what no formula is known for, or
    // moments do not settle, and what has no meaning where nobody waits, or nobody is lost.
    let unknown: &[(&str, &[usize])] = &[
        ("mg1", &[9, 10, 11]),
        ("ps", &[8, 11]),
        ("batch", &[10, 11]),
        ("batch --cap", &[10, 11]),
    ];
    let idle: &[(&str, &[usize])] = &[("mminf", &[0, 5]), ("ps", &[5, 10])];
    let listed = |list: &[(&str, &[usize])], command: &str, column: usize| {
        list.iter().any(|(name, columns)| *name == command && columns.contains(&column))
    };
    for sample in queueing::profile::SAMPLES {
        let profile = (sample.make)()?;
        // Where nobody waits the wait has no variance.
        let given = |q: Q| match q {
            Q::PBlock => profile.get(q).or_else(|| profile.get(Q::PAbandon)).is_some(),
            Q::VarWq => profile.get(q).is_some() || sample.command == "mminf",
            _ => profile.get(q).is_some(),
        };
        let mut has: Vec<bool> =
            groups.iter().map(|(_, all)| all.iter().all(|&q| given(q))).collect();
        has.extend([
            profile.pn(1).is_some(),
            profile.wait().is_some(),
            profile.response().is_some(),
        ]);
        let mut cells = vec![sample.name.to_owned(), format!("`goodput queue {}`", sample.command)];
        for (column, has) in has.into_iter().enumerate() {
            let nobody_lost = groups.get(column).is_some_and(|(_, all)| *all == [Q::PBlock]);
            let mark = if has {
                "•"
            } else if nobody_lost || listed(idle, sample.command, column) {
                ""
            } else if listed(unknown, sample.command, column) {
                "?"
            } else {
                "–"
            };
            cells.push(mark.to_owned());
        }
        table.row(cells);
    }
    Ok(table.done())
}

/// How far the approximations are off against exact models.
fn approximation_errors(language: Language) -> Result<String> {
    use queueing::approx::{allen_cunneen, kingman_vut, klb_qna, sakasegawa, whitt_gim};
    use queueing::gim1::Gaps;
    let mut table = Table::new(
        language,
        &[
            text("Exact model", "精确模型"),
            text("ρ", "ρ"),
            text("Allen-Cunneen", "Allen-Cunneen"),
            text("Sakasegawa", "Sakasegawa"),
            text("Whitt", "Whitt"),
            text("Kingman VUT", "Kingman VUT"),
            text("KLB", "KLB"),
        ],
    );
    let off = |value: f64, exact: f64| {
        let percent = (value / exact - 1.0) * 100.0;
        let sign = if 0.0 <= percent { "+" } else { "" };
        format!("{sign}{} %", fixed(percent, 1))
    };
    for c in [1_u64, 10, 100] {
        for rho in [0.7, 0.9, 0.99] {
            let a = rho * c as f64;
            let exact = queueing::Mdc::new(a, 1.0, c)?.wq();
            let mut cells = vec![format!("M/D/{c}"), rho.to_string()];
            for formula in [allen_cunneen, sakasegawa, whitt_gim] {
                cells.push(off(formula(c, a, 1.0, 0.0, 1.0)?, exact));
            }
            cells.extend([String::new(), String::new()]);
            table.row(cells);
        }
    }
    for (name, gaps) in [("D/M/1", Gaps::Det), ("H₂/M/1, cₐ² = 4", Gaps::Hyperexp { scv: 4.0 })]
    {
        for rho in [0.5, 0.8, 0.95] {
            let exact = queueing::GiM1::new(rho, gaps, 1.0)?.wq();
            let scv = gaps.scv();
            let mut cells = vec![name.to_owned(), rho.to_string()];
            for formula in [allen_cunneen, sakasegawa, whitt_gim] {
                cells.push(off(formula(1, rho, scv, 1.0, 1.0)?, exact));
            }
            for formula in [kingman_vut, klb_qna] {
                cells.push(off(formula(rho, scv, 1.0, 1.0)?, exact));
            }
            table.row(cells);
        }
    }
    Ok(table.done())
}

/// Utilizations of the queueing tables.
const RHO: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

/// What M/M/1 makes of a utilization: response and wait, mean and percentiles, in mean services.
fn rho_w(language: Language) -> Result<String> {
    let mut table = Table::new(
        language,
        &[
            text("ρ", "ρ"),
            text("W·μ", "W·μ"),
            text("response P50·μ", "响应 P50·μ"),
            text("response P90·μ", "响应 P90·μ"),
            text("response P99·μ", "响应 P99·μ"),
            text("Wq·μ", "Wq·μ"),
            text("wait P50·μ", "等待 P50·μ"),
            text("wait P90·μ", "等待 P90·μ"),
            text("wait P99·μ", "等待 P99·μ"),
        ],
    );
    for &rho in RHO {
        // With μ = 1 every time is in mean service times.
        let queue = Mm1::new(rho, 1.0)?;
        let mut figures = vec![queue.w()];
        for p in [0.5, 0.9, 0.99] {
            figures.push(queue.w_quantile(p)?);
        }
        figures.push(queue.wq());
        for p in [0.5, 0.9, 0.99] {
            figures.push(queue.wq_quantile(p)?);
        }
        let shown = figures.into_iter().map(|x| fixed(x, 2));
        table.row(std::iter::once(rho.to_string()).chain(shown));
    }
    Ok(table.done())
}

/// How likely an arrival has to wait in M/M/c, for each number of servers and utilization.
fn erlang_c(language: Language) -> Result<String> {
    /// Servers, doubling: what pooling does shows from row to row.
    const SERVERS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
    const LOADS: &[f64] = &[0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
    let heads: Vec<String> = LOADS.iter().map(|rho| format!("ρ = {rho}")).collect();
    let mut table = Table::headed(
        language,
        std::iter::once(text("c", "c").in_language(language).to_owned()).chain(heads),
    );
    for &c in SERVERS {
        let mut cells = vec![c.to_string()];
        for &rho in LOADS {
            let waits = Mmc::new(rho * c as f64, 1.0, c)?.p_wait();
            // Below a thousandth the exponent says more than zeros do.
            let small = waits < 1e-3;
            cells.push(if small { format!("{waits:.1e}") } else { fixed(waits, 4) });
        }
        table.row(cells);
    }
    Ok(table.done())
}

/// Which engine exports which metric under which name, engine by engine.
fn exported(language: Language) -> String {
    let mut table = Table::new(
        language,
        &[
            text("Engine", "引擎"),
            text("Exported name", "导出名"),
            text("Metric", "指标"),
            text("What differs", "差异"),
        ],
    );
    let catalog = docs::catalog();
    let mut engines: Vec<&str> = Vec::new();
    for export in catalog.iter().flat_map(|m| m.exported) {
        if !engines.contains(&export.engine) {
            engines.push(export.engine);
        }
    }
    for engine in engines {
        for m in &catalog {
            for export in m.exported.iter().filter(|e| e.engine == engine) {
                table.row([
                    engine.to_owned(),
                    format!("`{}`", export.name),
                    table.named(m),
                    export.differs.in_language(language).to_owned(),
                ]);
            }
        }
    }
    table.done()
}

/// How each tool defines its figures, by topic, so that neighbours can be compared.
fn tool_rules(language: Language) -> String {
    let head =
        [text("Of", "关于"), text("Tool", "工具"), text("Rule", "规则"), text("Source", "出处")];
    let mut table = Table::new(language, &head);
    for topic in Topic::ALL {
        for tool in Tool::ALL {
            let Some(rule) = rule(tool, topic) else { continue };
            let says = rule.says.in_language(language);
            table.row([
                topic.title().in_language(language).to_owned(),
                format!("{} {}", tool.title(), tool.version()),
                if rule.differs { format!("**{says}**") } else { says.to_owned() },
                format!("`{}`", rule.source),
            ]);
        }
    }
    table.done()
}

/// What is publicly known to be wrong with a tool's own figure.
fn tool_faults(language: Language) -> String {
    let head =
        [text("Tool", "工具"), text("Fault", "缺陷"), text("Name", "名称"), text("Source", "出处")];
    let mut table = Table::new(language, &head);
    for fault in FAULTS {
        table.row([
            fault.tool.title().to_owned(),
            fault.says.in_language(language).to_owned(),
            format!("`{}`", fault.id),
            fault.source.to_owned(),
        ]);
    }
    table.done()
}

/// The worked example of every metric; the tests run each.
fn worked_examples(language: Language) -> String {
    let mut table = Table::new(
        language,
        &[text("Metric", "指标"), text("Example", "算例"), text("Value", "结果")],
    );
    for m in docs::catalog() {
        let (inputs, value) = match &m.formula {
            Formula::Scalar { example: (inputs, value), .. } => {
                let shown: Vec<String> = m
                    .inputs
                    .iter()
                    .zip(*inputs)
                    .map(|(input, x)| format!("`{}` = {}", input.id, with_unit(*x, input.unit)))
                    .collect();
                let comma = if language == Language::Zh { "，" } else { ", " };
                (shown.join(comma), *value)
            }
            Formula::Law { example, value, .. } => {
                (example.in_language(language).to_owned(), *value)
            }
        };
        table.row([table.named(m), inputs, with_unit(value, m.unit)]);
    }
    table.done()
}

/// A number with its unit, as people write it: no unit for a pure number.
fn with_unit(x: f64, unit: metrics_core::Unit) -> String {
    // Plain digits up to a dozen places; beyond, the exponent is what a reader wants.
    let size = x.abs();
    let plain = size < f64::EPSILON || (1e-6 <= size && size < 1e9);
    let number = if plain { x.to_string() } else { format!("{x:e}") };
    if unit.is_one() { number } else { format!("{number} {unit}") }
}

/// The file of the README's report.
const SAMPLE: &str = "crates/serving-io/tests/data/vllm-0.33.0/rate20-fail.json";

/// What the README's report prints; the same in both languages, as the tool speaks English.
fn sample_report() -> Result<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let file = format!("{root}{SAMPLE}");
    let text = printed(&["report", &file, "--goodput", "ttft:150", "tpot:15"], 0)?;
    Ok(text.replace(root, ""))
}

/// What the README's check prints: a target that is missed.
fn sample_check() -> Result<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let directory = format!("{root}crates/serving-io/tests/data/aiperf-0.13.0/rate15-fail");
    let text = printed(&["check", &directory, "--slo", "ttft<150ms @ 95%"], 1)?;
    Ok(text.replace(root, ""))
}

/// What a command of the tool prints, as a block of a page.
fn printed(arguments: &[&str], code: u8) -> Result<String> {
    let answer = goodput::run(["goodput"].iter().chain(arguments));
    if answer.code != code {
        bail!("`goodput {}` failed: {}", arguments.join(" "), answer.err.trim());
    }
    Ok(format!("```text\n{}\n```", answer.out.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_stands_in_one_metrics_block() {
        let all: String = BLOCKS
            .iter()
            .filter(|(name, _)| name.starts_with("metrics-") || *name == "queueing")
            .map(|(_, write)| write(Language::En).unwrap())
            .collect();
        for m in docs::catalog() {
            assert_eq!(all.matches(&format!("(`{}`) |", m.id)).count(), 1, "{}", m.id);
        }
    }

    #[test]
    fn both_languages_have_the_same_rows() {
        for (name, write) in BLOCKS {
            let (en, zh) = (write(Language::En).unwrap(), write(Language::Zh).unwrap());
            assert_eq!(en.lines().count(), zh.lines().count(), "{name}");
            let bars = |t: &str| t.lines().map(|l| l.matches('|').count()).collect::<Vec<_>>();
            assert_eq!(bars(&en), bars(&zh), "{name}");
        }
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it() {
        let mut table = Table::new(Language::En, &[text("a", "b"), text("c", "d")]);
        table.row(["x | y".to_owned(), String::new()]);
        assert_eq!(table.done(), "| a | c |\n|---|---|\n| x \\| y | |");
    }

    #[test]
    fn sources_pair_work_with_section() {
        let s = metrics_core::latency::TTFT.source;
        assert_eq!(
            source(s, Language::En),
            "metric dictionary, 1.1; vLLM 0.33.0 `vllm/benchmarks/serve.py`, `calculate_metrics`"
        );
        assert!(source(s, Language::Zh).starts_with("服务指标 1.1；vLLM"));
    }

    #[test]
    fn the_rho_table_has_the_values_of_the_textbook() {
        // ρ = 0.9: W·μ = 1 / (1 - 0.9) = 10, its P99 is ln(100) times that, 46.05, and the wait's
        // P99 is ln(0.9 / 0.01) times that, 45.00.
        let table = rho_w(Language::En).unwrap();
        let row = table.lines().find(|l| l.starts_with("| 0.9 |")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!((cells[2], cells[5], cells[9]), ("10.00", "46.05", "45.00"), "{row}");
        // One server waits with probability ρ.
        let table = erlang_c(Language::En).unwrap();
        assert!(table.contains("| 1 | 0.5000 | 0.6000 |"), "{table}");
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        use metrics_core::Unit;
        assert_eq!(with_unit(0.25, Unit::SECOND), "0.25 s");
        assert_eq!(with_unit(6.0, Unit::ONE), "6");
        assert_eq!(with_unit(0.0, Unit::TOKEN), "0 token");
        assert_eq!(with_unit(3.35e12, Unit::BYTE.per(Unit::SECOND)), "3.35e12 byte/s");
    }
}
