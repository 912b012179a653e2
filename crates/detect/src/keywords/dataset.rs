// SPDX-License-Identifier: Apache-2.0
//! `dataset` and `datarep`: the value of a sticky buffer is looked up in a set, added or removed. The sets
//! are in [`crate::state::dataset`].

use super::number::text;
use super::path::{PathSearchOrder, find};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::buffers::BufferRef;
use crate::model::condition::{Answer, BufferCondition, ConditionContext};
use crate::model::content::Item;
use crate::state::dataset::{Dataset, DatasetError, DatasetSpec, DatasetType, Format};
use bartizan_base::parse_size;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "dataset",
        aliases: &[],
        summary: "The buffer's value is in a set (`isset`), is not (`isnotset`), is added (`set`) or removed (`unset`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dataset:isset|isnotset|set|unset,NAME[, type string|md5|sha256|ipv4|ip][, load FILE|save FILE|state FILE][, memcap SIZE][, hashsize N][, format csv|json|ndjson, value_key KEY[, array_key PATH][, context_key NAME][, remove_key]]",
        example: r#"alert dns any any -> any any (msg:"dataset"; dns.query; dataset:set,seen, type string; sid:1;)"#,
        note: "`hashsize` has no effect: tables grow as needed. Invalid lines of a file are left out, with a warning.",
        parse: dataset,
    },
    Keyword {
        name: "datarep",
        aliases: &[],
        summary: "The buffer's value is in a set and its reputation there is above, below or equal to a number.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "datarep:NAME, >|<|==, N[, load FILE, type KIND][, memcap SIZE]",
        example: r#"alert dns any any -> any any (msg:"datarep"; dns.query; datarep:hosts, >, 200, load keywords.lst, type string; sid:1;)"#,
        note: "Invalid lines of a file are left out, with a warning.",
        parse: datarep,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatasetCommand {
    IsSet,
    IsNotSet,
    Set,
    Unset,
    RatedAbove(u16),
    RatedBelow(u16),
    Rated(u16),
}

struct InSet {
    set: Arc<Dataset>,
    command: DatasetCommand,
    /// Name under which the alert shows the set's data about the value.
    context: Option<u32>,
}

impl BufferCondition for InSet {
    fn context(&self, data: &[u8]) -> Option<(u32, Arc<[u8]>)> {
        Some((self.context?, self.set.context(data)?))
    }

    fn matches(&self, data: &[u8], complete: bool, _scene: &ConditionContext<'_>) -> Answer {
        if !complete {
            return Answer::NotYet;
        }
        if data.is_empty() {
            return Answer::No;
        }
        let rated = |holds: fn(u16, u16) -> bool, than| self.set.get(data).is_some_and(|r| holds(r, than));
        match self.command {
            DatasetCommand::IsSet => self.set.get(data).is_some(),
            DatasetCommand::IsNotSet => self.set.get(data).is_none(),
            DatasetCommand::Set => self.set.add(data),
            DatasetCommand::Unset => self.set.remove(data),
            DatasetCommand::RatedAbove(than) => rated(|r, t| r > t, than),
            DatasetCommand::RatedBelow(than) => rated(|r, t| r < t, than),
            DatasetCommand::Rated(than) => rated(|r, t| r == t, than),
        }
        .into()
    }
}

/// Options after the first words of an argument.
#[derive(Debug, Default)]
struct DatasetOptions {
    kind: Option<DatasetType>,
    load: Option<String>,
    save: Option<String>,
    state: Option<String>,
    memcap: Option<u64>,
    format: Option<String>,
    array_key: Option<String>,
    value_key: Option<String>,
    context_key: Option<String>,
    remove_key: bool,
}

fn missing(what: &str) -> KeywordError {
    KeywordError::argument(format!("{what} is missing"))
}

impl DatasetOptions {
    fn read<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Self, KeywordError> {
        let mut options = DatasetOptions::default();
        for part in parts {
            let (key, value) = part.split_once([' ', '\t']).unwrap_or((part, ""));
            let value = value.trim();
            if key == "remove_key" {
                options.remove_key = true;
                continue;
            }
            if value.is_empty() {
                return Err(missing(&format!("the value of `{key}`")));
            }
            let once = |slot: &mut Option<String>| match slot.replace(value.to_owned()) {
                Some(_) => Err(KeywordError::argument(format!("`{key}` is given twice"))),
                None => Ok(()),
            };
            match key {
                "type" => {
                    options.kind = Some(DatasetType::from_name(value).ok_or_else(|| {
                        KeywordError::argument(format!("unknown type `{value}`"))
                            .help("use string, md5, sha256, ipv4 or ip")
                    })?);
                }
                "load" => once(&mut options.load)?,
                "save" => once(&mut options.save)?,
                "state" => once(&mut options.state)?,
                "memcap" => options.memcap = Some(parse_size(value).ok_or_else(|| size_wrong(value))?),
                // The option is ignored: the table grows as needed.
                "hashsize" => {
                    parse_size(value).ok_or_else(|| size_wrong(value))?;
                }
                "format" => once(&mut options.format)?,
                "array_key" => once(&mut options.array_key)?,
                "value_key" => once(&mut options.value_key)?,
                "context_key" | "enrichment_key" => once(&mut options.context_key)?,
                _ => return Err(KeywordError::argument(format!("unknown option `{key}`"))),
            }
        }
        Ok(options)
    }

    fn format(&self) -> Result<Format, KeywordError> {
        let remove = self.remove_key;
        let value = || self.value_key.clone().ok_or_else(|| missing("`value_key`"));
        Ok(match self.format.as_deref() {
            None | Some("csv") => {
                let json = [
                    (self.array_key.is_some(), "array_key"),
                    (self.value_key.is_some(), "value_key"),
                    (self.context_key.is_some(), "context_key"),
                    (remove, "remove_key"),
                ];
                if let (None, Some((_, option))) = (&self.format, json.iter().find(|(given, _)| *given)) {
                    return Err(KeywordError::argument(format!("`{option}` is for files in JSON"))
                        .help("write `format json` or `format ndjson`"));
                }
                Format::Lines
            }
            Some("json") => {
                Format::Json { path: self.array_key.clone().unwrap_or_default(), value: value()?, remove }
            }
            Some("ndjson" | "jsonline") => Format::JsonLines { value: value()?, remove },
            Some(other) => {
                return Err(KeywordError::argument(format!("unknown format `{other}`"))
                    .help("use csv, json or ndjson"));
            }
        })
    }
}

fn size_wrong(value: &str) -> KeywordError {
    KeywordError::argument(format!("`{value}` is not a size")).help("write a number with kb, mb or gb")
}

impl From<DatasetError> for KeywordError {
    fn from(error: DatasetError) -> Self {
        let code = match error {
            DatasetError::Unreadable { .. } => RefusalCode::MissingFile,
            DatasetError::OtherType(_) | DatasetError::OtherFile { .. } => RefusalCode::BadContext,
            _ => RefusalCode::BadArgument,
        };
        KeywordError::new(code, error.to_string())
    }
}

/// The file in the data folder that a rule may write.
fn writable(builder: &SignatureBuilder<'_>, name: &str) -> Result<PathBuf, KeywordError> {
    let settings = builder.environment.settings;
    let wrong = |error: bartizan_base::SettingError| KeywordError::argument(error.to_string());
    if !settings.bool("datasets.rules.allow-write", true).map_err(wrong)? {
        return Err(KeywordError::context("rules may not write datasets")
            .help("set `datasets.rules.allow-write: yes` to allow it"));
    }
    let path = Path::new(name);
    let leaves = path.is_absolute() || path.components().any(|c| c == Component::ParentDir);
    if leaves && !settings.bool("datasets.rules.allow-absolute-filenames", false).map_err(wrong)? {
        return Err(KeywordError::context(format!("`{name}` is outside the data folder"))
            .help("write a name without `/` at its beginning and without `..`"));
    }
    let folder = settings.get("default-data-dir").or_else(|| settings.get("default-log-dir")).unwrap_or(".");
    Ok(Path::new(folder).join(path))
}

fn request(
    builder: &SignatureBuilder<'_>,
    name: &str,
    options: &DatasetOptions,
) -> Result<DatasetSpec, KeywordError> {
    let beside = |name: &String| find(builder.environment, name, PathSearchOrder::RuleFolderFirst);
    let (load, save) = match (&options.load, &options.save, &options.state) {
        (None, None, None) => (None, None),
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            return Err(KeywordError::argument(
                "`state` already means `load` and `save`; give only one of the three",
            ));
        }
        (None, None, Some(state)) => {
            let path = writable(builder, state)?;
            (Some(path.clone()), Some(path))
        }
        (load, save, None) => (
            load.as_ref().map(beside).transpose()?,
            save.as_ref().map(|save| writable(builder, save)).transpose()?,
        ),
    };
    let (kind, memcap) = (options.kind, options.memcap);
    Ok(DatasetSpec { name: name.to_owned(), kind, load, save, memcap, format: options.format()? })
}

