// SPDX-License-Identifier: Apache-2.0
//! Options of the program itself, as callers of Suricata use them (suricata-update, start scripts): `-T`,
//! `--dump-config`, `--build-info`, `--list-keywords`, `--list-app-layer-protos`, `--list-app-layer-hooks`,
//! `-V`.
//!
//! The output has Suricata's form where programs read it. `-T` is `bartizan check` with Suricata's messages.
//! Not done: running and reading captures by Suricata's options (`-i`, `-r`): the message names `bartizan
//! run` and `bartizan inspect` instead ([`bartizan_runtime::suricata_line`]).

use super::check;
use crate::arguments::{CacheArgs, FirewallArgs};
use crate::console;
use bartizan_applayer::protocols;
use bartizan_base::SettingsMap;
use bartizan_detect::reference::{self, Listed};
use bartizan_events::SURICATA_VERSION;
use bartizan_pattern::{Compiler, Config, ENGINE_VARIABLE, EngineInfo, LIBHS, PatternEngine};
use bartizan_runtime::check::CheckOptions;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::log::Report;
use bartizan_runtime::{load, suricata_line};
use std::path::PathBuf;

/// The notice that every copy of the program has to carry.
const NOTICE: &str = include_str!("../../../../NOTICE");

/// Arguments.
#[derive(clap::Args)]
#[command(next_help_heading = "As Suricata's callers ask")]
pub struct Args {
    /// Test settings and rules, as `bartizan check` does, and exit.
    #[arg(short = 'T')]
    test: bool,
    /// A suricata.yaml, or (for -T) a host file.
    #[arg(short = 'c', value_name = "FILE")]
    config: Option<PathBuf>,
    /// The log folder, which has to exist.
    #[arg(short = 'l', value_name = "DIR")]
    log: Option<PathBuf>,
    /// Rule file instead of those of the settings.
    #[arg(short = 'S', value_name = "FILE")]
    only: Vec<PathBuf>,
    /// Rule file in addition to those of the settings.
    #[arg(short = 's', value_name = "FILE", conflicts_with = "only")]
    more: Vec<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Treat as errors, too: rules that cannot be evaluated here, and settings that are misspelt, whose loss
    /// weakens, or whose events are not written.
    #[arg(long)]
    strict: bool,
    /// Name each rule that cannot be evaluated and each setting without effect.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Malformed rules are errors: they are with -T in any case.
    #[arg(long)]
    init_errors_fatal: bool,
    #[command(flatten)]
    firewall: FirewallArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print the settings, `key = value`, and exit.
    #[arg(long)]
    dump_config: bool,
    /// Print the features of this build, in Suricata's form, and exit.
    #[arg(long)]
    build_info: bool,
    /// Print the notices of the libraries that this program contains or loads, and exit.
    #[arg(long)]
    notices: bool,
    /// List the keywords of rules: names, `csv` or `all` for more, or a name for that one.
    #[arg(long, value_name = "csv|all|NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    list_keywords: Option<String>,
    /// List the application protocols that are parsed.
    #[arg(long)]
    list_app_layer_protos: bool,
    /// List the states of application protocols that rules can be hooked to.
    #[arg(long)]
    list_app_layer_hooks: bool,
    /// Print results as JSON (`-T`, `--list-keywords`, `--list-app-layer-protos`).
    #[arg(long)]
    json: bool,
    /// Print the version of Suricata whose rules and settings this program reads.
    #[arg(short = 'V')]
    suricata_version: bool,
}

/// Answers a request for information about the program; `line` is the command line as typed, for a hint
/// when it requests nothing.
pub fn run(args: &Args, line: &[String]) -> Result<Exit, Failure> {
    if args.suricata_version {
        println!("{}", version());
    } else if args.build_info {
        build_info()?;
    } else if args.notices {
        println!("{}", NOTICE.trim_end());
    } else if let Some(what) = &args.list_keywords {
        return list_keywords(what, args.json);
    } else if args.list_app_layer_protos {
        list_protocols(args.json);
    } else if args.list_app_layer_hooks {
        println!("=========Supported App Layer Hooks=========");
        bartizan_detect::hook::all().iter().for_each(|name| println!("{name}"));
    } else if args.dump_config {
        dump_config(&load::settings(args.config.as_deref(), &args.overrides)?, "");
    } else if args.test {
        return test(args);
    } else if let Some(hint) = suricata_line::hint(line) {
        return Err(Failure::usage(hint));
    } else {
        return Err(Failure::usage(
            "these options go with -T, --dump-config or --list-keywords; `bartizan run` runs on live traffic, `bartizan inspect` reads captures (see `bartizan --help`)",
        ));
    }
    Ok(Exit::Done)
}

/// The version line; its first number is Suricata's, because callers choose rules by it.
fn version() -> String {
    format!("This is Suricata version {SURICATA_VERSION} as Bartizan {} has it", env!("CARGO_PKG_VERSION"))
}

/// Runs `-T`.
fn test(args: &Args) -> Result<Exit, Failure> {
    let firewall = args.firewall.firewall || args.firewall.firewall_rules_exclusive.is_some();
    let rules = !args.only.is_empty() || !args.more.is_empty();
    if args.config.is_none() && args.overrides.is_empty() && !rules && !firewall {
        return Err(Failure::usage(
            "-T has nothing to test: name settings or a host file with -c FILE, or rules with -S FILE (no file is read unless it is named)",
        ));
    }
    if let Some(log) = args.log.as_deref().filter(|log| !log.is_dir()) {
        return Err(Failure::input(format!("the log folder {} does not exist; create it", log.display())));
    }
    let build = BuildOptions {
        overrides: args.overrides.clone(),
        cache: args.cache.cache.clone(),
        firewall: args.firewall.options(),
        strict: args.strict,
        report: Report::to(console::notes),
        ..BuildOptions::default()
    };
    let options = CheckOptions::of_configuration(args.config.as_deref(), build, &args.only, &args.more)?;
    let exit = check::check(&CheckOptions { verbose: args.verbose > 0, ..options }, args.json)?;
    if !args.json {
        let how = if exit == Exit::Done { "valid" } else { "not valid: see above" };
        eprintln!("the configuration is {how}");
    }
    Ok(exit)
}

