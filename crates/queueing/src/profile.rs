//! Everything that a model knows, as data: what the command line prints of it, and the inventory in
//! the documentation.

use metrics_core::metric::{Text, text};

use crate::error::Result;
use crate::lps_response::LpsResponse;
use crate::model::{Queue, WaitDistribution};
use crate::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, Closed, ErlangA, GiM1, LpsStateDependent,
    MPh1, Md1, Mdc, Mg1, Mg1Ps, Mm1, MmInf, Mmc, MmcK, MmcN,
};

/// What a number of a [`Profile`] is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A probability or a share.
    Share,
    /// A pure number.
    Number,
    /// A time, in the caller's unit.
    Time,
    /// A rate, per that unit.
    Rate,
    /// A time squared, as variances of times are.
    TimeSquared,
}

/// A figure that models may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantity {
    /// Mean share of the servers that are busy.
    Utilization,
    /// Probability that an arrival has to wait.
    PWait,
    /// Probability that an arrival is turned away.
    PBlock,
    /// Share of the arrivals that leave unserved.
    PAbandon,
    /// Probability of an empty system.
    P0,
    /// Rate of jobs served.
    Throughput,
    /// Mean number in the system.
    L,
    /// Mean number that wait.
    Lq,
    /// Mean number served at once.
    InService,
    /// Mean number of jobs in a batch.
    Batch,
    /// Mean response time.
    W,
    /// Mean wait.
    Wq,
    /// Mean wait of those that wait.
    WqGivenWait,
    /// Mean time in service.
    Service,
    /// Variance of the number in the system.
    VarN,
    /// Variance of the number that wait.
    VarNq,
    /// Variance of the response time.
    VarW,
    /// Variance of the wait.
    VarWq,
}

impl Quantity {
    /// All, in the order in which they are shown.
    pub const ALL: &[Self] = &[
        Self::Utilization,
        Self::PWait,
        Self::PBlock,
        Self::PAbandon,
        Self::P0,
        Self::Throughput,
        Self::L,
        Self::Lq,
        Self::InService,
        Self::Batch,
        Self::W,
        Self::Wq,
        Self::WqGivenWait,
        Self::Service,
        Self::VarN,
        Self::VarNq,
        Self::VarW,
        Self::VarWq,
    ];

    /// Key in JSON and CSV, without its unit.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Utilization => "rho",
            Self::PWait => "p_wait",
            Self::PBlock => "p_block",
            Self::PAbandon => "p_abandon",
            Self::P0 => "p_0",
            Self::Throughput => "throughput",
            Self::L => "l",
            Self::Lq => "lq",
            Self::InService => "in_service",
            Self::Batch => "mean_batch",
            Self::W => "w",
            Self::Wq => "wq",
            Self::WqGivenWait => "wq_given_wait",
            Self::Service => "service",
            Self::VarN => "var_n",
            Self::VarNq => "var_nq",
            Self::VarW => "var_w",
            Self::VarWq => "var_wq",
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> Text {
        match self {
            Self::Utilization => text("utilization, rho", "利用率 rho"),
            Self::PWait => text("an arrival has to wait", "到达需要等待的概率"),
            Self::PBlock => text("an arrival is turned away", "到达被拒绝的概率"),
            Self::PAbandon => text("an arrival leaves unserved", "未获服务即离开的比例"),
            Self::P0 => text("the system is empty, p0", "系统为空的概率 p0"),
            Self::Throughput => text("rate served", "服务完成速率"),
            Self::L => text("requests in the system, L", "系统内请求数 L"),
            Self::Lq => text("requests waiting, Lq", "排队请求数 Lq"),
            Self::InService => text("requests in service", "服务中的请求数"),
            Self::Batch => text("requests in a batch", "批内请求数"),
            Self::W => text("mean response, W", "平均响应时间 W"),
            Self::Wq => text("mean wait, Wq", "平均等待时间 Wq"),
            Self::WqGivenWait => text("mean of the waits above 0", "需等待者的平均等待时间"),
            Self::Service => text("mean time in service", "平均服务时间"),
            Self::VarN => text("variance of requests in the system", "系统内请求数的方差"),
            Self::VarNq => text("variance of requests waiting", "排队请求数的方差"),
            Self::VarW => text("variance of the response", "响应时间的方差"),
            Self::VarWq => text("variance of the wait", "等待时间的方差"),
        }
    }

