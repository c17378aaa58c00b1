//! `cargo xtask faults`: plants one fault at a time in a copy of the tree; a test has to fail.
//!
//! The list is `faults.toml`. The working tree is never touched, except that `--write` puts the
//! result into the test notes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

/// The list of faults.
const LIST: &str = "xtask/faults.toml";

/// Where the result stands.
const NOTES: &str = "docs/test-notes.md";

const BEGIN: &str = "<!-- begin faults: cargo xtask faults --write -->";
const END: &str = "<!-- end faults -->";

/// The test that looks for every `from` in the tree: it would catch any fault by its absence.
const OF_THE_LIST: &str = "planted_faults";

/// How many failed tests a row names.
const NAMED: usize = 3;

/// The options of the command.
#[derive(clap::Args)]
pub struct FaultsArguments {
    /// Plant only this fault (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only print the list
    #[arg(long, conflicts_with = "write")]
    list: bool,
    /// Put the result into docs/test-notes.md; with --only, that of these faults
    #[arg(long)]
    write: bool,
}

/// One fault that a person could make.
struct Fault {
    name: String,
    /// What sort of slip it is: a sign, a unit, a bound, ….
    kind: String,
    /// What is wrong then.
    what: String,
    /// The file it is made in, from the root.
    file: String,
    /// The text that is replaced; it stands there once.
    from: String,
    to: String,
    /// The arguments of each `cargo test` that may catch it.
    tests: Vec<String>,
}

/// What the tests said of a fault.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// These tests failed.
    Failed(Vec<String>),
    /// It does not compile.
    Compiler,
    /// Every test passed.
    Missed,
}

/// Plants the faults, and fails unless each is caught.
pub fn run(root: &Path, arguments: &FaultsArguments) -> Result<()> {
    let all = list(root)?;
    let misfits = misfits(root, &all);
    if !misfits.is_empty() {
        bail!("{}", repo::list(&misfits));
    }
    if let Some(unknown) = arguments.only.iter().find(|n| all.iter().all(|f| f.name != **n)) {
        bail!("no fault `{unknown}` in {LIST}: `cargo xtask faults --list` prints them");
    }
    let chosen: Vec<&Fault> = all
        .iter()
        .filter(|f| arguments.only.is_empty() || arguments.only.contains(&f.name))
        .collect();
    if arguments.list {
        for f in &chosen {
            println!("{:34} {:16} {}", f.name, f.kind, f.what);
        }
        return Ok(());
    }

    let copy = Copy::of(root)?;
    let tests: BTreeSet<&str> =
        chosen.iter().flat_map(|f| f.tests.iter().map(String::as_str)).collect();
    for (i, test) in tests.iter().enumerate() {
        println!("without a fault, {} of {}: cargo test {test}", i + 1, tests.len());
        match copy.test(test)? {
            Outcome::Missed => {}
            Outcome::Compiler => bail!("`cargo test {test}` does not compile without any fault"),
            Outcome::Failed(names) => {
                bail!("`cargo test {test}` fails without any fault: {}", names.join(", "))
            }
        }
    }

    let mut results: Vec<(&Fault, Outcome)> = Vec::new();
    for (i, f) in chosen.iter().enumerate() {
        copy.plant(f)?;
        let mut outcome = Outcome::Missed;
        for test in &f.tests {
            outcome = outcome.and(copy.test(test).with_context(|| f.name.clone())?);
        }
        copy.restore()?;
        println!("{:3} of {}  {:34} {}", i + 1, chosen.len(), f.name, outcome.shown());
        results.push((f, outcome));
    }
    let today = today();
    println!("\n{}", table(results.iter().map(|(f, o)| row(f, o, &today))));
    if arguments.write {
        write(root, &all, &results, &today)?;
        println!("wrote {NOTES}");
    }
    let caught = results.iter().filter(|(_, o)| *o != Outcome::Missed).count();
    println!("caught {caught} of {}", results.len());
    if caught < results.len() {
        bail!("a fault that no test catches needs a test, in the crate where it belongs");
    }
    Ok(())
}

/// The faults of the list, in its order.
fn list(root: &Path) -> Result<Vec<Fault>> {
    parse(&repo::read(root, LIST)?)
}

