// SPDX-License-Identifier: Apache-2.0
//! The keywords: one file for each keyword or family of small keywords, and one line each in this table.
//!
//! Sticky buffers need no file: see [`sticky`].

mod app_layer_event;
mod app_layer_protocol;
mod app_layer_state;
mod base64;
mod bsize;
mod bytes;
mod checksum;
mod config;
mod content;
mod dataset;
mod dcerpc;
mod dns;
mod dsize;
mod entropy;
mod events;
pub mod file;
mod flow;
mod flowbits;
mod flowcounts;
mod flowint;
mod frame;
mod ftp;
mod geoip;
mod hostbits;
mod http;
mod http2;
mod icmp;
mod ip_fields;
mod ip_proto;
mod iprep;
mod isdataat;
mod meta;
mod modifiers;
mod number;
mod path;
mod pcre;
mod requires;
mod rpc;
mod smb;
mod ssh;
pub mod sticky;
mod tag;
mod tcp_fields;
mod tcp_flags;
mod tcp_session;
#[cfg(test)]
pub(crate) mod testing;
mod text;
mod tftp;
pub mod threshold;
mod tls;
mod transforms;
mod ttl;
mod unsupported;
mod urilen;
mod variables;
mod vlan;
mod websocket;

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Keyword, KeywordError};
use std::collections::HashMap;
use std::sync::OnceLock;
pub use threshold::{apply_thresholds, unused_thresholds};

/// Families in the order of the reference.
pub const FAMILIES: &[&[Keyword]] = &[
    ttl::KEYWORDS,
    ip_fields::KEYWORDS,
    ip_proto::KEYWORDS,
    tcp_fields::KEYWORDS,
    tcp_flags::KEYWORDS,
    tcp_session::KEYWORDS,
    icmp::KEYWORDS,
    dsize::KEYWORDS,
    vlan::KEYWORDS,
    checksum::KEYWORDS,
    events::KEYWORDS,
    app_layer_event::KEYWORDS,
    app_layer_protocol::KEYWORDS,
    app_layer_state::KEYWORDS,
    http::KEYWORDS,
    http2::KEYWORDS,
    urilen::KEYWORDS,
    dns::KEYWORDS,
    tftp::KEYWORDS,
    tls::KEYWORDS,
    ssh::KEYWORDS,
    websocket::KEYWORDS,
    ftp::KEYWORDS,
    smb::KEYWORDS,
    dcerpc::KEYWORDS,
    file::KEYWORDS,
    dataset::KEYWORDS,
    iprep::KEYWORDS,
    geoip::KEYWORDS,
    config::KEYWORDS,
    meta::KEYWORDS,
    frame::KEYWORDS,
    content::KEYWORDS,
    modifiers::KEYWORDS,
    pcre::KEYWORDS,
    isdataat::KEYWORDS,
    bytes::KEYWORDS,
    rpc::KEYWORDS,
    bsize::KEYWORDS,
    entropy::KEYWORDS,
    base64::KEYWORDS,
    flow::KEYWORDS,
    flowbits::KEYWORDS,
    flowint::KEYWORDS,
    variables::KEYWORDS,
    hostbits::KEYWORDS,
    flowcounts::KEYWORDS,
    threshold::KEYWORDS,
    tag::KEYWORDS,
    transforms::KEYWORDS,
    requires::KEYWORDS,
];

/// Names of the keywords whose argument may (or must) have double quotes; Suricata 8.0.8 refuses quotes
/// around the argument of any other keyword.
pub const QUOTED: &[&str] = &[
    "app-layer-protocol",
    "content",
    "fileext",
    "filemagic",
    "filename",
    "ip_proto",
    "msg",
    "pcre",
    "pcrexform",
    "replace",
    "tls.fingerprint",
    "tls.issuerdn",
    "tls.subject",
    "tos",
    "uricontent",
    "xor",
];

