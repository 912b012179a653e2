// SPDX-License-Identifier: Apache-2.0
//! YAML as a tree of nodes with positions.
//!
//! Scalars stay text: the reader of a key interprets values such as `yes` or `0x10` (suricata.yaml is YAML
//! 1.1, which a general reader would misinterpret).

use saphyr_parser::{Event, Parser, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// A position in a file; line and column count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// A node with its position and tag (`!include`).
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position of its first character.
    pub position: Position,
    /// Name of a local tag, without the `!`.
    pub tag: Option<String>,
    /// The value.
    pub value: Value,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text of a scalar; `quoted` distinguishes `"no"` from `no`. An empty plain scalar is null.
    Scalar {
        /// The text.
        text: String,
        /// Whether the text was quoted or a block scalar.
        quoted: bool,
    },
    /// Items in order.
    Sequence(Vec<Node>),
    /// Keys and values in order; the same key may occur twice.
    Mapping(Vec<(Node, Node)>),
}

/// Text that is not YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}", line = position.line, column = position.column)]
pub struct YamlError {
    /// Position of the error.
    pub position: Position,
    /// The error.
    pub message: String,
}

/// Deepest nesting of nodes.
pub(crate) const DEPTH_MAX: usize = 64;
/// Most nodes of a document, with nodes that aliases repeat: a few lines of aliases of aliases could mean
/// billions.
pub(crate) const NODES_MAX: usize = 1 << 20;
/// Most bytes of text that aliases repeat in a document: one long text with many aliases could mean
/// gigabytes.
pub(crate) const REPEATED_MAX: usize = 8 << 20;

impl Node {
    /// The text of a scalar.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether the node is empty (`key:` without a value, `~`, `null`).
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null"))
    }

    /// The value of a key in a mapping.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Mapping(pairs) => pairs.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }
}

/// Parses a text with one document.
///
/// # Errors
/// The text is not YAML, nests too deeply, uses an alias before its anchor, or has a second document.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let (anchors, nodes, bytes, repeated) = (HashMap::new(), 0, 0, 0);
    let mut reader = YamlReader { parser: Parser::new_from_str(text), anchors, nodes, bytes, repeated };
    loop {
        let (event, position) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd | Event::DocumentEnd => {
                return Ok(Node { position, tag: None, value: Value::Mapping(Vec::new()) });
            }
            event => {
                let root = reader.node(event, position, 0)?;
                reader.end()?;
                return Ok(root);
            }
        }
    }
}

struct YamlReader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// The anchors' nodes.
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    /// Bytes of text so far, and of text that aliases repeated.
    bytes: usize,
    repeated: usize,
}

/// The node of an anchor, with its size.
struct Anchored {
    node: Node,
    nodes: usize,
    bytes: usize,
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Position), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                Ok((event, Position { line: span.start.line(), column: span.start.col() + 1 }))
            }
            Some(Err(error)) => Err(YamlError {
                position: Position { line: error.marker().line(), column: error.marker().col() + 1 },
                message: error.info().to_owned(),
            }),
            None => Ok((Event::StreamEnd, Position::default())),
        }
    }

    /// Checks that nothing follows the document.
    fn end(&mut self) -> Result<(), YamlError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(_), position) => {
                    let message =
                        "a second document begins here; put everything into one, without `---` in between";
                    return Err(YamlError { position, message: message.to_owned() });
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'t>, position: Position, depth: usize) -> Result<Node, YamlError> {
        let wrong = |message: String| Err(YamlError { position, message });
        if depth > DEPTH_MAX {
            return wrong(format!("nested deeper than {DEPTH_MAX} levels; make it flatter"));
        }
        let (before, bytes_before) = (self.nodes, self.bytes);
        self.nodes += 1;
        let (value, anchor, tag) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != saphyr_parser::ScalarStyle::Plain;
                self.bytes = self.bytes.saturating_add(text.len());
                (Value::Scalar { text: text.into_owned(), quoted }, anchor, tag)
            }
            Event::SequenceStart(anchor, tag) => (self.sequence(depth)?, anchor, tag),
            Event::MappingStart(anchor, tag) => (self.mapping(depth)?, anchor, tag),
            Event::Alias(id) => {
                let Some(anchored) = self.anchors.get(&id) else {
                    return wrong("an alias comes before its anchor, or inside it; move it".to_owned());
                };
                self.nodes = before.saturating_add(anchored.nodes);
                self.bytes = self.bytes.saturating_add(anchored.bytes);
                self.repeated = self.repeated.saturating_add(anchored.bytes);
                if self.nodes > NODES_MAX || self.repeated > REPEATED_MAX {
                    return wrong(format!(
                        "the document with expanded aliases has more than {NODES_MAX} nodes, or they repeat more than {REPEATED_MAX} bytes; \
                         write it without them"
                    ));
                }
                return Ok(anchored.node.clone());
            }
            _ => return wrong("the document ends in the middle of a value; complete it".to_owned()),
        };
        if self.nodes > NODES_MAX {
            return wrong(format!("the document has more than {NODES_MAX} nodes"));
        }
        let node = Node { position, tag: tag_name(tag), value };
        if anchor != 0 {
            let bytes = self.bytes.saturating_sub(bytes_before);
            let nodes = self.nodes.saturating_sub(before);
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, bytes });
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Sequence(items)),
                (event, position) => items.push(self.node(event, position, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut pairs = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Mapping(pairs)),
                (event, position) => self.node(event, position, depth + 1)?,
            };
            let (event, position) = self.next()?;
            let value = self.node(event, position, depth + 1)?;
            pairs.push((key, value));
        }
    }
}

