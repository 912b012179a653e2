// SPDX-License-Identifier: Apache-2.0
//! Records of datagrams in a stream's byte rings: a head of 32 bytes, then the payload. The writer moves its
//! index once a record is whole, so that a reader finds whole records.

use crate::descriptor::{DescriptorError, pack_address, unpack_address};
use std::net::SocketAddr;

/// Bytes of a record's head: the payload's length, then three words of an address.
pub const RECORD_HEAD: usize = 32;
/// Most bytes of a datagram: what a UDP header can say, over IPv6.
pub const DATAGRAM_MOST: usize = 65_527;

/// A datagram of a program, in the engine.
#[derive(Debug)]
pub(crate) struct UnsentDatagram {
    /// Its destination; `None`: that of the connection.
    pub(crate) to: Option<SocketAddr>,
    /// Its payload, in private memory.
    pub(crate) bytes: Vec<u8>,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes of the payload.
    pub length: u32,
    /// The destination, or the sender; `None`: that of the connection.
    pub address: Option<SocketAddr>,
}

impl RecordHead {
    /// The head as it lies in a ring.
    #[must_use]
    pub fn bytes(&self) -> [u8; RECORD_HEAD] {
        let [a, b, c] = self.address.map_or([0; 3], pack_address);
        let words = [u64::from(self.length), a, b, c];
        let mut bytes = [0; RECORD_HEAD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a private copy of a head.
    ///
    /// # Errors
    /// The length is more than a datagram has, or the address is none.
    pub fn parse(bytes: &[u8; RECORD_HEAD]) -> Result<RecordHead, DescriptorError> {
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = place.try_into().map(u64::from_le_bytes).unwrap_or_default();
        }
        let [length, a, b, c] = words;
        let length = u32::try_from(length).map_err(|_| DescriptorError::Reserved)?;
        if length as usize > DATAGRAM_MOST {
            return Err(DescriptorError::Reserved);
        }
        let address = if [a, b, c] == [0; 3] { None } else { Some(unpack_address([a, b, c])?) };
        Ok(RecordHead { length, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        for address in
            [None, Some("192.0.2.1:53".parse().unwrap()), Some("[2001:db8::1]:53".parse().unwrap())]
        {
            for length in [0, 1, 65_527] {
                let head = RecordHead { length, address };
                assert_eq!(RecordHead::parse(&head.bytes()), Ok(head));
            }
        }
        let longer = RecordHead { length: 65_528, address: None };
        assert_eq!(RecordHead::parse(&longer.bytes()), Err(DescriptorError::Reserved));
        let mut foreign = RecordHead { length: 1, address: None }.bytes();
        foreign[8] = 7;
        assert_eq!(RecordHead::parse(&foreign), Err(DescriptorError::Family(7)));
        foreign[7] = 1;
        assert_eq!(RecordHead::parse(&foreign), Err(DescriptorError::Reserved));
    }
}