fn parse(text: &str) -> Result<Vec<Fault>> {
    let table: toml::Table = text.parse().with_context(|| format!("cannot parse {LIST}"))?;
    if let Some(other) = table.keys().find(|k| *k != "fault") {
        bail!("{LIST}: `{other}` is no `[[fault]]`");
    }
    let items = table.get("fault").and_then(toml::Value::as_array);
    let mut faults: Vec<Fault> = Vec::new();
    for (i, item) in items.into_iter().flatten().enumerate() {
        let item = item.as_table().with_context(|| format!("{LIST}: `fault` holds no table"))?;
        let fault = fault(item).with_context(|| format!("{LIST}, fault {}", i + 1))?;
        if faults.iter().any(|f| f.name == fault.name) {
            bail!("{LIST}: two faults are called `{}`: rename one", fault.name);
        }
        faults.push(fault);
    }
    Ok(faults)
}

fn fault(item: &toml::Table) -> Result<Fault> {
    const KEYS: [&str; 7] = ["name", "kind", "what", "file", "from", "to", "tests"];
    if let Some(key) = item.keys().find(|k| !KEYS.contains(&k.as_str())) {
        bail!("unknown key `{key}`, there are {}", KEYS.join(", "));
    }
    let text = |key: &str| {
        let value = item.get(key).and_then(toml::Value::as_str);
        value.map(str::to_owned).with_context(|| format!("`{key}` must be a text"))
    };
    let tests: Option<Vec<String>> = item
        .get("tests")
        .and_then(toml::Value::as_array)
        .filter(|tests| !tests.is_empty())
        .and_then(|tests| tests.iter().map(|t| t.as_str().map(str::to_owned)).collect());
    Ok(Fault {
        name: text("name")?,
        kind: text("kind")?,
        what: text("what")?,
        file: text("file")?,
        from: text("from")?,
        to: text("to")?,
        tests: tests.context("`tests` must list arguments of `cargo test`")?,
    })
}

/// Faults of the list that do not fit the tree any more.
fn misfits(root: &Path, faults: &[Fault]) -> Vec<String> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    faults
        .iter()
        .filter_map(|f| {
            let text = texts
                .entry(&f.file)
                .or_insert_with(|| repo::read(root, &f.file).unwrap_or_default());
            misfit(f, text)
        })
        .collect()
}

fn misfit(f: &Fault, text: &str) -> Option<String> {
    let found = text.matches(&f.from).count();
    let why = if f.from.is_empty() || f.from == f.to {
        "`to` changes nothing".to_owned()
    } else if found != 1 {
        format!("`from` occurs {found} times in {}, not once", f.file)
    } else {
        return None;
    };
    Some(format!("{LIST}: fault `{}`: {why}: bring it up to date", f.name))
}

impl Outcome {
    /// What two runs said together.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(mut a), Self::Failed(b)) => {
                a.extend(b);
                Self::Failed(a)
            }
            (Self::Failed(a), _) | (_, Self::Failed(a)) => Self::Failed(a),
            (Self::Compiler, _) | (_, Self::Compiler) => Self::Compiler,
            (Self::Missed, Self::Missed) => Self::Missed,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Missed => "MISSED: no test fails".to_owned(),
            Self::Compiler => "caught by the compiler".to_owned(),
            Self::Failed(names) => {
                let few: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
                let more = match names.len().saturating_sub(NAMED) {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                format!("{}{more}", few.join(", "))
            }
        }
    }
}

/// A copy of the tree to plant faults in, with a build directory of its own.
struct Copy {
    /// The files as they were when the copy was made: the tree may be edited meanwhile.
    files: BTreeMap<String, Vec<u8>>,
    tree: PathBuf,
    target: PathBuf,
    data: PathBuf,
}

