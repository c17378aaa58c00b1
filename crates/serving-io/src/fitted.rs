//! Step-time files: what `goodput fit` writes and `goodput sim --step-time` reads.
//!
//! A TOML file with the form, its coefficients in milliseconds as decimal texts (so that no digit
//! is lost), where they come from, how far each regime is off, and where it is known to hold.
//!
//! | key | value |
//! |---|---|
//! | `schema_version` | 1 |
//! | `name`, `model`, `gpu`, `engine` | texts; empty where not known |
//! | `tensor_parallel` | how many GPUs hold one replica, 1 where not given |
//! | `form` | `two-regime`, `split`, `affine`, `floored` or `table` |
//! | `source`, `licence`, `method` | texts |
//! | `limits` | what the data could not tell, one text each |
//! | `[decode_ms]`, `[prefill_ms]` | of `two-regime`: `a`, `b` (prefill only), `c`, `d`, `q` (prefill only) |
//! | `[extra_ms]` | of `two-regime`, optional: `overhead`, `comm`, `floor` |
//! | `[above_ms]` | of `split`, beside those of `two-regime`: `decodes`, the largest batch of `[decode_ms]`, and `a`, `c`, `d` for larger ones |
//! | `[decode_table_ms]` | of `table`: `decodes` and `context_each`, lists that rise, and `times`, a list for each of `decodes` |
//! | `[prefill_table_ms]` | of `table`: `prompt_tokens`, `context` of all decodes together, `times`, and what is added: `c` per decode, `q` per pair of prompt tokens |
//! | `[step_ms]` | of `affine`: `a`, `b`, `c`, `d`, `q`; of `floored`: `o`, `w`, `b`, `cp`, `cd`, `e` |
//! | `[overheads_ms]` | of any form, optional: `step`, `prompt_chunk` and `request`, which the server adds to each step, to each prompt chunk and to each request in it |
//! | `[[regimes]]` | `regime`, `points`, `mean_absolute`, those of `p90_absolute`, `p95_absolute`, `worst`, `max_absolute` and `bias` that are known, and the ranges of P, B, C and A as `[least, most]` |
//!
//! Built-in [presets](crate::preset) are files of this kind.
//!
//! # Examples
//!
//! ```
//! use serving_io::fitted::FittedStepTime;
//!
//! let text = r#"
//! schema_version = 1
//! name = "mine"
//! model = ""
//! gpu = ""
//! engine = ""
//! form = "affine"
//! source = "steps.csv"
//! licence = ""
//! method = "by hand"
//! limits = []
//! [step_ms]
//! a = "8"
//! b = "0.06"
//! c = "0"
//! d = "0"
//! q = "0"
//! "#;
//! let file = FittedStepTime::parse("mine.toml", text)?;
//! assert_eq!(file.step.to_string(), "base=8ms,prefill=60us/token");
//! assert_eq!(FittedStepTime::parse("again.toml", &file.to_toml())?, file);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use std::fmt::{self, Write};

use sched_sim::{
    Affine, Coefficients, Extra, Floored, FlooredCoefficients, Grid, MeanWork, ServerOverheads,
    Split, StepTime, StepWork, StretchTime, Table, Ticks, TwoRegime, WithOverheads,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{SCHEMA_VERSION, check_version, parse, wrong};
use crate::decimal::scaled;
use crate::error::{Result, shown};

/// A fitted step time with where it comes from and where it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedStepTime {
    /// What it is called.
    pub name: String,
    /// The model; empty if not known.
    pub model: String,
    /// The GPU; empty if not known.
    pub gpu: String,
    /// How many GPUs hold one replica by tensor parallelism.
    pub tensor_parallel: u32,
    /// The engine; empty if not known.
    pub engine: String,
    /// Where the measurements come from.
    pub source: String,
    /// Under which licence; empty if not known.
    pub licence: String,
    /// How the coefficients were found.
    pub method: String,
    /// What the measurements could not tell.
    pub limits: Vec<String>,
    /// The coefficients.
    pub step: FittedStep,
    /// Errors and ranges; empty if not known.
    pub regimes: Vec<FittedRegime>,
}

