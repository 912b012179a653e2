// SPDX-License-Identifier: Apache-2.0
//! Builds an engine from settings and rule files.

use crate::error::Failure;
use crate::input;
use crate::log::Note;
use bartizan_api::content::{self, ContentKind, Contents};
use bartizan_api::southbound::Hash;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_applayer::protocol::ProtocolSpec;
use bartizan_applayer::protocols;
use bartizan_base::{SettingError, SettingsMap, TenantId};
use bartizan_config::kind::FileKind;
use bartizan_config::suricata::{self, ConfigNotes};
use bartizan_detect::keywords;
use bartizan_detect::known::RuleCache;
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::{self, LoadInput, Loaded};
use bartizan_detect::shared::Shared;
use bartizan_events::config::EveOutputs;
use bartizan_events::file_store::{FileStoreOptions, FileStoreOutput, WhenBehind};
use bartizan_events::output::Rights;
use bartizan_events::tls_store::{TlsStore, TlsStoreOptions};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostTableConfig, WhenHostsFull};
use bartizan_functions::ids::ALERTS_PER_PACKET;
use bartizan_pattern::{Cache, Compiler, Config};
use bartizan_rules::{
    Classifications, Diagnostic, ReferenceSystems, ResolveErrorKind, RuleFile, RuleVariables, Thresholds,
};
use bartizan_stages::expectations::ExpectationTable;
use bartizan_stages::settings::unparsed_key;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Most malformed values that a message lists.
pub const WRONG_SHOWN: usize = 20;

/// Reads the settings: a file if given, else the shipped ones; then the overrides.
pub fn settings(file: Option<&Path>, overrides: &[String]) -> Result<SettingsMap, Failure> {
    checked(unchecked(file, overrides, &mut Contents::default())?)
}

/// Settings whose values are well-formed, address and port groups included. The error lists all malformed
/// ones, with their places.
pub fn checked(settings: SettingsMap) -> Result<SettingsMap, Failure> {
    let mut wrong: Vec<String> = suricata::check(&settings).iter().map(|e| settings.explain(e)).collect();
    wrong.extend(groups(&settings).1.into_iter().filter(|group| !group.is_usable).map(|group| group.message));
    if wrong.is_empty() {
        return Ok(settings);
    }
    if wrong.len() > WRONG_SHOWN {
        let more = wrong.len() - WRONG_SHOWN;
        wrong.truncate(WRONG_SHOWN);
        wrong.push(format!("... and {more} more values that cannot be read"));
    }
    Err(Failure::input(wrong.join("\n")))
}

/// Settings without a check of their values, since more settings follow. Adds the files to `contents`.
pub fn unchecked(
    file: Option<&Path>,
    overrides: &[String],
    contents: &mut Contents,
) -> Result<SettingsMap, Failure> {
    let mut settings = match file {
        Some(path) => {
            // The reader that follows includes reports an unreadable file.
            if let Ok(text) = std::fs::read(path) {
                input::is_no_other(path, &String::from_utf8_lossy(&text), FileKind::Suricata)?;
            }
            let mut on_file =
                |path: &Path, bytes: &[u8]| contents.add_file(ContentKind::Settings, path, bytes);
            let mut notes = ConfigNotes { on_file: Some(&mut on_file), ..ConfigNotes::default() };
            let settings = suricata::load_noting(path, &mut notes).map_err(Failure::input)?;
            notes.odd.iter().for_each(|note| warn!("{note}"));
            settings
        }
        None => suricata::shipped(),
    };
    self::overrides(&mut settings, overrides)?;
    Ok(settings)
}

/// Applies `KEY=VALUE` overrides.
pub fn overrides(settings: &mut SettingsMap, overrides: &[String]) -> Result<(), Failure> {
    suricata::apply_overrides(settings, overrides).map_err(Failure::usage)
}

/// Reads and parses rule files, and adds them to `contents`.
pub fn rule_files(paths: &[PathBuf], contents: &mut Contents) -> Result<Vec<RuleFile>, Failure> {
    paths
        .iter()
        .map(|path| {
            let text = input::read_text(path, "rule file")?;
            contents.add_file(ContentKind::Rules, path, &text);
            Ok(bartizan_rules::parse_file(text, &path.display().to_string()))
        })
        .collect()
}

