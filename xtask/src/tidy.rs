//! `cargo xtask tidy`: what no lint sees.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{docs, repo, snapshots};

/// The code map.
const MAP: &str = "ARCHITECTURE.md";

/// Which crate may depend on which, in code and in tests only. `xtask` may read everything.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    ("metrics-core", &[], &[]),
    ("queueing", &["metrics-core"], &[]),
    // The two derivations of a waiting time meet in sched-sim's theory tests, nowhere below.
    ("sched-sim", &["metrics-core"], &["queueing"]),
    ("serving-io", &["metrics-core", "sched-sim"], &[]),
    ("capacity", &["metrics-core", "queueing", "sched-sim", "serving-io"], &[]),
    ("goodput", &["metrics-core", "queueing", "sched-sim", "serving-io", "capacity"], &[]),
    ("xtask", &["metrics-core", "queueing", "sched-sim", "serving-io", "capacity", "goodput"], &[]),
];

/// Where each policy is a module.
const POLICIES: &str = "crates/sched-sim/src/policy";

/// The policy that is more than a rule.
const VLLM_V1: &str = "crates/sched-sim/src/vllm_v1/scheduler.rs";

/// The page with a row for each policy; its twin has the same rows or is a fault itself.
const POLICY_PAGE: &str = "docs/en/reference/policies.md";

/// The policy of a scenario that names none.
const DEFAULT_POLICY: &str = "decode-first";

/// Every fault of the tree.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    match repo::read(root, MAP) {
        Ok(map) => faults.extend(map_faults(&map, &modules(root)?, |p| root.join(p).exists())),
        Err(_) => faults.push(format!("{MAP} is missing: write the code map")),
    }
    for package in repo::packages(root)? {
        let file = format!("{package}/Cargo.toml");
        faults.extend(manifest_faults(&file, &repo::read(root, &file)?)?);
    }
    faults.extend(page_faults(root)?);
    let mut policies = repo::walk(root, POLICIES)?;
    policies.push(VLLM_V1.to_owned());
    faults.extend(policy_faults(&policies, &repo::read(root, POLICY_PAGE)?, |scenario| {
        std::fs::read_to_string(root.join(scenario)).ok()
    }));
    for file in repo::files(root)? {
        // What is not UTF-8 is data, not text.
        if let Ok(text) = std::fs::read_to_string(root.join(&file)) {
            faults.extend(machine_paths(&file, &text));
        }
    }
    faults.extend(snapshots::check(root)?);
    Ok(faults)
}

/// Crates and modules that the code map has to name: directory, and the names below its `src`.
fn modules(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found = BTreeMap::new();
    for package in repo::packages(root)? {
        let src = format!("{package}/src/");
        let mut names = BTreeSet::new();
        for file in repo::walk(root, &format!("{package}/src"))? {
            let name = file.strip_prefix(&src).unwrap_or(&file);
            match name.split_once('/') {
                Some((dir, _)) => names.insert(format!("{dir}/")),
                None => names.insert(name.to_owned()),
            };
        }
        names.retain(|n| n != "lib.rs" && n != "main.rs");
        // `policy.rs` with `policy/` is one module.
        let single: Vec<String> = names
            .iter()
            .filter(|n| {
                !n.strip_suffix('/').is_some_and(|stem| names.contains(&format!("{stem}.rs")))
            })
            .cloned()
            .collect();
        found.insert(package, single);
    }
    Ok(found)
}

/// Paths of the code map that do not exist, and modules that it does not name.
///
/// In a section whose heading names a crate's directory, names count from that directory or its
/// `src`.
fn map_faults(
    map: &str,
    modules: &BTreeMap<String, Vec<String>>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut named = BTreeSet::new();
    let mut section = String::new();
    let mut fenced = false;
    for (i, line) in map.lines().enumerate() {
        fenced ^= line.starts_with("```");
        if fenced {
            continue;
        }
        if line.starts_with('#') {
            let in_heading = code_spans(line).into_iter().find(|s| modules.contains_key(*s));
            in_heading.unwrap_or_default().clone_into(&mut section);
        }
        for span in code_spans(line).into_iter().filter(|s| is_path(s) || modules.contains_key(*s))
        {
            let candidates =
                [span.to_owned(), format!("{section}/{span}"), format!("{section}/src/{span}")];
            let found = candidates
                .iter()
                .skip_while(|c| section.is_empty() && c.starts_with('/'))
                .find(|c| !c.starts_with('/') && exists(c));
            match found {
                Some(path) => {
                    named.insert(path.trim_end_matches('/').to_owned());
                }
                None => faults.push(format!(
                    "{MAP}:{}: `{span}` does not exist: correct the path or remove it",
                    i + 1
                )),
            }
        }
    }
    for (package, names) in modules {
        if !named.contains(package) {
            faults.push(format!("{MAP} does not name `{package}`: say what it is for"));
        }
        for name in names {
            let path = format!("{package}/src/{}", name.trim_end_matches('/'));
            if !named.contains(&path) {
                faults.push(format!("{MAP} does not name `{path}`: say what it holds"));
            }
        }
    }
    faults
}

