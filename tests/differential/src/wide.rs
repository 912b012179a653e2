// SPDX-License-Identifier: Apache-2.0
//! Causes of differences that the wider grammar finds: fragments of a datagram that matched `drop`, sizes of
//! what is encrypted, bytes that were refused with their packet; as in [`crate::causes`].

use crate::causes::Case;
use crate::finding::{Finding, What};
use crate::passage::{ahead, key, segment};

/// Passively nothing is dropped: the frame with the last fragment is looked at as the others are. In Suricata
/// the match of `drop` on the datagram, which is put together with that frame, ends inspection of the frame.
pub(crate) fn fragment_of_a_matched_datagram(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let frame = alert.frame?;
    let (at, packet) = case.passage.packet(frame)?;
    let last = case.passage.packet(frame + 1).is_none_or(|(next, _)| next != at);
    let drops =
        |rule: usize| case.pair.rules.get(rule).is_some_and(|rule| matches!(rule.action, "drop" | "reject"));
    let matched = || {
        let on_datagram =
            |one: &&crate::finding::Alert| one.frame.is_none() && one.flow == key(packet) && drops(one.rule);
        case.theirs.iter().find(on_datagram).is_some_and(|one| case.ours.contains(one))
    };
    let is = !case.ips && finding.more && packet.fragments.is_some() && last && matched();
    is.then_some(
        "passively the frame with the last fragment of a datagram that matches `drop` is looked at; Suricata ends with the datagram",
    )
}

/// Sizes of encrypted packets: payload counts here once a side of a TLS connection encrypts; Suricata takes
/// it for none.
pub(crate) fn size_of_what_is_encrypted(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ENCRYPTED: &[u8] = &[0x17, 3];
    const CHANGE: &[u8] = &[0x14, 3];
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, one) = case.passage.segment(alert.frame?)?;
    let has = |to_server: bool, what: &[u8]| {
        let said = case.passage.said_before(alert.flow, to_server, at + 1);
        said.windows(what.len()).any(|two| two == what)
    };
    let is = finding.more
        && !one.load.is_empty()
        && case.asks(alert, &["dsize:"])
        && case.got.has("flow:TCP:tls")
        && (has(true, ENCRYPTED) || has(false, ENCRYPTED))
        && (has(alert.to_server, CHANGE) || case.passage.has_hole(alert.flow, alert.to_server));
    is.then_some("packets of a TLS connection have a payload when sides encrypt, too; for Suricata they have none then, and `dsize:>0` misses")
}

/// Bytes that a rule refused with their packet, and not with the flow, are refused when they come again.
pub(crate) fn refused_bytes_again(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else { return None };
    let (at, packet, one) = case.passage.segment(*frame)?;
    let refused = case.got.names().any(|name| match What::read(name) {
        What::Drop(Some(first), reason) if reason == "rules" && first < *frame => {
            case.passage.packet(first).is_some_and(|(before, other)| {
                let same = (key(other), other.to_server) == (key(packet), packet.to_server);
                let overlaps = segment(other).is_some_and(|other| {
                    let end = |of: u32, load: &[u8]| of.wrapping_add(load.len() as u32);
                    ahead(end(one.seq, &one.load), other.seq) > 0
                        && ahead(end(other.seq, &other.load), one.seq) > 0
                });
                before < at && same && overlaps
            })
        }
        _ => false,
    });
    let is = case.ips && finding.more && reason == "rules" && !one.load.is_empty() && refused;
    is.then_some(
        "bytes that a rule refused with their packet are refused when they come again; Suricata lets them go",
    )
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn a_fragment_is_explained_where_its_datagram_matched_drop_only() {
        // Frames 1 to 3 are a datagram of fragments; rule 0 drops, rule 1 does not, rule 3 is on any packet.
        const FRAGMENT: &str = "3@3<3.18446744073709511616:allowed";
        let left = |ips, ours: &[&str], theirs: &[&str]| left_of(2, 4184, ips, ours, theirs);
        let matched = "0@-<3.0:allowed";
        assert!(left(false, &[matched, FRAGMENT], &[matched]).is_empty());
        assert_eq!(left(false, &[FRAGMENT], &[]).len(), 1, "no match");
        assert_eq!(left(false, &["1@-<3.0:allowed", FRAGMENT], &["1@-<3.0:allowed"]).len(), 1, "no drop");
        assert_eq!(left(true, &[matched, FRAGMENT], &[matched]).len(), 1, "in prevention");
        let second = "3@2<3.18446744073709511616:allowed";
        assert_eq!(left(false, &[matched, second], &[matched]).len(), 1, "not the last fragment");
        assert_eq!(left(false, &[matched], &[matched, FRAGMENT]).len(), 1, "a missed one");
    }

    #[test]
    fn sizes_are_explained_where_they_count_only() {
        // Packet 10 is the server's, which changes its cipher with it; rule 0 asks for a size, rule 1 does
        // not.
        let left = |got: &[&str], want: &[&str]| {
            let flow = ["flow:TCP:tls"];
            left_of(2, 4016, false, &[got, &flow].concat(), &[want, &flow].concat())
        };
        assert!(left(&["0@10<1.0:allowed"], &[]).is_empty());
        assert_eq!(left(&[], &["0@10<1.0:allowed"]), ["-0@10<1.0:allowed"], "a missed one");
        assert_eq!(left(&["0@6<1.0:allowed"], &[]), ["+0@6<1.0:allowed"], "before it encrypts");
    }

    #[test]
    fn bytes_that_come_again_are_refused_where_they_were_refused_only() {
        // Packet 11 brings a byte of packet 10 again.
        let left = |ips, got: &[&str], want: &[&str]| left_of(3, 3670, ips, got, want);
        assert!(left(true, &["drop@10:rules", "drop@11:rules"], &["drop@10:rules"]).is_empty());
        assert_eq!(left(true, &["drop@11:rules"], &[]), ["+drop@11:rules"], "not refused before");
        assert_eq!(left(true, &["drop@8:rules", "drop@10:rules"], &["drop@8:rules"]).len(), 1, "other bytes");
    }
}
