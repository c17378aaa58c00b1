//! Tables of Erlang's formulas, M/M/c and its relatives, and inverse problems.

use anyhow::{Result, bail};
use queueing::finite_source::{
    engset_call_congestion, engset_carried_load, engset_time_congestion,
};
use queueing::plan::{Target, halfin_whitt, halfin_whitt_beta, min_servers, square_root_staffing};
use queueing::stability::{kv_memory_limit, memory_iterations, token_budget_limit};
use queueing::{
    ErlangA, Mm1, MmInf, Mmc, MmcK, MmcN, Queue, QueueError, WaitDistribution, erlang_b,
    erlang_b_real, erlang_c, ln_erlang_b, ln_erlang_b_real, ln_erlang_c,
};

use super::{Family, Row, Table, Worst};

/// The tables that this module compares.
pub const TABLES: &[Family] = &[
    Family { table: "erlang", check: erlang },
    Family { table: "erlang_huge", check: erlang },
    Family { table: "erlang_continuous", check: erlang_continuous },
    Family { table: "mm1", check: mm1 },
    Family { table: "mmc_wait_quantiles", check: mmc_wait_quantiles },
    Family { table: "mmc_wait_tails", check: mmc_wait_tails },
    Family { table: "mmck", check: mmck },
    Family { table: "mmck_wait_quantiles", check: mmck_wait_quantiles },
    Family { table: "mminf", check: mminf },
    Family { table: "engset", check: engset },
    Family { table: "finite_source_mmcn", check: finite_source_mmcn },
    Family { table: "erlang_a", check: erlang_a },
    Family { table: "llm_stability", check: llm_stability },
    Family { table: "servers_for_slo", check: servers_for_slo },
    Family { table: "halfin_whitt", check: halfin_whitt_table },
    Family { table: "staffing_sqrt", check: staffing_sqrt },
];

/// Erlang B and C, and the means of M/M/c that follow from C.
///
/// The table has ln P0; its exponential is good to |ln P0| units in the last place.
fn erlang(table: &Table) -> Result<Vec<Worst>> {
    let mut b = Worst::new("erlang_b", 2e-13);
    let mut likely_b = Worst::new("erlang_b > 1e-12", 1e-14);
    let mut c_all = Worst::new("erlang_c", 2e-13);
    let mut likely_c = Worst::new("erlang_c, B > 1e-12", 1e-14);
    let mut logs = ["ln_erlang_b", "ln_erlang_c"].map(|what| Worst::new(what, 1e-14));
    let mut means = ["lq", "wq_mu1", "l", "w_mu1"].map(|what| Worst::new(what, 2e-13));
    let mut p0 = Worst::new("p0", 2e-13);
    for row in &table.rows {
        let (c, a) = (row.count("c")?, row.number("a")?);
        let want = row.number("erlang_b")?;
        let likely = 1e-12 < want;
        if f64::MIN_POSITIVE <= want {
            b.see(row, erlang_b(c, a), want);
        }
        if likely {
            likely_b.see(row, erlang_b(c, a), want);
        }
        logs[0].see(row, ln_erlang_b(c, a), row.number("ln_erlang_b")?);
        let Some(want) = row.get("erlang_c")? else {
            let refused = matches!(erlang_c(c, a), Err(QueueError::Unstable { .. }));
            c_all.see_exact(row, &refused, &(c as f64 <= a));
            continue;
        };
        if f64::MIN_POSITIVE <= want {
            c_all.see(row, erlang_c(c, a), want);
        }
        if likely {
            likely_c.see(row, erlang_c(c, a), want);
        }
        logs[1].see(row, ln_erlang_c(c, a), row.number("ln_erlang_c")?);
        if row.text("lq").unwrap_or_default().is_empty() {
            continue;
        }
        let queue = Mmc::new(a, 1.0, c)?;
        let values = [queue.lq(), queue.wq(), queue.l(), queue.w()];
        for ((worst, got), column) in
            means.iter_mut().zip(values).zip(["lq", "wq_mu1", "l", "w_mu1"])
        {
            worst.see(row, got, row.number(column)?);
        }
        let ln_p0 = row.number("ln_p0")?;
        let allowed = ln_p0.exp() * ln_p0.abs() * f64::EPSILON;
        p0.see_within(row, queue.p0(), ln_p0.exp(), allowed);
    }
    let mut all = vec![b, likely_b, c_all, likely_c];
    all.extend(logs);
    all.extend(means);
    all.push(p0);
    Ok(all)
}