/// Splits an argument at commas and checks that there is a buffer to look at.
fn parts<'a>(
    builder: &SignatureBuilder<'_>,
    keyword: &str,
    argument: &'a [u8],
) -> Result<impl Iterator<Item = &'a str>, KeywordError> {
    if builder.current_buffer() == BufferRef::Payload {
        return Err(KeywordError::context(format!("`{keyword}` needs a sticky buffer before it"))
            .help("write for example `dns.query;` before it"));
    }
    Ok(text(argument)?.split(',').map(str::trim).filter(|part| !part.is_empty()))
}

fn push(
    builder: &mut SignatureBuilder<'_>,
    name: &str,
    command: DatasetCommand,
    options: &DatasetOptions,
) -> Result<(), KeywordError> {
    if name.contains([' ', '\t']) {
        return Err(KeywordError::argument("the name of a set has no blanks"));
    }
    let request = request(builder, name, options)?;
    let set = builder.environment.outside().datasets.get(builder.environment.settings, &request)?;
    if matches!(command, DatasetCommand::Set | DatasetCommand::Unset) {
        set.note_changes();
    }
    let names = builder.environment.names();
    let context = options.context_key.as_deref().map(|key| names.intern(key));
    builder.push_item(Item::Custom(Arc::new(InSet { set, command, context })))
}

