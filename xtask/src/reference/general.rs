//! Tables of queues with general service or arrivals, batches and other disciplines.

use anyhow::{Result, bail};
use queueing::approx::{
    allen_cunneen, daley_upper_bound, kingman_upper_bound, kingman_vut, klb, klb_qna, sakasegawa,
    whitt_gim, whitt_phi,
};
use queueing::batch::{BatchRule, BatchSize};
use queueing::gim1::Gaps;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::mph1::PhaseType;
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, GiM1, LpsStateDependent, MPh1, Md1, Mdc, Mg1,
    Mg1Priority, Mg1Ps, Queue, QueueError, ServiceLaw, ServiceMoments, TokenLaw, WaitDistribution,
};

use super::{Family, Outcome, Row, Table, Worst};

/// Relative error that every table here may have.
const BOUND: f64 = 1e-11;

/// What a difference of numbers with 60 digits leaves where the true value is smaller: some tables
/// hold 0 or negative probabilities there.
const NOISE: f64 = 1e-50;

/// The tables that this module compares.
pub const TABLES: &[Family] = &[
    Family { table: "mg1", check: mg1 },
    Family { table: "mg1_token_clipping", check: mg1_token_clipping },
    Family { table: "md1_wait_cdf", check: md1_wait_cdf },
    Family { table: "md1_wait_quantiles", check: md1_wait_quantiles },
    Family { table: "mdc", check: mdc },
    Family { table: "mdc_wait_cdf", check: mdc_wait_cdf },
    Family { table: "gim1", check: gim1 },
    Family { table: "mph1_wait", check: mph1_wait },
    Family { table: "mg1_priority", check: mg1_priority },
    Family { table: "mg1_ps", check: mg1_ps },
    Family { table: "mm1_lps", check: mm1_lps },
    Family { table: "wva_state_dependent", check: wva_state_dependent },
    Family { table: "dynamic_batching_linear_unlimited", check: batching_unlimited },
    Family { table: "dynamic_batching_linear_capped", check: batching_capped },
    Family { table: "bulk_mmk1", check: bulk_mmk1 },
    Family { table: "batch_arrivals_mxm1", check: batch_arrivals },
    Family { table: "ggc_approx", check: ggc_approx },
];

/// The quantities of one table, named by their columns.
#[derive(Default)]
struct Quantities {
    all: Vec<Worst>,
}

impl Quantities {
    /// Compares with a column, unless it is empty.
    fn see(&mut self, row: &Row, column: &str, got: impl Outcome) -> Result<()> {
        self.see_within(row, column, got, 0.0)
    }

    fn see_within(
        &mut self,
        row: &Row,
        column: &str,
        got: impl Outcome,
        absolute: f64,
    ) -> Result<()> {
        if let Some(want) = row.get(column)? {
            let known = self.all.iter().position(|w| w.what == column);
            let i = known.unwrap_or_else(|| {
                self.all.push(Worst::new(column, BOUND));
                self.all.len() - 1
            });
            self.all[i].see_within(row, got, want, absolute);
        }
        Ok(())
    }

    /// Several columns of one model, or its refusal for each.
    fn all<Q>(
        &mut self,
        row: &Row,
        queue: &Result<Q, QueueError>,
        columns: &[Column<'_, Q>],
    ) -> Result<()> {
        for (column, of) in columns {
            self.see(row, column, queue.as_ref().map(of).map_err(Clone::clone))?;
        }
        Ok(())
    }
}

/// A column's name, and the model's method that has to give its value.
type Column<'a, Q> = (&'a str, fn(&Q) -> f64);

/// Compares every row by the given function.
fn each(table: &Table, check: impl Fn(&Row, &mut Quantities) -> Result<()>) -> Result<Vec<Worst>> {
    let mut quantities = Quantities::default();
    for row in &table.rows {
        check(row, &mut quantities)?;
    }
    Ok(quantities.all)
}

/// A count that may be written with a decimal point.
fn count(row: &Row, column: &str) -> Result<u64> {
    let x = row.number(column)?;
    metrics_core::metric::whole("a count of the table", x).map_err(|e| anyhow::anyhow!("{e}"))
}