impl Copy {
    /// The copy below the target directory, brought up to date.
    fn of(root: &Path) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let below = root.join(target).join("faults");
        let data = std::env::var_os("GOODPUT_DATA")
            .map_or_else(|| root.join("../shared/data"), |data| root.join(data));
        let mut files = BTreeMap::new();
        for file in repo::files(root)? {
            let bytes = std::fs::read(root.join(&file));
            files.insert(file.clone(), bytes.with_context(|| format!("cannot read {file}"))?);
        }
        let copy = Self { files, tree: below.join("tree"), target: below.join("target"), data };
        copy.restore()?;
        Ok(copy)
    }

    /// Undoes whatever was planted and whatever tests left behind.
    ///
    /// A file that is as it should be keeps its time of change, so that little is built anew.
    fn restore(&self) -> Result<()> {
        for (file, bytes) in &self.files {
            let to = self.tree.join(file);
            if std::fs::read(&to).ok().as_ref() != Some(bytes) {
                if let Some(dir) = to.parent() {
                    std::fs::create_dir_all(dir)?;
                }
                std::fs::write(&to, bytes).with_context(|| format!("cannot write {file}"))?;
            }
        }
        for file in repo::walk(&self.tree, "")? {
            if !self.files.contains_key(&file) {
                std::fs::remove_file(self.tree.join(&file))?;
            }
        }
        Ok(())
    }

    fn plant(&self, f: &Fault) -> Result<()> {
        let text = repo::read(&self.tree, &f.file)?;
        if let Some(misfit) = misfit(f, &text) {
            bail!("{misfit}");
        }
        std::fs::write(self.tree.join(&f.file), text.replacen(&f.from, &f.to, 1))?;
        Ok(())
    }

    /// Runs `cargo test` with these arguments in the copy.
    fn test(&self, arguments: &str) -> Result<Outcome> {
        // One pipe for both streams keeps their lines in order: one names the program, the other
        // the tests in it.
        let (mut reader, writer) = std::io::pipe()?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["test", "--no-fail-fast"])
            .args(arguments.split_whitespace())
            .args(["--", "--skip", OF_THE_LIST])
            .env("CARGO_TARGET_DIR", &self.target)
            .env("GOODPUT_DATA", &self.data)
            .env("INSTA_UPDATE", "no")
            .env_remove("UPDATE_DOCS")
            .env("CARGO_TERM_COLOR", "never")
            .current_dir(&self.tree)
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = command.spawn().context("cannot run cargo")?;
        // It holds the writing ends, without which the pipe has no end.
        drop(command);
        let mut output = Vec::new();
        reader.read_to_end(&mut output)?;
        let passed = child.wait()?.success();
        let output = String::from_utf8_lossy(&output);
        outcome(passed, &output).with_context(|| format!("`cargo test {arguments}`:\n{output}"))
    }
}

/// What the output of `cargo test` says.
fn outcome(passed: bool, output: &str) -> Result<Outcome> {
    let mut program = "";
    let mut failed = Vec::new();
    let mut ran = 0;
    for line in output.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Running ") {
            // `Running tests/summary.rs (target/…)`, `Running unittests src/lib.rs (target/…)`
            let path = rest.trim_start_matches("unittests ").split(' ').next().unwrap_or("");
            let file = path.rsplit('/').next().unwrap_or(path);
            program = file.strip_suffix(".rs").unwrap_or(file);
        } else if line.starts_with("Doc-tests ") {
            program = "doc";
        } else if let Some(test) = line.strip_prefix("test ")
            && let Some((name, result)) = test.rsplit_once(" ... ")
        {
            ran += 1;
            if result == "FAILED" {
                let name = name.split(" - should panic").next().unwrap_or(name);
                failed.push(match (program, name.split_once(" - ")) {
                    // `crates/a/src/b.rs - b::f (line 9)`: the line moves, the item does not.
                    ("doc", Some((_, item))) => {
                        format!("doc {}", item.split(" (line").next().unwrap_or(item))
                    }
                    ("lib" | "main" | "", _) => name.to_owned(),
                    (program, _) => format!("{program}::{name}"),
                });
            }
        }
    }
    // Tests run side by side, so that their order in the output is chance.
    failed.sort();
    match (passed, failed.is_empty()) {
        (true, _) if ran == 0 => bail!("it ran no test"),
        (true, _) => Ok(Outcome::Missed),
        (false, false) => Ok(Outcome::Failed(failed)),
        (false, true) if output.contains("error: could not compile") => Ok(Outcome::Compiler),
        (false, true) => bail!("it failed without a failed test"),
    }
}