    /// What it is measured in.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Utilization | Self::PWait | Self::PBlock | Self::PAbandon | Self::P0 => {
                Kind::Share
            }
            Self::Throughput => Kind::Rate,
            Self::L | Self::Lq | Self::InService | Self::Batch | Self::VarN | Self::VarNq => {
                Kind::Number
            }
            Self::W | Self::Wq | Self::WqGivenWait | Self::Service => Kind::Time,
            Self::VarW | Self::VarWq => Kind::TimeSquared,
        }
    }
}

/// A distribution of a time.
pub trait Distribution {
    /// Probability of at most `t`.
    ///
    /// # Errors
    ///
    /// [`QueueError`](crate::QueueError) unless `t` is finite and not negative.
    fn cdf(&self, t: f64) -> Result<f64>;
    /// Probability of more than `t`.
    ///
    /// # Errors
    ///
    /// [`QueueError`](crate::QueueError) unless `t` is finite and not negative.
    fn sf(&self, t: f64) -> Result<f64>;
    /// Shortest time within which it ends with probability `p`.
    ///
    /// # Errors
    ///
    /// [`QueueError`](crate::QueueError) unless `p` is from 0 to 1.
    fn quantile(&self, p: f64) -> Result<f64>;
}

struct WaitOf<Q>(Q);

impl<Q: WaitDistribution> Distribution for WaitOf<Q> {
    fn cdf(&self, t: f64) -> Result<f64> {
        self.0.wq_cdf(t)
    }
    fn sf(&self, t: f64) -> Result<f64> {
        self.0.wq_sf(t)
    }
    fn quantile(&self, p: f64) -> Result<f64> {
        self.0.wq_quantile(p)
    }
}

struct ResponseOf<Q>(Q);

impl<Q: WaitDistribution> Distribution for ResponseOf<Q> {
    fn cdf(&self, t: f64) -> Result<f64> {
        self.0.w_cdf(t)
    }
    fn sf(&self, t: f64) -> Result<f64> {
        self.0.w_sf(t)
    }
    fn quantile(&self, p: f64) -> Result<f64> {
        self.0.w_quantile(p)
    }
}

impl Distribution for LpsResponse {
    fn cdf(&self, t: f64) -> Result<f64> {
        self.w_cdf(t)
    }
    fn sf(&self, t: f64) -> Result<f64> {
        self.w_sf(t)
    }
    fn quantile(&self, p: f64) -> Result<f64> {
        self.w_quantile(p)
    }
}

struct LpsWait(LpsStateDependent);

impl Distribution for LpsWait {
    fn cdf(&self, t: f64) -> Result<f64> {
        Ok(1.0 - self.0.wq_sf(t)?)
    }
    fn sf(&self, t: f64) -> Result<f64> {
        self.0.wq_sf(t)
    }
    fn quantile(&self, p: f64) -> Result<f64> {
        self.0.wq_quantile(p)
    }
}

type States = Box<dyn Fn(u64) -> Result<f64>>;

/// Everything that a model knows.
#[derive(Default)]
pub struct Profile {
    figures: Vec<(Quantity, f64)>,
    states: Option<States>,
    wait: Option<Box<dyn Distribution>>,
    response: Option<Box<dyn Distribution>>,
}

impl Profile {
    /// The figures that the model knows, in the order of [`Quantity::ALL`].
    #[must_use]
    pub fn figures(&self) -> Vec<(Quantity, f64)> {
        Quantity::ALL.iter().filter_map(|&q| Some((q, self.get(q)?))).collect()
    }

