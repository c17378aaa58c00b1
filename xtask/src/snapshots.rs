//! `cargo xtask snapshots`: what moved, by how much, and who accepts it.
//!
//! The scenarios are the snapshot tests. Running them writes drafts beside the accepted ones
//! (`.snap.new` for a file, `.NAME.rs.pending-snap` for one that stands in its test); nothing is
//! accepted until a person says its name.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;

use crate::repo;

/// The command that shows what is pending.
const SHOW: &str = "run `cargo xtask snapshots`, then accept or discard it";

/// A snapshot whose test gave something else.
#[derive(Debug)]
struct Pending {
    /// Its name: the test's, unless the test gives another.
    name: String,
    /// The accepted text; empty if there is none yet.
    old: String,
    /// What the test gave.
    new: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A draft beside `….snap`.
    File { draft: String },
    /// A draft of a literal in a test.
    Inline { draft: String, file: String, line: usize },
}

impl Pending {
    fn place(&self) -> String {
        match &self.place {
            Place::File { draft } => draft.trim_end_matches(".new").to_owned(),
            Place::Inline { file, line, .. } => format!("{file}:{line}"),
        }
    }
}

/// Pending and orphaned snapshots.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in repo::walk(root, "")? {
        if repo::is_pending(&file) {
            faults.push(format!("{file}: a pending snapshot: {SHOW}"));
        } else if repo::ends(&file, "snap") {
            let text = repo::read(root, &file)?;
            faults.extend(orphan(&file, &text, |source| {
                std::fs::read_to_string(root.join(source)).ok()
            }));
        }
    }
    Ok(faults)
}

/// Why no test reads this snapshot any more, if none does.
fn orphan(file: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (head, _) = parts(text);
    let Some(source) = head.lines().find_map(|l| l.strip_prefix("source: ")) else {
        return Some(format!("{file}: does not say which test it belongs to: remove it"));
    };
    let source = source.trim().trim_matches('"');
    let Some(test) = read(source) else {
        return Some(format!("{file}: orphaned, since {source} is gone: remove it"));
    };
    let name = base_name(file);
    (!test.contains(name))
        .then(|| format!("{file}: orphaned, since {source} does not name `{name}`: remove it"))
}

/// The name in a snapshot's file name, without its suffix and its number within the test.
fn base_name(file: &str) -> &str {
    let name = file_name(file).trim_end_matches(".snap");
    let name = name.split('@').next().unwrap_or(name);
    match name.rsplit_once('-') {
        Some((base, n)) if !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()) => base,
        _ => name,
    }
}

/// The part of a snapshot's path after directory and module.
fn file_name(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.rsplit_once("__").map_or(name, |(_, name)| name)
}

/// Head and body of a snapshot file.
fn parts(text: &str) -> (&str, &str) {
    text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).unwrap_or(("", text))
}

/// Runs every scenario, and shows what moved. Nothing is accepted.
pub fn run(root: &Path) -> Result<String> {
    let failed = run_tests(root)?;
    let report = report(&pending(root)?);
    if failed.is_empty() {
        return Ok(report);
    }
    // What moved is shown all the same: it may be what tells why they fail.
    bail!("{report}\ntests that fail for another reason than a snapshot: {}", failed.join(", "));
}

