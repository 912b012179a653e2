// SPDX-License-Identifier: Apache-2.0
//! The command channel: what a running program is told to do, and what it answers.
//!
//! A holder of a [`Channel`] sends commands and waits for answers; the supervisor holds the [`Inbox`] and
//! carries the commands out, one after the other. Signals use the same inbox: their handlers may only set
//! flags, which [`Inbox::next`] turns into commands. So a reload is the same for every caller. Queries that
//! do not need the supervisor have another path (`view`).

use crate::requests::Requests;
use crate::stats::InterfaceStat;
use bartizan_agent::joined::JoinedPolicy;
use bartizan_api::content::ContentHashes;
use bartizan_api::southbound::GenerationRefusal;
use bartizan_base::Generation;
use bartizan_dataplane::driver::inquiry::Collector;
use bartizan_dataplane::eve::RulesInForce;
use bartizan_detect::ruleset::RefusedRule;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Commands that wait at most.
pub const COMMANDS_WAITING: usize = 64;

/// A command to the running program.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlCommand {
    /// Load rules and policy anew.
    Reload,
    /// A reload whose caller does not wait for the result.
    ReloadLater,
    /// Open outputs again under their names.
    Reopen,
    /// End in order.
    Stop,
    /// Tell which rules cannot be used.
    FailedRules,
    /// Tell the value of a setting.
    Setting(String),
    /// Look into a data set, or change it.
    Set(SetCommand),
    /// Build what a controller says beside what runs, and keep it ready.
    Build(Arc<JoinedPolicy>),
    /// Run what is ready.
    Swap,
    /// Forget what is ready.
    Abandon,
    /// Give a function these settings, by name, beside those of its sections.
    Configure(String, Map<String, Value>),
}

/// An operation on data sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCommand {
    /// Adds, removes or looks for a value: set, kind of its values, value as files write it.
    Value(ValueCommand, String, String, String),
    /// Takes all values out: set, kind.
    Clear(String, String),
    /// Writes sets that have a file for it.
    Dump,
}

/// An operation on a value of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueCommand {
    /// Put it in.
    Add,
    /// Take it out.
    Remove,
    /// Is it there?
    Lookup,
}

/// A generation: its number, the controller's beside it, and the content that it was built from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningGeneration {
    /// This program's number, from 1 on.
    pub generation: Generation,
    /// The controller's number; 0 if it is none of a controller.
    pub controller: u64,
    /// The hashes.
    pub content: ContentHashes,
}

impl RunningGeneration {
    /// The members of an answer.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut told = Map::new();
        told.insert("generation".to_owned(), self.generation.0.into());
        told.insert("content".to_owned(), json!(self.content));
        told
    }
}

/// The answer to a command.
#[derive(Debug)]
pub enum CommandOutcome {
    /// It is done, or is about to be.
    Done,
    /// A generation was handed to the workers.
    Reloaded(RunningGeneration),
    /// It is not done: why, and what to do.
    Refused(String),
    /// The event of type `stats` with all counters, as JSON.
    Counters(Vec<u8>),
    /// Packets of an interface.
    Interface(InterfaceStat),
    /// Names.
    Names(Vec<String>),
    /// The rules that run.
    Rules(RulesInForce),
    /// Rules that cannot be used, and how many more there are.
    FailedRules(Vec<RefusedRule>, u64),
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// Workers are asked, and will say it.
    Workers(Collector),
    /// A controller's generation cannot be built, and where.
    NotBuilt(Box<GenerationRefusal>),
    /// A description as members of an object.
    Told(serde_json::Map<String, serde_json::Value>),
}

/// A command that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// The command to be carried out.
    pub command: ControlCommand,
    to: Option<Sender<CommandOutcome>>,
}

impl Asked {
    /// By a signal, to which nobody answers.
    const fn by_signal(command: ControlCommand) -> Self {
        Asked { command, to: None }
    }

    /// Whether it came by a signal.
    pub const fn is_by_signal(&self) -> bool {
        self.to.is_none()
    }

    /// Sends the outcome to the client, which may have disconnected.
    pub fn answer(self, answer: CommandOutcome) {
        if let Some(to) = self.to {
            let _ = to.send(answer);
        }
    }

    /// As [`Asked::answer`], once it is known and before all is done.
    pub fn answer_early(&self, answer: CommandOutcome) {
        if let Some(to) = &self.to {
            let _ = to.send(answer);
        }
    }
}