fn law(row: &Row) -> Result<ServiceLaw> {
    let p = |column| row.number(column);
    Ok(match row.text("dist")? {
        "exp" => ServiceLaw::Exp { mean: p("p1")? },
        "det" => ServiceLaw::Det { mean: p("p1")? },
        "erlang" => ServiceLaw::Erlang { mean: p("p1")?, k: count(row, "p2")? },
        "gamma" => ServiceLaw::Gamma { shape: p("p1")?, scale: p("p2")? },
        "uniform" => ServiceLaw::Uniform { low: p("p1")?, high: p("p2")? },
        "lognormal_mean_cv" => ServiceLaw::Lognormal { mean: p("p1")?, cv: p("p2")? },
        "lognormal_mu_sigma" => ServiceLaw::LognormalOfLog { mu: p("p1")?, sigma: p("p2")? },
        "hyperexp2" => ServiceLaw::Hyperexp { p: p("p1")?, rate1: p("p2")?, rate2: p("p3")? },
        "pareto" => ServiceLaw::Pareto { alpha: p("p1")?, least: p("p2")? },
        "geometric1" => ServiceLaw::Geometric { q: p("p1")?, unit: p("p2")? },
        other => bail!("unknown dist {other:?}"),
    })
}

fn mg1(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let queue = Mg1::of_law(row.number("lambda")?, &law(row)?);
        q.all(
            row,
            &queue,
            &[
                ("es", |x: &Mg1| x.service().mean),
                ("es2", |x| (1.0 + x.service().scv) * x.service().mean * x.service().mean),
                ("es3", |x| x.service().third.unwrap_or(f64::NAN)),
                ("cs2", |x| x.service().scv),
                ("rho", Queue::utilization),
                ("wq", Queue::wq),
                ("lq", Queue::lq),
                ("w", Queue::w),
                ("l", Queue::l),
                ("var_wq", |x| x.var_wq().unwrap_or(f64::NAN)),
            ],
        )
    })
}

fn mg1_token_clipping(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let tokens = match row.text("dist")? {
            "geometric" => TokenLaw::Geometric { q: row.number("p1")? },
            "uniform" => TokenLaw::Uniform { most: count(row, "p2")? },
            "lognormal" => {
                TokenLaw::Lognormal { mu: row.number("p1")?, sigma: row.number("p2")?, most: 4096 }
            }
            other => bail!("unknown dist {other:?}"),
        };
        let n_max = count(row, "n_max")?;
        q.all(
            row,
            &tokens.clipped(n_max),
            &[("e_n", |n| n.mean), ("e_n2", |n| n.second), ("clipped_fraction", |n| n.clipped)],
        )?;
        let law = ServiceLaw::ClippedTokens { base: 0.2, per_token: 0.02, tokens, n_max };
        q.see(row, "es_s", law.moments().map(|m| m.mean))?;
        let queue = Mg1::of_law(row.number("lambda_per_s")?, &law);
        if let Err(QueueError::Unstable { rho }) = queue {
            q.see(row, "rho", rho)?;
            return q.see(row, "wq_s", f64::INFINITY);
        }
        q.all(row, &queue, &[("rho", Queue::utilization as fn(&Mg1) -> f64), ("wq_s", Queue::wq)])
    })
}

fn md1_wait_cdf(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let queue = Md1::new(row.number("rho")?, 1.0);
        let t = row.number("t_over_d")?;
        q.see(row, "p_wq_le_t", queue.clone().and_then(|x| x.wq_cdf(t)))?;
        q.see_within(row, "p_wq_gt_t", queue.and_then(|x| x.wq_sf(t)), NOISE)
    })
}

fn md1_wait_quantiles(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let rho = row.number("rho")?;
        let got = Md1::new(rho, 1.0).and_then(|x| x.wq_quantile(row.number("p").unwrap_or(2.0)));
        // Where p is the probability not to wait, to rounding, so is the quantile 0.
        let column = "wq_quantile_over_d";
        let zero = row.number(column)? < 1e-12 / (1.0 - rho);
        q.see_within(row, column, got, if zero { 1e-14 / (1.0 - rho) } else { 0.0 })
    })
}

fn mdc(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let queue = Mdc::new(row.number("a")?, 1.0, row.count("c")?);
        for (column, of) in [
            ("wq_over_d", Queue::wq as fn(&Mdc) -> f64),
            ("lq", Queue::lq),
            ("p_wait", Queue::p_wait),
        ] {
            q.see_within(row, column, queue.as_ref().map(of).map_err(Clone::clone), NOISE)?;
        }
        Ok(())
    })
}

fn mdc_wait_cdf(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let t = row.number("t_over_d")?;
        let queue = Mdc::new(row.number("a")?, 1.0, row.count("c")?);
        q.see(row, "p_wq_le_t", queue.and_then(|x| x.wq_cdf(t)))
    })
}

