// SPDX-License-Identifier: Apache-2.0
//! The table of commands, for the program, its clients and the documentation.
//!
//! Commands before `levels` are Suricata's, with its names, arguments and answers; the others are this
//! program's.

use super::ControlRequest;
use serde_json::{Map, Value};

/// The form of an argument's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A text.
    Text,
    /// A number, also as a text of digits.
    Number,
    /// All remaining words of a command line, as one text.
    Rest,
}

/// An argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandArgument {
    /// The argument's name.
    pub name: &'static str,
    /// Placeholder for people: `INTERFACE`.
    pub what: &'static str,
    /// The argument's form.
    pub form: Form,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The command's name.
    pub name: &'static str,
    /// The arguments, in the order of a command line.
    pub arguments: &'static [CommandArgument],
    /// Description of the command.
    pub about: &'static str,
}

const fn text(name: &'static str, what: &'static str) -> CommandArgument {
    CommandArgument { name, what, form: Form::Text }
}

const FUNCTION: CommandArgument = text("function", "FUNCTION");
const SET: CommandArgument = text("setname", "NAME");
const KIND: CommandArgument = text("settype", "TYPE");
const VALUE: CommandArgument = text("datavalue", "VALUE");

macro_rules! commands {
    ($($name:literal [$($argument:expr),*] $about:literal;)*) => {
        &[$(CommandSpec { name: $name, arguments: &[$($argument),*], about: $about }),*]
    };
}

/// All commands.
pub const COMMANDS: &[CommandSpec] = commands! {
    "command-list" [] "all commands";
    "help" [] "the same";
    "version" [] "version of the program";
    "uptime" [] "seconds since the start";
    "running-mode" [] "how packets are handled: `workers`";
    "capture-mode" [] "the source of packets: `AF_PACKET_DEV`";
    "conf-get" [text("variable", "KEY")] "value of a setting";
    "dump-counters" [] "all counters, as in EVE's `stats` with those of each worker";
    "iface-list" [] "the interfaces";
    "iface-stat" [text("iface", "INTERFACE")] "packets of an interface, those lost, wrong checksums, bypassed";
    "reload-rules" [] "reload rules and policy; answers after the reload, or with the reason of its refusal";
    "ruleset-reload-rules" [] "the same";
    "ruleset-reload-nonblocking" [] "reload rules and policy; answers at once, and the log has the result";
    "ruleset-reload-time" [] "time of the last reload";
    "ruleset-stats" [] "number of rules that run, that failed and that were left out";
    "ruleset-failed-rules" [] "rules that failed, with file, line and error";
    "reopen-log-files" [] "reopen the files of outputs under their names";
    "dataset-add" [SET, KIND, VALUE] "add a value to a data set (string in base64, md5 and sha256 in hex, ip)";
    "dataset-remove" [SET, KIND, VALUE] "remove a value from a data set";
    "dataset-lookup" [SET, KIND, VALUE] "whether a value is in a data set";
    "dataset-clear" [SET, KIND] "remove all values from a data set";
    "dataset-dump" [] "write data sets with `save` or `state` to their files now";
    "get-flow-stats-by-id" [CommandArgument { name: "flow_id", what: "FLOW_ID", form: Form::Number }]
        "packets and bytes of a live flow by its `flow_id` in EVE";
    "shutdown" [] "stop the program after it has written its open flows";
    "levels" [] "number of live flows at each level, and the reasons why flows stay at the host";
    "explain-flow" [CommandArgument { name: "flow", what: "FLOW", form: Form::Rest }]
        "matching live flows: policy, chain, decision with its function, level with its time, and the reason why it is not lower";
    "trace" [text("rule", "SID")]
        "the conditions of a rule on the next packets, as `explain rule` shows them: `bartizan ctl trace --help`";
    "controller" [] "connection to the controller: state, running generation, counters, end of the last connection";
    "guest-list" [] "guests of the stream path: processes, streams, bytes, refusals";
    "guest-status" [text("guest", "GUEST")] "streams of a guest with verdicts and bytes, and the streams blocked last";
    "function-list" [] "functions with their state on each worker, failures and restarts";
    "function-health" [FUNCTION] "state of a function (`running`, `stopped`, `failed`), with the reason";
    "function-stop" [FUNCTION] "stop a function: chains continue without it or drop, by `on-failure` of each policy";
    "function-start" [FUNCTION] "start a function that is stopped or has failed, with fresh state";
    "function-restart" [FUNCTION] "start a function with fresh state, also while it runs";
    "function-configure" [FUNCTION, CommandArgument { name: "settings", what: "NAME=VALUE...", form: Form::Rest }]
        "override settings of a function until the program ends; `NAME=` removes an override";
    "status" [] "running generation, content hashes of its files, its rules, version, uptime";
    "control-stats" [] "counters of the command socket: clients, messages, refusals";
};