/// The sending end for commands.
#[derive(Clone, Debug)]
pub struct Channel(SyncSender<Asked>);

/// The receiving end.
#[derive(Debug)]
pub struct Inbox {
    from: Receiver<Asked>,
    requests: &'static Requests,
    /// The end was asked for by a signal, and that was said.
    stopped: bool,
}

/// Both ends.
pub fn open(requests: &'static Requests) -> (Channel, Inbox) {
    let (to, from) = sync_channel(COMMANDS_WAITING);
    (Channel(to), Inbox { from, requests, stopped: false })
}

/// Why nothing comes of a command any more.
const ENDING: &str = "the program is stopping";

/// A command that was sent.
#[derive(Debug)]
pub struct Asking(Result<Receiver<CommandOutcome>, String>);

impl Asking {
    /// Waits for the outcome without a time limit.
    pub fn wait(self) -> CommandOutcome {
        let answer = self.0.and_then(|answer| answer.recv().map_err(|_| ENDING.to_owned()));
        answer.unwrap_or_else(CommandOutcome::Refused)
    }
}

impl Channel {
    /// Sends a command and waits for its outcome without a time limit.
    pub fn execute(&self, command: ControlCommand) -> CommandOutcome {
        self.begin(command).wait()
    }

    /// Sends a command; the caller waits for its outcome later.
    pub fn begin(&self, command: ControlCommand) -> Asking {
        let (to, answer) = channel();
        Asking(match self.0.try_send(Asked { command, to: Some(to) }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(format!(
                "{COMMANDS_WAITING} commands are already waiting, perhaps for a reload; retry later"
            )),
            Err(TrySendError::Disconnected(_)) => Err(ENDING.to_owned()),
        })
    }
}

impl Inbox {
    /// The next command, which signals may be; waits for it for some time.
    pub fn next(&mut self, wait: Duration) -> Option<Asked> {
        if self.requests.is_stopped() && !std::mem::replace(&mut self.stopped, true) {
            return Some(Asked::by_signal(ControlCommand::Stop));
        }
        if self.requests.take_reload() {
            return Some(Asked::by_signal(ControlCommand::Reload));
        }
        if self.requests.take_reopen() {
            return Some(Asked::by_signal(ControlCommand::Reopen));
        }
        match self.from.try_recv() {
            Ok(asked) => Some(asked),
            Err(TryRecvError::Empty) => self.from.recv_timeout(wait).ok(),
            Err(TryRecvError::Disconnected) => {
                // Nobody can send any more: then only time passes here.
                std::thread::sleep(wait);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOTHING: Requests = Requests::new();

    #[test]
    fn commands_are_answered_and_nobody_waits_for_who_has_gone() {
        let (channel, mut inbox) = open(&NOTHING);
        let asking = channel.clone();
        let client = std::thread::spawn(move || asking.execute(ControlCommand::FailedRules));
        let asked = loop {
            if let Some(asked) = inbox.next(Duration::from_millis(10)) {
                break asked;
            }
        };
        assert_eq!(asked.command, ControlCommand::FailedRules);
        asked.answer(CommandOutcome::Number(7));
        assert!(matches!(client.join().unwrap(), CommandOutcome::Number(7)));
        // One that is not answered, and one after the end.
        let asking = channel.clone();
        let client = std::thread::spawn(move || asking.execute(ControlCommand::Reload));
        while inbox.next(Duration::from_millis(10)).is_none() {}
        assert!(
            matches!(client.join().unwrap(), CommandOutcome::Refused(why) if why.contains("is stopping"))
        );
        drop(inbox);
        assert!(
            matches!(channel.execute(ControlCommand::Stop), CommandOutcome::Refused(why) if why.contains("is stopping"))
        );
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let (channel, mut inbox) = open(&NOTHING);
        for _ in 0..COMMANDS_WAITING {
            channel.0.try_send(Asked::by_signal(ControlCommand::Reopen)).unwrap();
        }
        assert!(
            matches!(channel.execute(ControlCommand::Reopen), CommandOutcome::Refused(why) if why.contains("64 commands are already waiting"))
        );
        assert!(inbox.next(Duration::ZERO).is_some());
        drop(channel);
        for _ in 1..COMMANDS_WAITING {
            assert!(inbox.next(Duration::ZERO).is_some());
        }
        assert!(inbox.next(Duration::from_millis(1)).is_none());
    }
}