/// Erlang B for a real number of servers.
fn erlang_continuous(table: &Table) -> Result<Vec<Worst>> {
    let mut b = Worst::new("erlang_b", 2e-13);
    let mut likely = Worst::new("erlang_b > 1e-12", 1e-14);
    let mut ln = Worst::new("ln_erlang_b", 1e-14);
    for row in &table.rows {
        let (x, a) = (row.number("x")?, row.number("a")?);
        let want = row.number("erlang_b")?;
        if f64::MIN_POSITIVE <= want {
            b.see(row, erlang_b_real(x, a), want);
        }
        if 1e-12 < want {
            likely.see(row, erlang_b_real(x, a), want);
        }
        // As B may be off by 1e-14, so may ln B near B = 1.
        let slack = 1e-14;
        ln.see_within(row, ln_erlang_b_real(x, a), row.number("ln_erlang_b")?, slack);
    }
    Ok(vec![b, likely, ln])
}

/// Means, variances, percentiles and probabilities of M/M/1.
fn mm1(table: &Table) -> Result<Vec<Worst>> {
    let columns = [
        "rho", "p0", "l", "lq", "w", "wq", "var_n", "var_nq", "var_w", "var_wq", "p1", "p2", "p5",
        "p10",
    ];
    let mut all = columns.map(|what| Worst::new(what, BOUND));
    let mut quantiles = ["w_p", "wq_p"].map(|what| Worst::new(what, 1e-12));
    for row in &table.rows {
        let (lambda, mu) = (row.number("lambda")?, row.number("mu")?);
        let queue = Mm1::new(lambda, mu)?;
        let values = [
            queue.utilization(),
            queue.p0(),
            queue.l(),
            queue.lq(),
            queue.w(),
            queue.wq(),
            queue.var_n(),
            queue.var_nq(),
            queue.var_w(),
            queue.var_wq(),
            queue.pn(1)?,
            queue.pn(2)?,
            queue.pn(5)?,
            queue.pn(10)?,
        ];
        for ((worst, got), column) in all.iter_mut().zip(values).zip(columns) {
            worst.see(row, got, row.number(column)?);
        }
        for p in ["0.5", "0.9", "0.95", "0.99", "0.999", "0.9999"] {
            let share: f64 = p.parse()?;
            quantiles[0].see(row, queue.w_quantile(share), row.number(&format!("w_p{p}"))?);
            let want = row.number(&format!("wq_p{p}"))?;
            let zero = quantile_slack(want, mu - lambda);
            quantiles[1].see_within(row, queue.wq_quantile(share), want, zero);
        }
    }
    Ok(all.into_iter().chain(quantiles).collect())
}

/// The absolute error allowed where a wait's percentile is 0 to rounding: 1e-14 / (c μ − λ).
fn quantile_slack(want: f64, spare: f64) -> f64 {
    if want < 1e-12 / spare { 1e-14 / spare } else { 0.0 }
}

/// Percentiles of wait and response in M/M/c.
fn mmc_wait_quantiles(table: &Table) -> Result<Vec<Worst>> {
    let mut c_wait = Worst::new("erlang_c", 2e-13);
    let mut wait = Worst::new("wq_quantile_mu1", 1e-12);
    let mut given = Worst::new("wq_cond_quantile_mu1", 1e-12);
    let mut response = Worst::new("w_quantile_mu1", 1e-12);
    for row in &table.rows {
        let (c, a, p) = (row.count("c")?, row.number("a")?, row.number("p")?);
        let queue = Mmc::new(a, 1.0, c)?;
        c_wait.see(row, queue.p_wait(), row.number("erlang_c")?);
        let want = row.number("wq_quantile_mu1")?;
        let zero = quantile_slack(want, c as f64 - a);
        wait.see_within(row, queue.wq_quantile(p), want, zero);
        let conditional = -(-p).ln_1p() * queue.wq_given_wait();
        given.see(row, conditional, row.number("wq_cond_quantile_mu1")?);
        response.see(row, queue.w_quantile(p), row.number("w_quantile_mu1")?);
    }
    Ok(vec![c_wait, wait, given, response])
}

/// Survival functions of wait and response in M/M/c.
fn mmc_wait_tails(table: &Table) -> Result<Vec<Worst>> {
    let mut wait = Worst::new("p_wq_gt_t", 1e-12);
    let mut response = Worst::new("p_w_gt_t", 1e-12);
    for row in &table.rows {
        let t = row.number("t_mu1")?;
        let queue = Mmc::new(row.number("a")?, 1.0, row.count("c")?)?;
        wait.see(row, queue.wq_sf(t), row.number("p_wq_gt_t")?);
        response.see(row, queue.w_sf(t), row.number("p_w_gt_t")?);
    }
    Ok(vec![wait, response])
}

