// SPDX-License-Identifier: Apache-2.0
//! The choice between two overlapping fragments, by the receiver's kind.
//!
//! Source: Shankar and Paxson, "Active Mapping" (2003); Novak, "Target-Based Fragmentation Reassembly"
//! (2005), whose test sequence is in the tests; where Suricata decides a corner case differently from the
//! paper, its decision is used, so that both see the same datagram. Fragments are kept ordered by offset
//! and later copied in that order: of two that were not trimmed, the one that starts later wins.

/// The treatment of overlapping fragments by a receiving host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverlapPolicy {
    /// Keeps the fragment that came first (HP-UX 11, MacOS, old Solaris).
    First,
    /// Keeps the fragment that came last (Cisco).
    Last,
    /// Keeps the earlier fragment unless the later one starts before it (BSD, AIX, IRIX): the default.
    #[default]
    Bsd,
    /// Keeps the fragment that starts later, of equals the one that came last (HP JetDirect).
    BsdRight,
    /// Like BSD, but of two that start together the one that came last (Linux).
    Linux,
    /// Keeps the earlier one unless the later one covers it and ends with it or after it (Solaris).
    Solaris,
    /// Keeps the earlier one unless the later one begins before and ends after it (Windows).
    Windows,
}

impl OverlapPolicy {
    /// All policies.
    pub const ALL: [OverlapPolicy; 7] = [
        OverlapPolicy::First,
        OverlapPolicy::Last,
        OverlapPolicy::Bsd,
        OverlapPolicy::BsdRight,
        OverlapPolicy::Linux,
        OverlapPolicy::Solaris,
        OverlapPolicy::Windows,
    ];

    /// The policy of a name of `host-os-policy` in Suricata's settings.
    #[must_use]
    pub fn from_os_name(name: &str) -> Option<Self> {
        Some(match name {
            "first" | "hpux11" | "macos" | "old-solaris" => OverlapPolicy::First,
            "last" => OverlapPolicy::Last,
            "bsd" | "hpux10" | "irix" => OverlapPolicy::Bsd,
            "bsd-right" => OverlapPolicy::BsdRight,
            "linux" | "old-linux" => OverlapPolicy::Linux,
            "solaris" => OverlapPolicy::Solaris,
            "windows" | "vista" | "windows2k3" => OverlapPolicy::Windows,
            _ => return None,
        })
    }

    /// Whether this policy has decided at a held fragment that starts after the new one's end.
    pub(super) const fn decides_at_disjoint(self) -> bool {
        matches!(
            self,
            OverlapPolicy::First | OverlapPolicy::Last | OverlapPolicy::Bsd | OverlapPolicy::Solaris
        )
    }
}

/// The new fragment: `start` and `end` in the datagram, and the length cut off its front by earlier
/// comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) trim: u32,
}

/// A fragment that is held: `live` is its start after trimming.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldSpan {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) live: u32,
}

/// The next step of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverlapStep {
    /// Compare with the next held fragment.
    Next,
    /// All decided: keep the rest of the new one.
    Settled,
    /// The new fragment has no new bytes.
    Refuse,
}

/// The changes that one comparison makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruling {
    pub(super) step: OverlapStep,
    /// New value of the new fragment's trim.
    pub(super) trim: u32,
    /// New start of the held one's data; its end or more means that no byte of it is left.
    pub(super) live: u32,
    /// The new start of the data of the next held fragment, if that fragment is in between.
    pub(super) next_live: Option<u32>,
}

/// Compares the new fragment with a held one; `next` is the start of the held fragment after that.
pub(super) fn compare(policy: OverlapPolicy, new: Incoming, held: HeldSpan, next: Option<u32>) -> Ruling {
    let mut ruling = Ruling { step: OverlapStep::Next, trim: new.trim, live: held.live, next_live: None };
    let begins_inside = new.start >= held.start && new.start < held.end;
    match policy {
        OverlapPolicy::BsdRight => {}
        OverlapPolicy::First => {
            if new.start >= held.start && new.end <= held.end {
                ruling.step = OverlapStep::Refuse;
            } else if new.start < held.start {
                ruling.step = OverlapStep::Settled;
            } else if begins_inside {
                ruling.trim = held.end.saturating_sub(new.start);
                ruling.step = OverlapStep::Settled;
            }
        }
        OverlapPolicy::Last => {
            if new.start <= held.start {
                if new.end > held.start {
                    ruling.live = new.end;
                }
                ruling.step = OverlapStep::Settled;
            }
        }
        OverlapPolicy::Bsd => bsd(new, held, next, &mut ruling),
        OverlapPolicy::Linux => linux(new, held, &mut ruling),
        OverlapPolicy::Solaris => {
            if new.start < held.end {
                if begins_inside {
                    ruling.trim = held.end.saturating_sub(new.start);
                } else if new.end >= held.end {
                    ruling.live = held.end;
                }
                ruling.step = OverlapStep::Settled;
            }
        }
        OverlapPolicy::Windows => {
            if new.start >= held.start && new.end <= held.end {
                ruling.step = OverlapStep::Refuse;
            } else if new.start < held.start && new.end > held.end {
                ruling.live = held.end;
                ruling.step = OverlapStep::Settled;
            } else if begins_inside {
                ruling.trim = held.end.saturating_sub(new.start);
                ruling.step = OverlapStep::Settled;
            }
        }
    }
    ruling
}

fn bsd(new: Incoming, held: HeldSpan, next: Option<u32>, ruling: &mut Ruling) {
    if new.start >= held.end {
        return;
    }
    ruling.step = OverlapStep::Settled;
    if held.start <= new.start {
        if held.end > new.end {
            ruling.step = OverlapStep::Refuse;
            return;
        }
        ruling.trim = held.end.saturating_sub(new.start);
    } else if new.end > held.live {
        ruling.live = new.end;
    }
    if next.is_some_and(|next| new.end > next) {
        ruling.next_live = Some(new.end);
    }
}

fn linux(new: Incoming, held: HeldSpan, ruling: &mut Ruling) {
    let start = |trim: u32| new.start.saturating_add(trim);
    if held.live < start(ruling.trim) && held.end > start(ruling.trim) {
        ruling.trim = ruling.trim.saturating_add(held.end.saturating_sub(new.start));
    }
    if start(ruling.trim) < held.live && new.end > held.live {
        ruling.live = new.end;
        ruling.step = OverlapStep::Settled;
    } else if start(ruling.trim) <= held.live && new.end >= held.end {
        ruling.live = held.end;
        ruling.step = OverlapStep::Settled;
    }
}
