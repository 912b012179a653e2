// SPDX-License-Identifier: Apache-2.0
//! Deserializes YAML nodes, with the position of every error.
//!
//! [`read`] runs serde over a [`Node`]. Beyond serde, every problem has its position; all unknown and
//! duplicate keys are reported (not only the first), with the nearest valid key.
//!
//! Not supported: maps with keys other than text, enums with data.

use crate::yaml::{Node, Position, Value};
use core::cell::RefCell;
use core::fmt;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use std::collections::HashSet;

/// Most problems that are kept of one file: enough for an author to begin with.
pub const PROBLEMS_MAX: usize = 100;

/// A problem, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Position in the file; zero if the nodes are not from a file.
    pub position: Position,
    /// Keys and indices from the root: `policies/0/chain/2`; a final `/` means the key itself.
    pub path: String,
    /// The problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.position.line, self.position.column, self.message)
    }
}

/// Longest word, in bytes, that is compared with known ones.
pub(crate) const NEAREST_MAX: usize = 128;

/// The known name nearest to a word, if a typing error explains the difference.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no typing errors, and a comparison costs the product of both lengths.
    if word.len() > NEAREST_MAX {
        return None;
    }
    let fold = |s: &str| s.to_ascii_lowercase().replace('_', "-");
    let folded = fold(word);
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&folded, &fold(c)), c))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, c)| c)
}

/// The end of a message about an unknown name.
#[must_use]
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(word, candidates.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let known: Vec<_> = candidates.into_iter().map(|c| format!("`{c}`")).collect();
            if known.is_empty() { "none exists".to_owned() } else { format!("known: {}", known.join(", ")) }
        }
    }
}

/// Deserializes a node.
///
/// # Errors
/// Every problem found; a type error does not hide unknown keys.
pub fn read<T: de::DeserializeOwned>(node: &Node) -> Result<T, Vec<ConfigProblem>> {
    read_at(node, "")
}

/// As [`read`]; `path` is the path of the node, for the problems' paths.
///
/// # Errors
/// As [`read`].
pub fn read_at<T: de::DeserializeOwned>(node: &Node, path: &str) -> Result<T, Vec<ConfigProblem>> {
    let problems = RefCell::new(Vec::new());
    let reader = NodeReader {
        node,
        path: NodePath { parent: None, part: NodePathSegment::Root(path) },
        problems: &problems,
    };
    let result = T::deserialize(reader);
    let mut problems = problems.into_inner();
    match result {
        Ok(value) if problems.is_empty() => Ok(value),
        Ok(_) => Err(problems),
        Err(Fault { message, at }) => {
            let (position, path) = at.unwrap_or((node.position, path.to_owned()));
            problems.push(ConfigProblem { position, path, message });
            problems.sort_by_key(|p| (p.position.line, p.position.column));
            Err(problems)
        }
    }
}

/// Converts a node to JSON: plain scalars by the core schema of YAML 1.2 (`yes` and `no` stay text).
#[must_use]
pub fn to_json(node: &Node) -> serde_json::Value {
    use serde_json::Value as Json;
    match &node.value {
        Value::Sequence(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Mapping(pairs) => Json::Object(
            pairs.iter().map(|(k, v)| (k.as_str().unwrap_or_default().to_owned(), to_json(v))).collect(),
        ),
        Value::Scalar { text, quoted: true } => Json::String(text.clone()),
        Value::Scalar { text, quoted: false } => match text.as_str() {
            "" | "~" | "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(number), _) => Json::from(number),
                (_, Ok(number)) if number.is_finite() && text.starts_with(|c: char| c.is_ascii_digit()) => {
                    Json::from(number)
                }
                _ => Json::String(text.clone()),
            },
        },
    }
}

/// Keys that restrict what a policy, a rule or a tenant applies to: without them it applies to everything.
const SELECTORS: &[&str] = &[
    "allow",
    "code",
    "drop",
    "from",
    "from-ports",
    "hosts",
    "link",
    "max-connections",
    "prefixes",
    "redirect",
    "reject",
    "tenant",
    "to",
    "to-ports",
    "type",
    "vlan",
    "vni",
];