/// The coefficients of one of the forms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one for a run, and every step reads it")]
pub enum FittedStep {
    /// `two-regime`.
    TwoRegime(TwoRegime),
    /// `split`.
    Split(Split),
    /// `table`.
    Table(Table),
    /// `affine`.
    Affine(Affine),
    /// `floored`.
    Floored(Floored),
    /// Any of them with what the server adds.
    Calibrated(Box<WithOverheads<Self>>),
}

impl FittedStep {
    /// The form's name.
    #[must_use]
    pub const fn form(&self) -> &'static str {
        match self {
            Self::TwoRegime(_) => "two-regime",
            Self::Split(_) => "split",
            Self::Table(_) => "table",
            Self::Affine(_) => "affine",
            Self::Floored(_) => "floored",
            Self::Calibrated(t) => t.inner().form(),
        }
    }

    fn inner(&self) -> &dyn StepTime {
        match self {
            Self::TwoRegime(t) => t,
            Self::Split(t) => t,
            Self::Table(t) => t,
            Self::Affine(t) => t,
            Self::Floored(t) => t,
            Self::Calibrated(t) => t.as_ref(),
        }
    }
}

impl StepTime for FittedStep {
    fn step(&self, work: &StepWork) -> Ticks {
        self.inner().step(work)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        self.inner().stretch(work)
    }

    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        self.inner().decode_alone(context, mixed)
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        self.inner().mean_seconds(mean)
    }
}

impl fmt::Display for FittedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoRegime(t) => t.fmt(f),
            Self::Split(t) => {
                let [below, above] = t.sets();
                let decode = above.decode();
                let (a, c, d) = (decode.base, decode.decode, decode.context);
                write!(
                    f,
                    "{below}; above {} decodes:base={},decode={}/request,context={}/token",
                    t.at(),
                    a.compact(),
                    c.compact(),
                    d.compact()
                )
            }
            Self::Table(t) => {
                let size = |g: &Grid| format!("{} x {}", g.first().len(), g.second().len());
                write!(
                    f,
                    "decode: table of {}, mixed: table of {}, beyond them their last lines",
                    size(t.decode()),
                    size(t.mixed())
                )
            }
            Self::Affine(t) => t.fmt(f),
            Self::Floored(t) => {
                let c = t.coefficients();
                let parts = [
                    ("o", c.overhead),
                    ("w", c.floor),
                    ("b", c.token),
                    ("cp", c.attention),
                    ("cd", c.context),
                    ("e", c.request),
                ];
                let texts: Vec<String> =
                    parts.iter().map(|(name, t)| format!("{name}={}", t.compact())).collect();
                write!(f, "{}", texts.join(","))
            }
            Self::Calibrated(t) => {
                let o = t.overheads();
                write!(
                    f,
                    "{}; overheads: {} a step, {} a prompt chunk, {} a request",
                    t.inner(),
                    o.step.compact(),
                    o.prompt_chunk.compact(),
                    o.request.compact()
                )
            }
        }
    }
}

/// How far one regime is off its measurements, and where they were.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRegime {
    /// `decode`, `prefill`, `mean step`, or `all` where a form has one set.
    pub regime: String,
    /// How many points.
    pub points: u64,
    /// The mean size of the relative errors (MAPE).
    pub mean_absolute: f64,
    /// The size that 90 % of them do not pass.
    pub p90_absolute: Option<f64>,
    /// The size that 95 % of them do not pass.
    pub p95_absolute: Option<f64>,
    /// The largest, with its sign.
    pub worst: Option<f64>,
    /// The size of the largest, where its sign is not known.
    pub max_absolute: Option<f64>,
    /// Their mean with signs.
    pub bias: Option<f64>,
    /// Least and largest P.
    pub prefill_tokens: [f64; 2],
    /// Least and largest B.
    pub decodes: [f64; 2],
    /// Least and largest C.
    pub context: [f64; 2],
    /// Least and largest A.
    pub attention: [f64; 2],
}

