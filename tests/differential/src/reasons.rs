// SPDX-License-Identifier: Apache-2.0
//! The ten explanations of intended differences, and the causes of each, in the order of their evaluation.

use crate::causes::Case;
use crate::finding::Finding;

/// An explanation of intended differences; docs/differential.md has a paragraph for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Prevention inspects bytes with the packet that forwards them, as a lenient receiver reads them.
    InspectedBeforeForwarding,
    /// Prevention detects protocols from what one side has sent, and goes on while a receiver may take it.
    ProtocolDetection,
    /// Bytes behind a hole are inspected once, when the hole is known to stay; so are those behind a message
    /// that cannot be read.
    MissingBytes,
    /// Segments at the edges of a stream: beyond FIN, RST or window, and data that comes again.
    StreamPosition,
    /// Rules are evaluated again while what they ask can change; an event or a match is reported once.
    Repetitions,
    /// A line, header or body of HTTP is evaluated when its end is known.
    HttpMessages,
    /// The sides of a TLS session are inspected as each arrives.
    TlsSessions,
    /// Options whose text means something else than what Suricata evaluates.
    RuleOptions,
    /// Passively a match of `drop` drops nothing: what follows is inspected and recorded.
    PassiveDrops,
    /// Rules on protocols without a parser are refused by name.
    MissingParser,
}

impl Kind {
    /// One sentence for reports.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Kind::InspectedBeforeForwarding => "prevention inspects bytes before they are forwarded",
            Kind::ProtocolDetection => "prevention detects protocols from either side",
            Kind::MissingBytes => "bytes behind a hole are inspected once, when the hole is known to stay",
            Kind::StreamPosition => "segments beyond FIN, RST or window, and data that comes again",
            Kind::Repetitions => "rules are evaluated while their answer can change, and report once",
            Kind::HttpMessages => "parts of HTTP messages are evaluated when their end is known",
            Kind::TlsSessions => "the sides of a TLS session are inspected as each arrives",
            Kind::RuleOptions => "an option is evaluated as its text says",
            Kind::PassiveDrops => "passively a match of `drop` drops nothing",
            Kind::MissingParser => "rules on protocols without a parser are refused",
        }
    }
}

/// The explanation of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// The explanation that it belongs to.
    pub kind: Kind,
    /// The cause in one sentence.
    pub cause: &'static str,
}

