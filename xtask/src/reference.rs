// SPDX-License-Identifier: Apache-2.0
//! Reference pages of YAML files, made from their JSON Schemas, which are made from the types that read them.
//!
//! A page has an introduction and an example of its own; the schema gives a section for the file and for each
//! object in it: keys, values, defaults, and what they mean.

use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

/// A page and its schema, both in `docs/reference`.
pub struct Page {
    /// File of the schema.
    pub schema: &'static str,
    /// File of the page.
    pub page: &'static str,
    title: &'static str,
    /// Text before the sections, with an example.
    pub introduction: &'static str,
}

/// All pages that are made from schemas.
pub const PAGES: &[Page] = &[
    Page { schema: "policy-schema.json", page: "policy.md", title: "Policy file", introduction: POLICY },
    Page { schema: "host-schema.json", page: "host.md", title: "Host file", introduction: HOST },
];

const POLICY: &str = "\
A policy file says which functions see which flows, and what they decide. A mistyped key, a value of a wrong type and a selector that matches nothing are
errors with their place; `bartizan check policy.yaml` reports them without a run, and `bartizan explain flow` shows the decision for one flow.

* A flow belongs to the **first policy that it matches**; `default` takes the rest. Specific policies stand before general ones.
* `from` and `to` are the **two sides** of a conversation: packets of both directions belong to the policy. They do not say who may open flows.
* Rules of `pfw` judge the first packet of a flow; answers need no rule. A rule without `from` applies to flows that the policy's `from` side opens. The
  other side opens flows only by a rule that names it.
* `sfw` with `initiate: from` (its default) admits only flows that the `from` side opens; `initiate: both` leaves this to the rules of `pfw`.
* The chain names the functions in their order: `portscan`, `pfw`, `sfw`, `ids`. `chain: []` forwards without inspection.
* A section has the name of its function (`pfw: {...}`) and belongs to the policy that contains it. `ids: {level: NAME}` takes the rules of a rule group.
* `default: {action: drop}` also drops IPv6 neighbour discovery and DHCP unless a policy admits them: `neighbours` below, and
  [the policy `dhcp`](../nftables.md#a-policy-to-begin-with).

A site with a LAN, guests, servers and a DMZ; all other traffic is the internet:

```yaml
groups:
  lan: [10.0.0.0/16, \"2001:db8:0:10::/64\"]
  guests: [10.99.0.0/16, \"2001:db8:0:99::/64\"]
  servers: [10.1.0.0/24, \"2001:db8:0:1::/64\"]       # for the LAN only
  dmz: [192.0.2.0/24, \"2001:db8:0:2::/64\"]          # reached from the internet
  inside: [lan, servers, dmz]
  link-local: [\"fe80::/10\", \"ff02::/16\", \"::\"]
rule-groups: {web: [web.rules]}
policies:
  - name: neighbours                 # IPv6 does not work without neighbour discovery
    from: [link-local]
    chain: [pfw]
    pfw: {default: drop, rules: [{allow: icmpv6, type: [130-137, 143], from: any, to: any}]}
  - name: guests-inside              # guests and the site never talk
    from: [guests]
    to: [inside]
    chain: [pfw]
    pfw: {default: reject}
  - name: guests                     # guests open anything else, nobody opens to them
    from: [guests]
    chain: [portscan, sfw]
    sfw: {initiate: from, max-connections: 2000}
  - name: lan-servers                # the LAN uses the servers, inspected by rules
    from: [lan]
    to: [servers]
    chain: [pfw, sfw, ids]
    pfw: {default: drop, rules: [{allow: tcp, to-ports: [22, 80, 443]}, {allow: [icmp, icmpv6]}]}
    ids: {level: web}
  - name: servers                    # the servers talk to nobody else
    from: [servers]
    chain: [pfw]
    pfw: {default: drop}
  - name: lan-dmz                    # the LAN manages the DMZ, the DMZ opens nothing to the LAN
    from: [lan]
    to: [dmz]
    chain: [sfw, ids]
    ids: {level: web}
  - name: dmz                        # the internet uses the web of the DMZ; the DMZ asks for names and updates
    to: [dmz]
    chain: [portscan, pfw, sfw, ids]
    pfw:
      default: drop
      rules:
        - {allow: tcp, to-ports: [80, 443]}
        - {allow: udp, from: dmz, to: any, to-ports: 53}
        - {allow: tcp, from: dmz, to: any, to-ports: [53, 443]}
    sfw: {initiate: both}            # the rules say who opens
    ids: {level: web}
  - name: lan                        # the LAN opens anything to the internet
    from: [lan]
    chain: [sfw, ids]
    ids: {level: web}
default: {action: drop}
```

Check the file, then ask for the decision on a flow, with the policies that it does not match and the reason:

```sh
bartizan check policy.yaml
bartizan explain flow tcp 203.0.113.9:40000 192.0.2.10:443 --policy policy.yaml   # continue: the web of the DMZ
bartizan explain flow tcp 192.0.2.10:40000 10.0.1.5:22 --policy policy.yaml       # drop by sfw: the DMZ opens nothing to the LAN
```

[Flow and chain](../flow-and-chain.md) explains how the parts work together, [Coming from nftables](../nftables.md) has the traps (DHCP, neighbour discovery,
protocols with a second flow).
";

const HOST: &str = "\
A host file says which links a run serves, where its events go, and what it may take of the machine. `bartizan run -c bartizan.yaml` reads it at the
start; paths in it are relative to its folder. A mistyped key is an error with its place.

```yaml
links:
  - name: uplink
    inline: {a: eth1, b: eth2}
policy: policy.yaml
rules: [rules/*.rules]
outputs: {eve: {dir: /var/log/bartizan}}
```

[Running](../running.md) explains the settings by subject.
";

/// The text of a page.
///
/// # Errors
/// The schema is no JSON object.
pub fn render(page: &Page, schema: &str) -> Result<String, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| format!("{}: {error}", page.schema))?;
    let root = schema.as_object().ok_or_else(|| format!("{}: no object", page.schema))?;
    let mut out = format!(
        "# {}\n\n<!-- Generated from {} by `cargo xtask generate`: do not edit. -->\n\n{}\n## The file\n",
        page.title, page.schema, page.introduction
    );
    let mut sections = Sections {
        definitions: schema.get("$defs"),
        order: Vec::new(),
        waiting: VecDeque::new(),
        own: BTreeMap::new(),
    };
    sections.object(&Value::Object(root.clone()), &mut out);
    while let Some(name) = sections.waiting.pop_front() {
        let own = sections.own.get(&name).cloned();
        let Some(definition) = own.or_else(|| sections.definitions?.get(&name).cloned()) else { continue };
        let _ = write!(out, "\n## {name}\n");
        sections.definition(&definition, &mut out);
    }
    Ok(out)
}