impl Keyword {
    /// Adds the keyword to the signature: checks that hold for every argument, then [`Keyword::parse`].
    ///
    /// # Errors
    /// Quotes where the keyword takes none, or an error of the keyword itself.
    pub fn apply(&self, builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
        if argument.first() == Some(&b'"') && !QUOTED.contains(&self.name) {
            return Err(KeywordError::argument(format!("`{}` takes no quotes around its value", self.name))
                .help("remove the quotes, which Suricata refuses as well"));
        }
        (self.parse)(builder, argument)
    }
}

/// All keywords.
pub fn all() -> impl Iterator<Item = &'static Keyword> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Finds a keyword by name or alias, ignoring letter case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Keyword> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Keyword>> = OnceLock::new();
    let table = BY_NAME.get_or_init(|| {
        let names = |k: &'static Keyword| {
            core::iter::once(k.name).chain(k.aliases.iter().copied()).map(move |name| (name, k))
        };
        all().flat_map(names).collect()
    });
    table.get(name).or_else(|| table.get(name.to_ascii_lowercase().as_str())).copied()
}

/// Keywords of Suricata 8 that this engine knows and does not evaluate, grouped by reason. Rules with them
/// are refused by name.
pub const REFUSED: &[(&str, &[&str])] = unsupported::KEYWORDS;

/// The names in [`REFUSED`] that are really refused. A new parser may bring a buffer whose name is in the
/// list; that name is a keyword then.
#[must_use]
pub fn refused_names() -> Vec<(&'static str, Vec<&'static str>)> {
    let buffers = crate::model::buffers::Buffers::new();
    let open = |name: &&str| find(name).is_none() && sticky::find(name, &buffers).is_none();
    REFUSED.iter().map(|(reason, names)| (*reason, names.iter().copied().filter(open).collect())).collect()
}

