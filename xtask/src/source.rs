//! The library crates' source, read to compare it with the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use metrics_core::metric::{Formula, Metric};
use syn::spanned::Spanned;

use crate::repo;

/// A function or method, as its source has it.
#[expect(clippy::struct_excessive_bools, reason = "facts, not states")]
#[derive(Clone, Debug)]
pub struct Function {
    /// The file, from the root.
    pub file: String,
    /// The line of its name.
    pub line: usize,
    /// Whether it is a method with a receiver.
    pub receiver: bool,
    /// Whether it says `pub` itself, or its trait does.
    declared: bool,
    /// Whether users can reach it: every module above is public too, or a `pub use` shows it.
    pub public: bool,
    /// Whether it is written in the trait or in an implementation of one.
    pub of_trait: bool,
    /// The names of its parameters, without the receiver.
    pub parameters: Vec<String>,
    /// Its doc comment.
    pub docs: String,
    /// Whether it returns a `Result`.
    pub fallible: bool,
}

/// What a crate's source defines.
#[derive(Debug, Default)]
pub struct Source {
    /// Functions by the path at which they are defined.
    functions: BTreeMap<String, Function>,
    /// `pub use`: from the path that users write to the one that it stands for.
    aliases: BTreeMap<String, String>,
    /// `pub use module::*`: from the module that users write to those it shows.
    globs: BTreeMap<String, Vec<String>>,
}

/// How many re-exports of re-exports are followed; more is a cycle.
const HOPS: usize = 8;

impl Source {
    /// Reads `crates/NAME/src`.
    pub fn read(root: &Path, package: &str) -> Result<Self> {
        let mut source = Self::default();
        let name = package.rsplit('/').next().unwrap_or(package).replace('-', "_");
        source.module(root, &format!("{package}/src/lib.rs"), &name, true)?;
        source.spread();
        Ok(source)
    }

    /// Reads one text as the module `path`, for tests.
    #[cfg(test)]
    pub fn parse(text: &str, path: &str) -> Result<Self> {
        let mut source = Self::default();
        let items = syn::parse_file(text)?.items;
        source.items(Path::new(""), "src/lib.rs", path, true, &items)?;
        source.spread();
        Ok(source)
    }

    fn module(&mut self, root: &Path, file: &str, path: &str, public: bool) -> Result<()> {
        let text = repo::read(root, file)?;
        let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {file}"))?;
        self.items(root, file, path, public, &parsed.items)
    }

    fn items(
        &mut self,
        root: &Path,
        file: &str,
        path: &str,
        public: bool,
        items: &[syn::Item],
    ) -> Result<()> {
        for item in items {
            match item {
                syn::Item::Fn(f) if !is_test(&f.attrs) => {
                    let declared = is_pub(&f.vis);
                    self.function((file, path), &f.sig, &f.attrs, (declared, public), false);
                }
                syn::Item::Mod(m) if !is_test(&m.attrs) => {
                    let inner = format!("{path}::{}", m.ident);
                    let shown = public && is_pub(&m.vis);
                    if let Some((_, items)) = &m.content {
                        self.items(root, file, &inner, shown, items)?;
                    } else {
                        let file = module_file(root, file, &m.ident.to_string())?;
                        self.module(root, &file, &inner, shown)?;
                    }
                }
                syn::Item::Impl(i) => {
                    let Some(name) = type_name(&i.self_ty) else { continue };
                    for item in &i.items {
                        let syn::ImplItem::Fn(f) = item else { continue };
                        let of_trait = i.trait_.is_some();
                        let declared = of_trait || is_pub(&f.vis);
                        let owner = format!("{path}::{name}");
                        let seen = (declared, public);
                        self.function((file, &owner), &f.sig, &f.attrs, seen, of_trait);
                    }
                }
                syn::Item::Trait(t) => {
                    for item in &t.items {
                        let syn::TraitItem::Fn(f) = item else { continue };
                        let owner = format!("{path}::{}", t.ident);
                        let seen = (is_pub(&t.vis), public);
                        self.function((file, &owner), &f.sig, &f.attrs, seen, true);
                    }
                }
                syn::Item::Use(u) if is_pub(&u.vis) => self.reexport(path, &u.tree, &[]),
                _ => {}
            }
        }
        Ok(())
    }

