// SPDX-License-Identifier: Apache-2.0
//! The 64-byte descriptors of control rings, and the messages of the same form on a process's channel.
//!
//! A descriptor lies in memory that the guest can change at any time. The engine copies it once
//! ([`crate::ring`]), and everything here works on that copy. A handle in it names a stream in the table of
//! the guest that sent it; the engine compares slot and generation with its own records.
//!
//! Eight little-endian words: 0 operation (8 bits), kind (8), length (16), slot (32); 1 generation,
//! sequence; 2 two arguments; 3 address family (16), port (16), scope (32); 4 and 5 address; 6 and 7 zero.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of a descriptor: a cache line.
pub const DESCRIPTOR_BYTES: usize = 64;
/// Words of a descriptor.
pub const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / 8;
/// Maximum bytes of an option's value: the size of the slot's scratch area.
pub const OPTION_BYTES_MOST: u16 = 256;

/// A descriptor as it lies in a ring.
pub type DescriptorWords = [u64; DESCRIPTOR_WORDS];

/// Name of a stream in its guest's table. A slot is used again with the next generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamHandle {
    /// Index in the guest's table.
    pub slot: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// A socket option, by the numbers of setsockopt(2). Its value is in the slot's scratch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionName {
    /// Level, for example `SOL_SOCKET`.
    pub level: u32,
    /// Name, for example `SO_KEEPALIVE`.
    pub name: u32,
    /// Bytes of the value, or of the place for it.
    pub length: u16,
}

/// Transport of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP: ordered bytes.
    Tcp,
    /// UDP: datagram records.
    Udp,
}

/// An operation on a stream, sent over a control ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes were put into the transmit buffer.
    Transmit,
    /// The program took bytes of the receive buffer after the engine had asked to be told.
    Window,
    /// The program sends no more (`shutdown(SHUT_WR)`).
    Finish,
    /// Connects to an address.
    Connect(SocketAddr),
    /// Ends the association (`connect` with `AF_UNSPEC`).
    Disconnect,
    /// Binds to a local address.
    Bind(SocketAddr),
    /// Accepts connections, so many of them in advance.
    Listen(u32),
    /// Sets a socket option.
    SetOption(OptionName),
    /// Reads a socket option.
    GetOption(OptionName),
    /// Brings the wake tokens of the stream's descriptor up to date.
    Synchronise,
}

/// A request: the stream, the number that its completion carries, the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The stream.
    pub handle: StreamHandle,
    /// Number of the completion; 0: none is awaited.
    pub sequence: u32,
    /// The operation.
    pub operation: Operation,
}

/// A message of a process to the engine, over its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Joins the guest: gets a control ring and the segments. Has the channel's other end with it.
    Join,
    /// Makes a socket: the reply has its descriptor.
    Open {
        /// `true`: IPv6.
        v6: bool,
        /// TCP or UDP.
        transport: Transport,
        /// Process for which a relay makes it; 0: the one that asks. The engine believes it of processes of
        /// the same control group only.
        process: u32,
    },
    /// Takes a connection from a listener: the reply has its descriptor.
    Accept(StreamHandle),
}

/// The engine's answer to a [`Message`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Error number (errno); 0 means none.
    pub error: u32,
    /// The new stream.
    pub handle: StreamHandle,
    /// Index of the control ring, for [`Message::Join`].
    pub ring: u32,
    /// Slots of the guest's table, for [`Message::Join`].
    pub slots: u32,
    /// Control rings of the guest, for [`Message::Join`].
    pub rings: u16,
    /// Base-2 logarithm of the bytes of a transmit and of a receive buffer, for [`Message::Join`].
    pub buffer_shift: u32,
}

/// The reason why a descriptor is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// No operation has this number.
    #[error("operation {0} does not exist")]
    Operation(u8),
    /// A field that the operation does not have is set.
    #[error("a reserved field is not zero")]
    Reserved,
    /// Neither IPv4 nor IPv6.
    #[error("address family {0} is neither IPv4 nor IPv6")]
    Family(u16),
    /// Transport that does not exist.
    #[error("transport {0} does not exist")]
    Transport(u8),
    /// The value of an option is longer than the scratch area.
    #[error("an option of {0} bytes does not fit")]
    OptionLength(u16),
}

/// Error number for a socket whose address the engine does not serve (a loopback address of the guest): the
/// call goes to a plain socket in the guest's namespace.
pub const PLAIN_SOCKET: rustix::io::Errno = rustix::io::Errno::NOLINK;

