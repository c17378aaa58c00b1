//! `cargo xtask new metric`: a skeleton that compiles and that the checks refuse until it is
//! filled in.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;

use crate::{docs, repo};

/// Where the families are.
const FAMILIES: &str = "crates/metrics-core/src";

/// What the skeleton is made from.
#[derive(Args, Clone, Debug)]
pub struct MetricArguments {
    /// Its id, which is the function's name: `queue_share`
    pub id: String,
    /// The file of its family, without ending: `latency`
    #[arg(long)]
    pub family: String,
    /// Its English name: "Share of TTFT spent waiting"
    #[arg(long)]
    pub en: String,
    /// Its Chinese name: "TTFT 中排队时间的占比"
    #[arg(long)]
    pub zh: String,
    /// An input as NAME:TYPE or, where the type has no unit, NAME:TYPE:UNIT; repeat it in order.
    /// Types are those of units.rs, u64 and f64: `w_queue:Seconds`, `n_out:u64:token`
    #[arg(long = "input", value_name = "NAME:TYPE[:UNIT]", required = true)]
    pub inputs: Vec<String>,
    /// The type of its value
    #[arg(long, default_value = "f64", value_name = "TYPE")]
    pub returns: String,
    /// Its formula over the inputs: "w_queue / ttft"
    #[arg(long)]
    pub formula: String,
    /// Its place in the tables; that of its family, if that has one
    #[arg(long)]
    pub layer: Option<LayerName>,
    /// Its LaTeX symbol; made from the id, if not given
    #[arg(long)]
    pub symbol: Option<String>,
}

/// A layer, as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LayerName {
    /// TTFT, TPOT, ITL, E2E
    Latency,
    /// Rates
    Throughput,
    /// KV cache, batch, GPU
    Resources,
    /// What tells why
    Diagnosis,
    /// What a request asks for and a machine gives
    Capacity,
    /// The scheduler's update rules
    Scheduling,
}

/// One input of the skeleton.
struct Input {
    name: String,
    ty: String,
    unit: String,
    symbol: String,
    en: String,
    zh: String,
}

/// Writes the skeleton into its family, and says what to do next.
pub fn metric(root: &Path, arguments: &MetricArguments) -> Result<String> {
    let file = format!("{FAMILIES}/{}.rs", arguments.family);
    let known = families(root)?;
    if !known.contains(&arguments.family) {
        bail!("no family `{}`: there are {}", arguments.family, known.join(", "));
    }
    let family = repo::read(root, &file)?;
    if let Some(known) = docs::catalog().into_iter().find(|m| m.id == arguments.id) {
        bail!("there is a metric `{}` already: `{}`", arguments.id, known.path);
    }
    let layer = if let Some(layer) = arguments.layer {
        format!("{layer:?}")
    } else {
        let module = format!("metrics_core::{}::", arguments.family);
        let first = docs::catalog().into_iter().find(|m| m.path.starts_with(&module));
        let first = first.context("the family has no metric yet: say which --layer")?;
        format!("{:?}", first.layer)
    };
    let units = repo::read(root, &format!("{FAMILIES}/units.rs"))?;
    let (text, line) = with_metric(&family, arguments, &layer, &quantities(&units)?)?;
    std::fs::write(root.join(&file), text).with_context(|| format!("cannot write {file}"))?;
    // Imports are merged by hand and may want sorting; without rustfmt CI says so.
    let _ = Command::new("rustfmt").args(["--edition", "2024", &file]).current_dir(root).status();
    let id = &arguments.id;
    Ok(format!(
        "{file}:{line}: `{id}` is there, and its checks fail until it is filled in.\n\
         1. Fill in every TODO of the function and of its catalog entry, the body first.\n\
         2. Set each input's range so that it reaches every branch of the formula.\n\
         3. Replace the example -1 by one that a reader can redo in the head, twice: in the doc \
         comment and in the catalog entry.\n\
         4. cargo test -p metrics-core      code = formula text, dimension, example\n\
         5. cargo xtask docs                writes the tables in both languages\n\
         6. cargo xtask snapshots           shows what else moved\n\
         Nothing may say TODO any more: cargo xtask docs --check"
    ))
}