/// A finding about an address or port group.
struct OddGroup {
    /// The message, with the group's place.
    message: String,
    /// As in Suricata, an empty group is well-formed: only rules that use it cannot be loaded.
    is_usable: bool,
}

/// Address and port groups of the settings, and findings about them.
fn groups(settings: &SettingsMap) -> (RuleVariables, Vec<OddGroup>) {
    let mut variables = RuleVariables::new();
    let mut odd = Vec::new();
    let mut say = |key: &str, is_usable: bool, error: &dyn std::fmt::Display| {
        let first =
            || settings.children(key).next().and_then(|item| settings.origin(&format!("{key}.{item}")));
        let place =
            settings.origin(key).or_else(first).map_or_else(String::new, |place| format!("{place}: "));
        let value = settings.get(key).map_or_else(String::new, |value| format!("`{value}`: "));
        odd.push(OddGroup { message: format!("{place}setting `{key}`: {value}{error}"), is_usable });
    };
    for (kind, is_port) in [("address-groups", false), ("port-groups", true)] {
        let kind = format!("vars.{kind}");
        for name in settings.children(&kind) {
            let key = format!("{kind}.{name}");
            if settings.children(&key).next().is_some() {
                say(&key, false, &"this is a YAML list; quote the whole value: \"[a, b]\"");
                continue;
            }
            let Some(value) = settings.get(&key) else { continue };
            let set =
                if is_port { variables.set_port(name, value) } else { variables.set_address(name, value) };
            if let Err(error) = set {
                say(&key, false, &error);
            }
        }
    }
    for (kind, wrong) in
        [("address-groups", variables.wrong_addresses()), ("port-groups", variables.wrong_ports())]
    {
        for (name, error) in &wrong {
            let key = format!("vars.{kind}.{name}");
            // If another group excludes this empty one, that other group is in error in Suricata.
            let is_named = |other: &str| wrong.iter().any(|(name, _)| **name == *other);
            let is_usable = matches!(error.kind, ResolveErrorKind::Empty(_))
                && !settings.get(&key).is_some_and(|value| variables_in(value).any(is_named));
            say(&key, is_usable, error);
        }
    }
    (variables, odd)
}

/// Names of the variables in an expression.
fn variables_in(value: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    value.split('$').skip(1).map(move |rest| rest.split(is_end).next().unwrap_or(rest))
}

/// Address and port groups of checked settings. Adds unusable groups to `warnings`.
fn variables(settings: &SettingsMap, warnings: &mut Vec<String>) -> RuleVariables {
    let (variables, odd) = groups(settings);
    warnings.extend(odd.into_iter().map(|group| group.message));
    variables
}

/// A file that a setting names, as read last.
struct NamedFile<T> {
    parsed: Arc<T>,
    /// The file's path and hash; `None`: it never existed.
    source: Option<(PathBuf, Hash)>,
}

impl<T> NamedFile<T> {
    /// Reads the file of the setting `key`. `before`: the file as read last, which stays in force if it
    /// cannot be read any more.
    fn read(
        settings: &SettingsMap,
        key: &str,
        before: Option<&Self>,
        parse: impl Fn(Vec<u8>, &str) -> T,
        absent: impl Fn() -> T,
        warnings: &mut Vec<String>,
    ) -> Self {
        let none = || NamedFile { parsed: Arc::new(absent()), source: None };
        let Some(path) = settings.get(key).map(PathBuf::from) else { return none() };
        let error = match std::fs::read(&path) {
            Ok(bytes) => {
                let hash = Hash(Sha256::digest(&bytes).into());
                let parsed = Arc::new(parse(bytes, &path.display().to_string()));
                return NamedFile { parsed, source: Some((path, hash)) };
            }
            Err(error) => error,
        };
        let (shown, known) = (path.display(), before.filter(|before| before.source.is_some()));
        if let Some(NamedFile { parsed, source }) = known {
            warnings.push(format!(
                "{key}: cannot read {shown}: {error}; the values read before stay in force; restore the file, or correct its permissions"
            ));
            return NamedFile { parsed: Arc::clone(parsed), source: source.clone() };
        }
        // The shipped settings name files that need not be installed here.
        if suricata::shipped().get(key) != settings.get(key) {
            warnings.push(format!("{key}: cannot read {shown}: {error}; correct the path or remove the key"));
        }
        none()
    }
}