/// A row of the table; a date says when the fault was last planted.
fn row(f: &Fault, outcome: &Outcome, date: &str) -> String {
    let file = f.file.rsplit_once("crates/").map_or(f.file.as_str(), |(_, file)| file);
    let caught = match outcome {
        Outcome::Failed(_) => format!("`{}`", outcome.shown().replace(", ", "`, `"))
            .replace(" and ", "` and ")
            .replace(" more`", " more"),
        other => other.shown(),
    };
    let cells = [&format!("`{}`", f.name), &f.kind, &format!("`{file}`"), &f.what, &caught, date]
        .map(|cell| cell.replace('|', "\\|"));
    format!("| {} |", cells.join(" | "))
}

fn table(rows: impl IntoIterator<Item = String>) -> String {
    let head =
        "| fault | kind | in | what is wrong then | failed tests | on |\n|---|---|---|---|---|---|";
    rows.into_iter().fold(head.to_owned(), |text, row| text + "\n" + &row)
}

/// Puts the rows between the markers of the notes, those that were not run as they stand there.
fn write(root: &Path, all: &[Fault], results: &[(&Fault, Outcome)], date: &str) -> Result<()> {
    let notes = repo::read(root, NOTES)?;
    let old = written(&notes)?;
    let mut rows = Vec::new();
    for f in all {
        let new = results.iter().find(|(g, _)| g.name == f.name).map(|(f, o)| row(f, o, date));
        // A row whose fault was never run is left out, which the checks then say.
        rows.extend(new.or_else(|| old.iter().find(|r| is_row_of(r, f)).map(|r| (*r).to_owned())));
    }
    let caught = rows.iter().filter(|r| !r.contains("MISSED")).count();
    let summary = format!("{caught} of {} planted faults are caught.", rows.len());
    let (head, rest) = notes.split_once(BEGIN).with_context(|| format!("{NOTES}: no `{BEGIN}`"))?;
    let (_, tail) = rest.split_once(END).with_context(|| format!("{NOTES}: no `{END}`"))?;
    let new = format!("{head}{BEGIN}\n\n{summary}\n\n{}\n\n{END}{tail}", table(rows));
    std::fs::write(root.join(NOTES), new).with_context(|| format!("cannot write {NOTES}"))
}

/// The rows that stand in the notes.
fn written(notes: &str) -> Result<Vec<&str>> {
    let (_, rest) = notes.split_once(BEGIN).with_context(|| format!("{NOTES}: no `{BEGIN}`"))?;
    let (block, _) = rest.split_once(END).with_context(|| format!("{NOTES}: no `{END}`"))?;
    Ok(block.lines().filter(|l| l.starts_with("| `")).collect())
}

/// Whether a row speaks of this fault as it stands in the list.
fn is_row_of(row: &str, f: &Fault) -> bool {
    let file = f.file.rsplit_once("crates/").map_or(f.file.as_str(), |(_, file)| file);
    let begin = [&format!("`{}`", f.name), &f.kind, &format!("`{file}`"), &f.what]
        .map(|cell| cell.replace('|', "\\|"));
    row.starts_with(&format!("| {} |", begin.join(" | ")))
}

