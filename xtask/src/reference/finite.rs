//! Tables of Erlang's formulas, M/M/c and its relatives, and inverse problems.

use anyhow::Result;
use queueing::{
    Mm1, Mmc, Queue, QueueError, WaitDistribution, erlang_b, erlang_c, ln_erlang_b, ln_erlang_c,
};

use super::{Family, Table, Worst};

/// The tables that this module compares.
pub const TABLES: &[Family] = &[
    Family { table: "erlang", check: erlang },
    Family { table: "mm1", check: mm1 },
    Family { table: "mmc_wait_quantiles", check: mmc_wait_quantiles },
    Family { table: "mmc_wait_tails", check: mmc_wait_tails },
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
        if row.text("lq")?.is_empty() {
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

/// Means, variances, percentiles and probabilities of M/M/1.
fn mm1(table: &Table) -> Result<Vec<Worst>> {
    const BOUND: f64 = 1e-11;
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