fn gim1(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let name = row.text("interarrival")?;
        let gaps = if let Some(k) = name.strip_prefix("erlang") {
            Gaps::Erlang { k: k.parse()? }
        } else if let Some(scv) = name.strip_prefix("hyperexp2bal_ca2_") {
            Gaps::Hyperexp { scv: scv.parse()? }
        } else {
            match name {
                "det" => Gaps::Det,
                "exp" => Gaps::Exp,
                other => bail!("unknown interarrival {other:?}"),
            }
        };
        q.all(
            row,
            &GiM1::new(row.number("rho")?, gaps, 1.0),
            &[
                ("sigma_p_wait", Queue::p_wait as fn(&GiM1) -> f64),
                ("wq_mu1", Queue::wq),
                ("w_mu1", Queue::w),
                ("lq", Queue::lq),
            ],
        )
    })
}

fn mph1_wait(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let name = row.text("dist")?;
        let law = if let Some(k) = name.strip_prefix("erlang") {
            PhaseType::erlang(row.number("p1")?, k.parse()?)
        } else if name == "hyperexp2" {
            let p = row.number("p1")?;
            PhaseType::hyperexponential(&[(p, row.number("p2")?), (1.0 - p, row.number("p3")?)])
        } else {
            bail!("unknown dist {name:?}");
        };
        let lambda = row.number("lambda")?;
        let queue = law.and_then(|law| MPh1::new(lambda, law));
        let x = row.number("x")?;
        let got = match row.text("what")? {
            "tail" => queue.and_then(|m| m.wq_sf(x)),
            "quantile" => queue.and_then(|m| m.wq_quantile(x)),
            other => bail!("unknown what {other:?}"),
        };
        q.see(row, "value", got)
    })
}

fn mg1_priority(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let list = |column| -> Result<Vec<f64>> {
            row.text(column)?.split(';').map(|x| Ok(x.parse()?)).collect()
        };
        let classes: Vec<PriorityClass> = list("lambdas")?
            .into_iter()
            .zip(list("mean_services_exp")?)
            .map(|(lambda, mean)| PriorityClass { lambda, service: ServiceMoments::exp(mean) })
            .collect();
        let k = usize::try_from(row.count("class")?)? - 1;
        let queue = Mg1Priority::new(&classes);
        let of = |discipline| queue.clone().and_then(|x| x.class(discipline, k));
        let head = of(Discipline::NonPreemptive);
        q.all(row, &head, &[("wq_nonpreemptive", |m| m.wq), ("w_nonpreemptive", |m| m.w)])?;
        let preempt = of(Discipline::PreemptiveResume);
        q.all(
            row,
            &preempt,
            &[("wq_preemptive_resume", |m| m.wq), ("w_preemptive_resume", |m| m.w)],
        )
    })
}

fn mg1_ps(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let (queue, size) = (Mg1Ps::new(row.number("rho")?, 1.0), row.number("x_size")?);
        q.see(row, "e_t_given_x", queue.clone().and_then(|x| x.w_given_size(size)))?;
        q.see(row, "slowdown", queue.clone().map(|x| x.slowdown()))?;
        let variance = queue.and_then(|x| x.var_w_given_size_exp(size));
        q.see(row, "var_t_given_x_mm1ps_mu1", variance)
    })
}

fn mm1_lps(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let queue = LpsStateDependent::mm1(row.number("rho")?, 1.0, row.count("k_slots")?);
        q.all(
            row,
            &queue,
            &[
                ("l", Queue::l as fn(&LpsStateDependent) -> f64),
                ("l_buffer", Queue::lq),
                ("w_buffer_mu1", Queue::wq),
                ("l_in_service", LpsStateDependent::in_service),
                ("w_mu1", Queue::w),
            ],
        )
    })
}

fn wva_state_dependent(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let law = ServingLaw::Chunked {
            alpha: row.number("alpha_ms")?,
            beta: row.number("beta_ms")?,
            gamma: row.number("gamma_ms")?,
        };
        let server = Autoscaler::new(
            law,
            row.number("n_in")?,
            row.number("n_out")?,
            row.count("max_batch")?,
            row.count("max_queue")?,
        );
        let rate = row.number("rps")? / 1e3;
        let state = server.and_then(|s| s.at(rate));
        q.all(
            row,
            &state,
            &[
                ("throughput_rps", |s| s.throughput * 1e3),
                ("resp_ms", |s| s.response),
                ("wait_ms", |s| s.wait),
                ("n_in_service", |s| s.in_service),
                ("serv_ms", |s| s.service),
                ("prefill_ms", |s| s.prefill),
                ("itl_ms", |s| s.itl),
                ("ttft_ms", |s| s.ttft),
                ("p_block", |s| s.p_block),
                ("p0", |s| s.chain.p0()),
            ],
        )
    })
}