    /// One figure, if the model knows it.
    #[must_use]
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        self.figures.iter().find(|(q, _)| *q == quantity).map(|(_, value)| *value)
    }

    /// Probability of `n` jobs in the system; `None` if the model does not know it.
    #[must_use]
    pub fn pn(&self, n: u64) -> Option<Result<f64>> {
        self.states.as_ref().map(|pn| pn(n))
    }

    /// The distribution of the wait, if the model knows it.
    #[must_use]
    pub fn wait(&self) -> Option<&dyn Distribution> {
        self.wait.as_deref()
    }

    /// The distribution of the response time, if the model knows it.
    #[must_use]
    pub fn response(&self) -> Option<&dyn Distribution> {
        self.response.as_deref()
    }

    /// With the distribution of the response time, which takes its time to compute for
    /// [`LpsStateDependent`].
    #[must_use]
    pub fn with_response(mut self, response: LpsResponse) -> Self {
        self.response = Some(Box::new(response));
        self
    }

    fn with(mut self, figures: &[(Quantity, f64)]) -> Self {
        self.figures.extend_from_slice(figures);
        self
    }

    fn with_known(mut self, quantity: Quantity, value: Option<f64>) -> Self {
        self.figures.extend(value.map(|value| (quantity, value)));
        self
    }

    /// The means that every queue has.
    fn means<Q: Queue>(queue: &Q) -> Self {
        use Quantity::{L, Lq, P0, PWait, Throughput, Utilization, W, Wq};
        Self::default().with(&[
            (Utilization, queue.utilization()),
            (PWait, queue.p_wait()),
            (P0, queue.p0()),
            (Throughput, queue.throughput()),
            (L, queue.l()),
            (Lq, queue.lq()),
            (W, queue.w()),
            (Wq, queue.wq()),
        ])
    }

    fn stating<Q: Queue + Clone + 'static>(queue: &Q) -> Self {
        let (mut profile, queue) = (Self::means(queue), queue.clone());
        profile.states = Some(Box::new(move |n| queue.pn(n)));
        profile
    }

    fn spread<Q: WaitDistribution + Clone + 'static>(mut self, queue: Q) -> Self {
        self.wait = Some(Box::new(WaitOf(queue.clone())));
        self.response = Some(Box::new(ResponseOf(queue)));
        self
    }
}

/// Variances of the four, and the mean of the waits above 0.
macro_rules! varied {
    ($queue:expr) => {
        [
            (Quantity::WqGivenWait, $queue.wq_given_wait()),
            (Quantity::VarN, $queue.var_n()),
            (Quantity::VarNq, $queue.var_nq()),
            (Quantity::VarW, $queue.var_w()),
            (Quantity::VarWq, $queue.var_wq()),
        ]
    };
}

macro_rules! full_profile {
    ($($model:ty),*) => {$(
        impl From<$model> for Profile {
            fn from(queue: $model) -> Self {
                Self::stating(&queue).with(&varied!(queue)).spread(queue)
            }
        }
    )*};
}

full_profile!(Mm1, Mmc, Md1, Mdc, GiM1, MmcN);

impl From<MmcK> for Profile {
    fn from(queue: MmcK) -> Self {
        let blocked = [(Quantity::PBlock, queue.p_block())];
        Self::stating(&queue).with(&varied!(queue)).with(&blocked).spread(queue)
    }
}

impl From<MmInf> for Profile {
    fn from(queue: MmInf) -> Self {
        let mut profile = Self::stating(&queue)
            .with(&[(Quantity::VarN, queue.var_n()), (Quantity::VarW, queue.var_w())]);
        // Of endlessly many servers none is busy to speak of, and nobody waits.
        profile.figures.retain(|(q, _)| *q != Quantity::Utilization);
        profile.spread(queue)
    }
}