/// Returns the cause of a finding if its conditions hold.
pub type Cause = fn(&Case<'_>, &Finding) -> Option<&'static str>;

/// The reason of a finding: the first cause that applies.
#[must_use]
pub fn reason(case: &Case<'_>, finding: &Finding) -> Option<Reason> {
    CAUSES.iter().find_map(|(kind, cause)| Some(Reason { kind: *kind, cause: cause(case, finding)? }))
}

/// All causes with their explanations.
const CAUSES: &[(Kind, Cause)] = &[
    (Kind::MissingParser, crate::left_out::asks_for_what_was_left_out),
    (Kind::MissingParser, crate::left_out::no_parser_of_quic),
    (Kind::Repetitions, crate::left_out::fits_both_ways),
    (Kind::ProtocolDetection, crate::left_out::unknown_alone),
    (Kind::Repetitions, crate::causes::told_once),
    (Kind::InspectedBeforeForwarding, crate::causes::passed_by_a_body),
    (Kind::TlsSessions, crate::causes::message_of_no_type),
    (Kind::RuleOptions, crate::causes::passed_without_flags),
    (Kind::TlsSessions, crate::causes::silent_on_the_handshake),
    (Kind::RuleOptions, crate::causes::depth_that_varies),
    (Kind::MissingBytes, crate::lost::request_without_a_head),
    (Kind::MissingBytes, crate::lost::other_side_of_a_hole),
    (Kind::MissingBytes, crate::lost::messages_behind_a_hole),
    (Kind::MissingBytes, crate::lost::stream_beside_a_hole),
    (Kind::Repetitions, crate::lost::hole_told_again),
    (Kind::StreamPosition, crate::numbers::numbers_that_wrapped),
    (Kind::StreamPosition, crate::numbers::refused_far_ahead),
    (Kind::StreamPosition, crate::numbers::shown_with_the_fin),
    (Kind::StreamPosition, crate::numbers::told_of_old_data),
    (Kind::StreamPosition, crate::numbers::reset_in_the_window),
    (Kind::ProtocolDetection, crate::causes::closes_early),
    (Kind::ProtocolDetection, crate::causes::stays_open),
    (Kind::ProtocolDetection, crate::causes::held_until_known),
    (Kind::TlsSessions, crate::causes::random_of_the_other_side),
    (Kind::TlsSessions, crate::causes::state_of_the_handshake),
    (Kind::RuleOptions, crate::causes::flags_that_are_not_there),
    (Kind::RuleOptions, crate::causes::behind_a_transform),
    (Kind::InspectedBeforeForwarding, crate::causes::data_of_a_syn),
    (Kind::ProtocolDetection, crate::causes::one_sided),
    (Kind::ProtocolDetection, crate::causes::asked_again),
    (Kind::StreamPosition, crate::causes::behind_a_reset),
    (Kind::MissingBytes, crate::causes::behind_a_hole),
    (Kind::InspectedBeforeForwarding, crate::causes::sent_again),
    (Kind::InspectedBeforeForwarding, crate::causes::body_before_it_leaves),
    (Kind::HttpMessages, crate::causes::line_that_is_over),
    (Kind::HttpMessages, crate::causes::line_before_a_return),
    (Kind::ProtocolDetection, crate::causes::other_side_first),
    (Kind::Repetitions, crate::causes::chunked_trailer),
    (Kind::Repetitions, crate::causes::shown_twice),
    (Kind::TlsSessions, crate::silent::behind_a_handshake),
    (Kind::StreamPosition, crate::causes::end_in_order),
    (Kind::StreamPosition, crate::causes::old_data),
    (Kind::InspectedBeforeForwarding, crate::causes::header_in_pieces),
    (Kind::PassiveDrops, crate::causes::drop_that_drops_nothing),
    (Kind::RuleOptions, crate::wide::no_stream_is_shown),
    (Kind::Repetitions, crate::causes::nothing_to_look_at),
    (Kind::RuleOptions, crate::causes::size_that_must_not_be),
    (Kind::ProtocolDetection, crate::lost::answer_before_a_probe),
    (Kind::ProtocolDetection, crate::causes::silent_side_of_a_pickup),
    (Kind::TlsSessions, crate::causes::stream_within_a_record),
    (Kind::Repetitions, crate::causes::asked_by_transaction),
    (Kind::StreamPosition, crate::causes::byte_of_a_keep_alive),
    (Kind::InspectedBeforeForwarding, crate::causes::denied_in_a_body),
    (Kind::MissingBytes, crate::lost::session_without_a_head),
    (Kind::MissingBytes, crate::holes::request_behind_its_answer),
    (Kind::InspectedBeforeForwarding, crate::wide::lenient_message),
    (Kind::TlsSessions, crate::holes::certificate_behind_the_end),
    (Kind::MissingBytes, crate::holes::hole_before_the_end),
    (Kind::MissingBytes, crate::holes::hole_before_a_request),
    (Kind::MissingBytes, crate::holes::message_behind_a_hole),
    (Kind::HttpMessages, crate::holes::chunk_line_in_pieces),
    (Kind::MissingBytes, crate::holes::line_without_status),
    (Kind::MissingBytes, crate::holes::hole_filled_late),
    (Kind::MissingBytes, crate::holes::told_behind_a_hole),
    (Kind::TlsSessions, crate::holes::state_of_the_question),
    (Kind::InspectedBeforeForwarding, crate::times::window_before_a_packet),
    (Kind::MissingBytes, crate::times::other_time_of_a_hole),
    (Kind::TlsSessions, crate::times::no_tls_within_tls),
    (Kind::TlsSessions, crate::times::version_within_a_header),
    (Kind::RuleOptions, crate::times::wrong_checksum),
    (Kind::InspectedBeforeForwarding, crate::times::copy_that_left),
    (Kind::Repetitions, crate::times::bit_behind_a_transaction),
    (Kind::InspectedBeforeForwarding, crate::times::body_and_stream),
    (Kind::InspectedBeforeForwarding, crate::times::silent_on_a_body),
    (Kind::InspectedBeforeForwarding, crate::times::passed_earlier),
    (Kind::StreamPosition, crate::times::refused_packet),
    (Kind::ProtocolDetection, crate::times::late_side),
    (Kind::RuleOptions, crate::times::size_of_what_must_not_be),
    (Kind::InspectedBeforeForwarding, crate::bodies::size_of_a_part),
    (Kind::InspectedBeforeForwarding, crate::bodies::raw_headers_before_a_body),
    (Kind::MissingBytes, crate::lost::filled_before_the_protocol),
    (Kind::ProtocolDetection, crate::lost::no_request_before_an_answer),
    (Kind::HttpMessages, crate::bodies::request_behind_rubbish),
    (Kind::MissingBytes, crate::holes::body_without_status),
    (Kind::MissingBytes, crate::lost::request_before_what_fills),
    (Kind::TlsSessions, crate::lost::version_that_no_list_has),
    (Kind::InspectedBeforeForwarding, crate::bodies::end_of_a_part),
    (Kind::InspectedBeforeForwarding, crate::bodies::passed_behind_a_body),
    (Kind::HttpMessages, crate::bodies::answer_to_half_a_line),
    (Kind::HttpMessages, crate::bodies::body_where_none_may_be),
    (Kind::Repetitions, crate::times::asked_while_it_goes_on),
    (Kind::Repetitions, crate::silent::bit_of_a_silent_rule),
    (Kind::RuleOptions, crate::silent::contents_beyond_a_size),
    (Kind::ProtocolDetection, crate::silent::unknown_until_it_is_closed),
    (Kind::RuleOptions, crate::silent::passed_beside_a_size),
    (Kind::HttpMessages, crate::silent::silent_on_a_line),
    (Kind::TlsSessions, crate::silent::silent_on_a_random),
    (Kind::RuleOptions, crate::silent::number_of_no_length),
    (Kind::HttpMessages, crate::bodies::size_behind_the_last_chunk),
    (Kind::ProtocolDetection, crate::times::asked_behind_a_cut_query),
    (Kind::TlsSessions, crate::silent::passed_when_sides_encrypt),
    (Kind::Repetitions, crate::ends::counted_in_another_order),
    (Kind::StreamPosition, crate::ends::shown_before_it_is_acknowledged),
    (Kind::PassiveDrops, crate::wide::fragment_of_a_matched_datagram),
    (Kind::MissingBytes, crate::applications::causes::behind_another_kind),
    (Kind::MissingBytes, crate::applications::causes::behind_a_broken_message),
    (Kind::RuleOptions, crate::applications::causes::reply_without_a_command),
    (Kind::ProtocolDetection, crate::applications::causes::another_protocol_in_a_data_connection),
    (Kind::InspectedBeforeForwarding, crate::applications::causes::lines_before_a_banner),
    (Kind::TlsSessions, crate::wide::size_of_what_is_encrypted),
    (Kind::InspectedBeforeForwarding, crate::wide::refused_bytes_again),
];