/// Where the notes and the list differ.
#[cfg(test)]
fn stale(notes: &str, all: &[Fault]) -> Result<Vec<String>> {
    let rows = written(notes)?;
    let mut faults = Vec::new();
    for f in all {
        match rows.iter().find(|r| is_row_of(r, f)) {
            None => faults.push(format!(
                "{NOTES} does not tell how fault `{}` is caught: run `cargo xtask faults --only {} \
                 --write`",
                f.name, f.name
            )),
            Some(row) if row.contains("MISSED") => {
                faults.push(format!("{NOTES}: no test catches fault `{}`: write one", f.name));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() && rows.len() != all.len() {
        faults.push(format!(
            "{NOTES} has rows that are not in {LIST}: run `cargo xtask faults --write`"
        ));
    }
    Ok(faults)
}

/// Today as 2026-01-31, in UTC.
fn today() -> String {
    #[expect(clippy::disallowed_methods, reason = "the notes say when, and nothing depends on it")]
    let now = std::time::SystemTime::now();
    let seconds = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    date(seconds / 86_400)
}

/// The date of a day since 1970-01-01.
fn date(day: u64) -> String {
    // Counted from 1 March of year 0, so that the leap day ends a year: 400 years are 146097 days.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on the lengths of the months repeat every 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_faults_fit_the_tree() {
        let root = repo::root();
        let all = list(&root).unwrap();
        assert!(30 <= all.len(), "{} faults", all.len());
        let misfits = misfits(&root, &all);
        assert!(misfits.is_empty(), "{}", repo::list(&misfits));
    }

    #[test]
    fn planted_faults_stand_in_the_test_notes() {
        let root = repo::root();
        let faults = stale(&repo::read(&root, NOTES).unwrap(), &list(&root).unwrap()).unwrap();
        assert!(faults.is_empty(), "{}", repo::list(&faults));
    }

    fn one(from: &str, to: &str) -> Fault {
        let text = format!(
            "[[fault]]\nname = 'a'\nkind = 'sign'\nwhat = 'x | y'\nfile = 'crates/c/src/f.rs'\n\
             from = '{from}'\nto = '{to}'\ntests = ['-p c']\n"
        );
        parse(&text).unwrap().remove(0)
    }

    #[test]
    fn a_fault_that_does_not_fit_is_named() {
        assert_eq!(misfit(&one("a - b", "a + b"), "let x = a - b;"), None);
        for (fault, why) in [
            (one("a - b", "a - b"), "`to` changes nothing"),
            (one("gone", "a + b"), "`from` occurs 0 times in crates/c/src/f.rs, not once"),
            (one("x", "y"), "`from` occurs 2 times in crates/c/src/f.rs, not once"),
        ] {
            let said = misfit(&fault, "x = a - b + x").unwrap();
            assert_eq!(said, format!("xtask/faults.toml: fault `a`: {why}: bring it up to date"));
        }
    }

    #[test]
    fn a_broken_list_is_named() {
        let say = |text: &str| format!("{:#}", parse(text).err().unwrap());
        assert!(
            say("[[fault]]\nname = 'a'\nform = ''")
                .ends_with("unknown key `form`, there are name, kind, what, file, from, to, tests")
        );
        assert!(say("[[fault]]\nkind = 'a'").ends_with("fault 1: `name` must be a text"));
        assert!(say("[[faults]]").contains("`faults` is no `[[fault]]`"));
    }

    #[test]
    fn the_output_of_cargo_test_tells_what_failed() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)
test slo::at_the_limit ... ok
test slo::strict ... FAILED
     Running tests/summary.rs (target/debug/deps/summary-2)
test percentiles ... FAILED
   Doc-tests metrics_core
test crates/metrics-core/src/latency.rs - latency::tpot (line 9) ... FAILED
";
        let failed = outcome(false, output).unwrap();
        let names = ["doc latency::tpot", "slo::strict", "summary::percentiles"];
        assert_eq!(failed, Outcome::Failed(names.map(str::to_owned).to_vec()));
        assert_eq!(outcome(true, "test a ... ok").unwrap(), Outcome::Missed);
        let broken = "error[E0308]: mismatched types\nerror: could not compile `a` (lib)";
        assert_eq!(outcome(false, broken).unwrap(), Outcome::Compiler);
        // A filter that fits no test, or a fault of the machine, is no catch and no miss.
        assert!(outcome(true, "running 0 tests").is_err());
        assert!(outcome(false, "error: no space left").is_err());
    }

    #[test]
    fn the_notes_say_what_failed_and_are_stale_without_it() {
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let fault = one("x", "y");
        let line = row(&fault, &Outcome::Failed(names), "2026-01-31");
        assert_eq!(
            line,
            "| `a` | sign | `c/src/f.rs` | x \\| y | `a`, `b`, `c` and 2 more | 2026-01-31 |"
        );
        assert!(row(&fault, &Outcome::Compiler, "").contains("| caught by the compiler |"));
        let notes = |row: &str| format!("{BEGIN}\n\n{row}\n\n{END}\n");
        let say = |row: &str| stale(&notes(row), std::slice::from_ref(&fault)).unwrap().join("");
        assert_eq!(say(&line), "");
        assert!(say("").contains("--only a --write"));
        assert!(say(&line.replace("sign", "bound")).contains("does not tell how fault `a`"));
        assert!(say(&row(&fault, &Outcome::Missed, "")).contains("no test catches fault `a`"));
        assert!(say(&format!("{line}\n| `b` |")).contains("rows that are not in"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_453), "2025-12-31");
        assert_eq!(date(20_454), "2026-01-01");
    }
}