const TRANSMIT: u8 = 1;
const WINDOW: u8 = 2;
const FINISH: u8 = 3;
const CONNECT: u8 = 4;
const DISCONNECT: u8 = 5;
const BIND: u8 = 6;
const LISTEN: u8 = 7;
const SET_OPTION: u8 = 8;
const GET_OPTION: u8 = 9;
const SYNCHRONISE: u8 = 10;
const JOIN: u8 = 32;
const OPEN: u8 = 33;
const ACCEPT: u8 = 34;
const REPLY: u8 = 64;

/// `AF_INET` and `AF_INET6` of Linux.
const V4: u16 = 2;
const V6: u16 = 10;

/// The fields of a descriptor, before the operation gives them a meaning.
#[derive(Clone, Copy, Default)]
struct Fields {
    operation: u8,
    kind: u8,
    length: u16,
    handle: StreamHandle,
    sequence: u32,
    arguments: [u32; 2],
    address: [u64; 3],
}

#[allow(clippy::cast_possible_truncation)] // parts of words
impl Fields {
    fn split(words: &DescriptorWords) -> Result<Fields, DescriptorError> {
        let [first, second, third, a, b, c, zero, end] = *words;
        if zero != 0 || end != 0 {
            return Err(DescriptorError::Reserved);
        }
        Ok(Fields {
            operation: first as u8,
            kind: (first >> 8) as u8,
            length: (first >> 16) as u16,
            handle: StreamHandle { slot: (first >> 32) as u32, generation: second as u32 },
            sequence: (second >> 32) as u32,
            arguments: [third as u32, (third >> 32) as u32],
            address: [a, b, c],
        })
    }

    fn join(&self) -> DescriptorWords {
        let [low, high] = self.arguments;
        let [a, b, c] = self.address;
        [
            u64::from(self.operation)
                | u64::from(self.kind) << 8
                | u64::from(self.length) << 16
                | u64::from(self.handle.slot) << 32,
            u64::from(self.handle.generation) | u64::from(self.sequence) << 32,
            u64::from(low) | u64::from(high) << 32,
            a,
            b,
            c,
            0,
            0,
        ]
    }

    /// Fields that an operation does not have are zero: a later version can give them a meaning.
    fn none_but(&self, used: Fields) -> Result<(), DescriptorError> {
        let same = self.kind == used.kind
            && self.length == used.length
            && self.arguments == used.arguments
            && self.address == used.address;
        if same { Ok(()) } else { Err(DescriptorError::Reserved) }
    }
}

#[allow(clippy::cast_possible_truncation)] // parts of words
pub(crate) fn pack_address(address: SocketAddr) -> [u64; 3] {
    let head = |family: u16, scope: u32| {
        u64::from(family) | u64::from(address.port()) << 16 | u64::from(scope) << 32
    };
    match address {
        SocketAddr::V4(v4) => [head(V4, 0), u64::from(u32::from(*v4.ip())), 0],
        SocketAddr::V6(v6) => {
            let bits = u128::from(*v6.ip());
            [head(V6, v6.scope_id()), bits as u64, (bits >> 64) as u64]
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // parts of words
pub(crate) fn unpack_address([head, low, high]: [u64; 3]) -> Result<SocketAddr, DescriptorError> {
    let (family, port, scope) = (head as u16, (head >> 16) as u16, (head >> 32) as u32);
    match family {
        V4 if scope == 0 && high == 0 && low <= u64::from(u32::MAX) => {
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(low as u32)), port))
        }
        V4 => Err(DescriptorError::Reserved),
        V6 => {
            let bits = u128::from(low) | u128::from(high) << 64;
            Ok(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(bits), port, 0, scope)))
        }
        other => Err(DescriptorError::Family(other)),
    }
}

impl Request {
    /// Reads the engine's copy of a descriptor.
    ///
    /// # Errors
    /// No such operation, a field that it does not have is set, or a value is out of bounds.
    pub fn parse(words: &DescriptorWords) -> Result<Request, DescriptorError> {
        let fields = Fields::split(words)?;
        let with_address = |make: fn(SocketAddr) -> Operation| {
            fields.none_but(Fields { address: fields.address, ..Fields::default() })?;
            unpack_address(fields.address).map(make)
        };
        let with_option = |make: fn(OptionName) -> Operation| {
            let [level, name] = fields.arguments;
            let length = fields.length;
            fields.none_but(Fields { length, arguments: fields.arguments, ..Fields::default() })?;
            if length > OPTION_BYTES_MOST {
                return Err(DescriptorError::OptionLength(length));
            }
            Ok(make(OptionName { level, name, length }))
        };
        let alone = |operation| fields.none_but(Fields::default()).map(|()| operation);
        let operation = match fields.operation {
            TRANSMIT => alone(Operation::Transmit)?,
            WINDOW => alone(Operation::Window)?,
            FINISH => alone(Operation::Finish)?,
            CONNECT => with_address(Operation::Connect)?,
            DISCONNECT => alone(Operation::Disconnect)?,
            BIND => with_address(Operation::Bind)?,
            LISTEN => {
                let [backlog, _] = fields.arguments;
                fields.none_but(Fields { arguments: [backlog, 0], ..Fields::default() })?;
                Operation::Listen(backlog)
            }
            SET_OPTION => with_option(Operation::SetOption)?,
            GET_OPTION => with_option(Operation::GetOption)?,
            SYNCHRONISE => alone(Operation::Synchronise)?,
            other => return Err(DescriptorError::Operation(other)),
        };
        Ok(Request { handle: fields.handle, sequence: fields.sequence, operation })
    }

