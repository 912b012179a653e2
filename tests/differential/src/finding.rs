// SPDX-License-Identifier: Apache-2.0
//! A parsed line of a difference.

/// A flow of a pair: the client's host number, and its port counted from the first (the largest number for a
/// packet without ports).
pub type FlowKey = (u8, u16);

/// The subject of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An alert.
    Alert(Alert),
    /// A dropped frame (`None`: no frame of the capture) and the reason.
    Drop(Option<u32>, String),
    /// Another finding by its name: records, anomalies, flows, rejected rules.
    Record(String),
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Index of the rule in the pair.
    pub rule: usize,
    /// The frame, from 1; `None` if it is not of a frame of the capture.
    pub frame: Option<u32>,
    /// The flow.
    pub flow: FlowKey,
    /// On a packet to the server.
    pub to_server: bool,
    /// The packet was dropped.
    pub blocked: bool,
}

impl Alert {
    /// Whether another alert has the same rule, flow and direction.
    #[must_use]
    pub fn is_like(&self, other: &Alert) -> bool {
        (self.rule, self.flow, self.to_server) == (other.rule, other.flow, other.to_server)
    }

    /// Position in time: alerts without a frame come last.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.frame.unwrap_or(u32::MAX)
    }
}

/// A finding that only one of the programs has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `true` if this program has it, `false` if Suricata has it.
    pub more: bool,
    /// The finding itself.
    pub what: What,
    /// A record's flow, where its pair has several.
    pub flow: Option<FlowKey>,
}

impl Finding {
    /// Parses a line of [`crate::answer::Answer::differences`].
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let more = line.starts_with('+');
        let name = line.get(1..)?;
        let (name, _) = name.rsplit_once('*').unwrap_or((name, ""));
        let (name, flow) = name.rsplit_once('~').unwrap_or((name, ""));
        Some(Finding { more, what: What::read(name), flow: flow_key(flow) })
    }
}

impl What {
    /// Parses a finding of an answer.
    #[must_use]
    pub fn read(name: &str) -> Self {
        if let Some((place, reason)) = name.strip_prefix("drop@").and_then(|rest| rest.split_once(':')) {
            return What::Drop(place.parse().ok(), reason.into());
        }
        alert(name).map_or_else(|| What::Record(name.into()), What::Alert)
    }
}

/// Parses `1.0`.
fn flow_key(text: &str) -> Option<FlowKey> {
    let (client, port) = text.split_once('.')?;
    // A packet without ports has an offset that overflows.
    let port = u16::try_from(port.parse::<u64>().ok()?).unwrap_or(u16::MAX);
    Some((client.parse().ok()?, port))
}

/// Parses `2@5>1.0:allowed`.
fn alert(name: &str) -> Option<Alert> {
    let (rule, rest) = name.split_once('@')?;
    let at = rest.find(['>', '<'])?;
    let (frame, rest) = rest.split_at(at);
    let to_server = rest.starts_with('>');
    let (flow, action) = rest.get(1..)?.split_once(':')?;
    Some(Alert {
        rule: rule.parse().ok()?,
        frame: frame.parse().ok(),
        flow: flow_key(flow)?,
        to_server,
        blocked: action == "blocked",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let read = |line| Finding::read(line).unwrap();
        let alert = Alert { rule: 2, frame: Some(5), flow: (3, 1), to_server: false, blocked: true };
        let finding = Finding { more: false, what: What::Alert(alert.clone()), flow: None };
        assert_eq!(read("-2@5<3.1:blocked"), finding);
        assert_eq!(
            read("+2@-<3.1:allowed*2").what,
            What::Alert(Alert { frame: None, blocked: false, ..alert })
        );
        assert_eq!(read("+drop@7:flow.drop").what, What::Drop(Some(7), "flow.drop".into()));
        assert_eq!(read("-drop@-:rules").what, What::Drop(None, "rules".into()));
        assert_eq!(read("-http*3").what, What::Record("http".into()));
        let of_flow = Finding { more: true, what: What::Record("http".into()), flow: Some((3, 1)) };
        assert_eq!(read("+http~3.1*2"), of_flow);
        assert_eq!(read("+flow:TCP:-").what, What::Record("flow:TCP:-".into()));
    }
}