/// The message about a key without a value.
fn no_value(node: &Node) -> String {
    match &node.tag {
        Some(tag) => format!("`!{tag}` is a tag of YAML, not a value; write it in quotes: \"!{tag}\""),
        None => "this key has no value; give it one, or remove the key".to_owned(),
    }
}

/// The first fault that readers would understand differently, or that would mean more than intended: a
/// duplicate key in a mapping, a tag in place of a value, a restricting key without a value.
#[must_use]
pub fn unfit(node: &Node) -> Option<ConfigProblem> {
    fn below(node: &Node, path: &str) -> Option<ConfigProblem> {
        let inner = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}/{part}") };
        match &node.value {
            Value::Scalar { .. } if node.tag.is_some() => Some(ConfigProblem {
                position: node.position,
                path: path.to_owned(),
                message: no_value(node),
            }),
            Value::Scalar { .. } => None,
            Value::Sequence(items) => {
                let mut items = items.iter().enumerate();
                items.find_map(|(index, item)| below(item, &inner(&index.to_string())))
            }
            Value::Mapping(pairs) => {
                let mut seen = HashSet::new();
                pairs.iter().find_map(|(key, value)| {
                    let name = key.as_str().unwrap_or_default();
                    let part = inner(&name.replace('~', "~0").replace('/', "~1"));
                    if !seen.insert(name) {
                        let message = format!("the key `{name}` occurs twice; remove one");
                        return Some(ConfigProblem { position: key.position, path: part, message });
                    }
                    if value.is_null() && value.tag.is_none() && SELECTORS.contains(&name) {
                        return Some(ConfigProblem {
                            position: value.position,
                            path: part,
                            message: no_value(value),
                        });
                    }
                    below(value, &part)
                })
            }
        }
    }
    below(node, "")
}

/// Converts JSON to a node without positions: problems then have paths only.
#[must_use]
pub fn from_json(json: &serde_json::Value) -> Node {
    use serde_json::Value as Json;
    let plain = |text: String| Value::Scalar { text, quoted: false };
    let value = match json {
        Json::Null => plain(String::new()),
        Json::Bool(b) => plain(b.to_string()),
        Json::Number(n) => plain(n.to_string()),
        Json::String(s) => Value::Scalar { text: s.clone(), quoted: true },
        Json::Array(items) => Value::Sequence(items.iter().map(from_json).collect()),
        Json::Object(pairs) => Value::Mapping(
            pairs
                .iter()
                .map(|(k, v)| {
                    let key = Value::Scalar { text: k.clone(), quoted: true };
                    (Node { position: Position::default(), tag: None, value: key }, from_json(v))
                })
                .collect(),
        ),
    };
    Node { position: Position::default(), tag: None, value }
}

/// The position of a path (as in [`ConfigProblem::path`]), or of the deepest part of it that exists.
#[must_use]
pub fn locate(root: &Node, path: &str) -> Position {
    let mut node = root;
    let mut position = root.position;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        let next = match &node.value {
            Value::Sequence(items) => {
                part.parse::<usize>().ok().and_then(|i| items.get(i)).map(|n| (n.position, n))
            }
            Value::Mapping(pairs) => {
                pairs.iter().find(|(k, _)| k.as_str() == Some(part)).map(|(k, v)| (k.position, v))
            }
            Value::Scalar { .. } => None,
        };
        let Some((at, found)) = next else { return position };
        // A scalar's own position is more precise than its key's.
        let own = matches!(found.value, Value::Scalar { .. }) && !found.is_null() && !path.ends_with('/');
        position = if own { found.position } else { at };
        node = found;
    }
    position
}

/// An error that propagates outwards: the innermost reader that knows a position adds it.
#[derive(Debug)]
struct Fault {
    message: String,
    at: Option<(Position, String)>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault { message: message.to_string(), at: None }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, expected.iter().copied());
        Fault { message: format!("`{variant}` is not known here; {hint}"), at: None }
    }

    fn missing_field(field: &'static str) -> Self {
        Fault { message: format!("the key `{field}` is missing; add it"), at: None }
    }
}

