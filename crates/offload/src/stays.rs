// SPDX-License-Identifier: Apache-2.0
//! The reasons why a flow is not at a lower level: a code for each flow, which `explain` and counters show.

macro_rules! stays {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $text:literal, $why:literal;)*) => {
        /// The reason why a flow is not at a lower level.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum OffloadDenied {
            $($(#[$meta])* $name = $number,)*
        }

        impl OffloadDenied {
            /// All reasons, by number.
            pub const ALL: &'static [OffloadDenied] = &[$(OffloadDenied::$name),*];

            /// The reason's name in events and counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(OffloadDenied::$name => $text,)* }
            }

            /// The meaning of the reason, and the remedy, for people.
            #[must_use]
            pub const fn explained(self) -> &'static str {
                match self { $(OffloadDenied::$name => $why,)* }
            }
        }
    };
}

impl OffloadDenied {
    /// Whether another offer in the same generation gets the same answer. Otherwise a place may have become
    /// free.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        !matches!(
            self,
            OffloadDenied::Full | OffloadDenied::Taken | OffloadDenied::Refused | OffloadDenied::Away
        )
    }

    /// Whether the device is the cause, so that another one may take the flow. Otherwise no device can: the
    /// flow has an entry, or is about to end.
    #[must_use]
    pub const fn is_of_device(self) -> bool {
        matches!(
            self,
            OffloadDenied::Full
                | OffloadDenied::Family
                | OffloadDenied::Protocol
                | OffloadDenied::Tunnel
                | OffloadDenied::Refused
                | OffloadDenied::Window
                | OffloadDenied::Egress
                | OffloadDenied::Key
                | OffloadDenied::Uncounted
                | OffloadDenied::Action
                | OffloadDenied::Away
        )
    }
}

stays! {
    /// No device.
    NoDevice = 0, "no_device", "the link has no level below the host; `offload: xdp` in the host file gives it one";
    /// The device has no room.
    Full = 1, "full", "all entries of the device are taken; a larger `entries` of the link's offload holds more";
    /// IPv4 or IPv6.
    Family = 2, "family", "the device does not know this IP version";
    /// IP protocol.
    Protocol = 3, "protocol", "the device handles TCP and UDP only";
    /// In a tunnel.
    Tunnel = 4, "tunnel", "the device does not look into this kind of tunnel or so deep, or its packets are redirected inside of one, which only the host does";
    /// Rejected packets get an answer, which only the host sends.
    Answered = 5, "answered", "its packets are rejected with an answer, which only the host gives";
    /// Another flow with the same key has an entry.
    Taken = 6, "taken", "the device still has an entry of these addresses and ports";
    /// The device refused the entry.
    Refused = 7, "refused", "the device did not take it; its message stands in the log";
    /// The device did not answer.
    Unanswered = 8, "unanswered", "the device did not answer when the flow was to leave it; it stays at the host until it ends";
    /// The connection is closed.
    Closed = 9, "closed", "the connection is over";
    /// The tenant depends on a property that is not in the key.
    Tenant = 10, "tenant", "tenants are told by VLAN while flows are not (`vlan.use-for-tracking: false`)";
    /// The host is about to end.
    Ending = 11, "ending", "the run is about to end";
    /// Functions on the flow's path still inspect its packets.
    Judged = 12, "judged", "functions on its path still look at each packet";
    /// No packet of the flow came after the decision.
    Short = 13, "short", "it ended, or no packet of it has come, since everything was decided";
    /// Refusals are only reported.
    Watched = 14, "watched", "what is refused is only reported here, packet by packet";
    /// A sender on this machine leaves checksums inside of datagrams to a device.
    Checksums = 15, "checksums", "its sender leaves checksums to a device, perhaps inside of its datagrams, where only the host can fill them in";
    /// A function compares its segments with numbers that the device cannot hold.
    Window = 16, "window", "a function compares its segments with windows, and the device holds none, or what they mean depends on more (picked up in the middle, one direction not seen)";
    /// It is redirected to a port that the device cannot send by.
    Egress = 17, "egress", "it is redirected to a port that the device cannot send by, or is compared with windows besides, which the device does only with what it forwards";
    /// Its key does not separate tunnels.
    Carrier = 18, "carrier", "it was decided by what one tunnel carries, and its key does not tell that from another tunnel (IP in IP, GTP-U) with the same addresses and ports inside";
    /// The device's key has no room for a field that separates the flow from others.
    Key = 19, "key", "the device's key has no room for what tells this flow from others (`bartizan ctl levels` says which fields it has)";
    /// The device does not count both directions' packets and bytes.
    Uncounted = 20, "uncounted", "the device does not count packets and bytes of each direction, and nothing goes where its counts would be lost";
    /// The device is away.
    Away = 21, "away", "the device is not there at the moment";
    /// The device cannot do the action that was decided.
    Action = 22, "action", "the device cannot do with its packets what is decided of them (`bartizan ctl levels` says what it can); the host does it";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_dense_numbers_and_distinct_names() {
        for (number, why) in OffloadDenied::ALL.iter().enumerate() {
            assert_eq!(*why as usize, number);
            assert!(
                OffloadDenied::ALL.iter().filter(|other| other.name() == why.name()).count() == 1,
                "{why:?}"
            );
        }
    }
}
