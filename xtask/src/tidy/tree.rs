// SPDX-License-Identifier: Apache-2.0
//! The files of the repository, read once.

use std::fmt;
use std::path::{Path, PathBuf};

/// Folders without sources: built, generated or fetched.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    "bartizan-out",
    "__pycache__",
    "docs/book",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// Files larger than this are data.
const LARGEST: u64 = 1 << 20;

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// The file's name without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// A violation of a rule, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// The line from 1; 0 for the file as a whole.
    pub line: usize,
    /// The violation, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding at a line; line 0 is the whole file.
    #[must_use]
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// All text files of a repository, or those of a test.
#[derive(Debug, Default)]
pub struct Tree {
    /// The root folder; `None` for a tree made up in a test.
    pub root: Option<PathBuf>,
    /// The files, sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the repository of this crate.
    ///
    /// # Errors
    /// When a folder or file cannot be read.
    pub fn of_repository() -> std::io::Result<Self> {
        Self::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
    }

    /// Reads the repository in a folder.
    ///
    /// # Errors
    /// When a folder or file cannot be read.
    pub fn at(root: &Path) -> std::io::Result<Self> {
        let mut files = Vec::new();
        walk(root, root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: Some(root.to_owned()), files })
    }

    /// A tree of made-up files.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files =
            files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() });
        Self { root: None, files: files.collect() }
    }

    /// The file at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or folder at this path, also one that is not text.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
            || self.root.as_ref().is_some_and(|root| root.join(path).exists())
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The folders of the crates below `crates/`, with their manifests.
    pub fn crates(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| {
            let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, file))
        })
    }
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(relative) = path.strip_prefix(root) else { continue };
        let relative = relative.to_string_lossy().replace('\\', "/");
        if SKIPPED.iter().any(|skipped| relative == *skipped || entry.file_name().to_str() == Some(skipped)) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &path, files)?;
        } else if kind.is_file() && entry.metadata()?.len() <= LARGEST {
            // A file that is not UTF-8 is data.
            if let Ok(text) = std::fs::read_to_string(&path) {
                files.push(File { path: relative, text });
            }
        }
    }
    Ok(())
}