impl From<ErlangA> for Profile {
    fn from(queue: ErlangA) -> Self {
        Self::stating(&queue)
            .with(&[
                (Quantity::PAbandon, queue.p_abandon()),
                (Quantity::WqGivenWait, queue.wq_given_wait()),
                (Quantity::VarN, queue.var_n()),
                (Quantity::VarNq, queue.var_nq()),
            ])
            .spread(queue)
    }
}

impl From<MPh1> for Profile {
    fn from(queue: MPh1) -> Self {
        Self::means(&queue).with(&varied!(queue)).spread(queue)
    }
}

impl From<Mg1> for Profile {
    fn from(queue: Mg1) -> Self {
        Self::means(&queue)
            .with(&[(Quantity::WqGivenWait, queue.wq_given_wait())])
            .with_known(Quantity::VarN, queue.var_n())
            .with_known(Quantity::VarNq, queue.var_nq())
            .with_known(Quantity::VarW, queue.var_w())
            .with_known(Quantity::VarWq, queue.var_wq())
    }
}

impl From<Mg1Ps> for Profile {
    fn from(queue: Mg1Ps) -> Self {
        Self::stating(&queue).with(&[(Quantity::VarN, queue.var_n())])
    }
}

impl From<LpsStateDependent> for Profile {
    fn from(queue: LpsStateDependent) -> Self {
        let mut profile = Self::stating(&queue).with(&[
            (Quantity::PBlock, queue.p_block()),
            (Quantity::InService, queue.in_service()),
            (Quantity::Service, queue.service()),
            (Quantity::WqGivenWait, queue.wq_given_wait()),
            (Quantity::VarN, queue.var_n()),
        ]);
        profile.wait = Some(Box::new(LpsWait(queue)));
        profile
    }
}

macro_rules! batch_profile {
    ($($model:ty),*) => {$(
        impl From<$model> for Profile {
            fn from(queue: $model) -> Self {
                Self::default().with(&[
                    (Quantity::Utilization, queue.utilization()),
                    (Quantity::L, queue.l()),
                    (Quantity::W, queue.w()),
                    (Quantity::Wq, queue.wq()),
                    (Quantity::Batch, queue.mean_batch()),
                ])
            }
        }
    )*};
}

batch_profile!(BatchLinear, BatchCapped);

impl From<BulkMmK> for Profile {
    fn from(queue: BulkMmK) -> Self {
        Self::default().with(&[
            (Quantity::P0, queue.p0()),
            (Quantity::L, queue.l()),
            (Quantity::Lq, queue.lq()),
            (Quantity::W, queue.w()),
            (Quantity::Wq, queue.wq()),
        ])
    }
}

impl From<BatchArrivals> for Profile {
    fn from(queue: BatchArrivals) -> Self {
        Self::default().with(&[
            (Quantity::Utilization, queue.utilization()),
            (Quantity::P0, queue.p0()),
            (Quantity::L, queue.l()),
            (Quantity::Lq, queue.lq()),
            (Quantity::W, queue.w()),
            (Quantity::Wq, queue.wq()),
        ])
    }
}

impl From<Closed> for Profile {
    fn from(queue: Closed) -> Self {
        Self::default().with(&[
            (Quantity::Utilization, queue.utilization()),
            (Quantity::Throughput, queue.throughput()),
            (Quantity::L, queue.l()),
            (Quantity::W, queue.w()),
            (Quantity::Wq, queue.wq()),
        ])
    }
}

/// A model of the inventory: its name, and one of its kind.
pub struct Sample {
    /// As the theory writes it.
    pub name: &'static str,
    /// As the command line has it.
    pub command: &'static str,
    /// One of its kind.
    pub make: fn() -> Result<Profile>,
}

