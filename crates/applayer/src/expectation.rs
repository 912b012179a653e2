// SPDX-License-Identifier: Apache-2.0
//! Connections that a flow announces: FTP's data connections.
//!
//! A parser notes an [`Expectation`] when its flow has agreed on a further connection. The caller knows the
//! flow's addresses: it keeps the expectation in an [`ExpectationStore`], which all workers share, and asks
//! the store once for each new connection. [`crate::flow::AppLayer::expect`] gives the connection its parser
//! before its first byte is parsed.

use crate::protocol::ProtocolId;
use bartizan_base::{Direction, LinkId, TenantId, Timestamp};
use core::net::IpAddr;

/// Limit of the bytes that an expectation passes to the parser of the connection.
pub const CONTEXT_MAX: usize = 512;

/// A connection that a flow's parser expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Name of the protocol of the connection.
    pub protocol: &'static str,
    /// Direction in which the connection is opened, as the announcing flow has directions: to its server, or
    /// to its client.
    pub opened: Direction,
    /// Port to which the connection is opened.
    pub port: u16,
    /// Address that was announced with the port, if there is one. In prevention one that is not that of the
    /// announcing side refuses the flow.
    pub address: Option<IpAddr>,
    /// Data for the parser of the connection ([`crate::protocol::ParserFactory::make_expected`]), at most
    /// [`CONTEXT_MAX`] bytes.
    pub context: Box<[u8]>,
}

/// The place of a connection in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPlace {
    /// Tenant of the traffic.
    pub tenant: TenantId,
    /// Link on which the traffic is seen.
    pub link: LinkId,
    /// Address that opens the connection.
    pub client: IpAddr,
    /// Address to which it is opened.
    pub server: IpAddr,
    /// Port from which it is opened; 0 in a place that is expected: any port.
    pub client_port: u16,
    /// Port to which it is opened.
    pub server_port: u16,
}

/// A connection that was expected, for the flow that it has become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedConnection {
    /// Protocol of the connection.
    pub protocol: ProtocolId,
    /// Number, in events, of the flow that announced it.
    pub parent: u64,
    /// Data for its parser.
    pub context: Box<[u8]>,
}

/// Expected connections of all flows, shared by all workers.
pub trait ExpectationStore: Send + Sync {
    /// Adds a connection. One that is expected at the same place already is replaced.
    fn add(&self, place: &ConnectionPlace, connection: ExpectedConnection, now: Timestamp);

    /// Removes and returns the connection that is expected at a place, if one is.
    fn take(&self, place: &ConnectionPlace, now: Timestamp) -> Option<ExpectedConnection>;

    /// Number of expected connections.
    fn len(&self) -> u64;

    /// Number of connections that are not expected any more because others took their place.
    fn displaced(&self) -> u64;

    /// Whether no connection is expected.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