/// The files that the settings name, other than rules and lists.
struct SettingsFiles {
    classifications: NamedFile<Classifications>,
    references: NamedFile<ReferenceSystems>,
    thresholds: NamedFile<Option<Thresholds>>,
    contents: Contents,
}

impl SettingsFiles {
    /// Reads the files. `before`: the files as read last.
    fn read(settings: &SettingsMap, before: Option<&SettingsFiles>, warnings: &mut Vec<String>) -> Self {
        // Without classes every alert would have severity 3 and no category.
        let classifications = NamedFile::read(
            settings,
            "classification-file",
            before.map(|before| &before.classifications),
            bartizan_rules::parse_classifications,
            bartizan_rules::builtin_classifications,
            warnings,
        );
        let references = NamedFile::read(
            settings,
            "reference-config-file",
            before.map(|before| &before.references),
            bartizan_rules::parse_references,
            bartizan_rules::builtin_references,
            warnings,
        );
        let thresholds = NamedFile::read(
            settings,
            "threshold-file",
            before.map(|before| &before.thresholds),
            |bytes, name: &str| Some(bartizan_rules::parse_thresholds(bytes, name)),
            || None,
            warnings,
        );
        let mut contents = Contents::default();
        for (path, hash) in
            [&classifications.source, &references.source, &thresholds.source].into_iter().flatten()
        {
            contents.add_hash(ContentKind::Settings, &content::file_name(path), *hash);
        }
        // A malformed line is left out: rules that rely on it have other severities and references.
        let found = classifications.parsed.diagnostics.iter().chain(&references.parsed.diagnostics);
        warnings.extend(found.map(|f| format!("{}:{}:{}: {}", f.file, f.line, f.column, f.message)));
        SettingsFiles { classifications, references, thresholds, contents }
    }
}

/// The shared, rule-independent part of an engine.
pub struct Base {
    /// Pattern compiler.
    pub compiler: Arc<Compiler>,
    /// State that outlives generations.
    pub shared: Arc<Shared>,
    named: SettingsFiles,
    variables: RuleVariables,
    /// Rules of the generations in use.
    known: RuleCache,
}

impl Base {
    /// Reads the files that the settings name; with the default cache of compiled patterns.
    pub fn new(settings: &SettingsMap, warnings: &mut Vec<String>) -> Result<Self, Failure> {
        let cache = crate::cache::open(None, warnings)?;
        Self::with(settings, cache, HOSTS, warnings)
    }

    /// Reads the files that the settings name. `hosts`: entries of the host table that rules use.
    pub fn with(
        settings: &SettingsMap,
        cache: Option<Arc<Cache>>,
        hosts: u32,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let named = SettingsFiles::read(settings, None, warnings);
        let config = Config { cache, ..Config::default() }.with_environment().map_err(Failure::input)?;
        Ok(Base {
            compiler: Arc::new(Compiler::new(config).map_err(Failure::input)?),
            shared: Arc::new(Shared::new(&self::hosts(hosts))),
            named,
            variables: variables(settings, warnings),
            known: RuleCache::default(),
        })
    }

    /// The files that the settings name, other than rules and lists: classes, references, thresholds.
    pub const fn contents(&self) -> &Contents {
        &self.named.contents
    }

    /// A base with the present files of classes, references and thresholds; `None`: they have not changed.
    pub fn read_again(&self, settings: &SettingsMap, warnings: &mut Vec<String>) -> Option<Base> {
        let named = SettingsFiles::read(settings, Some(&self.named), warnings);
        (named.contents.hashes() != self.named.contents.hashes()).then(|| Base {
            compiler: Arc::clone(&self.compiler),
            shared: Arc::clone(&self.shared),
            named,
            variables: self.variables.clone(),
            // Compiled rules contain their classes and references.
            known: RuleCache::default(),
        })
    }

    /// Called when a generation was freed: frees the rules that only it used.
    pub fn generation_freed(&self) {
        self.known.tidy();
    }

    /// Malformed lines of the threshold file, and lines that name unknown variables.
    pub fn malformed_thresholds(&self) -> Vec<Diagnostic> {
        let Some(thresholds) = self.named.thresholds.parsed.as_ref() else { return Vec::new() };
        let unresolved = keywords::apply_thresholds(&mut [], thresholds, &self.variables);
        thresholds.diagnostics.iter().cloned().chain(unresolved).collect()
    }

