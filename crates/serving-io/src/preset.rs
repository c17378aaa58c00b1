//! Step-time presets: coefficients that were fitted to measurements, with where they come from.
//!
//! A preset is a TOML file, and those of `presets/step-time` are built in. Its form is
//!
//! ```text
//! t = o + max(w, b*N) + cp*A + cd*K + e*B
//! ```
//!
//! in milliseconds, for one step with N new tokens (prompt and decode together), A = Σ chunk ·
//! (tokens before it) + chunk² / 2 over the prompt chunks, K tokens of context that the decodes
//! read, and B requests. Coefficients are texts, so that no digit is lost.
//!
//! # Examples
//!
//! ```
//! use serving_io::preset;
//!
//! let preset = preset::named("llama-3.1-8b-h100-sxm")?;
//! assert_eq!(preset.gpu, "NVIDIA H100 SXM");
//! // 2.855766416955244 ms are whole attoseconds.
//! assert_eq!(preset.ticks()?.overhead.attoseconds(), 2_855_766_416_955_244);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use sched_sim::Ticks;
use serde::Deserialize;
use toml::Spanned;

use crate::config::{check_version, parse, wrong};
use crate::decimal::scaled;
use crate::error::{IoError, Result, listed, shown};

/// The form of all presets, as their files name it.
pub const FORM: &str = "t = o + max(w, b*N) + cp*A + cd*K + e*B";

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../../../presets/step-time/", $name, ".toml")),
        )),*]
    };
}

/// Name and text of the presets that are built in.
static BUILT_IN: [(&str, &str); 11] = built_in![
    "llama-3.1-8b-h100-sxm",
    "llama-3.1-8b-h200-sxm",
    "llama-3.1-8b-b200-sxm",
    "llama-3.1-8b-a100-sxm",
    "llama-3.1-8b-l40s",
    "llama-3.1-70b-h100-sxm-tp4",
    "llama-3.1-70b-h100-sxm-tp8",
    "llama-3.1-70b-h200-sxm-tp4",
    "llama-3.1-70b-a100-sxm-tp4",
    "qwen3-8b-h100-sxm",
    "qwen3-32b-h100-sxm-tp2",
];

/// The preset that is taken where nothing else is said.
pub const DEFAULT: &str = "llama-3.1-8b-h100-sxm";

/// The names of the presets that are built in.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The preset of that name.
///
/// # Errors
///
/// [`IoError::UnknownPreset`] with the names that there are.
pub fn named(name: &str) -> Result<Preset> {
    let (name, text) = BUILT_IN
        .iter()
        .find(|(n, _)| *n == name)
        .ok_or_else(|| IoError::UnknownPreset { name: shown(name), known: listed(names()) })?;
    Preset::parse(&format!("presets/step-time/{name}.toml"), text)
}

/// Coefficients of a step time, with model, GPU, source and errors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Preset {
    /// The name that selects it.
    pub name: String,
    /// The model.
    pub model: String,
    /// The GPU.
    pub gpu: String,
    /// How many GPUs hold one replica by tensor parallelism.
    pub tensor_parallel: u32,
    /// The engine whose kernels were measured.
    pub engine: String,
    /// Where the coefficients come from.
    pub source: String,
    /// Under which licence.
    pub licence: String,
    /// For which steps they are known to hold.
    pub validity: String,
    /// The coefficients as decimal texts.
    pub coefficients: PresetCoefficients,
    /// How far the form is off the measurements.
    pub errors: FitErrors,
}

/// The coefficients of [`FORM`], in milliseconds, as decimal texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetCoefficients {
    /// Of every step.
    pub o: String,
    /// The least time for the new tokens: reading the weights once.
    pub w: String,
    /// Per new token, prompt or decode.
    pub b: String,
    /// Per pair of prompt tokens that attend to each other.
    pub cp: String,
    /// Per token of context that a decode reads.
    pub cd: String,
    /// Per request.
    pub e: String,
}

/// Relative errors of a fit over its points, as fractions.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitErrors {
    /// The mean of their sizes (MAPE).
    pub mean_absolute: f64,
    /// The size that 95 % of them stay below.
    pub p95_absolute: f64,
    /// The largest size.
    pub max_absolute: f64,
    /// How many step times were fitted.
    pub points: u64,
}

/// The coefficients of [`FORM`] in ticks, each rounded to the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetTicks {
    /// `o`, of every step.
    pub overhead: Ticks,
    /// `w`, the least time for the new tokens.
    pub floor: Ticks,
    /// `b`, per new token.
    pub token: Ticks,
    /// `cp`, per pair of prompt tokens, in an even number of attoseconds: a step's work holds half
    /// pairs.
    pub attention: Ticks,
    /// `cd`, per context token that a decode reads.
    pub context: Ticks,
    /// `e`, per request.
    pub request: Ticks,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPreset {
    schema_version: Spanned<u64>,
    name: String,
    model: String,
    gpu: String,
    tensor_parallel: u32,
    engine: String,
    form: Spanned<String>,
    source: String,
    licence: String,
    validity: String,
    coefficients_ms: Spanned<PresetCoefficients>,
    errors: FitErrors,
}

impl Preset {
    /// A preset from its text; `file` is only used in messages.
    ///
    /// # Errors
    ///
    /// [`IoError::Config`] with line and key.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let raw: RawPreset = parse(file, text)?;
        check_version(file, text, &raw.schema_version)?;
        if raw.form.get_ref() != FORM {
            let problem = format!("found `{}`, expected `{FORM}`", shown(raw.form.get_ref()));
            return Err(wrong(file, text, raw.form.span(), problem));
        }
        let span = raw.coefficients_ms.span();
        let preset = Self {
            name: raw.name,
            model: raw.model,
            gpu: raw.gpu,
            tensor_parallel: raw.tensor_parallel,
            engine: raw.engine,
            source: raw.source,
            licence: raw.licence,
            validity: raw.validity,
            coefficients: raw.coefficients_ms.into_inner(),
            errors: raw.errors,
        };
        preset.checked_ticks().map_err(|problem| wrong(file, text, span, problem))?;
        Ok(preset)
    }

    /// The coefficients in ticks.
    ///
    /// # Errors
    ///
    /// [`IoError::Config`] for a text that is no decimal number from 0 to 1,000,000, which a
    /// parsed preset does not have.
    pub fn ticks(&self) -> Result<PresetTicks> {
        self.checked_ticks().map_err(|problem| {
            let at = Box::new(crate::error::Place::file(&self.name));
            IoError::Config { at, problem }
        })
    }

    fn checked_ticks(&self) -> std::result::Result<PresetTicks, String> {
        /// A thousand seconds: no step of any server takes so long.
        const LARGEST: u128 = 1000 * Ticks::SECOND.attoseconds();
        let ticks = |name: &str, text: &str| {
            // Milliseconds to attoseconds.
            scaled(text, 15).filter(|&n| n <= LARGEST).map(Ticks::from_attoseconds).ok_or_else(
                || {
                    let found = shown(text);
                    format!("`{name}`: found `{found}`, expected a decimal number of milliseconds from 0 to 1000000")
                },
            )
        };
        let c = &self.coefficients;
        let attention = ticks("cp", &c.cp)?.attoseconds();
        Ok(PresetTicks {
            overhead: ticks("o", &c.o)?,
            floor: ticks("w", &c.w)?,
            token: ticks("b", &c.b)?,
            // An attosecond less is some 1e-9 of any coefficient in use.
            attention: Ticks::from_attoseconds(attention & !1),
            context: ticks("cd", &c.cd)?,
            request: ticks("e", &c.e)?,
        })
    }
}