/// The files that hold metrics, without ending.
fn families(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in repo::walk(root, FAMILIES)? {
        let name = file.strip_prefix(FAMILIES).and_then(|f| f.strip_prefix('/'));
        if let Some(name) = name.and_then(|f| f.strip_suffix(".rs"))
            && !name.contains('/')
            && repo::read(root, &file)?.contains("\npub const METRICS:")
        {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// The quantity types with the expression of their unit, from the source of `units.rs`.
fn quantities(units: &str) -> Result<Vec<(String, String)>> {
    let tokens: TokenStream =
        units.parse().map_err(|e| anyhow::anyhow!("cannot read units.rs: {e}"))?;
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for call in trees.windows(3) {
        let [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(body)] = call else {
            continue;
        };
        if name != "quantity" || bang.as_char() != '!' {
            continue;
        }
        let body: Vec<TokenTree> = body.stream().into_iter().collect();
        let comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
        let parts: Vec<&[TokenTree]> = body.split(comma).collect();
        if let [named, unit @ .., _input] = parts.as_slice()
            && let Some(TokenTree::Ident(name)) = named.last()
            && let (Some(first), Some(last)) =
                (unit.first().and_then(|u| u.first()), unit.last().and_then(|u| u.last()))
        {
            let range = first.span().byte_range().start..last.span().byte_range().end;
            let unit = units.get(range).context("a span of units.rs is out of range")?;
            found.push((name.to_string(), unit.to_owned()));
        }
    }
    Ok(found)
}

/// The unit of a plain number's input, by the name that tables print.
fn unit_named(name: &str) -> Result<&'static str> {
    Ok(match name {
        "1" => "Unit::ONE",
        "token" => "Unit::TOKEN",
        "request" => "Unit::REQUEST",
        "byte" => "Unit::BYTE",
        "FLOP" => "Unit::FLOP",
        "parameter" => "Unit::PARAMETER",
        "block" => "Unit::BLOCK",
        "step" => "Unit::STEP",
        "GPU" => "Unit::GPU",
        "node" => "Unit::NODE",
        "s" => "Unit::SECOND",
        other => bail!(
            "no unit `{other}`; there are 1, token, request, byte, FLOP, parameter, block, step, \
             GPU, node, s"
        ),
    })
}

fn unit_of(ty: &str, named: Option<&str>, quantities: &[(String, String)]) -> Result<String> {
    if let Some((_, unit)) = quantities.iter().find(|(name, _)| name == ty) {
        if named.is_some() {
            bail!("`{ty}` carries its unit in the type: leave the unit out");
        }
        return Ok(unit.clone());
    }
    if ty == "f64" || ty == "u64" {
        return unit_named(named.unwrap_or("1")).map(str::to_owned);
    }
    let names: Vec<&str> = quantities.iter().map(|(name, _)| name.as_str()).collect();
    bail!("no type `{ty}`; there are f64, u64, {}", names.join(", "))
}

fn input(text: &str, quantities: &[(String, String)]) -> Result<Input> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (name, ty, unit) = match parts.as_slice() {
        [name, ty] => (*name, *ty, None),
        [name, ty, unit] => (*name, *ty, Some(*unit)),
        _ => bail!("an input is NAME:TYPE or NAME:TYPE:UNIT, got `{text}`"),
    };
    snake_case("an input's name", name)?;
    let unit = unit_of(ty, unit, quantities)?;
    // An input that another metric has is called here what it is called there.
    let known = docs::catalog().into_iter().flat_map(|m| m.inputs).find(|i| i.id == name);
    let (symbol, en, zh) = match known {
        Some(i) => (i.symbol.to_owned(), i.name.en, i.name.zh),
        None => (symbol_of(name), "TODO what it is", "TODO 中文名"),
    };
    let (name, ty, en, zh) = (name.to_owned(), ty.to_owned(), en.to_owned(), zh.to_owned());
    Ok(Input { name, ty, unit, symbol, en, zh })
}

/// A symbol for a name: `w_queue` is w with an index.
fn symbol_of(name: &str) -> String {
    match name.split_once('_') {
        Some((head, rest)) => format!(r"{head}_{{\text{{{}}}}}", rest.replace('_', " ")),
        None if name.len() == 1 => name.to_owned(),
        None => format!(r"\text{{{name}}}"),
    }
}

/// A symbol as a literal, raw where it holds a backslash.
fn latex(symbol: &str) -> String {
    if symbol.contains('\\') { format!("r\"{symbol}\"") } else { format!("{symbol:?}") }
}

fn snake_case(what: &str, name: &str) -> Result<()> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.chars().all(letters)
        || syn::parse_str::<syn::Ident>(name).is_err()
    {
        bail!("{what} is a Rust name in lower case, such as `queue_share`, got `{name}`");
    }
    Ok(())
}

