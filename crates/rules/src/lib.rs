// SPDX-License-Identifier: Apache-2.0
//! Layer 0+: the rule language, from text to syntax tree with positions, variables and diagnostics.
//!
//! The language is Suricata 8's. A file of rules becomes a [`RuleFile`]; reading it never fails, a rule that
//! cannot be read becomes a [`Diagnostic`]. Everything keeps its place in the file, so that later stages can
//! point at the part that they refuse. Address and port expressions stay symbolic until [`RuleVariables`]
//! turns them into sets.
//!
//! Other crates interpret keywords and know which protocols and keywords exist (the crate `detect`), and read
//! files (the program).
//!
//! ```
//! let text = br#"alert http $HOME_NET any -> any 80 (msg:"Hi"; content:"a|20|b"; sid:1; rev:2;)"#;
//! let file = bartizan_rules::parse_file(text.as_slice(), "my.rules");
//! let rule = &file.rules[0];
//! assert_eq!((rule.protocol(), &*rule.msg(), rule.id().sid), ("http", b"Hi".as_slice(), 1));
//! let content = rule.option("content").unwrap();
//! assert_eq!(bartizan_rules::parse_content(content.value().unwrap()).unwrap().bytes, b"a b");
//! ```
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod argument;
mod classification;
mod content;
mod diagnostic;
mod dialect;
mod expr;
pub mod feed;
mod header;
pub mod library;
mod meta;
mod options;
mod parse;
mod reference;
mod report;
mod rule;
mod set;
mod source;
mod suggest;
mod threshold;
mod uint;
mod variables;

pub use argument::{
    ArgumentError, ArgumentItem, OptionValue, integer, size, split_commas, split_list, unescape, unsigned,
    unwrap_value,
};
pub use classification::{Classification, Classifications, builtin_classifications, parse_classifications};
pub use content::{ContentPattern, format_pattern, parse_content, parse_pattern};
pub use diagnostic::{Diagnostic, Severity, code};
pub use dialect::{Dialect, dialect_of, dialect_of_action, dialect_of_argument};
pub use expr::{
    AddressExpr, AddressRange, Expr, ExprKind, ExprList, Leaf, MAX_DEPTH, PortExpr, PortRange, parse_expr,
};
pub use parse::{LineCounts, MAX_DIAGNOSTICS, RuleFile, RuleParseFailure, parse_file, parse_source};
pub use reference::{ReferenceSystem, ReferenceSystems, builtin_references, parse_references};
pub use report::{Duplicate, Duplicates, RuleSetReport, title};
pub use rule::{
    ActionScope, AddressSpec, Meta, OptionRef, ParsedRuleAction, PortSpec, Rule, RuleDirection, RuleOption,
    RuleTarget, ScopedAction, Spec,
};
pub use set::{AddressSet, Bound, PortSet, Ranges};
pub use source::{SourceFile, SourcePosition, Span};
pub use suggest::{KeywordIndex, suggest};
pub use threshold::{
    NewAction, ThresholdEntry, ThresholdKind, ThresholdTrack, ThresholdType, Thresholds, parse_thresholds,
};
pub use uint::{Uint, UintMatch};
pub use variables::{MAX_RANGES, ResolveError, ResolveErrorKind, Resolver, RuleVariables};
