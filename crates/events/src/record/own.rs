// SPDX-License-Identifier: Apache-2.0
//! Bartizan's additions to an event: the one top-level object `bartizan`.

use super::amounts::write_counts;
use super::object::object;
use crate::JsonWriter;
use bartizan_base::{Fid, Generation, Level, PerDirection, Reason, TenantId, Verdict};

/// Version of the object `bartizan`: it changes as soon as a field changes its meaning or is removed. New
/// fields keep it.
pub const OWN_VERSION: u64 = 1;

/// Own fields of an event. Each is written only if the run has it; without any of them there is no object
/// `bartizan`, so that a plain inspection writes exactly Suricata's records.
#[derive(Clone, Copy, Debug, Default)]
pub struct BartizanFields<'a> {
    /// Tenant of the traffic.
    pub tenant: Option<TenantId>,
    /// The flow's class.
    pub fid: Option<Fid>,
    /// Names of the functions still on the flow's path, in the order in which they run.
    pub path: &'a [&'a str],
    /// Name of the policy that applies.
    pub policy: Option<&'a str>,
    /// Name of the function that decided.
    pub function: Option<&'a str>,
    /// Verdict of that function.
    pub verdict: Option<Verdict>,
    /// Reason of the verdict.
    pub reason: Option<Reason>,
    /// Number of the deciding function's rule (a packet-filter rule counts from 1).
    pub rule: Option<u32>,
    /// Name of the function that accepted the rest of the flow, or `default`.
    pub allowed_by: Option<&'a str>,
    /// Number of that function's rule; `None`: its default.
    pub allowed_rule: Option<u32>,
    /// The policy is staged: its refusals are only reported.
    pub staged: bool,
    /// Generation of policies and rules that applied to the packet.
    pub generation: Option<Generation>,
    /// Level at which the flow's packets are handled.
    pub level: Option<Level>,
    /// Name of the link.
    pub link: Option<&'a str>,
    /// Name of the port that did not take the frame.
    pub port: Option<&'a str>,
    /// Error of that port.
    pub cause: Option<&'a str>,
    /// Number of frames that the event summarises.
    pub frames: Option<u64>,
    /// Packets and bytes of the flow per level, if more than one level has counted some.
    pub levels: &'a [LevelAmounts],
    /// Reason why the flow is not offloaded to a lower level.
    pub stays: Option<&'a str>,
    /// Name of the port that the flow's packets leave by, if it is redirected.
    pub egress: Option<&'a str>,
    /// The program behind a flow of the stream path.
    pub stream_path: Option<StreamPathFields<'a>>,
    /// The first refusal of the flow that a staged policy did not carry out.
    pub would_be: Option<WouldBe<'a>>,
}

object! {
    derive(PartialEq, Eq);
    /// The program behind a flow of the stream path (docs/stream.md); `bartizan.link` is its guest.
    pub struct StreamPathFields<'a> = "bartizan.stream_path" {
        /// Process that opened the connection, or listened for it.
        pub process: i32 as "pid",
        /// Path of the program.
        pub executable: Option<&'a str>,
        /// Control group of the process.
        pub cgroup: Option<&'a str>,
        /// Guest at the other end of a connection without TCP.
        pub peer_guest: Option<&'a str>,
    }
}

object! {
    derive(PartialEq, Eq);
    /// The first refusal of the flow that a staged policy did not carry out; of a flow event.
    pub struct WouldBe<'a> = "bartizan.would_be" {
        /// Function that would have refused; engine for the engine itself.
        pub function: Option<&'a str>,
        /// The decision that was not carried out: drop or reject.
        pub verdict: Verdict,
        /// Why.
        pub reason: Reason,
        /// Number of the function's rule.
        pub rule: Option<u32>,
    }
}

/// Packets and bytes of a flow that a level has counted, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelAmounts {
    /// The level.
    pub level: Level,
    /// Packets.
    pub packets: PerDirection<u64>,
    /// Bytes.
    pub bytes: PerDirection<u64>,
}

impl BartizanFields<'_> {
    /// Writes the object, or nothing if it has no fields. `more` adds fields of a kind of event.
    pub(crate) fn write(&self, w: &mut JsonWriter, more: impl FnOnce(&mut JsonWriter)) {
        let before = w.mark();
        w.object("bartizan");
        w.num("version", OWN_VERSION);
        let empty = w.mark();
        self.write_decision(w);
        self.write_place(w);
        if let Some(stream_path) = &self.stream_path {
            stream_path.write_object(w);
        }
        if let Some(would_be) = &self.would_be {
            would_be.write_object(w);
        }
        more(w);
        if w.mark() == empty {
            w.rewind(before);
        } else {
            w.end_object();
        }
    }

    /// Writes whose the traffic is, and what was decided by which rule.
    fn write_decision(&self, w: &mut JsonWriter) {
        if let Some(TenantId(tenant)) = self.tenant {
            w.num("tenant", tenant);
        }
        if let Some(Fid(fid)) = self.fid {
            w.num("fid", fid);
        }
        if !self.path.is_empty() {
            w.array("path");
            for function in self.path {
                w.item_str(function);
            }
            w.end_array();
        }
        let texts = [
            ("policy", self.policy),
            ("function", self.function),
            ("verdict", self.verdict.map(Verdict::name)),
            ("reason", self.reason.map(Reason::name)),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                w.str(key, text);
            }
        }
        if let Some(rule) = self.rule {
            w.num("rule", rule);
        }
        if let Some(function) = self.allowed_by {
            w.str("allowed_by", function);
        }
        if let Some(rule) = self.allowed_rule {
            w.num("allowed_rule", rule);
        }
    }

    /// Writes where the traffic was handled.
    fn write_place(&self, w: &mut JsonWriter) {
        if self.staged {
            w.bool("staged", true);
        }
        if let Some(Generation(generation)) = self.generation {
            w.num("generation", generation);
        }
        if let Some(level) = self.level {
            w.str("level", level.name());
        }
        if let Some(link) = self.link {
            w.str("link", link);
        }
        for (key, text) in [("port", self.port), ("cause", self.cause)] {
            if let Some(text) = text {
                w.str(key, text);
            }
        }
        if let Some(frames) = self.frames {
            w.num("frames", frames);
        }
        if !self.levels.is_empty() {
            w.object("levels");
            for LevelAmounts { level, packets, bytes } in self.levels {
                w.object(level.name());
                write_counts(w, *packets, *bytes);
                w.end_object();
            }
            w.end_object();
        }
        if let Some(why) = self.stays {
            w.str("stays", why);
        }
        if let Some(port) = self.egress {
            w.str("egress", port);
        }
    }
}
