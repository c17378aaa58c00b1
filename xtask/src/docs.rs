//! `cargo xtask docs`: generated blocks in the pages, and `docs/catalog.json`.
//!
//! One function makes every text; writing and checking differ only in what they do with it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use metrics_core::metric::{Formula, Input, Language, Layer, Metric, Text};
use metrics_core::units::Unit;
use serde_json::{Value, json};

use crate::blocks::BLOCKS;
use crate::source::{self, Source};
use crate::{repo, tidy};

/// The catalog as data, for tools outside this repository.
const CATALOG: &str = "docs/catalog.json";

/// The command that mends a stale page.
const MEND: &str = "run `cargo xtask docs` and commit the result";

/// A crate with a catalog: its directory and its entries.
type Catalogued = (&'static str, fn() -> Vec<&'static Metric>);

/// The crates whose functions have catalog entries, in docs order.
const CATALOGS: &[Catalogued] = &[
    ("crates/metrics-core", || metrics_core::catalog::metrics().collect()),
    ("crates/queueing", || queueing::catalog::metrics().collect()),
];

/// Every metric of every crate, in docs order.
pub fn catalog() -> Vec<&'static Metric> {
    CATALOGS.iter().flat_map(|(_, metrics)| metrics()).collect()
}

/// Writes what is stale, and says which files that were.
pub fn write(root: &Path) -> Result<Vec<String>> {
    let mut written = Vec::new();
    for (file, new) in generated(root)? {
        if std::fs::read_to_string(root.join(&file)).ok().as_deref() != Some(new.as_str()) {
            std::fs::write(root.join(&file), new)
                .with_context(|| format!("cannot write {file}"))?;
            written.push(file);
        }
    }
    Ok(written)
}

/// What is stale, and where catalog and source differ.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (file, new) in generated(root)? {
        let old = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
        if old != new {
            let line = 1 + old.lines().zip(new.lines()).take_while(|(a, b)| a == b).count();
            faults.push(format!("{file}:{line}: stale: {MEND}"));
        }
    }
    for (package, metrics) in CATALOGS {
        let source = Source::read(root, package)?;
        let metrics = metrics();
        for m in &metrics {
            faults.extend(source::entry_faults(m, &source));
        }
        let list_file = format!("{package}/{}", source::UNCATALOGUED);
        let list = repo::read(root, &list_file)?;
        faults.extend(source::coverage_faults(&source, &list, &list_file, &metrics));
    }
    let mut seen = BTreeMap::new();
    for m in catalog() {
        if let Some(other) = seen.insert(m.id, m.path) {
            let (id, path) = (m.id, m.path);
            faults.push(format!("`{path}` and `{other}` share the catalog id `{id}`: rename one"));
        }
    }
    Ok(faults)
}

/// Every file with generated text, as it should be.
fn generated(root: &Path) -> Result<Vec<(String, String)>> {
    let mut files = vec![(CATALOG.to_owned(), catalog_json()?)];
    let mut placed: Vec<(&str, Language)> = Vec::new();
    for page in tidy::pages(root)? {
        let language = language_of(&page);
        let text = repo::read(root, &page)?;
        let new = fill(&text, language, &mut placed).with_context(|| page.clone())?;
        files.push((page, new));
    }
    for (name, _) in BLOCKS {
        for language in [Language::En, Language::Zh] {
            if !placed.contains(&(*name, language)) {
                let dir = if language == Language::En { "docs/en" } else { "docs/zh" };
                bail!("no page of {dir} holds `{}`: add its markers to one", begin(name));
            }
        }
    }
    Ok(files)
}

/// A page's language: `docs/zh/…` and `….zh.md` are Chinese.
fn language_of(page: &str) -> Language {
    if page.starts_with("docs/zh/") || page.ends_with(".zh.md") {
        Language::Zh
    } else {
        Language::En
    }
}

fn begin(name: &str) -> String {
    format!("<!-- begin {name}: cargo xtask docs -->")
}

fn end(name: &str) -> String {
    format!("<!-- end {name} -->")
}

/// The name of the block that a line begins.
fn begun(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- begin ")?.strip_suffix(": cargo xtask docs -->")
}

/// A page with each of its blocks filled anew.
fn fill(page: &str, language: Language, placed: &mut Vec<(&str, Language)>) -> Result<String> {
    let mut out: Vec<String> = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        out.push(line.to_owned());
        let Some(name) = begun(line) else { continue };
        let known = BLOCKS.iter().find(|(known, _)| *known == name);
        let Some((name, write)) = known else {
            let names: Vec<&str> = BLOCKS.iter().map(|(name, _)| *name).collect();
            bail!("line {}: no block is called `{name}`; there are {}", i + 1, names.join(", "));
        };
        let end = end(name);
        if !lines.any(|(_, l)| l.trim() == end) {
            bail!("line {}: block `{name}` has no `{end}`", i + 1);
        }
        out.extend([String::new(), write(language)?, String::new(), end]);
        placed.push((name, language));
    }
    Ok(out.join("\n") + "\n")
}