/// A change of the text: this range becomes that.
type Edit = (Range<usize>, String);

/// The family's text with the skeleton in it, and the skeleton's line.
fn with_metric(
    family: &str,
    arguments: &MetricArguments,
    layer: &str,
    quantities: &[(String, String)],
) -> Result<(String, usize)> {
    let id = &arguments.id;
    snake_case("a metric's id", id)?;
    let file = syn::parse_file(family).context("the family does not parse")?;
    let constant = id.to_uppercase();
    for item in &file.items {
        let taken = match item {
            syn::Item::Fn(f) => f.sig.ident == id.as_str(),
            syn::Item::Const(c) => c.ident == constant.as_str(),
            _ => false,
        };
        if taken {
            let line = item.span().start().line;
            bail!("the family has a `{id}` or `{constant}` at line {line} already");
        }
    }
    let inputs: Vec<Input> =
        arguments.inputs.iter().map(|i| input(i, quantities)).collect::<Result<_>>()?;
    let unit = unit_of(&arguments.returns, None, quantities)?;

    let list = file.items.iter().find_map(|item| match item {
        syn::Item::Const(c) if c.ident == "METRICS" => Some(c),
        _ => None,
    });
    let list = list.context("the family has no `METRICS` list to add the metric to")?;
    let syn::Expr::Reference(reference) = &*list.expr else { bail!("`METRICS` is no `&[…]`") };
    let syn::Expr::Array(entries) = &*reference.expr else { bail!("`METRICS` is no `&[…]`") };
    let close = entries.bracket_token.span.close().byte_range().start;
    let comma = if entries.elems.is_empty() || entries.elems.trailing_punct() { "" } else { ", " };

    let start = list.span().byte_range().start;
    let mut edits: Vec<Edit> = vec![
        (close..close, format!("{comma}&{constant}")),
        (start..start, skeleton(arguments, &constant, layer, &unit, &inputs)),
    ];
    edits.extend(imports(&file, &arguments.returns, &inputs, quantities));
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut text = family.to_owned();
    for (range, new) in edits {
        text.replace_range(range, &new);
    }
    let at = text.find(&format!("pub fn {id}(")).context("the skeleton was not inserted")?;
    let line = 1 + text[..at].matches('\n').count();
    Ok((text, line))
}