fn tag_name(tag: Option<Cow<'_, Tag>>) -> Option<String> {
    tag.filter(|t| !t.is_yaml_core_schema()).map(|t| t.suffix.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_tags_and_quotes() {
        let root = parse("%YAML 1.1\n---\na: yes\nb: !include x.yaml\nc:\n  - \"no\"\n  - {k: v}\nd:\n")
            .expect("yaml");
        assert_eq!(root.get("a").and_then(Node::as_str), Some("yes"));
        assert_eq!(root.get("b").and_then(|n| n.tag.as_deref()), Some("include"));
        assert!(root.get("d").expect("d").is_null());
        let Some(Value::Sequence(items)) = root.get("c").map(|n| &n.value) else { panic!("no sequence") };
        assert_eq!(items[0].value, Value::Scalar { text: "no".into(), quoted: true });
        assert_eq!(items[1].get("k").expect("k").position, Position { line: 7, column: 9 });
    }

    #[test]
    fn aliases_repeat_within_bounds() {
        let root = parse("a: &x [1, {k: v}]\nb: *x\n").expect("yaml");
        assert_eq!(root.get("a").map(|n| &n.value), root.get("b").map(|n| &n.value));
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let inner = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{inner}]\n");
        }
        let error = parse(&text).expect_err("too much").to_string();
        assert!(error.contains("aliases") && error.contains("1048576 nodes"), "{error}");
        assert!(parse("a: &x [*x]\n").is_err());
        // One long text with many aliases: three more zeros on 20 KB would mean a gigabyte.
        let text = format!("a: &x {}\nb: [{}]\n", "A".repeat(10_000), "*x, ".repeat(2_000));
        let error = parse(&text).expect_err("too long").to_string();
        assert!(error.contains("8388608 bytes"), "{error}");
        // The lookup of many anchors is as fast as that of few.
        let (anchors, aliases): (Vec<_>, Vec<_>) =
            (0..20_000).map(|n| (format!("&a{n} x"), format!("*a{n}"))).unzip();
        assert!(parse(&format!("[{}, {}]", anchors.join(", "), aliases.join(", "))).is_ok());
    }

    #[test]
    fn a_second_document_is_an_error() {
        assert!(parse("---\na: 1\n...\n").is_ok());
        let error = parse("a: 1\n---\nb: 2\n").expect_err("two");
        assert_eq!(error.position.line, 2);
        assert!(parse("a: 1\n---\nb: [\n").is_err());
    }

    #[test]
    fn errors_have_a_place() {
        let error = parse("a: [1, 2\nb: 3\n").expect_err("broken");
        assert!(error.position.line >= 1, "{error}");
    }
}