/// A page without the contents of its blocks: what people wrote.
pub fn without_blocks(page: &str) -> String {
    let mut out = String::new();
    let mut inside: Option<String> = None;
    for line in page.lines() {
        if inside.as_deref() == Some(line.trim()) {
            inside = None;
        }
        if inside.is_none() {
            out.push_str(line);
            out.push('\n');
        }
        if let Some(name) = begun(line) {
            inside = Some(end(name));
        }
    }
    out
}

/// The names of the blocks of a page, in order.
pub fn blocks_of(page: &str) -> Vec<&str> {
    page.lines().filter_map(begun).collect()
}

/// A layer's name in `catalog.json`.
fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Latency => "latency",
        Layer::Throughput => "throughput",
        Layer::Resources => "resources",
        Layer::Diagnosis => "diagnosis",
        Layer::Capacity => "capacity",
        Layer::Scheduling => "scheduling",
        Layer::Queueing => "queueing",
    }
}

fn both(text: Text) -> Value {
    json!({ "en": text.en, "zh": text.zh })
}

fn input(input: &Input) -> Value {
    json!({
        "id": input.id,
        "symbol": input.symbol,
        "names": both(input.name),
        "unit": input.unit.to_string(),
        "counts_as": input.counts_as.as_ref().map(Unit::to_string),
        "range": [input.range.0, input.range.1],
        "whole": input.whole,
    })
}

/// The catalog as JSON.
fn catalog_json() -> Result<String> {
    let mut metrics = Vec::new();
    for m in catalog() {
        let (text, example) = match &m.formula {
            Formula::Scalar { text, example: (inputs, value), .. } => {
                (json!(text), json!({ "inputs": inputs, "value": value }))
            }
            Formula::Law { example, value, .. } => {
                (Value::Null, json!({ "text": both(*example), "value": value }))
            }
        };
        let why = match &m.formula {
            Formula::Scalar { .. } => Value::Null,
            Formula::Law { why, .. } => both(*why),
        };
        let exported: Vec<Value> = m
            .exported
            .iter()
            .map(|e| json!({ "engine": e.engine, "name": e.name, "differs": both(e.differs) }))
            .collect();
        metrics.push(json!({
            "id": m.id,
            "symbol": m.symbol,
            "names": both(m.name),
            "layer": layer(m.layer),
            "unit": m.unit.to_string(),
            "inputs": m.inputs.iter().map(input).collect::<Vec<_>>(),
            "formula": text,
            "why_no_formula": why,
            "latex": m.latex(),
            "path": m.path,
            "source": { "work": m.source.work, "section": m.source.section },
            "example": example,
            "note": both(m.note),
            "exported": exported,
        }));
    }
    let catalog = json!({ "schema_version": 1, "metrics": metrics });
    Ok(serde_json::to_string_pretty(&catalog)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_fresh() {
        let faults = check(&repo::root()).unwrap();
        assert!(faults.is_empty(), "{}", repo::list(&faults));
    }

    #[test]
    fn a_block_is_replaced_and_its_surroundings_stay() {
        let (b, e) = (begin("exported"), end("exported"));
        let page = format!("# Head\n\n{b}\nold\n{e}\n\ntail\n");
        let mut placed = Vec::new();
        let new = fill(&page, Language::En, &mut placed).unwrap();
        assert!(new.starts_with(&format!("# Head\n\n{b}\n\n| Engine |")));
        assert!(new.ends_with(&format!("|\n\n{e}\n\ntail\n")));
        assert_eq!(placed, [("exported", Language::En)]);
        assert_eq!(fill(&new, Language::En, &mut placed).unwrap(), new);
        assert_eq!(without_blocks(&new), without_blocks(&page));
        assert!(without_blocks(&new).contains("tail") && !without_blocks(&new).contains("Engine"));
    }

    #[test]
    fn a_bad_marker_is_named_with_its_line() {
        let mut placed = Vec::new();
        let mut say = |page: &str| fill(page, Language::En, &mut placed).unwrap_err().to_string();
        assert!(say("\n<!-- begin metrcs: cargo xtask docs -->").starts_with("line 2: no block"));
        assert!(say(&begin("exported")).ends_with("has no `<!-- end exported -->`"));
    }

    #[test]
    fn the_catalog_is_json_with_a_version_and_every_id() {
        let parsed: Value = serde_json::from_str(&catalog_json().unwrap()).unwrap();
        assert_eq!(parsed["schema_version"], 1);
        let ids: Vec<&str> = parsed["metrics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, catalog().iter().map(|m| m.id).collect::<Vec<_>>());
    }
}
