// SPDX-License-Identifier: Apache-2.0
//! State of a link's interfaces: one that goes down, or loses its carrier, is reported once, and once more
//! when it works again. The removal of an interface ends its link's ports: the socket of a removed interface
//! receives nothing from another one with the same name. A change of the MTU is reported as well; the ports
//! follow it by themselves.

use bartizan_ports::{Interface, LinkState, MAX_MTU};
use std::time::{Duration, Instant};

/// Interval of the checks.
const EVERY: Duration = Duration::from_millis(500);

/// The watch of a link's interfaces; see the module.
pub struct InterfaceWatch {
    interfaces: Vec<Interface>,
    /// The last known state of each.
    states: Vec<LinkState>,
    last_check: Option<Instant>,
}

impl InterfaceWatch {
    /// A watch of interfaces that work.
    pub fn new(interfaces: Vec<Interface>) -> Self {
        let states = vec![LinkState::Up; interfaces.len()];
        InterfaceWatch { interfaces, states, last_check: None }
    }

    /// The watched interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Messages about changes since the last check. Most calls check nothing.
    pub fn check(&mut self) -> Vec<String> {
        if self.last_check.is_some_and(|at| at.elapsed() < EVERY) {
            return Vec::new();
        }
        self.last_check = Some(Instant::now());
        let mut said = Vec::new();
        for (interface, known) in self.interfaces.iter().zip(&mut self.states) {
            // An unknown state counts as unchanged.
            let Ok(state) = interface.state() else { continue };
            if state != *known {
                said.extend(state_message(&interface.name, state));
                *known = state;
            }
        }
        said.extend(self.check_mtus());
        said
    }

    /// Warnings about changed MTUs.
    fn check_mtus(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for interface in &mut self.interfaces {
            let Ok(mtu) = interface.mtu_now() else { continue };
            let before = core::mem::replace(&mut interface.mtu, mtu);
            if mtu != before {
                let name = &interface.name;
                said.push(format!("note: the MTU of interface `{name}` changed from {before} to {mtu}; its ports follow within a second"));
            }
        }
        if said.is_empty() {
            return said;
        }
        for interface in self.interfaces.iter().filter(|interface| interface.mtu > MAX_MTU) {
            let Interface { name, mtu, .. } = interface;
            said.push(format!(
                "warning: interface `{name}` has MTU {mtu}, more than the supported {MAX_MTU}: larger frames are dropped inline and truncated on a tap; run `ip link set dev {name} mtu {MAX_MTU}`"
            ));
        }
        // Two interfaces are the ends of an inline link; a tap has one interface here.
        if let [a, b] = self.interfaces.as_slice()
            && a.mtu != b.mtu
        {
            let (less, more) = if a.mtu < b.mtu { (a, b) } else { (b, a) };
            said.push(format!(
                "warning: `{}` has MTU {} and `{}` has {}: packets over {} bytes are dropped between them \
                 (egress_mtu), TCP segments are split; run `ip link set dev {} mtu {}`",
                less.name, less.mtu, more.name, more.mtu, less.mtu, less.name, more.mtu
            ));
        }
        said
    }

    /// The reason why the link cannot continue, if an interface is gone.
    pub fn gone_reason(&self) -> Option<String> {
        let mut all = self.interfaces.iter().zip(&self.states);
        all.find(|(_, state)| **state == LinkState::Gone).map(|(interface, _)| gone_message(&interface.name))
    }
}

/// Remedy where the end of an interface ends the run.
pub const START_AGAIN: &str = "; start again when it exists";

/// The message that an interface is gone.
pub fn gone_message(name: &str) -> String {
    format!(
        "the interface `{name}` is gone: it was removed or moved to another network namespace{START_AGAIN}"
    )
}

/// The message about a new state. `None` for an interface that is gone: the end of its link reports it.
fn state_message(name: &str, state: LinkState) -> Option<String> {
    match state {
        LinkState::Up => Some(format!("note: interface `{name}` works again")),
        LinkState::Down => Some(format!(
            "warning: interface `{name}` is down and carries no packets; run `ip link set dev {name} up`"
        )),
        LinkState::NoCarrier => Some(format!(
            "warning: interface `{name}` has no carrier and carries no packets; check its cable and its other end"
        )),
        LinkState::Gone => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_told_once() {
        let lo = Interface::lookup("lo").unwrap_or(Interface {
            name: "lo".to_owned(),
            index: 1,
            mtu: 65_536,
            mac: [0; 6],
            link_layer: bartizan_ports::LinkLayer::Ethernet,
            loopback: true,
        });
        let gone = Interface { index: i32::MAX as u32, name: "was-there".to_owned(), ..lo };
        let mut watch = InterfaceWatch::new(vec![gone]);
        assert!(watch.gone_reason().is_none());
        assert!(watch.check().is_empty());
        assert!(watch.gone_reason().unwrap().contains("the interface `was-there` is gone"));
    }
}