/// Runs the snapshot tests so that each leaves a draft where it differs, and names the tests that
/// fail nevertheless.
fn run_tests(root: &Path) -> Result<Vec<String>> {
    discard(root)?;
    // Without this crate, whose own tests say that a draft is a fault.
    let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--workspace", "--exclude", "xtask", "--no-fail-fast"])
        .args(["--lib", "--bins", "--tests"])
        .envs([("INSTA_UPDATE", "new"), ("INSTA_FORCE_PASS", "1"), ("INSTA_OUTPUT", "none")])
        .current_dir(root)
        .output()
        .context("cannot run cargo test")?;
    let shown = String::from_utf8_lossy(&out.stdout);
    let failed = failed_tests(&shown);
    if !out.status.success() && failed.is_empty() {
        bail!("the tests do not run:\n{}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(failed)
}

/// The names of the tests that a test run says have failed.
fn failed_tests(output: &str) -> Vec<String> {
    let name = |l: &str| Some(l.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    output.lines().filter_map(name).collect()
}

/// Removes every draft.
pub fn discard(root: &Path) -> Result<String> {
    let drafts: Vec<String> =
        repo::walk(root, "")?.into_iter().filter(|f| repo::is_pending(f)).collect();
    for draft in &drafts {
        std::fs::remove_file(root.join(draft)).with_context(|| format!("cannot remove {draft}"))?;
    }
    Ok(format!("{} discarded", count(drafts.len(), "draft")))
}

/// Every draft, in order of its place.
fn pending(root: &Path) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    for draft in repo::walk(root, "")? {
        if let Some(old_file) = draft.strip_suffix(".new") {
            let new = repo::read(root, &draft)?;
            let old = std::fs::read_to_string(root.join(old_file)).unwrap_or_default();
            found.push(Pending {
                name: file_name(old_file).trim_end_matches(".snap").to_owned(),
                old: parts(&old).1.to_owned(),
                new: parts(&new).1.to_owned(),
                place: Place::File { draft },
            });
        } else if draft.ends_with(".pending-snap") {
            found.extend(inline_drafts(&draft, &repo::read(root, &draft)?)?);
        }
    }
    Ok(found)
}

/// The drafts of one test file: of its last run, the last one of each line.
fn inline_drafts(draft: &str, text: &str) -> Result<Vec<Pending>> {
    let file = source_of(draft);
    let entries: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().with_context(|| {
            format!("{draft} is not JSON lines: remove it and run the tests again")
        })?;
    let last_run = entries.last().map(|e| e["run_id"].clone());
    let mut found: Vec<(usize, Pending)> = Vec::new();
    for entry in entries.iter().filter(|e| Some(&e["run_id"]) == last_run.as_ref()) {
        let line = entry["line"].as_u64().and_then(|l| usize::try_from(l).ok());
        let line = line.with_context(|| format!("{draft}: an entry has no line"))?;
        found.retain(|(at, _)| *at != line);
        let Some(new) = entry["new"]["snapshot"].as_str() else { continue };
        let name = entry["new"]["snapshot_name"]
            .as_str()
            .map_or_else(|| format!("{file}:{line}"), str::to_owned);
        let old = entry["old"]["snapshot"].as_str().unwrap_or_default().to_owned();
        let place = Place::Inline { draft: draft.to_owned(), file: file.clone(), line };
        found.push((line, Pending { name, old, new: new.to_owned(), place }));
    }
    found.sort_by_key(|(line, _)| *line);
    Ok(found.into_iter().map(|(_, p)| p).collect())
}

/// The test file of `dir/.NAME.rs.pending-snap`.
fn source_of(draft: &str) -> String {
    let (dir, name) = draft.rsplit_once('/').unwrap_or(("", draft));
    let name = name.trim_start_matches('.').trim_end_matches(".pending-snap");
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// Accepts the drafts with these names, and says what each changed.
pub fn accept(root: &Path, names: &[String]) -> Result<String> {
    let mut out = String::new();
    for name in names {
        let is_it = |p: &Pending| p.name == *name || p.place() == *name;
        let mut found: Vec<Pending> = pending(root)?.into_iter().filter(is_it).collect();
        if found.is_empty() {
            run_tests(root)?;
            found = pending(root)?.into_iter().filter(is_it).collect();
        }
        let one = match found.as_slice() {
            [one] => one,
            [] => bail!("no snapshot named `{name}` has moved; `cargo xtask snapshots` shows all"),
            several => {
                let places: Vec<String> = several.iter().map(Pending::place).collect();
                bail!("`{name}` is ambiguous: name it by its place: {}", places.join(", "))
            }
        };
        out.push_str(&figures(one));
        match &one.place {
            Place::File { draft } => {
                let (snap, text) = (draft.trim_end_matches(".new"), repo::read(root, draft)?);
                write(root, snap, &persisted(&text))?;
                std::fs::remove_file(root.join(draft))?;
            }
            Place::Inline { draft, file, line } => {
                accept_inline(root, (draft, file, *line), &one.new)?;
            }
        }
        let _ = writeln!(out, "accepted {name}: say in the commit why each figure moved");
    }
    Ok(out)
}

fn write(root: &Path, file: &str, text: &str) -> Result<()> {
    std::fs::write(root.join(file), text).with_context(|| format!("cannot write {file}"))
}

/// A draft as it is committed: without the line number, which moves with every edit.
fn persisted(draft: &str) -> String {
    let (head, body) = parts(draft);
    let kept: Vec<&str> = head.lines().filter(|l| !l.starts_with("assertion_line:")).collect();
    format!("---\n{}\n---\n{body}", kept.join("\n"))
}

/// Writes a literal into its test, and moves the lines of the drafts below it.
fn accept_inline(root: &Path, (draft, file, line): (&str, &str, usize), new: &str) -> Result<()> {
    let old_text = repo::read(root, file)?;
    let new_text = with_literal(&old_text, line, new).with_context(|| format!("{file}:{line}"))?;
    let (before, after) = (old_text.lines().count(), new_text.lines().count());
    let mut left = String::new();
    for text in repo::read(root, draft)?.lines() {
        let mut entry: Value = serde_json::from_str(text)?;
        let at = entry["line"].as_u64().and_then(|l| usize::try_from(l).ok()).unwrap_or_default();
        if at != line {
            if line < at {
                entry["line"] = Value::from((at + after).saturating_sub(before));
            }
            let _ = writeln!(left, "{entry}");
        }
    }
    write(root, file, &new_text)?;
    if left.is_empty() {
        std::fs::remove_file(root.join(draft))?;
        return Ok(());
    }
    write(root, draft, &left)
}

/// A test's text with `new` as the literal of the snapshot assertion that starts at `line`.
fn with_literal(text: &str, line: usize, new: &str) -> Result<String> {
    let tokens: TokenStream =
        text.parse().map_err(|e| anyhow::anyhow!("cannot read it as Rust: {e}"))?;
    let range = literal_at(tokens, line).context(
        "no `assert_…snapshot!` with a literal starts there any more: run `cargo xtask snapshots`",
    )?;
    let start = text.lines().nth(line - 1).unwrap_or_default();
    let indentation: String = start.chars().take_while(|c| c.is_whitespace()).collect();
    let (head, tail) = (text.get(..range.start), text.get(range.end..));
    let (head, tail) = head.zip(tail).context("the literal is out of range")?;
    Ok(format!("{head}{}{tail}", literal(new, &indentation)))
}

/// Where in the text the literal after `@` stands, of the assertion that starts at `line`.
fn literal_at(tokens: TokenStream, line: usize) -> Option<Range<usize>> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, tree) in trees.iter().enumerate() {
        let TokenTree::Group(group) = tree else { continue };
        let called = match i.checked_sub(2).and_then(|n| trees.get(n..i)) {
            Some([TokenTree::Ident(name), TokenTree::Punct(bang)]) if bang.as_char() == '!' => {
                let shown = name.to_string();
                shown.starts_with("assert_")
                    && shown.ends_with("snapshot")
                    && name.span().start().line == line
            }
            _ => false,
        };
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        if called {
            let at = inner.windows(2).rev().find_map(|pair| match pair {
                [TokenTree::Punct(at), TokenTree::Literal(l)] if at.as_char() == '@' => {
                    Some(l.span().byte_range())
                }
                _ => None,
            });
            if at.is_some() {
                return at;
            }
        }
        if let Some(found) = literal_at(group.stream(), line) {
            return Some(found);
        }
    }
    None
}

/// A snapshot as the literal that the snapshot library itself would write.
fn literal(text: &str, indentation: &str) -> String {
    let text = text.trim_end();
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(control) {
        return format!("{text:?}");
    }
    let mut hashes = String::new();
    let raw = text.contains(['"', '\\']);
    while raw && text.contains(&format!("\"{hashes}")) {
        hashes.push('#');
    }
    let prefix = if raw { "r" } else { "" };
    if !text.contains('\n') {
        return format!("{prefix}{hashes}\"{text}\"{hashes}");
    }
    let indented = |l: &&str| l.len() - l.trim_start_matches([' ', '\t']).len();
    let common = text.lines().filter(|l| !l.is_empty()).map(|l| indented(&l)).min().unwrap_or(0);
    let mut body = String::new();
    for line in text.lines() {
        match line.get(common..) {
            Some(rest) if !rest.is_empty() => {
                let _ = write!(body, "\n{indentation}{rest}");
            }
            _ => body.push('\n'),
        }
    }
    format!("{prefix}{hashes}\"{body}\n{indentation}\"{hashes}")
}

/// What moved, for a reader.
fn report(pending: &[Pending]) -> String {
    if pending.is_empty() {
        return "no snapshot moved".to_owned();
    }
    let mut out: String = pending.iter().map(figures).collect();
    let _ = write!(
        out,
        "{} moved; nothing is accepted.\nAccept one: cargo xtask snapshots --accept NAME\n\
         Throw all away: cargo xtask snapshots --discard",
        count(pending.len(), "snapshot")
    );
    out
}

fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// One snapshot's changes, figure by figure.
fn figures(p: &Pending) -> String {
    let mut out = format!("{}  ({})\n", p.name, p.place());
    let (old, new): (Vec<&str>, Vec<&str>) =
        (p.old.trim_end().lines().collect(), p.new.trim_end().lines().collect());
    for change in changes(&old, &new) {
        match change {
            Change::Gone(line) => {
                let _ = writeln!(out, "  - {}", line.trim());
            }
            Change::Come(line) => {
                let _ = writeln!(out, "  + {}", line.trim());
            }
            Change::Moved(a, b) => {
                let _ = writeln!(out, "    {}", b.trim());
                for (a, b) in numbers(a).iter().zip(numbers(b)).filter(|(a, b)| *a != b) {
                    let _ = writeln!(out, "      {a} -> {b}  ({})", relative(a, b));
                }
            }
        }
    }
    out.push('\n');
    out
}

/// How far a figure moved, relative to where it stood.
fn relative(old: &str, new: &str) -> String {
    let (Ok(a), Ok(b)) = (old.parse::<f64>(), new.parse::<f64>()) else {
        return "not comparable".to_owned();
    };
    if a.abs() <= 0.0 {
        return "from zero".to_owned();
    }
    let percent = (b - a) / a.abs() * 100.0;
    // Two decimals hide what is smaller; then the exponent says it.
    if 0.0 < percent.abs() && percent.abs() < 0.01 {
        format!("{percent:+.1e} %")
    } else {
        format!("{percent:+.2} %")
    }
}

#[derive(Debug, PartialEq)]
enum Change<'a> {
    Gone(&'a str),
    Come(&'a str),
    /// Lines that differ in their figures only.
    Moved(&'a str, &'a str),
}

/// The changes between two texts, where lines correspond that differ in their figures only.
fn changes<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Change<'a>> {
    let (a, b): (Vec<String>, Vec<String>) =
        (old.iter().map(|l| words(l)).collect(), new.iter().map(|l| words(l)).collect());
    // common[i][j]: how many lines of old[i..] and new[j..] correspond at most.
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            if numbers(old[i]) != numbers(new[j]) {
                found.push(Change::Moved(old[i], new[j]));
            }
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i][j + 1] <= common[i + 1][j]) {
            found.push(Change::Gone(old[i]));
            i += 1;
        } else {
            found.push(Change::Come(new[j]));
            j += 1;
        }
    }
    found
}

