// SPDX-License-Identifier: Apache-2.0
//! Remote procedure calls of DCERPC as keywords see them, whichever protocol carries them.

use std::sync::Arc;

/// A UUID, its bytes in the order of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcUuid(pub [u8; 16]);

impl core::fmt::Display for RpcUuid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl core::str::FromStr for RpcUuid {
    type Err = ();

    /// Reads a UUID as it is usually written, `4b324fc8-1670-01d3-1278-5a47bf6ee188`, or without dashes.
    fn from_str(text: &str) -> Result<Self, ()> {
        let has_dashes = text.len() == 36;
        let mut digits = Vec::with_capacity(32);
        for (index, byte) in text.bytes().enumerate() {
            if has_dashes && matches!(index, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(());
                }
                continue;
            }
            digits.push(char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).ok_or(())?);
        }
        let mut bytes = [0; 16];
        if digits.len() != 2 * bytes.len() {
            return Err(());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0u8, |sum, digit| sum << 4 | digit);
        }
        Ok(RpcUuid(bytes))
    }
}

/// An interface that a client has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcInterface {
    /// The number with which requests name the interface.
    pub context: u16,
    /// The interface's UUID.
    pub uuid: RpcUuid,
    /// Major version.
    pub version: u16,
    /// Minor version.
    pub minor: u16,
    /// The server's answer; 0 accepts. `None`: it has not answered.
    pub result: Option<u16>,
    /// It was asked for in a first fragment.
    pub is_first: bool,
    /// The call that has asked for it.
    pub call: u32,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct RpcCall<'a> {
    /// The operation; `None`: the transaction is no request.
    pub opnum: Option<u16>,
    /// The interface that the request names; `None`: any that the server has accepted may be meant.
    pub context: Option<u16>,
    /// The interfaces of the connection.
    pub interfaces: &'a [RpcInterface],
    /// Numbers of the arguments are little endian.
    pub is_little: bool,
}

impl RpcCall<'_> {
    /// Whether the request is to an accepted interface; `is_wanted` compares its version.
    pub fn is_to(&self, uuid: RpcUuid, any_fragment: bool, is_wanted: impl Fn(u16) -> bool) -> bool {
        self.opnum.is_some()
            && self.interfaces.iter().any(|interface| {
                interface.result == Some(0)
                    && interface.uuid == uuid
                    && (any_fragment || interface.is_first)
                    && self.context.is_none_or(|context| context == interface.context)
                    && is_wanted(interface.version)
            })
    }
}

/// The interfaces of a connection, shared by its transactions as they stood when these began.
pub(crate) type RpcInterfaces = Arc<Vec<RpcInterface>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_as_they_are_written() {
        let text = "4b324fc8-1670-01d3-1278-5a47bf6ee188";
        let uuid: RpcUuid = text.parse().expect(text);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.replace('-', "").to_uppercase().parse(), Ok(uuid));
        for wrong in
            ["", "4b324fc8", "4b324fc8-1670-01d3-1278-5a47bf6ee18g", "4b324fc8x1670-01d3-1278-5a47bf6ee188"]
        {
            assert!(wrong.parse::<RpcUuid>().is_err(), "{wrong}");
        }
    }
}