/// One of each kind, in docs order.
pub const SAMPLES: &[Sample] = &[
    Sample { name: "M/M/1", command: "mm1", make: || Ok(Mm1::new(0.5, 1.0)?.into()) },
    Sample { name: "M/M/c", command: "mmc", make: || Ok(Mmc::new(1.5, 1.0, 2)?.into()) },
    Sample { name: "M/M/c/K", command: "mmck", make: || Ok(MmcK::new(1.5, 1.0, 2, 8)?.into()) },
    Sample { name: "M/M/∞", command: "mminf", make: || Ok(MmInf::new(1.5, 1.0)?.into()) },
    Sample {
        name: "M/M/c//N",
        command: "finite-source",
        make: || Ok(MmcN::new(0.5, 1.0, 2, 8)?.into()),
    },
    Sample {
        name: "M/M/c+M",
        command: "erlang-a",
        make: || Ok(ErlangA::new(1.5, 1.0, 2, 0.5)?.into()),
    },
    Sample {
        name: "GI/M/1",
        command: "gim1",
        make: || Ok(GiM1::new(0.5, crate::gim1::Gaps::Det, 1.0)?.into()),
    },
    Sample {
        name: "M/G/1",
        command: "mg1",
        make: || Ok(Mg1::of_law(0.5, &crate::ServiceLaw::Erlang { mean: 1.0, k: 2 })?.into()),
    },
    Sample { name: "M/D/1", command: "md1", make: || Ok(Md1::new(0.5, 1.0)?.into()) },
    Sample { name: "M/D/c", command: "mdc", make: || Ok(Mdc::new(1.5, 1.0, 2)?.into()) },
    Sample {
        name: "M/PH/1",
        command: "mph1",
        make: || Ok(MPh1::new(0.5, crate::mph1::PhaseType::erlang(1.0, 2)?)?.into()),
    },
    Sample { name: "M/G/1-PS", command: "ps", make: || Ok(Mg1Ps::new(0.5, 1.0)?.into()) },
    Sample {
        name: "M/M/1-LPS",
        command: "lps",
        make: || {
            let queue = LpsStateDependent::new(1.0, &[1.0, 1.5], Some(4))?;
            let response = queue.response()?;
            Ok(Profile::from(queue).with_response(response))
        },
    },
    Sample {
        name: "M/D(b)/1",
        command: "batch",
        make: || Ok(BatchLinear::new(0.5, 0.5, 1.0)?.into()),
    },
    Sample {
        name: "M/D(b)/1, b ≤ cap",
        command: "batch --cap",
        make: || Ok(BatchCapped::new(0.5, 0.5, 1.0, 4)?.into()),
    },
    Sample {
        name: "M/M^[K]/1",
        command: "bulk",
        make: || Ok(BulkMmK::new(0.5, 1.0, 4, crate::batch::BatchRule::Joinable)?.into()),
    },
    Sample {
        name: "M^[X]/M/1",
        command: "batch-arrivals",
        make: || Ok(BatchArrivals::new(0.2, crate::batch::BatchSize::Constant(3), 1.0)?.into()),
    },
    Sample {
        name: "closed, MVA",
        command: "closed",
        make: || Ok(Closed::new(8, 1.0, 4.0)?.into()),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_figures_without_nan_and_obeys_little() {
        for sample in SAMPLES {
            let profile = (sample.make)().unwrap();
            assert!(5 <= profile.figures().len(), "{}", sample.name);
            for (quantity, value) in profile.figures() {
                assert!(0.0 <= value, "{} {quantity:?} {value}", sample.name);
            }
            let (l, w) = (profile.get(Quantity::L).unwrap(), profile.get(Quantity::W).unwrap());
            if let Some(rate) = profile.get(Quantity::Throughput)
                && sample.command != "erlang-a"
            {
                assert!((l - rate * w).abs() < 1e-12, "{}: {l} {}", sample.name, rate * w);
            }
            if let Some(wait) = profile.wait() {
                assert!((wait.cdf(0.7).unwrap() + wait.sf(0.7).unwrap() - 1.0).abs() < 1e-12);
            }
        }
    }
}
