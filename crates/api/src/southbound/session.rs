// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 1: beginning and end of a session, signs of life, certificates. Head: operation u8, three
//! reserved bytes.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::ids::{DeviceId, Hash};
use super::interfaces::{INTERFACES_SINCE, Interfaces};
use serde::{Deserialize, Serialize};

/// The agent's first message. Keys that are not known are passed over: later versions may say more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the agent speaks.
    pub versions: Vec<u8>,
    /// Who it is. Its certificate has to say the same.
    pub device: DeviceId,
    /// A number that each start of the agent chooses by chance: what sequences of statistics and alerts
    /// belong to.
    pub instance: u64,
    /// The generation that runs; 0 if none of a controller's does.
    pub generation: u64,
    /// Hash of the manifest of what runs.
    pub manifest: Hash,
    /// The last generation that the agent refused since its start; 0 if none.
    pub refused: u64,
    /// Program and version, for people.
    pub software: String,
}

/// The controller takes the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The version of all further messages.
    pub version: u8,
    /// Name of the controller.
    pub controller: String,
    /// Each side says something at least so often, in milliseconds; three times as long without a byte ends
    /// the session.
    pub keep_alive_ms: u32,
    /// The last sequence of statistics that came from this instance.
    pub statistics: u64,
    /// The last sequence of alerts that came from this instance.
    pub alerts: u64,
}

/// Why a controller does not take, or ends, a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefuseCode {
    /// No version in common.
    Version,
    /// The certificate is another device's.
    Identity,
    /// The controller does not know the device.
    Unknown,
    /// The certificate is revoked.
    Revoked,
    /// The certificate has expired.
    Expired,
    /// A newer connection of the device took the session's place.
    Replaced,
    /// The token is wrong, used or expired.
    Token,
    /// Too many attempts.
    Rate,
    /// A message that may not stand where it stands, or is none.
    Protocol,
    /// The peer takes no bytes, or gives none.
    Silent,
    /// The controller ends, or cannot do it now.
    Unavailable,
}

/// The controller does not take the session, or ends it. The agent goes on with what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refuse {
    /// Why.
    pub code: RefuseCode,
    /// Why and what to do, for people.
    pub message: String,
    /// Versions that the controller speaks.
    pub versions: Vec<u8>,
    /// When to try again at the earliest, in milliseconds.
    pub retry_ms: u32,
}

/// Asks for a certificate: with a token (enrolment), or with the certificate that the channel has (renewal).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// Who the device is to be.
    pub device: DeviceId,
    /// The one-time token; none for a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The request for a certificate (PKCS #10, PEM). The key that it is for never leaves the device.
    pub csr: String,
}

/// The certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolled {
    /// The device's certificate and what it was signed with (PEM).
    pub certificate: String,
    /// The authorities that controllers' certificates are to be checked with (PEM).
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
    /// Both: operation 4, without a body. There was nothing else to say.
    Alive,
    /// Both: operation 5, without a body. The session ends in order.
    Bye,
    /// Agent: operation 6.
    Enrol(Enrol),
    /// Controller: operation 7.
    Enrolled(Enrolled),
    /// Agent: operation 8, of version 5 on. The links and ports of the device, all of them each time.
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
