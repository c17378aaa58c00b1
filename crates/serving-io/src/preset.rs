//! Step-time presets: files of fitted step times that are built in.
//!
//! A preset is a [step-time file](crate::fitted) of `presets/step-time` with model, GPU, source,
//! licence, errors and range: what its steps were fitted on is what a simulation may ask of it.
//!
//! # Examples
//!
//! ```
//! use serving_io::preset;
//!
//! let preset = preset::named("llama-3.1-8b-h100-sxm")?;
//! assert_eq!(preset.gpu, "NVIDIA H100 SXM");
//! // Fitted on batches of up to 2048 requests.
//! assert_eq!(preset.regimes[0].decodes, [0.0, 2048.0]);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use crate::error::{IoError, Result, listed, shown};
use crate::fitted::FittedStepTime;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../../../presets/step-time/", $name, ".toml")),
        )),*]
    };
}

/// Name and text of the presets that are built in.
static BUILT_IN: [(&str, &str); 14] = built_in![
    "llama-3.1-8b-h100-sxm",
    "llama-3.1-8b-h200-sxm",
    "llama-3.1-8b-b200-sxm",
    "llama-3.1-8b-a100-sxm",
    "llama-3.1-8b-l40s",
    "llama-3.1-8b-rtx-4090",
    "llama-3.1-8b-rtx-pro-6000",
    "llama-3.1-70b-h100-sxm-tp4",
    "llama-3.1-70b-h100-sxm-tp8",
    "llama-3.1-70b-h200-sxm-tp4",
    "llama-3.1-70b-a100-sxm-tp4",
    "qwen3-8b-h100-sxm",
    "qwen3-32b-h100-sxm-tp2",
    "qwen3-32b-rtx-pro-6000",
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
pub fn named(name: &str) -> Result<FittedStepTime> {
    let (name, text) = BUILT_IN
        .iter()
        .find(|(n, _)| *n == name)
        .ok_or_else(|| IoError::UnknownPreset { name: shown(name), known: listed(names()) })?;
    FittedStepTime::parse(&format!("presets/step-time/{name}.toml"), text)
}

/// The preset of a model on a GPU as a server's settings name them; none if there is none.
///
/// Owner, `Meta-` and `-Instruct` of a model's name make no difference to its steps. A GPU is told
/// by its product name: `RTX4090` is `NVIDIA GeForce RTX 4090`, and a PCIe card is no SXM one.
///
/// # Errors
///
/// [`IoError::Config`] for a file that cannot be read, which none that is built in is.
pub fn matching(model: &str, gpu: &str, tensor_parallel: u32) -> Result<Option<FittedStepTime>> {
    for name in names() {
        let preset = named(name)?;
        if preset.tensor_parallel == tensor_parallel
            && plain_model(&preset.model) == plain_model(model)
            && same_gpu(&preset.gpu, gpu)
        {
            return Ok(Some(preset));
        }
    }
    Ok(None)
}

/// A model's name without what does not change its shape.
fn plain_model(name: &str) -> String {
    let own = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let own = own.strip_prefix("meta-").unwrap_or(&own);
    own.strip_suffix("-instruct").unwrap_or(own).to_owned()
}

/// Whether a text names the GPU of a preset.
fn same_gpu(preset: &str, text: &str) -> bool {
    /// What a name may leave out or add without another product being meant.
    const MAKER: [&str; 4] = ["nvidia", "geforce", "amd", "tesla"];
    let words = |text: &str| -> Vec<String> {
        text.to_ascii_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| !w.is_empty() && !MAKER.contains(w))
            .map(str::to_owned)
            .collect()
    };
    let board = |words: &[String], of: &str| words.iter().any(|w| w.starts_with(of));
    let (own, other) = (words(preset), words(text));
    let boards = ["pcie", "nvl"];
    if boards.iter().any(|b| board(&other, b) && !board(&own, b)) {
        return false;
    }
    let product: String = own.iter().filter(|w| !w.starts_with("sxm")).cloned().collect();
    // The product may be one word or several: "RTX4090", "RTX 4090".
    (0..other.len()).any(|i| (i + 1..=other.len()).any(|j| other[i..j].concat() == product))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_and_a_gpu_are_found_under_the_names_that_people_write() {
        let found = |model: &str, gpu: &str, tp: u32| {
            matching(model, gpu, tp).unwrap().map(|p| p.name).unwrap_or_default()
        };
        for gpu in ["H100-80GB", "NVIDIA H100 80GB HBM3", "h100 sxm5"] {
            assert_eq!(found("meta-llama/Llama-3.1-8B-Instruct", gpu, 1), "llama-3.1-8b-h100-sxm");
        }
        for gpu in ["RTX4090", "NVIDIA GeForce RTX 4090"] {
            assert_eq!(found("Llama-3.1-8B", gpu, 1), "llama-3.1-8b-rtx-4090");
        }
        assert_eq!(found("Qwen/Qwen3-32B", "RTXPRO6000", 1), "qwen3-32b-rtx-pro-6000");
        assert_eq!(found("llama-3.1-70b", "H100", 8), "llama-3.1-70b-h100-sxm-tp8");
        for (model, gpu, tp) in [
            ("llama-7b", "H100", 1),
            ("Llama-3.1-8B", "H100 PCIe", 1),
            ("Llama-3.1-8B", "GH200", 1),
            ("Llama-3.1-8B", "H100", 2),
            ("Llama-3.1-8B", "", 1),
        ] {
            assert_eq!(found(model, gpu, tp), "", "{model} {gpu} {tp}");
        }
    }
}