/// What stands between single backticks on a line.
fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Whether a code span is a path: of the letters of one, with a slash or a file's ending.
fn is_path(span: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let endings = [".rs", ".md", ".toml", ".txt", ".json", ".lock"];
    let ending = endings.iter().any(|e| span.len() > e.len() && span.ends_with(e));
    !span.is_empty() && span.chars().all(letters) && (ending || span.contains('/'))
}

/// Forbidden edges of one manifest, and a manifest without the workspace's lints.
fn manifest_faults(file: &str, text: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = text.parse().with_context(|| format!("cannot parse {file}"))?;
    let mut faults = Vec::new();
    let name = manifest
        .get("package")
        .and_then(|p| p.get("name"))
        .and_then(toml::Value::as_str)
        .with_context(|| format!("{file} has no package name"))?;
    let lints = manifest.get("lints").and_then(|l| l.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        faults.push(format!("{file}: no `[lints] workspace = true`: add it"));
    }
    let Some((_, code, tests)) = EDGES.iter().find(|(n, ..)| *n == name) else {
        faults.push(format!(
            "{file}: crate `{name}` has no place among the crate edges: give it one in \
             xtask/src/tidy.rs and {MAP}"
        ));
        return Ok(faults);
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = std::iter::once(&manifest)
        .chain(targets.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table)));
    for table in tables {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let entries = table.get(kind).and_then(toml::Value::as_table);
            for (key, value) in entries.into_iter().flatten() {
                let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                let ours = EDGES.iter().any(|(n, ..)| *n == package);
                let allowed = code.contains(&package)
                    || (kind == "dev-dependencies" && tests.contains(&package));
                if ours && !allowed {
                    let line =
                        1 + text.lines().take_while(|l| !l.starts_with(key.as_str())).count();
                    faults.push(format!(
                        "{file}:{line}: `{name}` may not depend on `{package}` ({kind}): see the \
                         crate edges in {MAP}"
                    ));
                }
            }
        }
    }
    Ok(faults)
}

/// Every page that may hold generated blocks.
pub fn pages(root: &Path) -> Result<Vec<String>> {
    let mut pages = repo::walk(root, "docs/en")?;
    pages.extend(repo::walk(root, "docs/zh")?);
    pages.extend(["README.md", "README.zh.md"].map(str::to_owned));
    pages.retain(|p| repo::ends(p, "md") && root.join(p).is_file());
    Ok(pages)
}

/// The Chinese twin of an English page, or the other way round.
fn twin(page: &str) -> Option<String> {
    match page {
        "README.md" => Some("README.zh.md".to_owned()),
        "README.zh.md" => Some("README.md".to_owned()),
        _ => page
            .strip_prefix("docs/en/")
            .map(|rest| format!("docs/zh/{rest}"))
            .or_else(|| page.strip_prefix("docs/zh/").map(|rest| format!("docs/en/{rest}"))),
    }
}

fn is_chinese(page: &str) -> bool {
    page.starts_with("docs/zh/") || page.ends_with(".zh.md")
}

/// Pages without a twin, twins that differ in shape, translations of an older page, dead links.
fn page_faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in pages(root)? {
        let text = repo::read(root, &page)?;
        for (line, link) in dead_links(root, &page, &text) {
            faults.push(format!("{page}:{line}: link to `{link}`, which does not exist"));
        }
        let Some(other) = twin(&page) else { continue };
        if !root.join(&other).is_file() {
            faults.push(format!("{page} has no twin {other}: write it"));
        } else if !is_chinese(&page) {
            faults.extend(twin_faults(&page, &text, &other, &repo::read(root, &other)?));
        }
    }
    Ok(faults)
}

