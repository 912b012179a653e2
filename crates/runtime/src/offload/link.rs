// SPDX-License-Identifier: Apache-2.0
//! A level on one link: attached to its two interfaces, lost with them, and attached again when they are
//! back.

use bartizan_offload::level::{LevelError, OpenLevel, PortSetup};
use bartizan_ports::Interface;

/// A link that has a level, or is to have it again.
pub(super) struct LinkLevel {
    /// Name of the link.
    pub name: String,
    /// Name of the kind of level, for messages.
    title: &'static str,
    /// Attach settings of the two ports, with their present interfaces.
    setups: [PortSetup; 2],
    /// The program is on its ports.
    attached: bool,
    /// Whether the state of a killed run is on some of the ports, until it is taken over.
    pub waits: bool,
    /// Why it could not be attached again, as it was said last.
    reported: Option<String>,
}

impl LinkLevel {
    /// One that is on no port yet.
    pub fn new(link: &str, title: &'static str, setups: [PortSetup; 2]) -> Self {
        LinkLevel { name: link.to_owned(), title, setups, attached: false, waits: false, reported: None }
    }

    /// Attaches the program to both interfaces of a link, or to none. Returns messages for the log.
    pub fn attach(
        &mut self,
        level: &mut dyn OpenLevel,
        interfaces: &[Interface],
    ) -> Result<Vec<String>, LevelError> {
        let mut notes = Vec::new();
        self.waits = false;
        for (at, (setup, interface)) in self.setups.iter_mut().zip(interfaces).enumerate() {
            setup.ifindex = interface.index;
            match level.attach(setup) {
                Ok(attached) => {
                    self.waits |= attached.waits;
                    notes.extend(attached.note.map(|note| format!("link `{}`: {note}", self.name)));
                }
                Err(error) => {
                    self.setups.iter().take(at).for_each(|before| level.detach(before.index));
                    return Err(error);
                }
            }
        }
        self.attached = true;
        Ok(notes)
    }

    /// Its interfaces are others now, or gone: what was attached to those before goes. They may be in another
    /// network namespace.
    fn detach(&mut self, level: &mut dyn OpenLevel) {
        self.setups.iter().for_each(|port| level.detach(port.index));
        self.attached = false;
    }

    /// Why it handles no packets, if it does not.
    pub fn off(&self) -> Option<String> {
        match (self.attached, self.waits) {
            (true, false) => None,
            (true, true) => Some(
                "the program of a killed run stays on its interfaces until all workers serve their frames"
                    .to_owned(),
            ),
            (false, _) => {
                Some(self.reported.clone().unwrap_or_else(|| "the link has lost its interfaces".to_owned()))
            }
        }
    }

    fn is_on(&self, interfaces: &[Interface]) -> bool {
        self.attached
            && self.setups.iter().map(|port| port.ifindex).eq(interfaces.iter().map(|own| own.index))
    }

    /// The link's interfaces whose program was detached or replaced by another process.
    fn taken_from<'i>(&self, level: &mut dyn OpenLevel, interfaces: &'i [Interface]) -> Vec<&'i str> {
        let ports = self.setups.iter().zip(interfaces);
        let gone = ports.filter(|(port, _)| !level.is_attached(port.index));
        gone.map(|(_, interface)| interface.name.as_str()).collect()
    }

    /// Follows what became of its interfaces; none while they are gone.
    pub fn follow(
        &mut self,
        level: &mut dyn OpenLevel,
        interfaces: Option<&[Interface]>,
        messages: &mut Vec<String>,
    ) {
        if let Some(interfaces) = interfaces.filter(|interfaces| self.is_on(interfaces)) {
            let taken = self.taken_from(level, interfaces);
            if taken.is_empty() {
                return;
            }
            messages.push(format!(
                "warning: link `{}`: another program detached the {} program from `{}`; it is attached again (`bpftool net` lists attached programs)",
                self.name,
                self.title,
                taken.join("`, `")
            ));
        }
        if self.attached {
            self.detach(level);
        }
        let Some(interfaces) = interfaces else { return };
        match self.attach(level, interfaces) {
            Ok(notes) => {
                messages.push(format!("note: link `{}` uses its {} level again", self.name, self.title));
                messages.extend(notes.into_iter().map(|note| format!("warning: {note}")));
                self.reported = None;
            }
            Err(error) => {
                // Said once, whoever opens and closes the program meanwhile.
                let why = error.to_string();
                if self.reported.as_ref() != Some(&why) {
                    messages.push(format!(
                        "warning: link `{}` runs without its {} level until the level can be used again: {}",
                        self.name,
                        self.title,
                        error.explain()
                    ));
                    self.reported = Some(why);
                }
            }
        }
    }
}