    fn function(
        &mut self,
        (file, owner): (&str, &str),
        sig: &syn::Signature,
        attrs: &[syn::Attribute],
        (declared, module_public): (bool, bool),
        of_trait: bool,
    ) {
        let name = sig.ident.to_string();
        let parameters = sig
            .inputs
            .iter()
            .filter_map(|input| match input {
                syn::FnArg::Typed(t) => Some(pattern_name(&t.pat)),
                syn::FnArg::Receiver(_) => None,
            })
            .collect();
        let function = Function {
            file: file.to_owned(),
            line: sig.ident.span().start().line,
            receiver: sig.receiver().is_some(),
            declared,
            public: declared && module_public,
            of_trait,
            parameters,
            docs: docs(attrs),
            fallible: returns_result(&sig.output),
        };
        self.functions.insert(format!("{owner}::{name}"), function);
    }

    fn reexport(&mut self, module: &str, tree: &syn::UseTree, prefix: &[String]) {
        match tree {
            syn::UseTree::Path(p) => {
                let prefix = [prefix, &[p.ident.to_string()]].concat();
                self.reexport(module, &p.tree, &prefix);
            }
            syn::UseTree::Name(n) => {
                let name = n.ident.to_string();
                let target = absolute(module, &[prefix, std::slice::from_ref(&name)].concat());
                self.aliases.insert(format!("{module}::{name}"), target);
            }
            syn::UseTree::Rename(r) => {
                let target = absolute(module, &[prefix, &[r.ident.to_string()]].concat());
                self.aliases.insert(format!("{module}::{}", r.rename), target);
            }
            syn::UseTree::Glob(_) => {
                let target = absolute(module, prefix);
                self.globs.entry(module.to_owned()).or_default().push(target);
            }
            syn::UseTree::Group(g) => {
                for tree in &g.items {
                    self.reexport(module, tree, prefix);
                }
            }
        }
    }

    /// Marks as public what a private module hides and a `pub use` shows.
    fn spread(&mut self) {
        let shown: Vec<String> =
            self.aliases.values().cloned().chain(self.globs.values().flatten().cloned()).collect();
        for (path, function) in &mut self.functions {
            let owner = path.rsplit_once("::").map_or("", |(owner, _)| owner);
            let module = owner.rsplit_once("::").map_or("", |(module, _)| module);
            if shown.iter().any(|s| s == path || s == owner || s == module) {
                function.public |= function.declared;
            }
        }
    }

    /// The path at which what users call `path` is defined.
    pub fn resolve(&self, path: &str) -> Option<String> {
        self.follow(path, HOPS)
    }

