// SPDX-License-Identifier: Apache-2.0
//! The kinds of extension, one entry each.

use super::Change::{self, Entry, File, Line, Row};

/// A kind of extension.
#[derive(Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// The page of the book with its recipe.
    pub page: &'static str,
    /// The changes that make the skeleton.
    pub changes: &'static [Change],
    /// Lines that show that the name is taken.
    pub taken: &'static [Taken],
    /// Steps to complete the skeleton, in order.
    pub next: &'static [&'static str],
    /// Its tests.
    pub tests: Tests,
}

/// A line that shows that a name is taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The beginning of the paths of its files.
    pub below: &'static str,
    /// A text of the line.
    pub line: &'static str,
    /// The text with the name, after that.
    pub text: &'static str,
    /// The message: what has the name, and what to do.
    pub why: &'static str,
}

/// The usual message.
pub(super) const EXISTS: &str = "exists already; take another name, or change that one";

pub(super) const fn taken(below: &'static str, line: &'static str, text: &'static str) -> Taken {
    Taken { below, line, text, why: EXISTS }
}

/// The place of a skeleton's tests. All have the name of the extension in their paths.
#[derive(Clone, Copy, Debug)]
pub enum Tests {
    /// Unit tests of a package.
    Lib(&'static str),
    /// The test program of a package, both by name.
    Program(&'static str, &'static str),
}

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("templates/", $name, ".txt"))
    };
}

const SUITE: &str = "cargo xtask generate && cargo xtask tidy    (pages and tables; the rules of the house)";

