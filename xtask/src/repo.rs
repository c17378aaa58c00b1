//! Where the repository is, which files it has, and how faults are shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the repository that this tool was built from.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The text of a file, named from the root.
pub fn read(root: &Path, file: &str) -> Result<String> {
    std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

/// Every file that is committed or could be, from the root, sorted.
///
/// Git knows what is ignored; without it (an unpacked archive) every file but build output counts.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let mut files: Vec<String> = match git {
        Ok(out) if out.status.success() && !out.stdout.is_empty() => {
            String::from_utf8_lossy(&out.stdout)
                .split('\0')
                .filter(|f| !f.is_empty() && root.join(f).is_file())
                .map(str::to_owned)
                .collect()
        }
        _ => walk(root, "")?.into_iter().filter(|f| !is_pending(f)).collect(),
    };
    files.sort();
    files.dedup();
    Ok(files)
}

/// Every file below `dir`, ignored ones included, except build output and hidden directories.
pub fn walk(root: &Path, dir: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let at = root.join(dir);
    if !at.is_dir() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(&at).with_context(|| format!("cannot list {dir}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if name != "target" && name != ".git" && name != "node_modules" {
            found.extend(walk(root, &path)?);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file is a draft that the snapshot library left behind.
pub fn is_pending(file: &str) -> bool {
    file.ends_with(".snap.new") || file.ends_with(".pending-snap")
}

/// Whether a file's name has this ending.
pub fn ends(file: &str, ending: &str) -> bool {
    Path::new(file).extension().is_some_and(|e| e == ending)
}

/// The directories of the workspace's packages, from the root, sorted.
pub fn packages(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if root.join("crates").join(&name).join("Cargo.toml").is_file() {
            found.push(format!("crates/{name}"));
        }
    }
    found.push("xtask".to_owned());
    found.sort();
    Ok(found)
}

/// A good ending, or all faults at once.
pub fn settle(faults: &[String], good: &str) -> Result<()> {
    if faults.is_empty() {
        println!("{good}");
        return Ok(());
    }
    bail!("{}", list(faults));
}

/// Faults as one text.
pub fn list(faults: &[String]) -> String {
    let n = faults.len();
    format!("{n} fault{}:\n  {}", if n == 1 { "" } else { "s" }, faults.join("\n  "))
}

/// An empty directory for one test.
#[cfg(test)]
pub fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