/// Function and catalog entry.
fn skeleton(
    arguments: &MetricArguments,
    constant: &str,
    layer: &str,
    unit: &str,
    inputs: &[Input],
) -> String {
    let MetricArguments { id, family, en, zh, returns, formula, .. } = arguments;
    let parameters: Vec<String> = inputs.iter().map(|i| format!("{}: {}", i.name, i.ty)).collect();
    let names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
    let typed = |t: &str| t != "f64" && t != "u64";
    let in_doc: Vec<String> = inputs
        .iter()
        .map(|i| match i.ty.as_str() {
            "u64" => "1".to_owned(),
            "f64" => "1.0".to_owned(),
            ty => format!("{ty}::new(1.0)?"),
        })
        .collect();
    let in_eval: Vec<String> = inputs
        .iter()
        .enumerate()
        .map(|(k, i)| match i.ty.as_str() {
            "u64" => format!("whole(\"{}\", x[{k}])?", i.name),
            "f64" => format!("x[{k}]"),
            ty => format!("{ty}::new(x[{k}])?"),
        })
        .collect();
    let types: BTreeSet<&str> = inputs.iter().map(|i| i.ty.as_str()).filter(|t| typed(t)).collect();
    let types: Vec<&str> = types.into_iter().collect();
    let used = match types.as_slice() {
        [] => format!("{family}::{id}"),
        [one] => format!("{{{family}::{id}, units::{one}}}"),
        several => format!("{{{family}::{id}, units::{{{}}}}}", several.join(", ")),
    };
    let (zero, number) = if typed(returns) {
        (format!("{returns}::ZERO"), "value.get()")
    } else {
        ("0.0".to_owned(), "value")
    };
    let symbol =
        arguments.symbol.clone().unwrap_or_else(|| format!(r"\text{{{}}}", id.replace('_', " ")));
    let mut entries = String::new();
    for i in inputs {
        let kind = if i.ty == "u64" { "whole" } else { "real" };
        let _ = write!(
            entries,
            "\n        Input::{kind}(\n            {:?},\n            {},\n            {},\n            \
             (0.0, 100.0),\n            text({:?}, {:?}),\n        ),",
            i.name,
            latex(&i.symbol),
            i.unit,
            i.en,
            i.zh,
        );
    }
    let ones = vec!["1.0"; inputs.len()].join(", ");
    format!(
        r#"/// {en}: TODO one sentence that says from where to where it counts.
///
/// ```text
/// {id} = {formula}
/// ```
///
/// TODO what each parameter means and counts from, and what people read into the value that it
/// does not say.
///
/// # Errors
///
/// TODO which error for which input.
///
/// # Examples
///
/// ```
/// use metrics_core::{used};
///
/// let value = {id}({doc})?;
/// assert!(({number} - -1.0_f64).abs() < 1e-12); // TODO an example to redo in the head
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: TODO work, section.
pub fn {id}({parameters}) -> Result<{returns}> {{
    // TODO the formula; a check is one call, such as `at_least("n", n as f64, 1.0)?`.
    let _ = ({names},);
    Ok({zero})
}}

/// The catalog entry of [`{id}`].
#[cfg(feature = "catalog")]
pub const {constant}: Metric = Metric {{
    id: "{id}",
    symbol: {symbol},
    name: text({en:?}, {zh:?}),
    layer: Layer::{layer},
    unit: {unit},
    inputs: &[{entries}
    ],
    formula: Formula::Scalar {{
        text: {formula:?},
        eval: |x| computed({id}({eval})),
        example: (&[{ones}], -1.0),
    }},
    path: "metrics_core::{family}::{id}",
    source: Source {{ work: "TODO", section: "" }},
    note: text("TODO the trap", "TODO 易错之处"),
    exported: &[],
}};

"#,
        doc = in_doc.join(", "),
        parameters = parameters.join(", "),
        names = names.join(", "),
        eval = in_eval.join(", "),
        symbol = latex(&symbol),
    )
}