fn batching_unlimited(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let queue =
            BatchLinear::new(row.number("lambda")?, row.number("alpha")?, row.number("tau0")?);
        q.all(
            row,
            &queue,
            &[
                ("mean_latency", BatchLinear::w as fn(&BatchLinear) -> f64),
                ("mean_batch", BatchLinear::mean_batch),
                ("util", BatchLinear::utilization),
                ("phi0", BatchLinear::phi0),
                ("phi1", BatchLinear::phi1),
                ("phi_upper_bound", BatchLinear::w_bound),
            ],
        )
    })
}

fn batching_capped(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let (lambda, cap) = (row.number("lambda")?, row.count("b_max")?);
        let queue = BatchCapped::new(lambda, row.number("alpha")?, row.number("tau0")?, cap);
        q.all(
            row,
            &queue,
            &[
                ("mean_latency", BatchCapped::w as fn(&BatchCapped) -> f64),
                ("mean_wait", BatchCapped::wq),
                ("mean_batch", BatchCapped::mean_batch),
                ("util", BatchCapped::utilization),
            ],
        )
    })
}

fn bulk_mmk1(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let (lambda, mu, k) = (row.number("lambda")?, row.number("mu")?, row.count("k")?);
        let queue = |rule| BulkMmK::new(lambda, mu, k, rule);
        q.all(
            row,
            &queue(BatchRule::Joinable),
            &[
                ("r0", BulkMmK::r as fn(&BulkMmK) -> f64),
                ("l_joinable", BulkMmK::l),
                ("w_joinable", BulkMmK::w),
            ],
        )?;
        q.all(
            row,
            &queue(BatchRule::Full),
            &[
                ("p0_full", BulkMmK::p0 as fn(&BulkMmK) -> f64),
                ("l_full", BulkMmK::l),
                ("w_full", BulkMmK::w),
            ],
        )?;
        q.all(
            row,
            &queue(BatchRule::Closed),
            &[
                ("lq_nonjoin", BulkMmK::lq as fn(&BulkMmK) -> f64),
                ("wq_nonjoin", BulkMmK::wq),
                ("w_nonjoin", BulkMmK::w),
                ("p_idle_nonjoin", BulkMmK::p0),
            ],
        )
    })
}

fn batch_arrivals(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let size = match row.text("batch_dist")? {
            "const" => BatchSize::Constant(count(row, "param")?),
            "geom" => BatchSize::Geometric(row.number("param")?),
            other => bail!("unknown batch_dist {other:?}"),
        };
        q.all(
            row,
            &BatchArrivals::new(row.number("lambda_batches")?, size, 1.0),
            &[
                ("rho", BatchArrivals::utilization as fn(&BatchArrivals) -> f64),
                ("l", BatchArrivals::l),
                ("w_mu1", BatchArrivals::w),
                ("wq_mu1", BatchArrivals::wq),
            ],
        )
    })
}

fn ggc_approx(table: &Table) -> Result<Vec<Worst>> {
    each(table, |row, q| {
        let (c, a) = (row.count("c")?, row.number("a")?);
        let (ca2, cs2) = (row.number("ca2")?, row.number("cs2")?);
        q.see(row, "wq_allen_cunneen", allen_cunneen(c, a, ca2, cs2, 1.0))?;
        q.see(row, "wq_sakasegawa", sakasegawa(c, a, ca2, cs2, 1.0))?;
        q.see(row, "wq_whitt1993", whitt_gim(c, a, ca2, cs2, 1.0))?;
        q.see(row, "whitt_phi", whitt_phi(c, a, ca2, cs2))?;
        q.see(row, "wq_kingman_vut_c1", kingman_vut(a, ca2, cs2, 1.0))?;
        q.see(row, "wq_kingman_upper_bound_c1", kingman_upper_bound(a, ca2, cs2, 1.0))?;
        q.see(row, "wq_daley_upper_bound_c1", daley_upper_bound(a, ca2, cs2, 1.0))?;
        q.see(row, "wq_klb_qna_c1", klb_qna(a, ca2, cs2, 1.0))?;
        q.see(row, "wq_klb_full_c1", klb(a, ca2, cs2, 1.0))
    })
}