/// The definitions of a schema, in the order in which the page comes to them.
struct Sections<'s> {
    definitions: Option<&'s Value>,
    order: Vec<String>,
    waiting: VecDeque<String>,
    /// Objects that are described where they are used, by their keys.
    own: BTreeMap<String, Value>,
}

impl Sections<'_> {
    fn definition(&mut self, definition: &Value, out: &mut String) {
        if let Some(text) = description(definition) {
            let _ = write!(out, "\n{}\n", wrapped(&text));
        }
        if definition.get("properties").is_some() {
            self.object(definition, out);
        } else if let Some(values) = alternatives(definition).filter(|values| values.iter().any(is_constant))
        {
            out.push_str("\n| value | meaning |\n|---|---|\n");
            for value in values {
                let meaning = description(value).unwrap_or_default();
                let _ = writeln!(out, "| {} | {} |", self.kind(value), cell(&meaning));
            }
        } else if let Some(values) = alternatives(definition) {
            out.push('\n');
            for value in values {
                let meaning = description(value).map_or_else(String::new, |text| format!(": {text}"));
                let _ = writeln!(out, "* {}{meaning}", self.kind(value));
            }
        } else {
            let _ = write!(out, "\nWritten as {}.\n", self.kind(definition));
        }
    }

    /// The keys of an object.
    fn object(&mut self, object: &Value, out: &mut String) {
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        out.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        for (key, value) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let default =
                if required.contains(&key.as_str()) { "required".to_owned() } else { default(value) };
            let meaning = description(value).or_else(|| self.meaning_of(value)).unwrap_or_default();
            let kind =
                if value.get("properties").and_then(Value::as_object).is_some_and(|keys| keys.len() > 1) {
                    self.own.insert(key.clone(), value.clone());
                    self.linked(key)
                } else {
                    self.kind(value)
                };
            let _ = writeln!(out, "| `{key}` | {kind} | {default} | {} |", cell(&meaning));
        }
    }

    /// The kind of a value, for people; definitions are linked, and get a section.
    fn kind(&mut self, value: &Value) -> String {
        if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
        {
            return self.linked(name);
        }
        if let Some(constant) = value.get("const") {
            return format!("`{}`", text_of(constant));
        }
        if let Some(values) = value.get("enum").and_then(Value::as_array) {
            return values.iter().map(|one| format!("`{}`", text_of(one))).collect::<Vec<_>>().join(", ");
        }
        if let Some(values) = alternatives(value) {
            let mut kinds: Vec<String> =
                values.iter().filter(|one| !is_null(one)).map(|one| self.kind(one)).collect();
            kinds.dedup();
            return either(&kinds);
        }
        let kinds: Vec<String> = match value.get("type") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let named: Vec<String> =
            kinds.iter().filter(|kind| *kind != "null").map(|kind| self.plain(kind, value)).collect();
        if named.is_empty() { "any value".to_owned() } else { either(&named) }
    }

    /// A link to a section, which the page gets.
    fn linked(&mut self, name: &str) -> String {
        if !self.order.iter().any(|known| known == name) {
            self.order.push(name.to_owned());
            self.waiting.push_back(name.to_owned());
        }
        format!("[{name}](#{})", name.to_lowercase())
    }

    /// The description of the definition that a value refers to, alone or beside null.
    fn meaning_of(&self, value: &Value) -> Option<String> {
        let mut of = alternatives(value).into_iter().flatten().chain([value]);
        let name = of.find_map(|one| one.get("$ref")?.as_str()?.rsplit('/').next())?;
        description(self.definitions?.get(name)?)
    }

    fn plain(&mut self, kind: &str, value: &Value) -> String {
        match kind {
            "string" => "text".to_owned(),
            "boolean" => "`true`, `false`".to_owned(),
            "integer" | "number" => {
                let bound = |key| value.get(key).and_then(Value::as_u64);
                match (bound("minimum"), bound("maximum")) {
                    (Some(least), Some(most)) => format!("number, {least} to {most}"),
                    (Some(least), None) if least > 0 => format!("number, from {least}"),
                    _ => "number".to_owned(),
                }
            }
            "array" => {
                let of = value.get("items").map_or_else(|| "values".to_owned(), |items| self.kind(items));
                format!("list of {of}")
            }
            "object" => {
                match (value.get("properties").and_then(Value::as_object), value.get("additionalProperties"))
                {
                    (Some(keys), _) => {
                        let keys: Vec<String> = keys
                            .iter()
                            .map(|(key, value)| format!("`{key}`: {}", self.kind(value)))
                            .collect();
                        format!("object with {}", keys.join(", "))
                    }
                    (None, Some(of)) if of.is_object() => format!("object: name to {}", self.kind(of)),
                    _ => "object".to_owned(),
                }
            }
            other => other.to_owned(),
        }
    }
}

