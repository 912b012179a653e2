// SPDX-License-Identifier: Apache-2.0
//! The commands to a controller, made of its operations: a resource and a verb (`policies put`), the names
//! in the path as arguments, the query's parameters and the body's scalar fields as options.

use bartizan_controller::rest::route::{Parameter, ParameterKind};
use bartizan_runtime::client::actions::{Flag, FlagKind, ResourceAction, all, names, resources};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// Synonyms of verbs.
const ALIASES: &[(&str, &str)] = &[("begin", "start"), ("make", "create"), ("revoke", "delete")];
/// The argument of the document.
pub const FILE: &str = "FILE";
/// The option for the steps of a roll-out.
pub const PERCENT: &str = "percent";
/// The option that follows a log.
pub const FOLLOW: &str = "follow";
/// The option for the tag that the document must still have.
pub const IF_MATCH: &str = "if-match";
/// The option that requires that the document does not exist.
pub const NEW: &str = "new";

/// The id of the argument of a name in the path, a parameter of the query, or a key of the body.
pub fn id(of: &str, name: &str) -> String {
    format!("{of}:{name}")
}

/// The arguments of an operation.
fn arguments(action: &'static ResourceAction) -> Vec<Arg> {
    let mut all = Vec::new();
    for name in action.names().into_iter().filter(|_| !action.named_by_content()) {
        let always = action.routes.iter().all(|route| names(route).contains(&name));
        let about = format!("Name of the {}", name.replace('-', " "));
        let shown = name.to_ascii_uppercase();
        all.push(Arg::new(leak(id("name", name))).value_name(leak(shown)).required(always).help(about));
    }
    all.extend(action.parameters().into_iter().filter_map(|of| parameter(of, action.lists())));
    if let Some(body) = action.routes.first().and_then(|route| route.body) {
        let about = match body.schema {
            Some(_) => "The document, YAML or JSON; `-` for standard input",
            None => "The file; `-` for standard input",
        };
        all.push(Arg::new(FILE).help(about).required(action.flags.is_empty()));
        all.extend(action.flags.iter().map(flag));
    }
    if action.resource == "rollouts" && action.verb == "begin" {
        let about = "Percentages of the devices, step by step: 10,50,100";
        let range = value_parser!(u8).range(1..=100);
        all.push(Arg::new(PERCENT).long(PERCENT).value_delimiter(',').value_parser(range).help(about));
    }
    if action.follows() {
        let about = "Continue with new ones as they arrive";
        all.push(Arg::new(FOLLOW).long(FOLLOW).short('f').action(ArgAction::SetTrue).help(about));
    }
    if !action.reads() && action.routes.iter().any(|route| route.tagged) {
        let about = "Only if the document is unchanged since this generation";
        all.push(Arg::new(IF_MATCH).long(IF_MATCH).value_name("GENERATION").help(about));
        let about = "Only if it does not exist yet";
        all.push(Arg::new(NEW).long(NEW).action(ArgAction::SetTrue).conflicts_with(IF_MATCH).help(about));
    }
    all
}

/// Leaks a text: the command line is made once, and its texts live as long as the program.
fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// A parameter as an option. `turned`: the command itself requests page after page, so there is no option for
/// it.
fn parameter(parameter: &'static Parameter, turned: bool) -> Option<Arg> {
    let arg = Arg::new(leak(id("query", parameter.name))).long(parameter.name).help(parameter.about);
    match parameter.kind {
        ParameterKind::Flag => Some(arg.action(ArgAction::SetTrue)),
        ParameterKind::Number(from, to) => {
            let to = i64::try_from(to).unwrap_or(i64::MAX);
            let range = value_parser!(i64).range(i64::try_from(from).unwrap_or(0)..=to);
            Some(arg.value_name("NUMBER").value_parser(range))
        }
        ParameterKind::Name | ParameterKind::FileName => Some(arg.value_name("NAME")),
        ParameterKind::Cursor | ParameterKind::NumberCursor => (!turned).then(|| arg.value_name("TEXT")),
    }
}

/// A key of the body as an option.
fn flag(flag: &'static Flag) -> Arg {
    let arg = Arg::new(leak(id("body", &flag.key))).long(flag.key.as_str()).help(flag.about.as_str());
    match &flag.kind {
        FlagKind::Text | FlagKind::Either => arg.value_name("TEXT"),
        FlagKind::Number => arg.value_name("NUMBER").value_parser(value_parser!(u64)),
        FlagKind::Yes => arg.action(ArgAction::SetTrue),
        FlagKind::Word(words) => {
            arg.value_name("WORD").value_parser(PossibleValuesParser::new(words.iter().map(String::as_str)))
        }
        FlagKind::List => arg.value_name("TEXT,...").value_delimiter(','),
        FlagKind::Pairs => arg.value_name("NAME=VALUE,...").value_delimiter(','),
    }
}

/// A command for each resource, with one below it for each action.
pub fn commands() -> Vec<Command> {
    let command = |resource: &'static str| {
        let own = all().iter().filter(move |action| action.resource == resource);
        let mut command = Command::new(resource).disable_help_subcommand(true);
        let mut verbs = Vec::new();
        for action in own {
            verbs.push(action.verb.replace('-', " "));
            let alias = ALIASES.iter().filter(|(verb, _)| *verb == action.verb).map(|(_, alias)| *alias);
            let below = Command::new(action.verb.as_str()).about(action.about()).visible_aliases(alias);
            command = command.subcommand(below.args(arguments(action)));
            if action.direct {
                command = command.args(arguments(action)).args_conflicts_with_subcommands(true);
            }
        }
        let direct = all().iter().find(|action| action.resource == resource && action.direct);
        match direct {
            Some(action) => command.about(action.about()),
            None => {
                let about = format!("{}: {}", resource.replace('-', " "), verbs.join(", "));
                command.about(about).subcommand_required(true).arg_required_else_help(true)
            }
        }
    };
    resources().into_iter().map(command).collect()
}

/// The action that was chosen, with its arguments.
pub fn chosen<'m>(
    resource: &str,
    matches: &'m ArgMatches,
) -> Option<(&'static ResourceAction, &'m ArgMatches)> {
    let mut own = all().iter().filter(|action| action.resource == resource);
    match matches.subcommand() {
        Some((verb, below)) => {
            let verb =
                ALIASES.iter().find(|(_, alias)| *alias == verb && own.clone().all(|a| a.verb != verb));
            let said = matches.subcommand_name().unwrap_or_default();
            let verb = verb.map_or(said, |(verb, _)| verb);
            own.find(|action| action.verb == verb).map(|action| (action, below))
        }
        None => own.find(|action| action.direct).map(|action| (action, matches)),
    }
}