    /// Lines of the threshold file about rules that are not in force. Empty if no rule is.
    pub fn unused_thresholds(&self, running: &HashSet<(u32, u32)>) -> Vec<Diagnostic> {
        let thresholds = self.named.thresholds.parsed.as_ref().as_ref().filter(|_| !running.is_empty());
        thresholds.map_or_else(Vec::new, |thresholds| keywords::unused_thresholds(running, thresholds))
    }

    /// The variables of the settings.
    pub const fn variables(&self) -> &RuleVariables {
        &self.variables
    }

    /// The inputs of loading; always with the settings of [`Base::with`]. `tenants`: variables of tenants
    /// that have their own.
    pub fn input<'b>(
        &'b self,
        settings: &'b SettingsMap,
        tenants: &'b [(TenantId, RuleVariables)],
    ) -> LoadInput<'b> {
        LoadInput {
            settings,
            variables: &self.variables,
            classifications: Some(&self.named.classifications.parsed),
            references: Some(&self.named.references.parsed),
            shared: &self.shared,
            compiler: &self.compiler,
            tenants,
            known: Some(&self.known),
        }
    }

    /// Compiles rules into a generation. `notes`: receives notes for the user.
    pub fn rules(
        &self,
        files: &mut [RuleFile],
        settings: &SettingsMap,
        tenants: &[(TenantId, RuleVariables)],
        notes: &mut Vec<Note>,
    ) -> Result<Loaded, Failure> {
        let damaged = || self.compiler.info().cache.map_or(0, |cache| cache.refused);
        let before = damaged();
        let mut loaded = ruleset::load(files, &self.input(settings, tenants)).map_err(Failure::input)?;
        let found = damaged() - before;
        if found > 0 {
            notes.push(Note::Line(format!(
                "note: {found} files of the pattern cache were damaged or of another origin; their patterns were compiled again and the files replaced"
            )));
        }
        if let Some(thresholds) = self.named.thresholds.parsed.as_ref() {
            loaded.diagnostics.extend(thresholds.diagnostics.iter().cloned());
            let signatures = &mut loaded.rules.signatures;
            loaded.diagnostics.extend(keywords::apply_thresholds(signatures, thresholds, &self.variables));
        }
        Ok(loaded)
    }
}

/// Adds the lists that were read for rules.
pub fn add_lists(contents: &mut Contents, loaded: &Loaded) {
    for list in &loaded.lists {
        contents.add_hash(ContentKind::Lists, &content::file_name(&list.path), Hash(list.sha256));
    }
}

/// Mode of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcementMode {
    /// Detection: packets are only watched.
    Passive,
    /// Prevention over captures.
    Simulated,
    /// Prevention on a link with real receivers.
    Live,
}

impl EnforcementMode {
    /// The mode of a run over captures.
    pub const fn over_captures(prevention: bool) -> Self {
        if prevention { EnforcementMode::Simulated } else { EnforcementMode::Passive }
    }

    /// The mode of a run on links.
    pub const fn on_links(prevention: bool) -> Self {
        if prevention { EnforcementMode::Live } else { EnforcementMode::Passive }
    }
}

/// Internal keys of each protocol that pass the engine's mode to its parser; they are no settings.
const INLINE: &str = "inline";
const STRICT: &str = "strict";

/// The application layer for a rule set: hashes and fingerprints are computed if a rule or an output needs
/// them. In prevention rules see bodies as they arrive (`http-body-inline: auto`): data that waited for a
/// minimal size to be inspected would already have left.
pub fn app_layer(settings: &SettingsMap, needs: &Needs, mode: EnforcementMode) -> Result<Engine, Failure> {
    let files = file_settings(settings, needs)?;
    let mut own = settings.clone();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let key_of = |spec: &ProtocolSpec, key: &str| format!("app-layer.protocols.{}.{key}", spec.name);
    for (_, spec) in protocols::all().filter(|(_, spec)| spec.is_parsed()) {
        own.set(key_of(spec, INLINE), yes(mode != EnforcementMode::Passive));
        own.set(key_of(spec, STRICT), yes(mode == EnforcementMode::Live));
    }
    // `auto` is Suricata's shipped value: on as soon as a rule needs it.
    for (spec, setting) in needs.computing_settings() {
        let key = key_of(spec, setting);
        if settings.get(&key).is_none_or(|v| v.eq_ignore_ascii_case("auto")) {
            own.set(key, "yes");
        }
    }
    let engine = Engine::new(&own, files).map_err(Failure::setting(settings));
    settings.mark_read_as(&own);
    let engine = engine?.with_expectations(Arc::new(ExpectationTable::new(FlowHasher::new(seed()))));
    request_frames(&engine, settings, needs)?;
    Ok(engine)
}