/// Policies without a row on their page, or whose row names no scenario that runs them.
fn policy_faults(
    files: &[String],
    page: &str,
    scenario: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    // vLLM's scheduler is a module of its own, since it brings queue and blocks with it.
    let modules = files.iter().filter_map(|f| match f.rsplit_once('/') {
        Some((dir, "scheduler.rs")) => dir.rsplit('/').next(),
        _ => f.rsplit('/').next()?.strip_suffix(".rs"),
    });
    let mut faults = Vec::new();
    for module in modules.filter(|m| *m != "mod") {
        let policy = module.replace('_', "-");
        let mut rows = page.lines().filter(|l| l.starts_with(&format!("| `{policy}` |")));
        let Some(row) = rows.next() else {
            faults
                .push(format!("{POLICY_PAGE} has no row for `{policy}`: add one, and a scenario"));
            continue;
        };
        let named: Vec<&str> =
            code_spans(row).into_iter().filter(|s| s.starts_with("scenarios/")).collect();
        if !named.iter().any(|s| scenario(s).is_some_and(|text| runs(&text, &policy))) {
            faults.push(format!(
                "{POLICY_PAGE}: the row of `{policy}` names no scenario that runs it: write one \
                 below scenarios with `policy = \"{policy}\"`, and name it in the row"
            ));
        }
    }
    faults
}

/// Whether a scenario runs a policy, by its settings or by one of its variants.
fn runs(scenario: &str, policy: &str) -> bool {
    let Ok(scenario) = scenario.parse::<toml::Table>() else { return false };
    let settings = scenario.get("settings").and_then(|s| s.get("policy"));
    let variants = scenario.get("variants").and_then(toml::Value::as_array);
    let mut named = variants.into_iter().flatten().filter_map(|v| v.get("policy")).chain(settings);
    let default = settings.is_none() && policy == DEFAULT_POLICY;
    default || named.any(|p| p.as_str() == Some(policy))
}

/// What is wrong with a Chinese page, given its English one.
fn twin_faults(en_page: &str, en: &str, zh_page: &str, zh: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (en_heads, zh_heads) = (headings(en), headings(zh));
    let same = en_heads.iter().zip(&zh_heads).take_while(|(a, b)| a.0 == b.0).count();
    match (en_heads.get(same), zh_heads.get(same)) {
        (None, None) => {}
        (Some((_, head)), None) => {
            faults.push(format!("{zh_page}: no heading for `{head}` of {en_page}: translate it"));
        }
        (_, Some((_, head))) => faults.push(format!(
            "{zh_page}: heading `{head}` stands where {en_page} has {}: give both pages the same \
             headings",
            en_heads.get(same).map_or("none".to_owned(), |(_, h)| format!("`{h}`"))
        )),
    }
    let (en_blocks, zh_blocks) = (docs::blocks_of(en), docs::blocks_of(zh));
    if en_blocks != zh_blocks {
        faults.push(format!(
            "{zh_page} holds the blocks ({}) but {en_page} ({}): give both the same",
            zh_blocks.join(", "),
            en_blocks.join(", ")
        ));
    }
    let first = zh.lines().next().unwrap_or_default();
    let hash = stamp_line(en);
    if first != hash {
        let what = if first.starts_with("<!-- en: ") {
            format!("stale: {en_page} has changed since it was translated")
        } else {
            format!("no stamp `{hash}` in the first line")
        };
        faults.push(format!(
            "{zh_page}:1: {what}: bring it up to date, then run `cargo xtask translated {zh_page}`"
        ));
    }
    faults
}

/// The first line of a translation of this English page.
fn stamp_line(en: &str) -> String {
    format!("<!-- en: {:016x} -->", fnv1a(docs::without_blocks(en).as_bytes()))
}

/// FNV-1a with 64 bits: stable, short, and no secret has to resist it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Stamps the Chinese page of `page` with the English page as it is now.
pub fn stamp(root: &Path, page: &str) -> Result<String> {
    let known = pages(root)?;
    let full = |dir: &str| format!("{dir}{page}");
    let found = [full(""), full("docs/zh/"), full("docs/en/")]
        .into_iter()
        .find(|p| known.contains(p))
        .with_context(|| format!("no page `{page}` in docs/en or docs/zh"))?;
    let other = twin(&found).with_context(|| format!("{found} has no twin"))?;
    let (en_page, zh_page) = if is_chinese(&found) { (other, found) } else { (found, other) };
    let (en, zh) = (repo::read(root, &en_page)?, repo::read(root, &zh_page)?);
    let old = zh.lines().next().unwrap_or_default();
    let body = if old.starts_with("<!-- en: ") {
        zh.split_once('\n').map_or("", |(_, body)| body)
    } else {
        zh.as_str()
    };
    let new = format!("{}\n{body}", stamp_line(&en));
    let shape: Vec<String> = twin_faults(&en_page, &en, &zh_page, &new);
    if !shape.is_empty() {
        bail!("{}", repo::list(&shape));
    }
    std::fs::write(root.join(&zh_page), new).with_context(|| format!("cannot write {zh_page}"))?;
    Ok(format!("{zh_page} now says that it translates {en_page} as it is"))
}