fn alternatives(value: &Value) -> Option<&Vec<Value>> {
    value.get("oneOf").or_else(|| value.get("anyOf")).and_then(Value::as_array)
}

fn is_constant(value: &Value) -> bool {
    value.get("const").is_some()
}

fn is_null(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("null")
}

fn either(kinds: &[String]) -> String {
    match kinds {
        // A list of the same is written for several, the value itself for one.
        [one, list] if *list == format!("list of {one}") => format!("{one}, or a list"),
        _ => kinds.join(", or "),
    }
}

/// The first paragraph of a description and the others, on one line.
fn description(value: &Value) -> Option<String> {
    let text = value.get("description").and_then(Value::as_str)?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn default(value: &Value) -> String {
    match value.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(default) => format!("`{}`", text_of(default)),
    }
}

/// A value as YAML writes it on one line.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => format!("[{}]", all.iter().map(text_of).collect::<Vec<_>>().join(", ")),
        Value::Object(all) => {
            let entries = all.iter().filter(|(_, value)| !value.is_null());
            let entries: Vec<String> =
                entries.map(|(key, value)| format!("{key}: {}", text_of(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// Text in a cell of a table.
/// The text in lines of at most 155 columns.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        let fits = column + 1 + length <= 155;
        if column > 0 {
            lines.push(if fits { ' ' } else { '\n' });
        }
        column = if column > 0 && fits { column + 1 + length } else { length };
        lines.push_str(word);
    }
    lines
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Page = Page { schema: "s.json", page: "s.md", title: "Title", introduction: "Text.\n" };

    #[test]
    fn keys_values_and_definitions_become_tables() {
        let schema = r##"{
            "properties": {
                "sides": {"anyOf": [{"$ref": "#/$defs/Side"}, {"type": "array", "items": {"$ref": "#/$defs/Side"}}],
                          "description": "Both\nsides."},
                "most": {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 3},
                "by-name": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
                "sort": {"anyOf": [{"$ref": "#/$defs/Sort"}, {"type": "null"}], "default": null},
                "scan": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "array"}}}
            },
            "required": ["sides"],
            "$defs": {
                "Side": {"type": "string", "description": "A | side."},
                "Sort": {"description": "An order.", "oneOf": [{"const": "up", "description": "From below."}, {"const": "down"}]},
                "Unused": {"type": "string"}
            }
        }"##;
        let text = render(&PAGE, schema).unwrap();
        for line in [
            "# Title",
            "Text.",
            "| `sides` | [Side](#side), or a list | required | Both sides. |",
            "| `most` | number, 1 to 9 | `3` |  |",
            "| `by-name` | object: name to text | `{}` |  |",
            "| `sort` | [Sort](#sort) |  | An order. |",
            "| `scan` | [scan](#scan) |  |  |",
            "| `a` | `true`, `false` |  |  |",
            "| `b` | list of values |  |  |",
            "## Side",
            "A | side.",
            "Written as text.",
            "| `up` | From below. |",
            "| `down` |  |",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("Unused"), "nothing leads there");
        assert!(text.find("## Side") < text.find("## Sort"), "in the order of the keys");
    }

    #[test]
    fn what_is_no_schema_is_an_error() {
        assert!(render(&PAGE, "[").unwrap_err().contains("s.json"));
        assert!(render(&PAGE, "[]").unwrap_err().contains("no object"));
    }
}