/// Keeps protocol frames if a rule or an output needs them.
fn request_frames(engine: &Engine, settings: &SettingsMap, needs: &Needs) -> Result<(), Failure> {
    let outputs = EveOutputs::from_settings(settings).map_err(Failure::setting(settings))?;
    let logged = outputs.outputs.iter().any(|output| output.types.frame);
    engine.request_frames(needs.frames || logged, needs.stream_frames || logged);
    Ok(())
}

/// The warning that rules which refuse HTTP do not see HTTP/2 that begins within a connection of HTTP/1,
/// unless the settings refuse it.
pub fn unseen_http2(settings: &SettingsMap, needs: &Needs) -> Option<String> {
    let later = protocols::refusable().filter(|(_, spec)| spec.family.is_some());
    let keys: Vec<String> = later.map(|(_, spec)| unparsed_key(spec)).collect();
    let is_refused = keys.iter().all(|key| settings.get(key).is_some_and(|policy| policy != "inspect"));
    let rules = match needs.refuse_parsed {
        0 => return None,
        1 => "1 rule of `http` that drops or rejects does".to_owned(),
        count => format!("{count} rules of `http` that drop or reject do"),
    };
    (!is_refused).then(|| {
        let key = keys.join("`, `");
        format!(
            "{rules} not see HTTP/2 that begins within a connection of HTTP/1 (after a proxy's header, empty \
             lines or other requests); in prevention `{key}: drop-flow` (or `reject`) blocks HTTP/2 in clear text"
        )
    })
}

fn file_settings(settings: &SettingsMap, needs: &Needs) -> Result<FileSettings, Failure> {
    let [mut md5, mut sha1, mut sha256] = needs.hashes;
    for (key, value) in settings.iter() {
        if key.contains("force-hash") {
            settings.mark_read(key);
            md5 |= value.contains("md5");
            sha1 |= value.contains("sha1");
            sha256 |= value.contains("sha256");
        }
    }
    let mut files = FileSettings { md5, sha1, sha256, ..FileSettings::default() };
    let forced = |(key, value): (&str, &str)| {
        key.ends_with("force-magic")
            && matches!(value.to_ascii_lowercase().as_str(), "yes" | "true" | "on" | "1")
    };
    files.tell_magic = settings.iter().any(forced);
    if needs.magic || files.tell_magic {
        let magic = keywords::file::libmagic(settings).map_err(|error| {
            Failure::stopped(format!(
                "file types cannot be determined: {error}; install libmagic, or set `force-magic` of the output to `no`"
            ))
        })?;
        files.magic = Some(Arc::new(magic));
    }
    // Problems are reported when the store is started.
    let store =
        FileStoreOptions::from_settings(settings, &mut Vec::new()).map_err(Failure::setting(settings))?;
    if let Some(store) = store {
        // Files are named by their SHA-256.
        (files.sha256, files.names_parts) = (true, true);
        files.store_all = store.force;
        let depth = match store.stream_depth {
            Some(depth) => depth,
            None => settings.size("stream.reassembly.depth", 1 << 20).map_err(Failure::setting(settings))?,
        };
        files.store_depth = Some(depth);
        files.window = FileSettings::STORE_WINDOW;
    }
    Ok(files)
}