impl FittedRegime {
    /// Whether a step of pure decode (`prefill` false) or with prefill belongs to it.
    #[must_use]
    pub fn covers(&self, prefill: bool) -> bool {
        match self.regime.as_str() {
            "decode" => !prefill,
            "prefill" => prefill,
            _ => true,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    schema_version: Spanned<u64>,
    name: String,
    model: String,
    gpu: String,
    #[serde(default = "one")]
    tensor_parallel: u32,
    engine: String,
    form: Spanned<String>,
    source: String,
    licence: String,
    method: String,
    limits: Vec<String>,
    decode_ms: Option<Spanned<RawDecode>>,
    above_ms: Option<Spanned<RawAbove>>,
    decode_table_ms: Option<Spanned<RawDecodeTable>>,
    prefill_table_ms: Option<Spanned<RawPrefillTable>>,
    prefill_ms: Option<Spanned<RawAffine>>,
    extra_ms: Option<Spanned<RawExtra>>,
    step_ms: Option<Spanned<RawStep>>,
    overheads_ms: Option<Spanned<RawOverheads>>,
    #[serde(default)]
    regimes: Vec<FittedRegime>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDecode {
    a: String,
    c: String,
    d: String,
}

/// The decode coefficients above a batch size.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAbove {
    decodes: u64,
    a: String,
    c: String,
    d: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDecodeTable {
    decodes: Vec<u64>,
    context_each: Vec<u64>,
    times: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrefillTable {
    prompt_tokens: Vec<u64>,
    context: Vec<u64>,
    times: Vec<Vec<String>>,
    c: String,
    q: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAffine {
    a: String,
    b: String,
    c: String,
    d: String,
    q: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExtra {
    #[serde(default)]
    overhead: Option<String>,
    #[serde(default)]
    comm: Option<String>,
    #[serde(default)]
    floor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverheads {
    step: String,
    prompt_chunk: String,
    request: String,
}

/// The coefficients of either form with one set: which are there tells which it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    a: Option<String>,
    b: Option<String>,
    c: Option<String>,
    d: Option<String>,
    q: Option<String>,
    o: Option<String>,
    w: Option<String>,
    cp: Option<String>,
    cd: Option<String>,
    e: Option<String>,
}

const fn one() -> u32 {
    1
}

type Text = std::result::Result<Ticks, String>;

/// Milliseconds as text in whole attoseconds, rounded to the nearest.
fn ticks(name: &str, text: &str) -> Text {
    scaled(text, 15).map(Ticks::from_attoseconds).ok_or_else(|| {
        let found = shown(text);
        format!("`{name}`: found `{found}`, expected a decimal number of milliseconds")
    })
}

/// The same for the attention term, in an even number: a step's work holds half pairs.
fn pair(name: &str, text: &str) -> Text {
    ticks(name, text).map(|t| Ticks::from_attoseconds(t.attoseconds() & !1))
}

fn optional(name: &str, text: Option<&String>) -> Text {
    text.map_or(Ok(Ticks::ZERO), |t| ticks(name, t))
}

/// A coefficient that the form has to have.
fn needed(name: &str, text: Option<&String>) -> std::result::Result<String, String> {
    text.cloned().ok_or_else(|| format!("no `{name}`"))
}

/// The coefficients of pure decode.
fn decode_set(a: &str, c: &str, d: &str) -> std::result::Result<Coefficients, String> {
    Ok(Coefficients {
        base: ticks("a", a)?,
        decode: ticks("c", c)?,
        context: ticks("d", d)?,
        ..Coefficients::default()
    })
}

/// A table of times.
fn grid(first: &[u64], second: &[u64], times: &[Vec<String>]) -> std::result::Result<Grid, String> {
    let row = |row: &Vec<String>| row.iter().map(|t| ticks("times", t)).collect();
    let times = times.iter().map(row).collect::<std::result::Result<Vec<Vec<Ticks>>, String>>()?;
    Grid::new(first.to_vec(), second.to_vec(), times).map_err(|e| e.to_string())
}

impl RawAffine {
    fn coefficients(&self) -> std::result::Result<Coefficients, String> {
        Ok(Coefficients {
            base: ticks("a", &self.a)?,
            prefill: ticks("b", &self.b)?,
            decode: ticks("c", &self.c)?,
            context: ticks("d", &self.d)?,
            attention: pair("q", &self.q)?,
        })
    }
}

impl RawStep {
    fn affine(&self) -> std::result::Result<FittedStep, String> {
        if [&self.o, &self.w, &self.cp, &self.cd, &self.e].into_iter().any(Option::is_some) {
            return Err("expected a, b, c, d and q for the form `affine`".to_owned());
        }
        let raw = RawAffine {
            a: needed("a", self.a.as_ref())?,
            b: needed("b", self.b.as_ref())?,
            c: needed("c", self.c.as_ref())?,
            d: needed("d", self.d.as_ref())?,
            q: needed("q", self.q.as_ref())?,
        };
        let affine = Affine::new(raw.coefficients()?).map_err(|e| e.to_string())?;
        Ok(FittedStep::Affine(affine))
    }

    fn floored(&self) -> std::result::Result<FittedStep, String> {
        if [&self.a, &self.c, &self.d, &self.q].into_iter().any(Option::is_some) {
            return Err("expected o, w, b, cp, cd and e for the form `floored`".to_owned());
        }
        let of = |name: &str, text: &Option<String>| -> Text {
            ticks(name, &needed(name, text.as_ref())?)
        };
        let floored = Floored::new(FlooredCoefficients {
            overhead: of("o", &self.o)?,
            floor: of("w", &self.w)?,
            token: of("b", &self.b)?,
            attention: pair("cp", &needed("cp", self.cp.as_ref())?)?,
            context: of("cd", &self.cd)?,
            request: of("e", &self.e)?,
        });
        floored.map(FittedStep::Floored).map_err(|e| e.to_string())
    }
}

impl Raw {
    /// The step time, or what is wrong with it and where.
    fn step(&self) -> std::result::Result<FittedStep, (std::ops::Range<usize>, String)> {
        let kernels = self.kernels()?;
        let Some(raw) = &self.overheads_ms else { return Ok(kernels) };
        let r = raw.get_ref();
        let read = || -> std::result::Result<FittedStep, String> {
            let overheads = ServerOverheads {
                step: ticks("step", &r.step)?,
                prompt_chunk: ticks("prompt_chunk", &r.prompt_chunk)?,
                request: ticks("request", &r.request)?,
            };
            let with = WithOverheads::new(kernels, overheads).map_err(|e| e.to_string())?;
            Ok(FittedStep::Calibrated(Box::new(with)))
        };
        read().map_err(|problem| (raw.span(), problem))
    }

    /// The coefficients, or what is wrong with them and where.
    fn kernels(&self) -> std::result::Result<FittedStep, (std::ops::Range<usize>, String)> {
        let at_form = |problem: &str| (self.form.span(), problem.to_owned());
        let at = |span: std::ops::Range<usize>| move |problem: String| (span, problem);
        // Every form has its tables and no others.
        let tables = [
            self.decode_ms.is_some(),
            self.prefill_ms.is_some(),
            self.above_ms.is_some(),
            self.extra_ms.is_some(),
            self.step_ms.is_some(),
            self.decode_table_ms.is_some(),
            self.prefill_table_ms.is_some(),
        ];
        match self.form.get_ref().as_str() {
            name @ ("two-regime" | "split") => {
                let (Some(decode), Some(prefill), [.., false, false, false]) =
                    (&self.decode_ms, &self.prefill_ms, tables)
                else {
                    return Err(at_form(&format!(
                        "the form `{name}` has [decode_ms] and [prefill_ms], and no [step_ms] and no tables"
                    )));
                };
                let d = decode.get_ref();
                let decode = decode_set(&d.a, &d.c, &d.d).map_err(at(decode.span()))?;
                let mixed = prefill.get_ref().coefficients().map_err(at(prefill.span()))?;
                let extra = match &self.extra_ms {
                    None => Extra::default(),
                    Some(raw) => {
                        let e = raw.get_ref();
                        let read = || -> std::result::Result<Extra, String> {
                            Ok(Extra {
                                overhead: optional("overhead", e.overhead.as_ref())?,
                                comm: optional("comm", e.comm.as_ref())?,
                                floor: optional("floor", e.floor.as_ref())?,
                            })
                        };
                        read().map_err(at(raw.span()))?
                    }
                };
                let form = |decode| {
                    TwoRegime::new(decode, mixed, extra).map_err(|e| at_form(&e.to_string()))
                };
                let below = form(decode)?;
                match (name, &self.above_ms) {
                    ("two-regime", None) => Ok(FittedStep::TwoRegime(below)),
                    ("split", Some(raw)) => {
                        let r = raw.get_ref();
                        let above = decode_set(&r.a, &r.c, &r.d).map_err(at(raw.span()))?;
                        Split::new(r.decodes, below, form(above)?)
                            .map(FittedStep::Split)
                            .map_err(|e| at_form(&e.to_string()))
                    }
                    _ => {
                        Err(at_form("the form `split` has [above_ms], and `two-regime` has it not"))
                    }
                }
            }
            "table" => {
                let (Some(decode), Some(prefill), [false, false, false, false, false, ..]) =
                    (&self.decode_table_ms, &self.prefill_table_ms, tables)
                else {
                    return Err(at_form(
                        "the form `table` has [decode_table_ms] and [prefill_table_ms], and no coefficients",
                    ));
                };
                let d = decode.get_ref();
                let pure =
                    grid(&d.decodes, &d.context_each, &d.times).map_err(at(decode.span()))?;
                let p = prefill.get_ref();
                let read = || -> std::result::Result<FittedStep, String> {
                    let mixed = grid(&p.prompt_tokens, &p.context, &p.times)?;
                    Table::new(pure, mixed, ticks("c", &p.c)?, pair("q", &p.q)?)
                        .map(FittedStep::Table)
                        .map_err(|e| e.to_string())
                };
                read().map_err(at(prefill.span()))
            }
            name @ ("affine" | "floored") => {
                let (Some(step), [false, false, false, false, true, false, false]) =
                    (&self.step_ms, tables)
                else {
                    return Err(at_form(&format!(
                        "the form `{name}` has [step_ms] and no other coefficients"
                    )));
                };
                let raw = step.get_ref();
                let read = if name == "affine" { raw.affine() } else { raw.floored() };
                read.map_err(|problem| (step.span(), problem))
            }
            other => Err(at_form(&format!(
                "found `{}`, expected `two-regime`, `split`, `affine`, `floored` or `table`",
                shown(other)
            ))),
        }
    }
}

/// Attoseconds as a decimal text of milliseconds, in full.
fn milliseconds(t: Ticks) -> String {
    const ONE: u128 = 1_000_000_000_000_000;
    let (whole, part) = (t.attoseconds() / ONE, t.attoseconds() % ONE);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{}", format!("{part:015}").trim_end_matches('0'))
}

/// The coefficients of a step time as tables of its file.
fn write_step(out: &mut String, step: &FittedStep) {
    let table = |out: &mut String, name: &str, values: &[(&str, Ticks)]| {
        let _ = writeln!(out, "[{name}]");
        for (key, value) in values {
            let _ = writeln!(out, "{key} = \"{}\"", milliseconds(*value));
        }
        out.push('\n');
    };
    let all = |c: Coefficients| {
        [("a", c.base), ("b", c.prefill), ("c", c.decode), ("d", c.context), ("q", c.attention)]
    };
    let two_regime = |out: &mut String, t: &TwoRegime| {
        let d = t.decode();
        table(out, "decode_ms", &[("a", d.base), ("c", d.decode), ("d", d.context)]);
        table(out, "prefill_ms", &all(t.mixed()));
        let e = t.extra();
        let extra = [("overhead", e.overhead), ("comm", e.comm), ("floor", e.floor)];
        let extra: Vec<(&str, Ticks)> =
            extra.into_iter().filter(|(_, t)| *t != Ticks::ZERO).collect();
        if !extra.is_empty() {
            table(out, "extra_ms", &extra);
        }
    };
    match step {
        FittedStep::TwoRegime(t) => two_regime(out, t),
        FittedStep::Split(t) => {
            let [below, above] = t.sets();
            two_regime(out, below);
            let d = above.decode();
            let _ = writeln!(out, "[above_ms]\ndecodes = {}", t.at());
            for (key, value) in [("a", d.base), ("c", d.decode), ("d", d.context)] {
                let _ = writeln!(out, "{key} = \"{}\"", milliseconds(value));
            }
            out.push('\n');
        }
        FittedStep::Table(t) => {
            let mut grid = |name: &str, axes: [&str; 2], g: &Grid| {
                let _ = writeln!(out, "[{name}]");
                let _ = writeln!(out, "{} = {:?}", axes[0], g.first());
                let _ = writeln!(out, "{} = {:?}\ntimes = [", axes[1], g.second());
                for row in g.times() {
                    let row: Vec<String> = row.iter().map(|t| milliseconds(*t)).collect();
                    let _ = writeln!(out, "    {row:?},");
                }
                out.push_str("]\n");
            };
            grid("decode_table_ms", ["decodes", "context_each"], t.decode());
            grid("prefill_table_ms", ["prompt_tokens", "context"], t.mixed());
            let rest = t.rest();
            for (key, value) in [("c", rest.decode), ("q", rest.attention)] {
                let _ = writeln!(out, "{key} = \"{}\"", milliseconds(value));
            }
            out.push('\n');
        }
        FittedStep::Affine(t) => table(out, "step_ms", &all(t.coefficients())),
        FittedStep::Floored(t) => {
            let c = t.coefficients();
            table(
                out,
                "step_ms",
                &[
                    ("o", c.overhead),
                    ("w", c.floor),
                    ("b", c.token),
                    ("cp", c.attention),
                    ("cd", c.context),
                    ("e", c.request),
                ],
            );
        }
        FittedStep::Calibrated(t) => {
            write_step(out, t.inner());
            let o = t.overheads();
            table(
                out,
                "overheads_ms",
                &[("step", o.step), ("prompt_chunk", o.prompt_chunk), ("request", o.request)],
            );
        }
    }
}

impl FittedStepTime {
    /// A step-time file from its text; `file` is only used in messages.
    ///
    /// # Errors
    ///
    /// [`IoError::Config`](crate::IoError::Config) with line and key.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let raw: Raw = parse(file, text)?;
        check_version(file, text, &raw.schema_version)?;
        let step = raw.step().map_err(|(span, problem)| wrong(file, text, span, problem))?;
        Ok(Self {
            name: raw.name,
            model: raw.model,
            gpu: raw.gpu,
            tensor_parallel: raw.tensor_parallel,
            engine: raw.engine,
            source: raw.source,
            licence: raw.licence,
            method: raw.method,
            limits: raw.limits,
            step,
            regimes: raw.regimes,
        })
    }

    /// The text of the file; [`FittedStepTime::parse`] reads it back to the same.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut out = format!("schema_version = {SCHEMA_VERSION}\n");
        for (key, value) in [
            ("name", quoted(&self.name)),
            ("model", quoted(&self.model)),
            ("gpu", quoted(&self.gpu)),
            ("tensor_parallel", self.tensor_parallel.to_string()),
            ("engine", quoted(&self.engine)),
            ("form", quoted(self.step.form())),
            ("source", quoted(&self.source)),
            ("licence", quoted(&self.licence)),
            ("method", quoted(&self.method)),
        ] {
            let _ = writeln!(out, "{key} = {value}");
        }
        out.push_str("limits = [");
        for limit in &self.limits {
            let _ = write!(out, "\n    {},", quoted(limit));
        }
        out.push_str(if self.limits.is_empty() { "]\n" } else { "\n]\n" });
        out.push_str("\n# Milliseconds; text, so that every digit is kept.\n");
        write_step(&mut out, &self.step);
        for r in &self.regimes {
            let _ =
                writeln!(out, "[[regimes]]\nregime = {}\npoints = {}", quoted(&r.regime), r.points);
            for (key, value) in [
                ("mean_absolute", Some(r.mean_absolute)),
                ("p90_absolute", r.p90_absolute),
                ("p95_absolute", r.p95_absolute),
                ("worst", r.worst),
                ("max_absolute", r.max_absolute),
                ("bias", r.bias),
            ] {
                if let Some(value) = value {
                    let _ = writeln!(out, "{key} = {value:?}");
                }
            }
            for (key, [least, most]) in [
                ("prefill_tokens", r.prefill_tokens),
                ("decodes", r.decodes),
                ("context", r.context),
                ("attention", r.attention),
            ] {
                let _ = writeln!(out, "{key} = [{least:?}, {most:?}]");
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
schema_version = 1
name = "mine"
model = ""
gpu = ""
engine = ""
form = "affine"
source = "steps.csv"
licence = ""
method = "by hand"
limits = []
[step_ms]
a = "8"
b = "0.06"
c = "0"
d = "0"
q = "0"
"#;

    /// 8 ms, 1 ms a step, 0.5 ms for the chunk and 0.25 for each of four requests.
    #[test]
    fn overheads_are_added_and_written_again() {
        let text = format!(
            "{FILE}[overheads_ms]\nstep = \"1\"\nprompt_chunk = \"0.5\"\nrequest = \"0.25\"\n"
        );
        let file = FittedStepTime::parse("mine.toml", &text).unwrap();
        let mut work = StepWork::default();
        (work.prefills, work.decodes) = (1, 3);
        assert_eq!(file.step.step(&work), "10.5ms".parse().unwrap());
        assert_eq!(file.step.form(), "affine");
        assert_eq!(
            file.step.to_string(),
            "base=8ms,prefill=60us/token; overheads: 1ms a step, 500us a prompt chunk, 250us a request"
        );
        assert_eq!(FittedStepTime::parse("again.toml", &file.to_toml()).unwrap(), file);
    }

    #[test]
    fn a_wrong_overhead_is_named_with_its_line() {
        let said = |overheads: &str| {
            let text = format!("{FILE}[overheads_ms]\n{overheads}");
            FittedStepTime::parse("mine.toml", &text).unwrap_err().to_string()
        };
        let rest = "prompt_chunk = \"0\"\nrequest = \"0\"\n";
        let e = said(&format!("step = \"-1\"\n{rest}"));
        assert!(e.starts_with("mine.toml, line 18") && e.contains("`step`: found `-1`"), "{e}");
        let e = said(&format!("step = \"1e7\"\n{rest}"));
        assert!(e.contains("step"), "{e}");
        assert!(said(rest).contains("missing field `step`"), "{}", said(rest));
    }
}