/// The reason why a keyword is not evaluated; `None` for keywords that are evaluated or unknown.
#[must_use]
pub fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_known_once() {
        let mut seen = std::collections::HashSet::new();
        for keyword in all() {
            for name in core::iter::once(&keyword.name).chain(keyword.aliases) {
                assert!(seen.insert(*name), "`{name}` stands in the table twice");
                assert_eq!(find(name).map(|k| k.name), Some(keyword.name));
            }
            assert!(keyword.summary.ends_with(['.', ')']), "{}", keyword.name);
        }
        assert_eq!(find("CONTENT").map(|k| k.name), Some("content"));
        let mut names = std::collections::HashSet::new();
        for name in REFUSED.iter().flat_map(|(_, names)| *names) {
            assert!(names.insert(name), "`{name}` is listed twice");
        }
    }

    /// Files that some examples name.
    fn example_folder() -> std::path::PathBuf {
        static FOLDER: OnceLock<std::path::PathBuf> = OnceLock::new();
        FOLDER
            .get_or_init(|| {
                let folder = std::env::temp_dir().join(format!("bartizan-examples-{}", std::process::id()));
                std::fs::create_dir_all(&folder).unwrap();
                for (name, text) in [
                    ("keywords.md5", "00112233445566778899aabbccddeeff\n".to_owned()),
                    ("keywords.sha1", "00".repeat(20)),
                    ("keywords.sha256", "00".repeat(32)),
                    ("keywords.lst", "ZXhhbXBsZS5jb20=,250\n".to_owned()),
                    ("categories.txt", "1,Bad,known bad hosts\n".to_owned()),
                    ("reputation.list", "192.0.2.1,1,50\n".to_owned()),
                ] {
                    std::fs::write(folder.join(name), text).unwrap();
                }
                folder
            })
            .clone()
    }

    fn load(rule: &str) -> crate::ruleset::Loaded {
        let folder = example_folder();
        let mut settings = bartizan_base::SettingsMap::new();
        let at = |name: &str| folder.join(name).display().to_string();
        settings.set("reputation-categories-file", at("categories.txt"));
        settings.set("default-reputation-path", folder.display().to_string());
        settings.set("reputation-files.0", "reputation.list");
        settings.set("geoip-database", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/countries.mmdb"));
        let compiler = bartizan_pattern::Compiler::new(bartizan_pattern::Config::default()).unwrap();
        let classes = bartizan_rules::parse_classifications(
            b"config classification: trojan-activity,A Trojan was detected,1\n".to_vec(),
            "classes",
        );
        let input = crate::ruleset::LoadInput {
            settings: &settings,
            variables: &bartizan_rules::RuleVariables::new(),
            classifications: Some(&classes),
            references: None,
            shared: &std::sync::Arc::default(),
            compiler: &compiler,
            tenants: &[],
            known: None,
        };
        let file = bartizan_rules::parse_file(rule.as_bytes(), &at("test.rules"));
        crate::ruleset::load(&mut [file], &input).unwrap()
    }

    /// No rule is silently inert: the loader weighs the parts that each keyword adds (by its role), and this
    /// test checks that each keyword loads and that the rule differs without it.
    #[test]
    fn every_keyword_is_evaluated_or_refused() {
        for keyword in all() {
            assert!(keyword.example.contains(keyword.name), "{}", keyword.name);
            assert!(keyword.syntax.starts_with(keyword.name), "{}", keyword.name);
            let loaded = load(keyword.example);
            let said: Vec<_> = loaded.diagnostics.iter().map(|d| d.message.clone()).collect();
            assert_eq!((loaded.rules.report.loaded, said), (1, vec![]), "{}", keyword.example);
        }
        for name in refused_names().into_iter().flat_map(|(_, names)| names) {
            let loaded = load(&format!("alert ip any any -> any any ({name}:1; sid:1;)"));
            assert_eq!(loaded.rules.report.loaded, 0, "{name}");
            let code = loaded.diagnostics.first().map(|d| d.code);
            assert_eq!(code, Some(crate::compile::keyword::RefusalCode::UnsupportedKeyword.code()), "{name}");
        }
    }

    #[test]
    fn quotes_stand_where_suricata_takes_them() {
        for name in QUOTED {
            assert!(find(name).is_some(), "{name}");
        }
        for keyword in all()
            .filter(|k| k.argument != crate::compile::keyword::Argument::None && !QUOTED.contains(&k.name))
        {
            let others: &str = if keyword.name == "sid" { "" } else { "sid:1;" };
            let loaded = load(&format!("alert ip any any -> any any ({}:\"1\"; {others})", keyword.name));
            assert_eq!(loaded.rules.report.loaded, 0, "{}", keyword.name);
        }
        let said = load("alert ip any any -> any any (ttl:\"5\"; sid:1;)").diagnostics;
        assert!(said.iter().any(|d| d.message.contains("`ttl` takes no quotes")), "{said:?}");
    }

    #[test]
    fn a_keyword_without_effect_refuses_its_rule() {
        // Each of these keywords adds weight, and adds it once.
        let shared = std::sync::Arc::default();
        let buffers = crate::model::buffers::Buffers::new();
        let settings = bartizan_base::SettingsMap::new();
        let environment =
            crate::compile::builder::Environment::new(&buffers, &settings, &shared, std::path::Path::new(""));
        let protocol = crate::compile::protocol::parse("http").unwrap();
        let mut builder = crate::compile::builder::SignatureBuilder::new(
            &environment,
            bartizan_base::RuleId::default(),
            protocol,
        );
        for (name, argument) in [
            ("content", "\"abc\""),
            ("nocase", ""),
            ("offset", "1"),
            ("depth", "10"),
            ("endswith", ""),
            ("fast_pattern", ""),
            ("http_uri", ""),
            ("flow", "established"),
            ("noalert", ""),
            ("filestore", ""),
            ("threshold", "type limit, track by_src, count 1, seconds 60"),
        ] {
            let before = builder.weight();
            find(name).unwrap().apply(&mut builder, argument.as_bytes()).unwrap();
            assert!(builder.weight() > before, "{name}");
        }
    }
}