/// Starts the file store, if the settings enable it; warns if rules store files without it.
pub fn file_store(
    settings: &SettingsMap,
    needs: &Needs,
    folder: &Path,
    behind: WhenBehind,
    warnings: &mut Vec<String>,
) -> Result<Option<FileStoreOutput>, Failure> {
    let options = FileStoreOptions::from_settings(settings, warnings).map_err(Failure::setting(settings))?;
    let Some(options) = options else {
        if needs.store {
            warnings.push(
                "rules store files (keyword `filestore`), but the output `file-store` is not enabled: the \
                 rules match, and no file is stored; enable it"
                    .to_owned(),
            );
        }
        return Ok(None);
    };
    match FileStoreOutput::start(&options, folder, behind) {
        Ok(store) => Ok(Some(store)),
        Err(error) => Err(Failure::stopped(format!(
            "cannot store files in {}: {error}; choose another folder, or switch the output `file-store` off",
            folder.display()
        ))),
    }
}

/// Starts the certificate store, if the settings enable it; warns if rules store certificates without it.
pub fn tls_store(
    settings: &SettingsMap,
    needs: &Needs,
    folder: &Path,
    behind: WhenBehind,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsStore>, Failure> {
    let Some(options) = TlsStoreOptions::from_settings(settings).map_err(Failure::setting(settings))? else {
        if needs.certificates {
            warnings.push(
                "rules store certificates (keyword `tls.store`), but the output `tls-store` is not enabled: \
                 the rules match, and no certificate is stored; enable it"
                    .to_owned(),
            );
        }
        return Ok(None);
    };
    match TlsStore::start(&options, folder, behind) {
        Ok(store) => Ok(Some(store)),
        Err(error) => Err(Failure::stopped(format!(
            "cannot store certificates in {}: {error}; choose another folder (`certs-log-dir`), or switch the output `tls-store` off",
            options.place(folder).display()
        ))),
    }
}

/// Most alerts of one packet that are reported (`packet-alert-max`), and a warning if Suricata would not
/// accept the number.
///
/// # Errors
/// The setting is no whole number.
pub fn alerts_max(settings: &SettingsMap) -> Result<(usize, Option<String>), SettingError> {
    const MOST: usize = 255;
    match settings.number("packet-alert-max", ALERTS_PER_PACKET)? {
        most @ 1..=MOST => Ok((most, None)),
        other => {
            let said = format!(
                "packet-alert-max is {other}, not a number from 1 to {MOST}: {ALERTS_PER_PACKET} is used; \
                 correct it"
            );
            Ok((ALERTS_PER_PACKET, Some(said)))
        }
    }
}

/// Sets the folder of files that rules save: below the output folder, unless the settings name another one.
pub fn data_folder(settings: &mut SettingsMap, out: &Path) {
    if settings.get("default-data-dir").is_none() {
        settings.set("default-data-dir", out.display().to_string());
        // Reading the key marks it as used: it is no ineffective setting of the user.
        let _ = settings.get("default-data-dir");
    }
}

/// Writes the data sets that have a file. Returns the failures.
pub fn save_datasets(shared: &Shared, rights: &Rights) -> Vec<String> {
    let failed = shared.datasets.save(rights);
    failed
        .iter()
        .map(|(path, error)| format!("cannot save the dataset to {}: {error}", path.display()))
        .collect()
}

/// A secret seed for keyed hashes, new in each run.
pub fn seed() -> [u64; 2] {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    [random(), random()]
}

/// Default entries of the host table, for thresholds, bits and limits by address.
pub const HOSTS: u32 = 65_536;

/// A host table with a secret hash of this run.
pub fn hosts(capacity: u32) -> HostTableConfig {
    HostTableConfig { capacity, shards: 64, hasher: FlowHasher::new(seed()), when_full: WhenHostsFull::Evict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_shares_the_rules_that_another_one_has() {
        let mut warnings = Vec::new();
        let settings = suricata::shipped();
        let base = Base::with(&settings, None, 64, &mut warnings).unwrap();
        let load = |second: &str| {
            let text = format!(
                "alert tcp any any -> any any (content:\"one\"; sid:1;)\nalert tcp any any -> any any (content:\"{second}\"; sid:2;)\n"
            );
            let mut files = [bartizan_rules::parse_file(text, "r.rules")];
            base.rules(&mut files, &settings, &[], &mut Vec::new()).unwrap().rules
        };
        let (first, second) = (load("two"), load("three"));
        let same = |at: usize| Arc::ptr_eq(&first.signatures[at].signature, &second.signatures[at].signature);
        assert_eq!([same(0), same(1)], [true, false]);
    }
}