/// Level and text of each heading outside code.
fn headings(page: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let level = line.chars().take_while(|&c| c == '#').count();
        if !fenced && 1 <= level && line[level..].starts_with(' ') {
            found.push((level, line[level..].trim()));
        }
    }
    found
}

/// Relative links of a page that lead nowhere, with their lines.
fn dead_links(root: &Path, page: &str, text: &str) -> Vec<(usize, String)> {
    let dir = root.join(page).parent().unwrap_or(root).to_path_buf();
    let mut fenced = false;
    let mut dead = Vec::new();
    for (i, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let link = rest.split([')', ' ']).next().unwrap_or_default();
            let file = link.split('#').next().unwrap_or_default();
            let elsewhere = link.contains("://") || link.starts_with("mailto:");
            if !elsewhere && !file.is_empty() && !dir.join(file).exists() {
                dead.push((i + 1, link.to_owned()));
            }
        }
    }
    dead
}

/// Paths that exist on one machine only.
fn machine_paths(file: &str, text: &str) -> Vec<String> {
    // In halves, so that this file does not accuse itself.
    let roots = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/tm", "p/")];
    let mut faults = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for start in roots {
            let absolute = line.match_indices(start).any(|(at, _)| {
                // `docs/home/` and `https://host/home/` are no paths of a machine.
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-~".contains(c))
            });
            if absolute {
                faults.push(format!(
                    "{file}:{}: `{start}…` is a path of one machine: make it relative",
                    i + 1
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_tidy() {
        let faults = check(&repo::root()).unwrap();
        assert!(faults.is_empty(), "{}", repo::list(&faults));
    }

    fn map(text: &str) -> Vec<String> {
        let modules = BTreeMap::from([(
            "crates/a".to_owned(),
            vec!["latency.rs".to_owned(), "policy/".to_owned()],
        )]);
        let files = ["crates/a", "crates/a/src/latency.rs", "crates/a/src/policy", "docs"];
        map_faults(text, &modules, |p| files.contains(&p.trim_end_matches('/')))
    }

    #[test]
    fn the_map_names_every_module_and_nothing_else() {
        assert_eq!(
            map("# Map\n## `crates/a`\n- `latency.rs` and `policy/`; `docs/`, `f64`, `a / b`"),
            Vec::<String>::new()
        );
        let short = map("## `crates/a`\n- `latency.rs`");
        assert_eq!(short.len(), 1);
        assert!(short[0].contains("does not name `crates/a/src/policy`"), "{short:?}");
        let wrong = map("## `crates/a`\n`latency.rs` `policy/`\n\n`gone.rs`");
        assert_eq!(
            wrong,
            ["ARCHITECTURE.md:4: `gone.rs` does not exist: correct the path or remove it"]
        );
    }

    fn manifest(name: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}");
        manifest_faults("Cargo.toml", &text).unwrap()
    }

    #[test]
    fn crate_edges_point_one_way() {
        let dep = |kind: &str, on: &str| format!("[{kind}]\n{on}.workspace = true\n");
        assert!(manifest("queueing", &dep("dependencies", "metrics-core")).is_empty());
        assert!(manifest("sched-sim", &dep("dev-dependencies", "queueing")).is_empty());
        for (name, kind, on) in [
            ("metrics-core", "dependencies", "queueing"),
            ("metrics-core", "dev-dependencies", "serving-io"),
            ("sched-sim", "dependencies", "queueing"),
            ("queueing", "dependencies", "sched-sim"),
            ("goodput", "dependencies", "xtask"),
            ("goodput", "build-dependencies", "xtask"),
            ("queueing", "target.'cfg(unix)'.dependencies", "serving-io"),
        ] {
            let faults = manifest(name, &dep(kind, on));
            assert_eq!(faults.len(), 1, "{name} {kind} {on}");
            assert!(faults[0].starts_with("Cargo.toml:6:"), "{faults:?}");
        }
        let renamed = "[dependencies]\nq = { package = \"queueing\", path = \"../queueing\" }\n";
        assert_eq!(manifest("metrics-core", renamed).len(), 1);
        assert!(manifest("newcomer", "")[0].contains("no place among the crate edges"));
    }

    #[test]
    fn every_policy_has_a_row_and_a_scenario_that_runs_it() {
        let files = ["policy/mod.rs", "policy/decode_first.rs", "policy/fair.rs"];
        let vllm = policy_faults(&["src/vllm_v1/scheduler.rs".to_owned()], "", |_| None);
        assert!(vllm[0].contains("no row for `vllm-v1`"), "{vllm:?}");
        let files = files.map(str::to_owned);
        let faults = |page: &str, scenario: &str| {
            policy_faults(&files, page, |name| {
                (name == "scenarios/a.toml").then(|| scenario.to_owned())
            })
        };
        let page = "| Policy | Scenario |\n| `decode-first` | `scenarios/a.toml` |\n\
                    | `fair` | `scenarios/a.toml` |";
        let both = "[settings]\nchunk = 1\n[[variants]]\npolicy = \"fair\"";
        assert_eq!(faults(page, both), Vec::<String>::new());
        let unused = faults(page, "[settings]\nchunk = 1");
        assert_eq!(unused.len(), 1, "{unused:?}");
        assert!(unused[0].contains("the row of `fair` names no scenario that runs it"));
        let replaced = faults(page, "[settings]\npolicy = \"fair\"");
        assert_eq!(replaced.len(), 1, "{replaced:?}");
        assert!(replaced[0].contains("the row of `decode-first`"));
        let no_row = faults("| `decode-first` | `scenarios/a.toml` |", both);
        assert_eq!(no_row.len(), 1, "{no_row:?}");
        assert!(no_row[0].contains("no row for `fair`"));
        assert_eq!(faults(&page.replace("a.toml", "gone.toml"), both).len(), 2);
    }

    #[test]
    fn a_manifest_without_the_workspace_lints_is_a_fault() {
        let faults = manifest_faults("Cargo.toml", "[package]\nname = \"goodput\"").unwrap();
        assert_eq!(faults, ["Cargo.toml: no `[lints] workspace = true`: add it"]);
    }

    #[test]
    fn a_translation_has_the_same_shape_and_says_of_what_it_is_one() {
        let block = |body: &str| {
            format!("<!-- begin exported: cargo xtask docs -->\n{body}\n<!-- end exported -->\n")
        };
        let en = format!("# Metrics\n\nText.\n\n## Part\n\n{}", block("one"));
        let zh = format!("{}\n# 指标\n\n文字。\n\n## 部分\n\n{}", stamp_line(&en), block("一"));
        let faults = |en: &str, zh: &str| twin_faults("en.md", en, "zh.md", zh);

        assert_eq!(faults(&en, &zh), Vec::<String>::new());
        // A table made anew leaves the translation fresh; a new sentence does not.
        assert_eq!(faults(&en.replace("one", "two"), &zh), Vec::<String>::new());
        let stale = faults(&en.replace("Text.", "Text. More."), &zh);
        assert!(stale[0].starts_with("zh.md:1: stale"), "{stale:?}");
        assert!(faults(&en, &zh.replace("## ", "### "))[0].contains("`部分` stands where"));
        assert!(faults(&en, &zh.replace("## 部分\n", ""))[0].contains("no heading for `Part`"));
        assert!(faults(&en, &zh.replace("begin exported", "begin x"))[0].contains("blocks (x)"));
        assert!(faults(&en, &zh.replace("<!-- en", "<!-- de"))[0].contains("no stamp"));
    }

    #[test]
    fn code_is_no_heading() {
        let page = "# A\n```sh\n# not one\n```\n#hash\n## B\n";
        assert_eq!(headings(page), [(1, "A"), (2, "B")]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Check values of the algorithm's authors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn paths_of_one_machine_are_found_and_web_pages_are_not() {
        let bad = format!("see {}me/ann/x", "/ho");
        assert_eq!(machine_paths("a.md", &bad).len(), 1);
        let web = format!("https://host.org{}me/page and docs{}me/x", "/ho", "/ho");
        assert_eq!(machine_paths("a.md", &web), Vec::<String>::new());
    }
}