/// Prints settings as `suricata --dump-config` does: a key with children and no value of its own is `(null)`.
fn dump_config(settings: &SettingsMap, prefix: &str) {
    for name in settings.children(prefix) {
        let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        println!("{key} = {}", settings.get(&key).unwrap_or("(null)"));
        dump_config(settings, &key);
    }
}

fn build_info() -> Result<(), Failure> {
    let config = Config { cache: None, ..Config::default() }.with_environment().map_err(Failure::input)?;
    let compiler = Compiler::new(config).map_err(Failure::input)?;
    // A run loads the library with the first pattern set that is large enough; this only reports whether it
    // would.
    compiler.load_library();
    let patterns = compiler.info();
    let yes = |is: bool| if is { "yes" } else { "no" };
    println!("{}", version());
    println!("Features: AF_PACKET HAVE_PACKET_FANOUT PCRE_JIT HAVE_NSS HAVE_JA3 HAVE_JA4 TLS RUST");
    println!(
        "{}-bits, {}-endian architecture",
        usize::BITS,
        if cfg!(target_endian = "little") { "Little" } else { "Big" }
    );
    println!("\nConfiguration:");
    println!("  AF_PACKET support:                       yes");
    println!("  AF_XDP support:                          no");
    println!("  DPDK support:                            no");
    println!("  NFQueue support:                         no");
    println!("  Detection enabled:                       yes");
    println!("  PCRE jit:                                yes");
    println!("  JA3 support:                             yes");
    println!("  JA4 support:                             yes");
    println!("  Hyperscan support:                       {}", yes(patterns.hyperscan.is_some()));
    println!("  Hyperscan library:                       {}", hyperscan(&patterns));
    println!("  Patterns:                                {patterns}");
    println!("\nGeneric build parameters:");
    println!("  Configuration directory:                 /etc/suricata/");
    println!("  Log directory:                           /var/log/suricata/");
    println!();
    println!("  --prefix                                 /usr");
    println!("  --sysconfdir                             /etc");
    println!("  --localstatedir                          /var");
    println!("  --datarootdir                            /usr/share");
    println!("\nLibraries and their licences: `bartizan --notices`");
    Ok(())
}

/// Describes the libhs that a run would use, and how the program finds it.
fn hyperscan(patterns: &EngineInfo) -> String {
    match &patterns.hyperscan {
        Some(version) => format!(
            "{version}; {LIBHS} is looked for by the dynamic linker when the program runs (LD_LIBRARY_PATH, /etc/ld.so.conf)"
        ),
        None if matches!(patterns.configured, PatternEngine::AhoCorasick | PatternEngine::Finders) => {
            format!("not asked for: {ENGINE_VARIABLE} forces {}", patterns.configured)
        }
        None => patterns.why.clone(),
    }
}

fn list_protocols(json: bool) {
    let names = protocols::TABLE.iter().map(|spec| spec.name);
    if json {
        println!("{}", serde_json::json!(names.collect::<Vec<_>>()));
        return;
    }
    println!("=========Supported App Layer Protocols=========");
    names.for_each(|name| println!("{name}"));
}

fn list_keywords(what: &str, json: bool) -> Result<Exit, Failure> {
    let all = reference::list();
    if json {
        println!("{}", serde_json::json!(all.iter().map(as_json).collect::<Vec<_>>()));
        return Ok(Exit::Done);
    }
    match what {
        "" => {
            println!("=====Supported keywords=====");
            all.iter().for_each(|k| println!("- {}", k.name));
        }
        "csv" => {
            println!("name;description;app layer;features;documentation");
            for k in &all {
                let field = |text: &str| text.replace(';', ",");
                println!("{};{};{};{};{};", k.name, field(&k.summary), protocol(k), features(k, ":"), k.page);
            }
        }
        "all" => all.iter().for_each(|k| {
            println!(
                "{}:\n\tDescription: {}\n\tFeatures: {}\n\tDocumentation: {}",
                k.name,
                k.summary,
                features(k, ","),
                k.page
            );
        }),
        name => {
            let Some(k) = all.iter().find(|k| k.name.eq_ignore_ascii_case(name)) else {
                let near = bartizan_rules::suggest(name, all.iter().map(|k| k.name))
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(Failure::input(format!("there is no keyword `{name}`{near}")));
            };
            println!(
                "= {} =\nDescription: {}\nFeatures: {}\nDocumentation: {}",
                k.name,
                k.summary,
                features(k, ","),
                k.page
            );
        }
    }
    Ok(Exit::Done)
}

fn protocol(keyword: &Listed) -> String {
    if keyword.protocols.is_empty() { "Unset".to_owned() } else { keyword.protocols.join(",") }
}

fn features(keyword: &Listed, between: &str) -> String {
    let all = [(keyword.no_option, "No option"), (keyword.is_buffer, "sticky buffer")];
    let has: Vec<&str> = all.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    if has.is_empty() { "none".to_owned() } else { has.join(between) }
}

fn as_json(keyword: &Listed) -> serde_json::Value {
    serde_json::json!({
        "name": keyword.name,
        "description": keyword.summary,
        "app_layer": keyword.protocols,
        "no_option": keyword.no_option,
        "sticky_buffer": keyword.is_buffer,
        "alias_of": keyword.alias_of,
        "documentation": keyword.page,
    })
}