    /// The descriptor of a request.
    #[must_use]
    pub fn words(&self) -> DescriptorWords {
        let mut fields = Fields { handle: self.handle, sequence: self.sequence, ..Fields::default() };
        let mut option = |operation, option: OptionName| {
            fields.length = option.length;
            fields.arguments = [option.level, option.name];
            operation
        };
        fields.operation = match self.operation {
            Operation::Transmit => TRANSMIT,
            Operation::Window => WINDOW,
            Operation::Finish => FINISH,
            Operation::Connect(address) => {
                fields.address = pack_address(address);
                CONNECT
            }
            Operation::Disconnect => DISCONNECT,
            Operation::Bind(address) => {
                fields.address = pack_address(address);
                BIND
            }
            Operation::Listen(backlog) => {
                fields.arguments = [backlog, 0];
                LISTEN
            }
            Operation::SetOption(name) => option(SET_OPTION, name),
            Operation::GetOption(name) => option(GET_OPTION, name),
            Operation::Synchronise => SYNCHRONISE,
        };
        fields.join()
    }
}

impl Message {
    /// Reads a message of a process.
    ///
    /// # Errors
    /// As for [`Request::parse`].
    pub fn parse(words: &DescriptorWords) -> Result<Message, DescriptorError> {
        let fields = Fields::split(words)?;
        match fields.operation {
            JOIN => fields.none_but(Fields::default()).map(|()| Message::Join),
            OPEN => {
                let [process, _] = fields.arguments;
                let arguments = [process, 0];
                fields.none_but(Fields { kind: fields.kind, arguments, ..Fields::default() })?;
                let transport = match fields.kind >> 1 {
                    0 => Transport::Tcp,
                    1 => Transport::Udp,
                    other => return Err(DescriptorError::Transport(other)),
                };
                Ok(Message::Open { v6: fields.kind & 1 == 1, transport, process })
            }
            ACCEPT => fields.none_but(Fields::default()).map(|()| Message::Accept(fields.handle)),
            other => Err(DescriptorError::Operation(other)),
        }
    }

    /// The descriptor of a message.
    #[must_use]
    pub fn words(&self) -> DescriptorWords {
        let fields = match *self {
            Message::Join => Fields { operation: JOIN, ..Fields::default() },
            Message::Open { v6, transport, process } => {
                let kind = u8::from(v6) | (transport as u8) << 1;
                Fields { operation: OPEN, kind, arguments: [process, 0], ..Fields::default() }
            }
            Message::Accept(handle) => Fields { operation: ACCEPT, handle, ..Fields::default() },
        };
        fields.join()
    }
}

impl Reply {
    /// Reads a reply of the engine.
    ///
    /// # Errors
    /// It is no reply.
    pub fn parse(words: &DescriptorWords) -> Result<Reply, DescriptorError> {
        let fields = Fields::split(words)?;
        if fields.operation != REPLY {
            return Err(DescriptorError::Operation(fields.operation));
        }
        let [ring, slots] = fields.arguments;
        let buffer_shift = u32::from(fields.kind);
        let (error, rings) = (fields.sequence, fields.length);
        Ok(Reply { error, handle: fields.handle, ring, slots, rings, buffer_shift })
    }

    /// The descriptor of a reply.
    #[must_use]
    pub fn words(&self) -> DescriptorWords {
        let kind = u8::try_from(self.buffer_shift).unwrap_or(u8::MAX);
        let arguments = [self.ring, self.slots];
        let (handle, sequence, length) = (self.handle, self.error, self.rings);
        Fields { operation: REPLY, kind, length, handle, sequence, arguments, ..Fields::default() }.join()
    }
}

/// The words of a message as bytes.
#[must_use]
pub fn to_bytes(words: &DescriptorWords) -> [u8; DESCRIPTOR_BYTES] {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The words of a message; `None`: `bytes` does not have the length of a descriptor.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> Option<DescriptorWords> {
    if bytes.len() != DESCRIPTOR_BYTES {
        return None;
    }
    let mut words = [0; DESCRIPTOR_WORDS];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().ok()?);
    }
    Some(words)
}