/// The edits that import what the skeleton names and the family does not import yet.
fn imports(
    file: &syn::File,
    returns: &str,
    inputs: &[Input],
    quantities: &[(String, String)],
) -> Vec<Edit> {
    let mut metric = vec!["Formula", "Input", "Layer", "Metric", "Source", "computed", "text"];
    if inputs.iter().any(|i| i.ty == "u64") {
        metric.push("whole");
    }
    let types: Vec<&str> = inputs
        .iter()
        .map(|i| i.ty.as_str())
        .chain([returns])
        .filter(|t| quantities.iter().any(|(name, _)| name == t))
        .collect();
    let wanted: [(&str, bool, &[&str]); 4] = [
        ("error", false, &["Result"]),
        ("metric", true, &metric),
        ("units", true, &["Unit"]),
        ("units", false, &types),
    ];
    let last = file.items.iter().rfind(|i| matches!(i, syn::Item::Use(_)));
    let place = match (last, file.items.first()) {
        (Some(item), _) => item.span().byte_range().end,
        (None, Some(item)) => item.span().byte_range().start,
        (None, None) => 0,
    };
    let mut edits = Vec::new();
    let mut fresh = String::new();
    for (module, catalog, names) in wanted {
        let uses = || {
            file.items.iter().filter_map(|item| match item {
                syn::Item::Use(u) => imported(u, module).map(|names| (u, names)),
                _ => None,
            })
        };
        let gated = |u: &syn::ItemUse| u.attrs.iter().any(|a| a.path().is_ident("cfg"));
        // What stands without a gate serves the gated code as well.
        let has = |name: &str| {
            uses().any(|(u, names)| (catalog || !gated(u)) && names.iter().any(|n| n == name))
        };
        let missing: BTreeSet<String> =
            names.iter().filter(|n| !has(n)).map(|n| (*n).to_owned()).collect();
        if missing.is_empty() {
            continue;
        }
        if let Some((u, names)) = uses().find(|(u, _)| gated(u) == catalog) {
            let all: BTreeSet<String> = names.into_iter().chain(missing).collect();
            let range = u.use_token.span.byte_range().start..u.span().byte_range().end;
            edits.push((range, import(module, &all)));
        } else {
            let gate = if catalog { "#[cfg(feature = \"catalog\")]\n" } else { "" };
            let _ = write!(fresh, "\n{gate}{}", import(module, &missing));
        }
    }
    if !fresh.is_empty() {
        let fresh = if last.is_some() { fresh } else { format!("{}\n\n", fresh.trim_start()) };
        edits.push((place..place, fresh));
    }
    edits
}

fn import(module: &str, names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match names.as_slice() {
        [one] => format!("use crate::{module}::{one};"),
        several => format!("use crate::{module}::{{{}}};", several.join(", ")),
    }
}