/// A line without its figures and its alignment.
fn words(line: &str) -> String {
    let mut out = String::new();
    let mut last = 0;
    for range in number_ranges(line) {
        out.push_str(&line[last..range.start]);
        out.push('#');
        last = range.end;
    }
    out.push_str(&line[last..]);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The figures of a line, as written.
fn numbers(line: &str) -> Vec<&str> {
    number_ranges(line).into_iter().map(|r| &line[r]).collect()
}

/// Where figures stand in a line: digits that no word begins, with sign, point and exponent.
fn number_ranges(line: &str) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    let run = |mut i: usize| {
        while digit(i) {
            i += 1;
        }
        i
    };
    let mut found = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        if !digit(i) {
            i += 1;
            continue;
        }
        // `p99` and `e2e` are words.
        let word = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        if 0 < i && word(bytes[i - 1]) {
            while i < bytes.len() && (word(bytes[i]) || digit(i)) {
                i += 1;
            }
            continue;
        }
        // A minus between two figures is a range or a date, not a sign.
        let signed = 0 < i
            && (bytes[i - 1] == b'-' || bytes[i - 1] == b'+')
            && (i < 2 || !bytes[i - 2].is_ascii_alphanumeric());
        let mut end = run(i);
        if bytes.get(end) == Some(&b'.') && digit(end + 1) {
            end = run(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if digit(end + 1 + sign) {
                end = run(end + 1 + sign);
            }
        }
        found.push(i - usize::from(signed)..end);
        i = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_settled() {
        let faults = check(&repo::root()).unwrap();
        assert!(faults.is_empty(), "{}", repo::list(&faults));
    }

    #[test]
    fn figures_are_numbers_and_not_parts_of_words() {
        assert_eq!(
            numbers("p99 12.5 ms, -3 (1e-3) e2e 2026-11"),
            ["12.5", "-3", "1e-3", "2026", "11"]
        );
        assert_eq!(numbers("每步20 ms"), ["20"]);
        assert_eq!(words("  13.020 ms   request 1"), "# ms request #");
    }

    #[test]
    fn a_line_whose_figures_moved_is_matched_past_new_lines() {
        let old = ["a 1 ms", "b 2 ms", "c 3"];
        let new = ["new 9", "a 1 ms", "b  2.5 ms", "d 4"];
        assert_eq!(
            changes(&old, &new),
            [
                Change::Come("new 9"),
                Change::Moved("b 2 ms", "b  2.5 ms"),
                Change::Gone("c 3"),
                Change::Come("d 4"),
            ]
        );
    }

    #[test]
    fn a_report_shows_old_new_and_relative_change() {
        let p = Pending {
            name: "ttft".to_owned(),
            old: "mean 20.00 ms\np99 0\n".to_owned(),
            new: "mean 20.50 ms\np99 1\n".to_owned(),
            place: Place::File { draft: "crates/x/tests/snapshots/x__ttft.snap.new".to_owned() },
        };
        assert_eq!(
            figures(&p),
            "ttft  (crates/x/tests/snapshots/x__ttft.snap)\n    mean 20.50 ms\n      \
             20.00 -> 20.50  (+2.50 %)\n    p99 1\n      0 -> 1  (from zero)\n\n"
        );
        assert_eq!(relative("1.00000", "1.00001"), "+1.0e-3 %");
    }

    const TEST: &str = "fn a() {\n    insta::assert_snapshot!(x, @\"1\");\n}\nmod m {\n    \
                        proptest! { fn b() {\n        assert_snapshot!(\n            f(\"@\"),\n            \
                        @r#\"\n        é 2\n        \"#\n        );\n    } }\n}\n";

    #[test]
    fn a_literal_is_replaced_where_its_assertion_starts() {
        let one = with_literal(TEST, 2, "7").unwrap();
        assert_eq!(one, TEST.replace("@\"1\"", "@\"7\""));
        let two = with_literal(TEST, 6, "é 3\n\n  \"x\"\n").unwrap();
        let want = "@r#\"\n        é 3\n\n          \"x\"\n        \"#";
        assert!(two.contains(want), "{two}");
        assert!(two.starts_with(&TEST[..40]) && two.ends_with(");\n    } }\n}\n"));
        // The written literal is found again.
        assert_eq!(with_literal(&two, 6, "é 2").unwrap().matches("@\"é 2\"").count(), 1);
        assert!(with_literal(TEST, 3, "7").is_err());
    }

    #[test]
    fn accepting_one_inline_draft_moves_the_others() {
        let dir = repo::scratch("accepting_one");
        let entry = |line: usize, name: &str, new: &str, run: &str| {
            format!(
                "{{\"run_id\":\"{run}\",\"line\":{line},\"new\":{{\"snapshot_name\":\"{name}\",\
                 \"snapshot\":\"{new}\"}},\"old\":{{\"snapshot\":\"1\"}}}}\n"
            )
        };
        let drafts =
            [entry(2, "a", "0", "r0"), entry(2, "a", "7\\n8", "r1"), entry(6, "b", "9", "r1")];
        std::fs::create_dir_all(dir.join("tests")).unwrap();
        std::fs::write(dir.join("tests/t.rs"), TEST).unwrap();
        std::fs::write(dir.join("tests/.t.rs.pending-snap"), drafts.concat()).unwrap();

        let found = pending(&dir).unwrap();
        assert_eq!(
            found.iter().map(Pending::place).collect::<Vec<_>>(),
            ["tests/t.rs:2", "tests/t.rs:6"]
        );
        assert_eq!(check(&dir).unwrap().len(), 1);
        accept(&dir, &["a".to_owned()]).unwrap();
        // "7\n8" takes four lines where "1" took one.
        assert_eq!(pending(&dir).unwrap()[0].place(), "tests/t.rs:9");
        accept(&dir, &["tests/t.rs:9".to_owned()]).unwrap();
        let text = std::fs::read_to_string(dir.join("tests/t.rs")).unwrap();
        assert!(text.contains("@\"\n    7\n    8\n    \")") && text.contains("@\"9\""), "{text}");
        assert_eq!(check(&dir).unwrap(), Vec::<String>::new());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn tests_that_fail_otherwise_are_named() {
        let output = "test a ... ok\ntest m::b ... FAILED\n\nfailures:\n    m::b\n";
        assert_eq!(failed_tests(output), ["m::b"]);
    }

    #[test]
    fn a_file_draft_is_accepted_without_its_line_number() {
        let draft = "---\nsource: t.rs\nassertion_line: 12\nexpression: x\n---\nbody\n";
        assert_eq!(persisted(draft), "---\nsource: t.rs\nexpression: x\n---\nbody\n");
    }

    #[test]
    fn a_snapshot_without_its_test_is_an_orphan() {
        let text = "---\nsource: crates/x/tests/t.rs\nexpression: y\n---\n1\n";
        let file = "crates/x/tests/snapshots/t__a_run-2.snap";
        let with = |test: &str| orphan(file, text, |_| Some(test.to_owned()));
        assert_eq!(with("fn a_run() {}"), None);
        assert!(with("fn b_run() {}").unwrap().contains("does not name `a_run`"));
        assert!(orphan(file, text, |_| None).unwrap().contains("t.rs is gone"));
        assert!(orphan(file, "1", |_| None).unwrap().contains("does not say"));
    }
}