/// The command with a name.
#[must_use]
pub fn command(name: &str) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|command| command.name == name)
}

impl CommandSpec {
    /// The usage line: `iface-stat INTERFACE`.
    #[must_use]
    pub fn usage(&self) -> String {
        let words = self.arguments.iter().map(|argument| argument.what);
        core::iter::once(self.name).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Makes a request from the words after the command's name on a command line.
    ///
    /// # Errors
    /// A word is missing, invalid or superfluous; the message has the usage.
    pub fn request(&self, words: &[String]) -> Result<ControlRequest, String> {
        let wrong = |what: String| format!("{what}; write `{}`", self.usage());
        let mut arguments = Map::new();
        let mut left = words;
        for argument in self.arguments {
            let (value, rest) = match (argument.form, left) {
                (_, []) => return Err(wrong(format!("{} is missing", argument.what))),
                (Form::Rest, all) => (Value::from(all.join(" ")), &[][..]),
                (Form::Text, [first, rest @ ..]) => (Value::from(first.as_str()), rest),
                (Form::Number, [first, rest @ ..]) => {
                    let number: u64 = first
                        .parse()
                        .map_err(|_| wrong(format!("`{first}` is not a number for {}", argument.what)))?;
                    (Value::from(number), rest)
                }
            };
            arguments.insert(argument.name.to_owned(), value);
            left = rest;
        }
        match left {
            [] => Ok(ControlRequest { command: self.name.to_owned(), arguments }),
            [first, ..] => Err(wrong(format!("`{first}` is one argument too many"))),
        }
    }
}

impl ControlRequest {
    /// A text argument.
    ///
    /// # Errors
    /// The argument is missing or not a text.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        match self.arguments.get(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("`{name}` is not a string")),
            None => Err(format!("the argument `{name}` is missing")),
        }
    }

    /// A number argument.
    ///
    /// # Errors
    /// The argument is missing or not a number.
    pub fn number(&self, name: &str) -> Result<u64, String> {
        let value = self.arguments.get(name).ok_or_else(|| format!("the argument `{name}` is missing"))?;
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.ok_or_else(|| format!("`{name}` is not a number from 0 to {}", u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn commands_have_names_of_their_own_and_what_is_left_comes_last() {
        for spec in COMMANDS {
            assert_eq!(COMMANDS.iter().filter(|other| other.name == spec.name).count(), 1, "{}", spec.name);
            assert!(!spec.about.is_empty());
            let rest = spec.arguments.iter().rposition(|argument| argument.form == Form::Rest);
            assert!(rest.is_none_or(|at| at + 1 == spec.arguments.len()), "{}", spec.name);
        }
        assert!(command("uptime").is_some() && command("Uptime").is_none());
    }

    #[test]
    fn words_of_a_command_line_become_arguments() {
        let request = |name: &str, line: &str| command(name).unwrap().request(&words(line));
        assert_eq!(request("uptime", "").unwrap().arguments, Map::new());
        let stat = request("iface-stat", "eth0").unwrap();
        assert_eq!(stat.text("iface"), Ok("eth0"));
        assert!(stat.text("other").unwrap_err().contains("`other` is missing"));
        let flow = request("explain-flow", "tcp 10.0.0.1:1 10.0.0.2").unwrap();
        assert_eq!(flow.text("flow"), Ok("tcp 10.0.0.1:1 10.0.0.2"));
        assert_eq!(request("get-flow-stats-by-id", "17").unwrap().number("flow_id"), Ok(17));
        let set = request("dataset-add", "d string YQ==").unwrap();
        assert_eq!(json!(set.arguments), json!({"setname": "d", "settype": "string", "datavalue": "YQ=="}));
        for (name, line, says) in [
            ("iface-stat", "", "INTERFACE is missing; write `iface-stat INTERFACE`"),
            ("iface-stat", "a b", "`b` is one argument too many"),
            ("get-flow-stats-by-id", "x", "`x` is not a number for FLOW_ID"),
            ("explain-flow", "", "FLOW is missing"),
        ] {
            let error = request(name, line).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn numbers_may_be_texts() {
        let of = |value: Value| {
            let arguments = Map::from_iter([("n".to_owned(), value)]);
            ControlRequest { command: String::new(), arguments }.number("n")
        };
        assert_eq!((of(json!(7)), of(json!("7"))), (Ok(7), Ok(7)));
        assert!(of(json!(-1)).is_err() && of(json!("x")).is_err() && of(json!(1.5)).is_err());
    }
}