    fn follow(&self, path: &str, hops: usize) -> Option<String> {
        if self.functions.contains_key(path) {
            return Some(path.to_owned());
        }
        let hops = hops.checked_sub(1)?;
        let cuts = path.match_indices("::").map(|(i, _)| i).chain([path.len()]);
        for cut in cuts {
            let (head, rest) = path.split_at(cut);
            if let Some(target) = self.aliases.get(head)
                && let Some(found) = self.follow(&format!("{target}{rest}"), hops)
            {
                return Some(found);
            }
            for target in self.globs.get(head).into_iter().flatten() {
                if let Some(found) = self.follow(&format!("{target}{rest}"), hops) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// The function that users call `path`.
    pub fn find(&self, path: &str) -> Option<&Function> {
        self.functions.get(&self.resolve(path)?)
    }
}

/// `self`, `super` and `crate` replaced by what they stand for in `module`.
fn absolute(module: &str, path: &[String]) -> String {
    let crate_name = module.split("::").next().unwrap_or(module);
    let mut base: Vec<&str> = module.split("::").collect();
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" => base = vec![crate_name],
            "self" => {}
            "super" => {
                base.pop();
            }
            _ => break,
        }
        rest = others;
    }
    base.into_iter().chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

/// The file of `mod name;` in `file`.
fn module_file(root: &Path, file: &str, name: &str) -> Result<String> {
    let (dir, stem) = file.rsplit_once('/').unwrap_or(("", file));
    let dir = match stem {
        "lib.rs" | "main.rs" | "mod.rs" => dir.to_owned(),
        _ => format!("{dir}/{}", stem.trim_end_matches(".rs")),
    };
    [format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")]
        .into_iter()
        .find(|f| root.join(f).is_file())
        .with_context(|| format!("{file} declares `mod {name}`, which has no file"))
}

fn is_pub(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// Whether the item exists in tests only.
fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg")
                && a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test")))
    })
}

fn type_name(ty: &syn::Type) -> Option<String> {
    let syn::Type::Path(p) = ty else { return None };
    p.path.segments.last().map(|s| s.ident.to_string())
}

fn pattern_name(pattern: &syn::Pat) -> String {
    match pattern {
        syn::Pat::Ident(i) => i.ident.to_string(),
        other => format!("pattern at line {}", other.span().start().line),
    }
}

fn returns_result(output: &syn::ReturnType) -> bool {
    match output {
        syn::ReturnType::Type(_, ty) => {
            type_name(ty).is_some_and(|n| n == "Result" || n.ends_with("Result"))
        }
        syn::ReturnType::Default => false,
    }
}

/// The doc comment of an item, line by line as written.
pub fn docs(attrs: &[syn::Attribute]) -> String {
    let mut lines = Vec::new();
    for attr in attrs {
        let syn::Meta::NameValue(pair) = &attr.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
            continue;
        };
        if pair.path.is_ident("doc") {
            for line in text.value().split('\n') {
                lines.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
            }
        }
    }
    lines.join("\n")
}

/// The first `text` block of a doc comment, in one line.
fn text_block(docs: &str) -> Option<String> {
    let (_, rest) = docs.split_once("```text\n")?;
    let (body, _) = rest.split_once("```")?;
    Some(one_line(body))
}

/// White space of any kind and length as one space.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with one catalog entry, against the source of its crate.
pub fn entry_faults(metric: &Metric, source: &Source) -> Vec<String> {
    let Metric { id, path, .. } = metric;
    let Some(f) = source.find(path) else {
        return vec![format!(
            "catalog entry `{id}`: no function `{path}`: correct `path`, or write the function"
        )];
    };
    let at = format!("{}:{}: `{}`", f.file, f.line, path.rsplit("::").next().unwrap_or(path));
    let mut faults = Vec::new();
    let mut fault = |what: String| faults.push(format!("{at} {what}"));
    if !f.public {
        fault("is in the catalog but not public: make it `pub`".to_owned());
    }
    if metric.function() != metric.id {
        fault(format!("has catalog id `{id}`: the id is the function's name"));
    }
    if let Formula::Scalar { text, .. } = metric.formula {
        let want = one_line(&format!("{id} = {text}"));
        match text_block(&f.docs) {
            Some(got) if got == want => {}
            Some(got) => fault(format!(
                "documents `{got}` but its catalog entry says `{want}`: make both say what the code does"
            )),
            None => fault(format!("has no ```text block in its docs: add one with `{want}`")),
        }
        let inputs: Vec<&str> = metric.inputs.iter().map(|i| i.id).collect();
        if !f.receiver && f.parameters != inputs {
            fault(format!(
                "takes ({}) but its catalog entry lists ({}): bring them in one order",
                f.parameters.join(", "),
                inputs.join(", ")
            ));
        }
    }
    if !f.docs.lines().any(|l| l.starts_with("Source:")) {
        fault("has no line `Source: work, section.` in its docs: add where it comes from".into());
    }
    let has = |heading: &str| f.docs.lines().any(|l| l.trim() == heading);
    if !f.of_trait && !has("# Examples") {
        fault("has no `# Examples` in its docs: add one with numbers to redo in the head".into());
    }
    if f.fallible && !has("# Errors") {
        fault("returns a Result but has no `# Errors` in its docs: say when it fails".into());
    }
    if unfinished(metric, &f.docs) {
        fault("still has a TODO in its docs or catalog entry: fill it in".into());
    }
    faults
}

