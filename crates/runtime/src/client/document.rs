// SPDX-License-Identifier: Apache-2.0
//! Documents of files: YAML or JSON, with the places of their parts, so that the refusal of a controller can
//! name file and line.

use crate::error::Failure;
use crate::input;
use bartizan_config::policy::read;
use bartizan_config::yaml::{self, Node};
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// A document.
pub struct LocalDocument {
    /// The file, as the user named it.
    pub file: String,
    /// Lines of the file before the document.
    before: usize,
    node: Node,
    /// The document's content.
    pub body: Value,
}

/// Standard input.
const INPUT: &str = "-";
/// Bytes of a file of documents.
const FILE_MAX: u64 = 64 << 20;

/// Reads a file, or standard input (`-`).
///
/// # Errors
/// The file cannot be read.
pub fn bytes(path: &str) -> Result<Vec<u8>, Failure> {
    if path != INPUT {
        return input::read_text(Path::new(path), "document");
    }
    let mut all = Vec::new();
    let read = std::io::stdin().lock().take(FILE_MAX).read_to_end(&mut all);
    read.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
    Ok(all)
}

impl LocalDocument {
    /// The one document of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no YAML.
    pub fn read(path: &str) -> Result<Self, Failure> {
        let text = text(path)?;
        LocalDocument::parse(path, &text, 0)
    }

    /// All documents of a file, separated by `---`.
    ///
    /// # Errors
    /// The file cannot be read, or is no YAML.
    pub fn all(path: &str) -> Result<Vec<Self>, Failure> {
        let text = text(path)?;
        let (mut all, mut part, mut begins) = (Vec::new(), String::new(), 0);
        let parts = text.lines().enumerate().map(Some).chain([None]);
        for line in parts {
            match line {
                Some((_, line)) if line.trim_end() != "---" => {
                    part.push_str(line);
                    part.push('\n');
                }
                _ => {
                    let has_content =
                        |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
                    if part.lines().any(has_content) {
                        all.push(LocalDocument::parse(path, &part, begins)?);
                    }
                    part.clear();
                    begins = line.map_or(0, |(number, _)| number + 1);
                }
            }
        }
        Ok(all)
    }

    fn parse(file: &str, text: &str, before: usize) -> Result<Self, Failure> {
        let node = yaml::parse(text).map_err(|error| {
            let (line, column) = (error.position.line + before, error.position.column);
            Failure::input(format!("{file}:{line}:{column}: {}", error.message))
        })?;
        if let Some(problem) = read::unfit(&node) {
            let (line, column) = (problem.position.line + before, problem.position.column);
            return Err(Failure::input(format!("{file}:{line}:{column}: {}", problem.message)));
        }
        let body = read::to_json(&node);
        Ok(LocalDocument { file: file.to_owned(), before, node, body })
    }

    /// File, line and column of the part that a JSON pointer names, or of its deepest existing ancestor.
    pub fn place(&self, pointer: &str) -> String {
        let parts = pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
        let position = read::locate(&self.node, &parts.collect::<Vec<_>>().join("/"));
        format!("{}:{}:{}", self.file, position.line + self.before, position.column)
    }

    /// A failure caused by a part of the document, with its place.
    pub fn wrong(&self, pointer: &str, message: &str) -> Failure {
        Failure::input(format!("{}: {message}", self.place(pointer)))
    }
}

fn text(path: &str) -> Result<String, Failure> {
    String::from_utf8(bytes(path)?)
        .map_err(|error| Failure::input(format!("{path}: the file is not UTF-8: {error}")))
}