/// The bound of every table that has none of its own.
const BOUND: f64 = 1e-11;

/// Compares one value per column with the row.
fn see_all(all: &mut [Worst], row: &Row, columns: &[&str], values: &[f64]) -> Result<()> {
    for ((worst, &got), column) in all.iter_mut().zip(values).zip(columns) {
        worst.see(row, got, row.number(column)?);
    }
    Ok(())
}

/// Means and probabilities of M/M/c/K; wait and response are those of the jobs let in.
fn mmck(table: &Table) -> Result<Vec<Worst>> {
    let columns = ["p0", "p_block", "l", "lq", "w", "wq", "lambda_eff", "util", "p_wait_accepted"];
    let mut all = columns.map(|what| Worst::new(what, BOUND));
    for row in &table.rows {
        let (c, k) = (row.count("c")?, row.count("k")?);
        let q = MmcK::new(row.number("lambda")?, row.number("mu")?, c, k)?;
        let values = [
            q.p0(),
            q.p_block(),
            q.l(),
            q.lq(),
            q.w(),
            q.wq(),
            q.throughput(),
            q.utilization(),
            q.p_wait(),
        ];
        see_all(&mut all, row, &columns, &values)?;
    }
    Ok(all.into())
}

/// Percentiles of the wait of those let in to M/M/c/K.
fn mmck_wait_quantiles(table: &Table) -> Result<Vec<Worst>> {
    let mut wait = Worst::new("wq_quantile_accepted", BOUND);
    for row in &table.rows {
        let (c, k) = (row.count("c")?, row.count("k")?);
        let q = MmcK::new(row.number("lambda")?, row.number("mu")?, c, k)?;
        let want = row.number("wq_quantile_accepted")?;
        let zero = quantile_slack(want, q.mu() * c as f64);
        wait.see_within(row, q.wq_quantile(row.number("p")?), want, zero);
    }
    Ok(vec![wait])
}

/// States of M/M/∞ and the percentiles of their number.
fn mminf(table: &Table) -> Result<Vec<Worst>> {
    let columns = ["l", "p0", "p1", "p10", "p_floor_a"];
    let mut all = columns.map(|what| Worst::new(what, BOUND));
    let mut quantiles = Worst::new("n_q", 0.0);
    for row in &table.rows {
        let a = row.number("a")?;
        let q = MmInf::new(a, 1.0)?;
        let floor: u64 = a.floor().to_string().parse()?;
        let values = [q.l(), q.p0(), q.pn(1)?, q.pn(10)?, q.pn(floor)?];
        see_all(&mut all, row, &columns, &values)?;
        for (p, column) in [(0.5, "n_q50"), (0.99, "n_q99"), (0.999, "n_q999")] {
            quantiles.see_exact(row, &q.n_quantile(p)?, &row.count(column)?);
        }
    }
    Ok(all.into_iter().chain([quantiles]).collect())
}

/// Engset: time and call congestion, and the carried load.
fn engset(table: &Table) -> Result<Vec<Worst>> {
    let mut all =
        ["time_congestion", "call_congestion", "carried_load"].map(|what| Worst::new(what, BOUND));
    for row in &table.rows {
        let (n, c, alpha) = (row.count("n_sources")?, row.count("c")?, row.number("alpha")?);
        let values = [
            engset_time_congestion(n, c, alpha)?,
            engset_call_congestion(n, c, alpha)?,
            engset_carried_load(n, c, alpha)?,
        ];
        let columns = ["time_congestion", "call_congestion", "carried_load"];
        see_all(&mut all, row, &columns, &values)?;
    }
    Ok(all.into())
}

/// Means of M/M/c//N.
fn finite_source_mmcn(table: &Table) -> Result<Vec<Worst>> {
    let columns = ["p0", "l", "lq", "throughput_mu1", "w_mu1", "wq_mu1"];
    let mut all = columns.map(|what| Worst::new(what, BOUND));
    for row in &table.rows {
        let (n, c, alpha) = (row.count("n_sources")?, row.count("c")?, row.number("alpha")?);
        let q = MmcN::new(alpha, 1.0, c, n)?;
        let values = [q.p0(), q.l(), q.lq(), q.throughput(), q.w(), q.wq()];
        see_all(&mut all, row, &columns, &values)?;
    }
    Ok(all.into())
}

