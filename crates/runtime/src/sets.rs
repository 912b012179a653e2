// SPDX-License-Identifier: Apache-2.0
//! Commands about data sets of a running program. Their answers begin with the words of Suricata, which tools
//! search for.

use crate::channel::{CommandOutcome, SetCommand, ValueCommand};
use crate::load;
use bartizan_detect::shared::Shared;
use bartizan_detect::state::dataset::{Dataset, DatasetType};
use bartizan_events::output::Rights;
use std::sync::Arc;

/// Carries out a command.
pub fn carry_out(command: &SetCommand, shared: &Shared, rights: &Rights) -> CommandOutcome {
    match answer(command, shared, rights) {
        Ok(answer) => answer,
        Err(why) => CommandOutcome::Refused(why),
    }
}

fn answer(command: &SetCommand, shared: &Shared, rights: &Rights) -> Result<CommandOutcome, String> {
    match command {
        SetCommand::Dump => match load::save_datasets(shared, rights).as_slice() {
            [] => Ok(CommandOutcome::Done),
            problems => Err(problems.join("; ")),
        },
        SetCommand::Clear(name, kind) => {
            find(shared, name, kind)?.clear();
            Ok(CommandOutcome::Done)
        }
        SetCommand::Value(what, name, kind, value) => {
            let set = find(shared, name, kind)?;
            let failed = match what {
                ValueCommand::Add => "failed to add data",
                ValueCommand::Remove => "failed to remove data",
                ValueCommand::Lookup => "failed to find data",
            };
            let read = set.kind().read(value);
            let bytes = read.map_err(|wanted| format!("{failed}: `{value}` is not {wanted}"))?;
            let text = |text: &str| Ok(CommandOutcome::Text(text.to_owned()));
            match what {
                ValueCommand::Add if set.get(&bytes).is_some() => text("data already in set"),
                ValueCommand::Add if set.add(&bytes) => text("data added"),
                ValueCommand::Add => Err(format!("{failed}: `{name}` is full; give it a larger `memcap`")),
                ValueCommand::Remove if set.remove(&bytes) => text("data removed"),
                ValueCommand::Lookup if set.get(&bytes).is_some() => text("item found in set"),
                ValueCommand::Lookup => Err("item not found in set".to_owned()),
                ValueCommand::Remove => Err(format!("{failed}: item not found in set")),
            }
        }
    }
}

/// The set with a name, if its values are of this kind.
fn find(shared: &Shared, name: &str, kind: &str) -> Result<Arc<Dataset>, String> {
    let kind = DatasetType::from_name(kind).ok_or_else(|| {
        format!(
            "unknown settype: `{kind}` is not a type of data set; there are string, md5, sha256, ipv4 and ip"
        )
    })?;
    let set = shared.datasets.named(name).ok_or_else(|| {
        format!("set not found or wrong type: there is no data set `{name}`; rules (`dataset`) and settings (`datasets`) make them")
    })?;
    if set.kind() != kind {
        return Err(format!(
            "set not found or wrong type: the values of data set `{name}` are of another type"
        ));
    }
    Ok(set)
}