/// The kinds, in the order of the usage.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "protocol",
        page: "docs/adding-a-protocol.md",
        changes: &[
            File { path: "crates/applayer/src/protocols/{{name}}.rs", text: template!("protocol.rs") },
            Line {
                path: "crates/applayer/src/protocols/mod.rs",
                above: "pub mod tls;",
                text: "pub mod {{name}};",
            },
            Entry {
                path: "crates/applayer/src/protocols/mod.rs",
                list: "pub const TABLE: &[&ProtocolSpec] =",
                text: "&{{name}}::SPEC",
            },
            // Suricata's names are there already.
            Row {
                path: "crates/events/src/schema/fields.rs",
                above: "    field(\"websocket\",",
                text: "    field(\"{{name}}\", Open, \"{{NAME}} transaction.\"),",
                unless: "    field(\"{{name}}\",",
            },
        ],
        taken: &[
            taken("crates/applayer/src/protocols/", "name: ", "\"{{name}}\""),
            taken("crates/applayer/src/protocols/", "aliases: ", "\"{{name}}\""),
            taken("crates/applayer/src/protocols/", "family: ", "\"{{name}}\""),
        ],
        next: &[
            "the declaration: transports, patterns, ports, states (the page explains each field)",
            "`read` and `parse`: from lines to the messages of the protocol; bounds, with an event at each",
            "buffers, numbers and `log`: what rules and records show",
            "a conversation of a real program among the seeds of the tests",
        ],
        tests: Tests::Lib("bartizan-applayer"),
    },
    Kind {
        name: "keyword",
        page: "docs/adding-a-keyword.md",
        changes: &[
            File { path: "crates/detect/src/keywords/{{name}}.rs", text: template!("keyword.rs") },
            Line { path: "crates/detect/src/keywords/mod.rs", above: "mod ttl;", text: "mod {{name}};" },
            Entry {
                path: "crates/detect/src/keywords/mod.rs",
                list: "pub const FAMILIES: &[&[Keyword]] =",
                text: "{{name}}::KEYWORDS",
            },
        ],
        taken: &[
            taken("crates/detect/src/keywords/", "name: ", "\"{{name}}\""),
            taken("crates/detect/src/keywords/", "aliases: ", "\"{{name}}\""),
            taken("crates/detect/src/keywords/sticky.rs", "(", "\"{{name}}\""),
            Taken {
                below: "crates/detect/src/keywords/unsupported.rs",
                line: "",
                text: "\"{{name}}\"",
                why: "is refused by name so far; take it out of that list first",
            },
        ],
        next: &[
            "the condition: one of the five traits in crates/detect/src/model/condition.rs",
            "summary, syntax, example and note: the keyword's page",
            "tests for matches, refused arguments and both versions of IP",
        ],
        tests: Tests::Lib("bartizan-detect"),
    },
    Kind {
        name: "function",
        page: "docs/writing-a-function.md",
        changes: &[
            File { path: "crates/functions/src/{{name}}.rs", text: template!("function.rs") },
            Line {
                path: "crates/functions/src/lib.rs",
                above: "pub mod portscan;",
                text: "pub mod {{name}};",
            },
            Line {
                path: "crates/functions/src/registry.rs",
                above: "use crate::{gate,",
                text: "use crate::{{name}};",
            },
            Entry {
                path: "crates/functions/src/registry.rs",
                list: "vec!",
                text: "Arc::new({{name}}::{{Name}}Kind)",
            },
            File { path: "crates/functions/tests/{{name}}.rs", text: template!("function_test.rs") },
            Line { path: "crates/functions/tests/all.rs", above: "mod sfw;", text: "mod {{name}};" },
        ],
        taken: &[taken("crates/functions/src/", "name: ", "\"{{name}}\"")],
        next: &[
            "the declaration: model, order, header half, counters",
            "the section of a policy, and `rules`, which reads it",
            "`packet` or `payload`: the verdict; one that refuses has a reason of its own (crates/base/src/verdict.rs)",
            "tests with each counter and reason, over IPv4 and IPv6",
        ],
        tests: Tests::Program("bartizan-functions", "functions"),
    },
    Kind {
        name: "level",
        page: "docs/adding-a-level.md",
        changes: &[
            File { path: "crates/{{kebab}}/Cargo.toml", text: template!("level.toml") },
            File { path: "crates/{{kebab}}/src/lib.rs", text: template!("level.rs") },
            Line {
                path: "crates/runtime/Cargo.toml",
                above: "bartizan-xdp.workspace = true",
                text: "bartizan-{{kebab}} = { path = \"../{{kebab}}\" }",
            },
            Line {
                path: "crates/runtime/src/levels.rs",
                above: "use bartizan_xdp::",
                text: "use bartizan_{{name}}::{{Name}}Driver;",
            },
            Entry {
                path: "crates/runtime/src/levels.rs",
                list: "const OWN: &[&dyn LevelDriver] =",
                text: "&{{Name}}Driver",
            },
        ],
        taken: &[taken("crates/", "name = ", "\"bartizan-{{kebab}}\"")],
        next: &[
            "`open`: errors that say what, where, why and what to do",
            "the device: entries, counts and replies (the contract is in crates/offload/src/device.rs)",
            "`attach` and the view: ports, counters, signs of life",
            "a run over it, as crates/runtime/tests/levels.rs; the conformance files",
        ],
        tests: Tests::Lib("bartizan-{{kebab}}"),
    },
    Kind {
        name: "source",
        page: "docs/adding-a-source.md",
        changes: &[
            File { path: "crates/dataplane/src/source/{{name}}.rs", text: template!("source.rs") },
            Line { path: "crates/dataplane/src/source.rs", above: "mod tap;", text: "mod {{name}};" },
            Line {
                path: "crates/dataplane/src/source.rs",
                above: "pub use tap::",
                text: "pub use {{name}}::{{{Name}}Connection, {{Name}}Source};",
            },
            File { path: "crates/dataplane/tests/{{name}}.rs", text: template!("source_test.rs") },
            Line { path: "crates/dataplane/tests/all.rs", above: "mod sources;", text: "mod {{name}};" },
        ],
        taken: &[],
        next: &[
            "`take`: read packets or bytes from where they come",
            "`forwards` and `deliver`, if frames leave by it",
            "`now`, `look`, `wait` and `each_port`: clock, sleep, counters",
            "who makes it: `Driver::new`, or `WatchedLink::open` for links of the host file",
        ],
        tests: Tests::Program("bartizan-dataplane", "dataplane"),
    },
    Kind {
        name: "resource",
        page: "docs/adding-a-resource.md",
        changes: &[
            File { path: "crates/controller/src/resources/{{name}}.rs", text: template!("resource.rs") },
            Line {
                path: "crates/controller/src/resources/mod.rs",
                above: "mod tenants;",
                text: "mod {{name}};",
            },
            Entry {
                path: "crates/controller/src/resources/mod.rs",
                list: "pub fn routes() -> Vec<Route> {",
                text: "{{name}}::routes()",
            },
            File { path: "crates/controller/tests/{{name}}.rs", text: template!("resource_test.rs") },
            Line { path: "crates/controller/tests/all.rs", above: "mod store;", text: "mod {{name}};" },
        ],
        taken: &[
            taken("crates/controller/src/resources/", "", "\"/v1/{{kebab}}\""),
            taken("crates/controller/src/resources/", "", "\"/v1/{{kebab}}/"),
        ],
        next: &[
            "the answer: its fields, with a description each",
            "the routes: who may call them (`need`), their parameters and status codes",
            "tests: the answer, each refusal, and that no tenant sees another one's",
        ],
        tests: Tests::Program("bartizan-controller", "controller"),
    },
    Kind {
        name: "event",
        page: "docs/adding-an-event.md",
        changes: &[
            File { path: "crates/events/src/record/{{name}}.rs", text: template!("event.rs") },
            Line { path: "crates/events/src/record/mod.rs", above: "mod notice;", text: "mod {{name}};" },
            Line {
                path: "crates/events/src/record/mod.rs",
                above: "pub use notice::",
                text: "pub use {{name}}::{{Name}}Record;",
            },
            Entry {
                path: "crates/events/src/record/mod.rs",
                list: "pub const DECLARED: &[&EventSpec] =",
                text: "{{Name}}Record::SPEC",
            },
        ],
        taken: &[
            taken("crates/events/src/schema/fields.rs", "", "field(\"{{name}}\","),
            taken("crates/events/src/record/", " struct ", " = \"{{name}}\""),
            taken("crates/events/src/config/read.rs", "", "\"{{name}}\" =>"),
        ],
        next: &[
            "the fields of the record, with a description each",
            "the place where it happens: `recorder.declared(&occasion, flow, &record)`",
            "a test that reaches that place",
        ],
        tests: Tests::Lib("bartizan-events"),
    },
];

impl Kind {
    /// Steps to complete the skeleton, a line each.
    #[must_use]
    pub fn steps(&self, name: &super::Name) -> Vec<String> {
        let test = match self.tests {
            Tests::Lib(package) => format!("cargo test -p {package} --lib {{{{name}}}}"),
            Tests::Program(package, program) => {
                format!("cargo test -p {package} --test {program} {{{{name}}}}::")
            }
        };
        let page = format!("{} explains all of it", self.page);
        let all =
            self.next.iter().copied().chain([page.as_str(), test.as_str(), SUITE, "a line in CHANGELOG.md"]);
        all.map(|line| name.fill(line)).collect()
    }
}