fn dataset(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut parts = parts(builder, "dataset", argument)?;
    let command = match parts.next() {
        Some("isset") => DatasetCommand::IsSet,
        Some("isnotset") => DatasetCommand::IsNotSet,
        Some("set") => DatasetCommand::Set,
        Some("unset") => DatasetCommand::Unset,
        other => {
            return Err(KeywordError::argument(format!("no command `{}`", other.unwrap_or_default()))
                .help("use isset, isnotset, set or unset"));
        }
    };
    let name = parts.next().ok_or_else(|| missing("the name of the set"))?;
    let options = DatasetOptions::read(parts)?;
    push(builder, name, command, &options)
}

fn datarep(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut parts = parts(builder, "datarep", argument)?;
    let name = parts.next().ok_or_else(|| missing("the name of the set"))?;
    let operator = parts.next().ok_or_else(|| missing("the comparison"))?;
    let value = parts.next().ok_or_else(|| missing("the reputation"))?;
    let value: u16 = value
        .parse()
        .map_err(|_| KeywordError::argument(format!("`{value}` is not a number from 0 to 65535")))?;
    let command = match operator {
        ">" => DatasetCommand::RatedAbove(value),
        "<" => DatasetCommand::RatedBelow(value),
        "==" => DatasetCommand::Rated(value),
        _ => {
            return Err(
                KeywordError::argument(format!("unknown comparison `{operator}`")).help("use >, < or ==")
            );
        }
    };
    let options = DatasetOptions::read(parts)?;
    if options.load.is_some() && options.kind.is_none() {
        return Err(missing("`type`"));
    }
    push(builder, name, command, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{build_in, ipv4, on_scene, refused_in, udp};
    use crate::model::content::Program;
    use crate::state::shared::Shared;
    use bartizan_base::SettingsMap;

    fn answer(program: &Program, data: &[u8]) -> Answer {
        let Some(Item::Custom(condition)) = program.items.first() else { panic!("no condition") };
        on_scene(&ipv4(17, &udp(b"x")), |scene| condition.matches(data, true, scene))
    }

    #[test]
    fn commands_share_a_set() {
        let shared = Arc::new(Shared::default());
        let program = |argument: &str| {
            let options = [("ip.src", ""), ("dataset", argument)];
            let built = build_in(&shared, &SettingsMap::new(), Path::new(""), "ip", &options).unwrap();
            built.values[0].program.clone()
        };
        let set = program("set,hosts, type ip, memcap 1mb, hashsize 1024");
        let (is, is_not, unset) =
            (program("isset, hosts"), program("isnotset,hosts,type ip"), program("unset,hosts"));
        let host = [192, 0, 2, 1];
        assert_eq!((answer(&is, &host), answer(&is_not, &host)), (Answer::No, Answer::Yes));
        assert_eq!((answer(&set, &host), answer(&set, &host)), (Answer::Yes, Answer::No));
        assert_eq!((answer(&is, &host), answer(&is_not, &host)), (Answer::Yes, Answer::No));
        assert_eq!((answer(&unset, &host), answer(&unset, &host)), (Answer::Yes, Answer::No));
        assert_eq!(answer(&is_not, b""), Answer::No);
    }

    #[test]
    fn files_beside_the_rules() {
        let folder = std::env::temp_dir().join(format!("bartizan-datarep-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts.rep"), "192.0.2.1,201\nbad,7\n192.0.2.2,5\n192.0.2.3,0\n").unwrap();
        let shared = Arc::new(Shared::default());
        let built = |argument: &str| {
            let options = [("ip.dst", ""), ("datarep", argument)];
            build_in(&shared, &SettingsMap::new(), &folder, "ip", &options)
        };
        let above = built("hosts, >, 200, load hosts.rep, type ipv4").unwrap().values[0].program.clone();
        assert_eq!(
            (answer(&above, &[192, 0, 2, 1]), answer(&above, &[192, 0, 2, 2])),
            (Answer::Yes, Answer::No)
        );
        let equal = built("hosts,==,5").unwrap().values[0].program.clone();
        assert_eq!(
            (answer(&equal, &[192, 0, 2, 2]), answer(&equal, &[192, 0, 2, 9])),
            (Answer::Yes, Answer::No)
        );
        // A reputation of 0 is a reputation.
        for (argument, there, elsewhere) in
            [("hosts,==,0", Answer::Yes, Answer::No), ("hosts,<,1", Answer::Yes, Answer::No)]
        {
            let zero = built(argument).unwrap().values[0].program.clone();
            let answers = (answer(&zero, &[192, 0, 2, 3]), answer(&zero, &[192, 0, 2, 9]));
            assert_eq!(answers, (there, elsewhere), "{argument}");
        }
        // The malformed line is left out and reported once.
        let skipped = shared.take_skipped();
        assert_eq!(skipped.entries().iter().map(|entry| entry.line).collect::<Vec<_>>(), [2]);
        assert_eq!(built("other,>,1,load none.rep,type ipv4").unwrap_err().code, RefusalCode::MissingFile);
        assert_eq!(built("hosts,>,1,type md5").unwrap_err().code, RefusalCode::BadContext);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_refused() {
        let refused = |keyword, argument| refused_in("ip", &[("ip.src", ""), (keyword, argument)]);
        for (keyword, argument, code) in [
            ("dataset", "has,x,type ip", RefusalCode::BadArgument),
            ("dataset", "isset", RefusalCode::BadArgument),
            ("dataset", "isset,x", RefusalCode::BadArgument),
            ("dataset", "isset,x,type text", RefusalCode::BadArgument),
            ("dataset", "isset,a b,type ip", RefusalCode::BadArgument),
            ("dataset", "set,x,type ip,state a,save b", RefusalCode::BadArgument),
            ("dataset", "set,x,type ip,state /tmp/a", RefusalCode::BadContext),
            ("dataset", "set,x,type ip,save ../a", RefusalCode::BadContext),
            ("datarep", "x,=,1,type ip", RefusalCode::BadArgument),
            ("datarep", "x,>,high", RefusalCode::BadArgument),
            ("datarep", "x,>,1,load y", RefusalCode::BadArgument),
        ] {
            assert_eq!(refused(keyword, argument), Some(code), "{keyword}:{argument}");
        }
        assert_eq!(refused_in("ip", &[("dataset", "isset,x,type ip")]), Some(RefusalCode::BadContext));
    }
}