#[derive(Clone, Copy)]
enum NodePathSegment<'n> {
    Root(&'n str),
    Key(&'n str),
    Index(usize),
}

/// The path of a reader, linked from the inside out; formatted only for problems.
#[derive(Clone, Copy)]
struct NodePath<'n, 'p> {
    parent: Option<&'p NodePath<'n, 'p>>,
    part: NodePathSegment<'n>,
}

impl fmt::Display for NodePath<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
            if !matches!(parent.part, NodePathSegment::Root("")) {
                f.write_str("/")?;
            }
        }
        match self.part {
            NodePathSegment::Root(text) | NodePathSegment::Key(text) => f.write_str(text),
            NodePathSegment::Index(index) => write!(f, "{index}"),
        }
    }
}

#[derive(Clone, Copy)]
struct NodeReader<'n, 'p> {
    node: &'n Node,
    path: NodePath<'n, 'p>,
    problems: &'p RefCell<Vec<ConfigProblem>>,
}

impl<'n> NodeReader<'n, '_> {
    fn place(&self, fault: Fault) -> Fault {
        let at = fault.at.or_else(|| Some((self.node.position, self.path.to_string())));
        Fault { at, ..fault }
    }

    fn wrong<T>(&self, expected: &str) -> Result<T, Fault> {
        let found = match &self.node.value {
            Value::Sequence(_) => "a list".to_owned(),
            Value::Mapping(_) => "a mapping (`key: value`)".to_owned(),
            Value::Scalar { .. } if self.node.is_null() => "nothing".to_owned(),
            Value::Scalar { text, .. } => format!("`{text}`"),
        };
        Err(self.place(Fault { message: format!("expected {expected}, found {found}"), at: None }))
    }

    fn problem(&self, position: Position, key: &str, message: String) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            let here = NodePath { parent: Some(&self.path), part: NodePathSegment::Key(key) };
            problems.push(ConfigProblem { position, path: format!("{here}/"), message });
        }
    }

    fn text(&self, expected: &str) -> Result<&'n str, Fault> {
        match self.node.as_str() {
            Some(text) if !self.node.is_null() => Ok(text),
            _ => self.wrong(expected),
        }
    }

    fn number<T: core::str::FromStr>(&self, expected: &str) -> Result<T, Fault> {
        match self.text(expected)?.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.wrong(expected),
        }
    }

    fn items<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let one = core::slice::from_ref(self.node);
        let (items, listed) = match &self.node.value {
            Value::Sequence(items) => (items.as_slice(), true),
            _ => (one, false),
        };
        let access = Items { reader: &self, items: items.iter().enumerate(), listed };
        visitor.visit_seq(access).map_err(|f| self.place(f))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $kind:ty, $expected:literal;)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.number::<$kind>($expected)?).map_err(|f| self.place(f))
        })+
    };
}