/// Whether the skeleton of `cargo xtask new metric` still shows.
fn unfinished(metric: &Metric, docs: &str) -> bool {
    let mut texts = vec![
        docs,
        metric.symbol,
        metric.name.en,
        metric.name.zh,
        metric.note.en,
        metric.note.zh,
        metric.source.work,
        metric.source.section,
    ];
    for input in metric.inputs {
        texts.extend([input.symbol, input.name.en, input.name.zh]);
    }
    texts.iter().any(|t| t.contains("TODO"))
}

/// The list of a crate's public functions that are no metrics, each with its reason.
pub const UNCATALOGUED: &str = "uncatalogued.txt";

/// Public functions that are neither in the catalog nor on the list, and lines that name nothing.
pub fn coverage_faults(
    source: &Source,
    list: &str,
    list_file: &str,
    metrics: &[&Metric],
) -> Vec<String> {
    let mut faults = Vec::new();
    let listed = exceptions(list, list_file, &mut faults);
    let catalogued: BTreeSet<String> =
        metrics.iter().filter_map(|m| source.resolve(m.path)).collect();
    let mut used = vec![false; listed.len()];
    for (path, f) in &source.functions {
        if !f.public || f.of_trait {
            continue;
        }
        let mut known = catalogued.contains(path);
        for (entry, used) in listed.iter().zip(&mut used) {
            if entry.covers(path, source) {
                // A function in the catalog does not keep its own line alive, but a type's line.
                *used |= !known || entry.whole_type;
                known = true;
            }
        }
        if !known {
            faults.push(format!(
                "{}:{}: `{path}` is public but not in the catalog: write its `Metric`, or add it \
                 with a reason to {list_file}",
                f.file, f.line
            ));
        }
    }
    for (entry, used) in listed.iter().zip(used) {
        if !used {
            faults.push(format!(
                "{list_file}:{}: `{}` names no public function outside the catalog: remove the line",
                entry.line, entry.shown
            ));
        }
    }
    faults
}

/// One line of the list.
struct Exception {
    line: usize,
    shown: String,
    path: String,
    whole_type: bool,
}

impl Exception {
    /// Whether it means the function defined at `path`, by that path or by one that users write.
    fn covers(&self, path: &str, source: &Source) -> bool {
        let meant = match path.rsplit_once("::") {
            Some((_, name)) if self.whole_type => format!("{}::{name}", self.path),
            _ => self.path.clone(),
        };
        source.resolve(&meant).as_deref() == Some(path)
    }
}

fn exceptions(list: &str, list_file: &str, faults: &mut Vec<String>) -> Vec<Exception> {
    let mut found: Vec<Exception> = Vec::new();
    for (i, text) in list.lines().enumerate() {
        let (line, text) = (i + 1, text.trim());
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((shown, reason)) = text.split_once(" — ") else {
            faults.push(format!("{list_file}:{line}: a line is `path — reason`, got `{text}`"));
            continue;
        };
        let (shown, reason) = (shown.trim().to_owned(), reason.trim());
        if reason.is_empty() {
            faults.push(format!("{list_file}:{line}: `{shown}` has no reason: say why"));
        }
        let owner = shown.strip_suffix("::*");
        let is_type = |p: &str| {
            p.rsplit("::").next().is_some_and(|n| n.starts_with(|c: char| c.is_uppercase()))
        };
        if owner.is_some_and(|p| !is_type(p)) {
            faults.push(format!(
                "{list_file}:{line}: `{shown}` covers a module: only a type may end in `::*`, so \
                 that a new formula is not missed"
            ));
            continue;
        }
        if found.iter().any(|e| e.shown == shown) {
            faults.push(format!("{list_file}:{line}: `{shown}` stands twice: remove one"));
            continue;
        }
        let path = owner.unwrap_or(&shown).to_owned();
        found.push(Exception { line, whole_type: owner.is_some(), path, shown });
    }
    found
}

#[cfg(test)]
mod tests {
    use metrics_core::latency::TPOT;

    use super::*;