/// Means and probabilities of M/M/c+M, with μ = 1.
fn erlang_a(table: &Table) -> Result<Vec<Worst>> {
    let columns = ["p_wait", "p_abandon", "lq", "e_wait", "util", "p_n_eq_c"];
    let mut all = columns.map(|what| Worst::new(what, BOUND));
    for row in &table.rows {
        let c = row.count("c")?;
        let q = ErlangA::new(row.number("lambda")?, 1.0, c, row.number("theta")?)?;
        let values = [q.p_wait(), q.p_abandon(), q.lq(), q.wq(), q.utilization(), q.pn(c)?];
        see_all(&mut all, row, &columns, &values)?;
    }
    Ok(all.into())
}

/// Limits of continuous batching.
///
/// The table does not name the chunks in which a prompt enters: its value must be that of the whole
/// prompt at once or of chunks of some power of two.
fn llm_stability(table: &Table) -> Result<Vec<Worst>> {
    let mut limit = Worst::new("lambda_max_per_s", BOUND);
    for row in &table.rows {
        let (size, t) = (row.count("budget_or_mem_tokens")?, row.number("iter_time_s")?);
        let (prompt, output) = (row.count("prompt_tokens")?, row.count("output_tokens")?);
        let want = row.number("lambda_max_per_s")?;
        if row.text("kind")? == "token_budget" {
            limit.see(row, token_budget_limit(size, t, prompt, output), want);
            continue;
        }
        let chunks = (4..14).map(|bits| 1 << bits).chain([prompt]);
        let mut nearest = f64::INFINITY;
        for chunk in chunks {
            let got = kv_memory_limit(size, t, memory_iterations(prompt, output, chunk)?)?;
            if (got - want).abs() < (nearest - want).abs() {
                nearest = got;
            }
        }
        limit.see(row, nearest, want);
    }
    Ok(vec![limit])
}

/// Least numbers of servers, exactly, and the value at that number and at one less.
fn servers_for_slo(table: &Table) -> Result<Vec<Worst>> {
    let mut servers = Worst::new("c_min", 0.0);
    let mut values = Worst::new("value", 2e-13);
    for row in &table.rows {
        let (a, x) = (row.number("a")?, row.number("x")?);
        let t: f64 = row.get("t_mu1")?.unwrap_or(0.0);
        let kind = row.text("target")?;
        let target = match kind {
            "p_wait_le" => Target::PWait(x),
            "mean_wq_le" => Target::MeanWait(x),
            "p_wq_le_t_ge" => Target::WaitQuantile { p: x, t },
            "blocking_le" => Target::Blocking(x),
            other => bail!("unknown target {other}"),
        };
        let want = row.count("c_min")?;
        servers.see_exact(row, &min_servers(a, 1.0, &target)?, &want);
        let value = |c: u64| match kind {
            "blocking_le" => erlang_b(c, a),
            "p_wait_le" => erlang_c(c, a),
            "mean_wq_le" => Mmc::new(a, 1.0, c).map(|q| q.wq()),
            _ => Mmc::new(a, 1.0, c).and_then(|q| q.wq_cdf(t)),
        };
        values.see(row, value(want), row.number("value_at_c_min")?);
        if let Some(before) = row.get("value_at_c_min_minus_1")? {
            values.see(row, value(want - 1), before);
        }
    }
    Ok(vec![servers, values])
}

/// Halfin and Whitt's function.
fn halfin_whitt_table(table: &Table) -> Result<Vec<Worst>> {
    let mut p = Worst::new("alpha_p_wait", BOUND);
    let mut beta = Worst::new("beta, inverted", BOUND);
    for row in &table.rows {
        let (b, want) = (row.number("beta")?, row.number("alpha_p_wait")?);
        p.see(row, halfin_whitt(b), want);
        beta.see(row, halfin_whitt_beta(want), b);
    }
    Ok(vec![p, beta])
}

/// The square-root rule beside the exact number.
fn staffing_sqrt(table: &Table) -> Result<Vec<Worst>> {
    let mut beta = Worst::new("beta_halfin_whitt", BOUND);
    let (mut rule, mut exact) = (Worst::new("c_sqrt_rule", 0.0), Worst::new("c_exact_min", 0.0));
    let mut c_value = Worst::new("erlang_c_at_c_exact", 2e-13);
    for row in &table.rows {
        let (a, p) = (row.number("a")?, row.number("alpha_p_wait")?);
        beta.see(row, halfin_whitt_beta(p), row.number("beta_halfin_whitt")?);
        rule.see_exact(row, &square_root_staffing(a, p)?, &row.count("c_sqrt_rule")?);
        let c = row.count("c_exact_min")?;
        exact.see_exact(row, &min_servers(a, 1.0, &Target::PWait(p))?, &c);
        c_value.see(row, erlang_c(c, a), row.number("erlang_c_at_c_exact")?);
    }
    Ok(vec![beta, rule, exact, c_value])
}
