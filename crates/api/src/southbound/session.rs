// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 1: begin and end of a session, keep-alive messages, certificates. Head: operation u8, three
//! reserved bytes.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::ids::{DeviceId, Hash};
use super::interfaces::{INTERFACES_SINCE, Interfaces};
use serde::{Deserialize, Serialize};

/// The agent's first message. Unknown keys are ignored: later versions may have more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the agent supports.
    pub versions: Vec<u8>,
    /// The device, which must equal that of its certificate.
    pub device: DeviceId,
    /// A random number, new with each start of the agent; sequences of statistics and alerts belong to it.
    pub instance: u64,
    /// The running generation; 0 if none of a controller's runs.
    pub generation: u64,
    /// Hash of the running generation's manifest.
    pub manifest: Hash,
    /// The last generation that the agent refused since its start; 0 if none.
    pub refused: u64,
    /// Program and version, for people.
    pub software: String,
}

/// The controller accepts the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The version of all further messages.
    pub version: u8,
    /// Name of the controller.
    pub controller: String,
    /// Keep-alive: each side sends at least one message in this time, in milliseconds; three times as long
    /// without a byte ends the session.
    pub keep_alive_ms: u32,
    /// The last sequence of statistics received from this start of the agent.
    pub statistics: u64,
    /// The last sequence of alerts received from this start of the agent.
    pub alerts: u64,
}

/// Why a controller refuses or ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefuseCode {
    /// No version in common.
    Version,
    /// The certificate belongs to another device.
    Identity,
    /// The controller does not know the device.
    Unknown,
    /// The certificate is revoked.
    Revoked,
    /// The certificate has expired.
    Expired,
    /// A newer connection of the device replaced the session.
    Replaced,
    /// The token is wrong, used or expired.
    Token,
    /// Too many attempts.
    Rate,
    /// A malformed message, or one that is not allowed in this state.
    Protocol,
    /// The peer accepts no bytes, or sends none.
    Silent,
    /// The controller shuts down, or is unavailable for now.
    Unavailable,
}

/// The controller refuses or ends the session. The agent keeps its generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refuse {
    /// The reason.
    pub code: RefuseCode,
    /// The reason and what to do, for people.
    pub message: String,
    /// Versions that the controller supports.
    pub versions: Vec<u8>,
    /// Earliest time of the next attempt, in milliseconds from now.
    pub retry_ms: u32,
}

/// A request for a certificate: with a token (enrolment), or over a channel with the present certificate
/// (renewal).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// The id for the device.
    pub device: DeviceId,
    /// The one-time token; none for a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The certificate request (PKCS #10, PEM). Its private key never leaves the device.
    pub csr: String,
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolled {
    /// The device's certificate and that of its issuer (PEM).
    pub certificate: String,
    /// The authorities by which agents verify controllers (PEM).
    pub authorities: String,
}

/// A message of the sub-protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionMessage {
    /// Agent: operation 1.
    Hello(Hello),
    /// Controller: operation 2.
    Welcome(Welcome),
    /// Controller: operation 3.
    Refuse(Refuse),
    /// Both: operation 4, without a body. Keep-alive, if no other message is due.
    Alive,
    /// Both: operation 5, without a body. Closes the session regularly.
    Bye,
    /// Agent: operation 6.
    Enrol(Enrol),
    /// Controller: operation 7.
    Enrolled(Enrolled),
    /// Agent: operation 8, from version 5 on. All links and ports of the device.
    Interfaces(Interfaces),
}

impl SessionMessage {
    /// Bytes of the head.
    const HEAD: usize = 4;

    pub(super) fn encode(&self, version: u8) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        let (op, body) = match self {
            SessionMessage::Hello(hello) => (1, body::write(hello)?),
            SessionMessage::Welcome(welcome) => (2, body::write(welcome)?),
            SessionMessage::Refuse(refuse) => (3, body::write(refuse)?),
            SessionMessage::Alive => (4, Vec::new()),
            SessionMessage::Bye => (5, Vec::new()),
            SessionMessage::Enrol(enrol) => (6, body::write(enrol)?),
            SessionMessage::Enrolled(enrolled) => (7, body::write(enrolled)?),
            SessionMessage::Interfaces(_) if version < INTERFACES_SINCE => {
                return Err(EncodeError::Version("interfaces", version));
            }
            SessionMessage::Interfaces(interfaces) => (8, body::write(interfaces)?),
        };
        Ok((vec![op, 0, 0, 0], body))
    }

    pub(super) fn split(bytes: &[u8]) -> Result<([u8; Self::HEAD], &[u8]), DecodeError> {
        let (head, rest) =
            bytes.split_first_chunk::<{ Self::HEAD }>().ok_or(DecodeError::Short("session"))?;
        let [_, reserved @ ..] = head;
        if *reserved != [0; 3] {
            return Err(DecodeError::Reserved("session"));
        }
        Ok((*head, rest))
    }

    pub(super) fn decode(version: u8, [op, ..]: [u8; Self::HEAD], bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(match op {
            1 => SessionMessage::Hello(body::read("hello", bytes)?),
            2 => SessionMessage::Welcome(body::read("welcome", bytes)?),
            3 => SessionMessage::Refuse(body::read("refuse", bytes)?),
            4 => body::none("alive", bytes, SessionMessage::Alive)?,
            5 => body::none("bye", bytes, SessionMessage::Bye)?,
            6 => SessionMessage::Enrol(body::read("enrol", bytes)?),
            7 => SessionMessage::Enrolled(body::read("enrolled", bytes)?),
            8 if version >= INTERFACES_SINCE => {
                let interfaces: Interfaces = body::read("interfaces", bytes)?;
                interfaces.check()?;
                SessionMessage::Interfaces(interfaces)
            }
            op => return Err(DecodeError::Op { sub: "session", op }),
        })
    }
}