    const GOOD: &str = r"
/// Time per output token.
///
/// ```text
/// tpot = if n_out <= 1 then 0
///        else (t_last - t_first) / (n_out - 1)
/// ```
///
/// # Errors
///
/// None.
///
/// # Examples
///
/// None.
///
/// Source: walkthrough.
pub fn tpot(t_first: Seconds, t_last: Seconds, n_out: u64) -> Result<SecondsPerToken> {}
";

    fn faults(text: &str) -> Vec<String> {
        entry_faults(&TPOT, &Source::parse(text, "metrics_core::latency").unwrap())
    }

    #[test]
    fn a_sound_entry_has_no_fault() {
        assert_eq!(faults(GOOD), Vec::<String>::new());
    }

    #[test]
    fn every_planted_fault_is_named_with_its_line() {
        for (from, to, says) in [
            ("(n_out - 1)", "n_out", "documents `tpot = if n_out <= 1 then 0 else"),
            ("```text", "```rust", "no ```text block"),
            ("t_first: Seconds, t_last: Seconds", "t_last: Seconds, t_first: Seconds", "takes ("),
            ("pub fn", "fn", "not public"),
            ("Source:", "From:", "no line `Source:"),
            ("# Errors", "# Faults", "no `# Errors`"),
            ("# Examples", "# Example", "no `# Examples`"),
            ("Time per", "TODO per", "still has a TODO"),
        ] {
            let found = faults(&GOOD.replacen(from, to, 1));
            assert!(found.iter().any(|f| f.contains(says)), "{from} -> {to}: {found:?}");
            assert!(found.iter().all(|f| f.starts_with("src/lib.rs:18: `tpot`")), "{found:?}");
        }
        let gone = faults(&GOOD.replace("fn tpot", "fn tpot_mean"));
        assert!(gone[0].contains("no function `metrics_core::latency::tpot`"), "{gone:?}");
    }

    #[test]
    fn a_path_is_found_through_reexports() {
        let text = "
mod erlang { /// E
 pub fn erlang_c(c: u64, a: f64) -> f64 {} pub struct Mmc; impl Mmc { /// N
 pub fn new() {} } }
pub mod all { pub use super::erlang::*; }
pub use erlang::{Mmc as Many, erlang_c};
";
        let source = Source::parse(text, "queueing").unwrap();
        let found = |p: &str| source.resolve(p);
        assert_eq!(found("queueing::erlang_c").unwrap(), "queueing::erlang::erlang_c");
        assert_eq!(found("queueing::Many::new").unwrap(), "queueing::erlang::Mmc::new");
        assert_eq!(found("queueing::all::erlang_c").unwrap(), "queueing::erlang::erlang_c");
        assert_eq!(found("queueing::erlang_d"), None);
        assert!(source.find("queueing::erlang_c").unwrap().public);
    }

    #[test]
    fn a_public_function_needs_an_entry_or_a_reason() {
        let text = "
pub fn tpot() {} pub fn mean() {} fn hidden() {}
pub struct T; impl T { pub fn new() {} pub fn get(&self) {} }
impl Clone for T { fn clone(&self) -> T {} }
#[cfg(test)] mod tests { pub fn helper() {} }
";
        let source = Source::parse(text, "metrics_core::latency").unwrap();
        let check = |list: &str| coverage_faults(&source, list, "list.txt", &[&TPOT]);
        let l = "metrics_core::latency";

        assert_eq!(check("").len(), 3); // mean, T::new, T::get
        assert_eq!(check(&format!("{l}::mean — help\n{l}::T::* — a type\n")), Vec::<String>::new());
        let stale = check(&format!("{l}::mean — help\n{l}::T::* — a type\n{l}::median — gone\n"));
        assert_eq!(stale.len(), 1);
        assert!(stale[0].starts_with("list.txt:3:"), "{stale:?}");
        let both = check(&format!("{l}::mean — m\n{l}::T::* — t\n{l}::tpot — in the catalog"));
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(check(&format!("{l}::* — all"))[0].contains("only a type"));
        assert!(check("nothing")[0].contains("`path — reason`"));
    }
}