/// The plain names that `use crate::MODULE::…` brings in.
fn imported(item: &syn::ItemUse, module: &str) -> Option<Vec<String>> {
    let syn::UseTree::Path(top) = &item.tree else { return None };
    let syn::UseTree::Path(inner) = &*top.tree else { return None };
    if top.ident != "crate" || inner.ident != module {
        return None;
    }
    let name = |tree: &syn::UseTree| match tree {
        syn::UseTree::Name(n) => Some(n.ident.to_string()),
        _ => None,
    };
    match &*inner.tree {
        syn::UseTree::Group(group) => group.items.iter().map(name).collect(),
        tree => name(tree).map(|n| vec![n]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &str = "quantity!(\n    /// A duration, or an instant.\n    Seconds, Unit::SECOND, \
                         \"seconds\");\nquantity!(\n    /// TPOT.\n    SecondsPerToken, \
                         Unit::SECOND.per(Unit::TOKEN), \"seconds per token\");";

    fn arguments(id: &str, family: &str) -> MetricArguments {
        MetricArguments {
            id: id.to_owned(),
            family: family.to_owned(),
            en: "Share of TTFT spent waiting".to_owned(),
            zh: "TTFT 中排队时间的占比".to_owned(),
            inputs: vec!["w_queue: Seconds".to_owned(), "n_out:u64:token".to_owned()],
            returns: "SecondsPerToken".to_owned(),
            formula: "w_queue / n_out".to_owned(),
            layer: None,
            symbol: None,
        }
    }

    fn names(text: &str) -> Vec<String> {
        let named = |item: &syn::Item| match item {
            syn::Item::Fn(f) => Some(f.sig.ident.to_string()),
            syn::Item::Const(c) => Some(c.ident.to_string()),
            _ => None,
        };
        syn::parse_file(text).unwrap().items.iter().filter_map(named).collect()
    }

    #[test]
    fn types_and_their_units_are_read_from_their_source() {
        let found = quantities(UNITS).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            found,
            [
                pair("Seconds", "Unit::SECOND"),
                pair("SecondsPerToken", "Unit::SECOND.per(Unit::TOKEN)")
            ]
        );
    }

    #[test]
    fn a_family_with_metrics_takes_one_more() {
        let family = repo::read(&repo::root(), "crates/metrics-core/src/latency.rs").unwrap();
        let a = arguments("queue_share", "latency");
        let (text, line) =
            with_metric(&family, &a, "Latency", &quantities(UNITS).unwrap()).unwrap();

        let found = names(&text);
        let at = found.iter().position(|n| n == "queue_share").unwrap();
        assert_eq!(found[at + 1..], ["QUEUE_SHARE", "METRICS"]);
        assert!(text.lines().nth(line - 1).unwrap().starts_with("pub fn queue_share("));
        let squeezed: String = text.split_whitespace().collect();
        assert!(squeezed.contains("&QUEUE_SHARE]"));
        // What was there is there still, imports aside.
        let body = |t: &str| t.split_once("\n/// Time to first token").unwrap().1.to_owned();
        let (old, new) = (body(&family), body(&text));
        let until = old.find("/// The entries of this family").unwrap();
        assert_eq!(old[..until], new[..until]);
        // A second one of that name is refused.
        let again = with_metric(&text, &a, "Latency", &quantities(UNITS).unwrap());
        assert!(again.unwrap_err().to_string().contains("already"));
    }

    #[test]
    fn an_empty_family_takes_its_first_metric_with_the_imports() {
        let family = "//! Budgets.\n\n#[cfg(feature = \"catalog\")]\nuse crate::metric::Metric;\n\n\
                      /// The entries.\n#[cfg(feature = \"catalog\")]\n\
                      pub const METRICS: &[&Metric] = &[];\n";
        let a = arguments("queue_share", "budget");
        let (text, _) = with_metric(family, &a, "Latency", &quantities(UNITS).unwrap()).unwrap();
        assert_eq!(names(&text), ["queue_share", "QUEUE_SHARE", "METRICS"]);
        assert!(text.contains("&[&QUEUE_SHARE]"));
        for import in [
            "#[cfg(feature = \"catalog\")]\nuse crate::metric::{Formula, Input, Layer, Metric, \
             Source, computed, text, whole};",
            "\nuse crate::error::Result;",
            "#[cfg(feature = \"catalog\")]\nuse crate::units::Unit;",
            "\nuse crate::units::{Seconds, SecondsPerToken};",
        ] {
            assert_eq!(text.matches(import).count(), 1, "{import}\n{text}");
        }
    }

    #[test]
    fn the_checks_refuse_the_skeleton_until_it_is_filled_in() {
        let q = quantities(UNITS).unwrap();
        let inputs = [input("w:Seconds", &q).unwrap()];
        let text = skeleton(&arguments("w", "budget"), "W", "Latency", "Unit::ONE", &inputs);
        assert!(text.contains("work: \"TODO\"") && text.contains("-1.0"));
    }

    #[test]
    fn an_unknown_family_is_answered_with_those_there_are() {
        let error = metric(&repo::root(), &arguments("queue_share", "nope")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no family `nope`: there are admission, budget, "), "{text}");
        // Files that hold no metrics are none.
        assert!(text.contains(" latency, ") && !text.contains("units"), "{text}");
    }

    #[test]
    fn a_wrong_argument_says_what_would_be_right() {
        let q = quantities(UNITS).unwrap();
        let say = |i: &str| input(i, &q).err().unwrap().to_string();
        assert!(say("w_queue").contains("NAME:TYPE"));
        assert!(say("w:Second").ends_with("there are f64, u64, Seconds, SecondsPerToken"));
        assert!(say("w:Seconds:s").contains("carries its unit"));
        assert!(say("w:u64:tokens").contains("there are 1, token"));
        assert!(say("W:u64").contains("lower case"));
        assert!(say("fn:u64").contains("lower case"));
    }
}