impl<'de> de::Deserializer<'de> for NodeReader<'_, '_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.node.value {
            Value::Sequence(_) => return self.deserialize_seq(visitor),
            Value::Mapping(_) => return self.deserialize_map(visitor),
            Value::Scalar { text, quoted: true } => visitor.visit_str(text),
            Value::Scalar { text, .. } => match to_json(self.node) {
                serde_json::Value::Null => visitor.visit_unit(),
                serde_json::Value::Bool(b) => visitor.visit_bool(b),
                serde_json::Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
                    (Some(n), ..) => visitor.visit_u64(n),
                    (_, Some(n), _) => visitor.visit_i64(n),
                    (.., n) => visitor.visit_f64(n.unwrap_or_default()),
                },
                _ => visitor.visit_str(text),
            },
        };
        result.map_err(|f| self.place(f))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.as_str() {
            Some("true" | "yes" | "on") => visitor.visit_bool(true),
            Some("false" | "no" | "off") => visitor.visit_bool(false),
            _ => self.wrong("`true` or `false`"),
        }
    }

    numbers! {
        deserialize_i8 visit_i8 i8, "a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "a whole number from -32768 to 32767";
        deserialize_i32 visit_i32 i32, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "a whole number, not below 0";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
        deserialize_char visit_char char, "one character";
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text("a name or text")?).map_err(|f| self.place(f))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if !self.node.is_null() {
            return visitor.visit_some(self);
        }
        // In JSON, which has no positions, `null` counts as an absent key. In text, the value was forgotten.
        if self.node.position == Position::default() {
            return visitor.visit_none();
        }
        Err(self.place(Fault { message: no_value(self.node), at: None }))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_null() { visitor.visit_unit() } else { self.wrong("nothing") }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.value {
            Value::Sequence(_) => self.items(visitor),
            // `key:` without a value is an empty list.
            _ if self.node.is_null() => {
                visitor.visit_seq(Items { reader: &self, items: [].iter().enumerate(), listed: true })
            }
            _ => self.wrong("a list (`[a, b]`, or lines that begin with `- `)"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    /// A list that may be written as its only item: [`super::List`] requests it under this name.
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if self.node.is_null() { self.wrong("a value or a list of values") } else { self.items(visitor) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let pairs = match &self.node.value {
            Value::Mapping(pairs) => pairs.as_slice(),
            _ if self.node.is_null() => &[],
            _ => return self.wrong("a mapping (`key: value`)"),
        };
        let access =
            Pairs { reader: &self, pairs: pairs.iter(), value: None, known: None, seen: HashSet::new() };
        visitor.visit_map(access).map_err(|f| self.place(f))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let pairs = match &self.node.value {
            Value::Mapping(pairs) => pairs.as_slice(),
            _ if self.node.is_null() => &[],
            _ => return self.wrong("a mapping (`key: value`)"),
        };
        let access = Pairs {
            reader: &self,
            pairs: pairs.iter(),
            value: None,
            known: Some(fields),
            seen: HashSet::new(),
        };
        visitor.visit_map(access).map_err(|f| self.place(f))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let name = self.text("a name")?;
        visitor.visit_enum(name.into_deserializer()).map_err(|f: Fault| self.place(f))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { i128 u128 bytes byte_buf }
}

struct Items<'n, 'p> {
    reader: &'p NodeReader<'n, 'p>,
    items: core::iter::Enumerate<core::slice::Iter<'n, Node>>,
    listed: bool,
}

impl<'de> de::SeqAccess<'de> for Items<'_, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        let path = NodePath { parent: Some(&self.reader.path), part: NodePathSegment::Index(index) };
        let path = if self.listed { path } else { self.reader.path };
        let reader = NodeReader { node, path, problems: self.reader.problems };
        seed.deserialize(reader).map(Some).map_err(|f| reader.place(f))
    }
}

struct Pairs<'n, 'p> {
    reader: &'p NodeReader<'n, 'p>,
    pairs: core::slice::Iter<'n, (Node, Node)>,
    value: Option<(&'n str, &'n Node)>,
    /// The fields of a struct; unknown keys are reported and skipped.
    known: Option<&'static [&'static str]>,
    seen: HashSet<&'n str>,
}

impl<'de> de::MapAccess<'de> for Pairs<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        for (key, value) in self.pairs.by_ref() {
            let Some(name) = key.as_str() else {
                self.reader.problem(key.position, "?", "a key has to be text".to_owned());
                continue;
            };
            if !self.seen.insert(name) {
                let message = format!("the key `{name}` occurs twice; remove one");
                self.reader.problem(key.position, name, message);
                continue;
            }
            if let Some(known) = self.known
                && !known.contains(&name)
            {
                let hint = did_you_mean(name, known.iter().copied());
                self.reader.problem(key.position, name, format!("the key `{name}` is not known; {hint}"));
                continue;
            }
            self.value = Some((name, value));
            return seed.deserialize(name.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some((name, node)) = self.value.take() else {
            return Err(de::Error::custom("a key has no value"));
        };
        let path = NodePath { parent: Some(&self.reader.path), part: NodePathSegment::Key(name) };
        let reader = NodeReader { node, path, problems: self.reader.problems };
        seed.deserialize(reader).map_err(|f| reader.place(f))
    }
}
