// SPDX-License-Identifier: Apache-2.0
//! The guest's side: a process joins its guest and works with streams. Nothing here is trusted by the engine.
//!
//! Used inside programs that know nothing of it: no thread is started, nothing is printed, and after `fork`
//! the child joins anew ([`GuestProcess::join`]).

mod calls;
mod datagrams;
mod lock;
mod receive;
mod stream;
mod transmit;

pub use datagrams::ReceivedDatagram;
pub use lock::{SharedLock, forget_thread};
pub use receive::ReceiveOptions;
pub use stream::GuestStream;

use crate::descriptor::{
    DESCRIPTOR_BYTES, Message, Reply, Request, StreamHandle, Transport, from_bytes, to_bytes,
};
use crate::layout::{Layout, SlotState, state};
use crate::memory::SharedMemory;
use crate::ring::RingWriter;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::futex;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Environment variable with the number of the descriptor that the guest was started with.
pub const GUEST_DESCRIPTOR: &str = "BARTIZAN_GUEST";
/// Numbers from here on are for the library's own descriptors, where the limit allows it: programs expect
/// the lowest free number from `socket`.
const OWN_DESCRIPTORS: i32 = 900;
/// Descriptors with a message at most.
const DESCRIPTORS_MOST: usize = 3;

/// A stream's descriptor that the engine made.
#[derive(Debug)]
pub struct OpenedStream {
    /// The program's descriptor.
    pub fd: OwnedFd,
    /// The stream.
    pub handle: StreamHandle,
}

/// A process of a guest.
#[derive(Debug)]
pub struct GuestProcess {
    control: SharedMemory,
    data: SharedMemory,
    layout: Layout,
    ring: Mutex<RingWriter>,
    bell: OwnedFd,
    channel: Mutex<OwnedFd>,
    /// Numbers of the bell and the channel, to be had without a lock.
    own: [i32; 2],
}

/// Abstract name of the engine's end of a stream's descriptor. It is how a process finds the stream of a
/// descriptor that it inherited or was sent.
#[must_use]
pub fn token_name(guest: u16, handle: StreamHandle) -> Vec<u8> {
    format!("bartizan/{guest:04x}/{:08x}/{:08x}", handle.slot, handle.generation).into_bytes()
}

/// The stream that a name is of.
#[must_use]
pub fn named_stream(name: &[u8]) -> Option<StreamHandle> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix("bartizan/")?;
    let mut parts = name.splitn(3, '/').skip(1);
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    Some(StreamHandle { slot: number()?, generation: number()? })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves a descriptor out of the range that programs count on.
fn moved(fd: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&fd, OWN_DESCRIPTORS).unwrap_or(fd)
}

fn send_message(
    channel: BorrowedFd<'_>,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = to_bytes(&message.words());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    loop {
        match sendmsg(channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

/// Receives a reply and its descriptors.
fn receive_reply(channel: BorrowedFd<'_>) -> Result<(Reply, [Option<OwnedFd>; DESCRIPTORS_MOST]), Errno> {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(channel, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(received) => break received.bytes,
        }
    };
    let mut descriptors = [const { None }; DESCRIPTORS_MOST];
    let mut places = descriptors.iter_mut();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            for fd in received {
                if let Some(place) = places.next() {
                    *place = Some(fd);
                }
            }
        }
    }
    // The engine is gone: as when the network is.
    let words = bytes.get(..received).and_then(from_bytes).ok_or(Errno::NETDOWN)?;
    let reply = Reply::parse(&words).map_err(|_| Errno::PROTO)?;
    match reply.error {
        0 => Ok((reply, descriptors)),
        error => Err(Errno::from_raw_os_error(i32::try_from(error).unwrap_or(libc::EIO))),
    }
}

impl GuestProcess {
    /// Joins the guest whose descriptor this is: gets a channel, a control ring and the segments.
    ///
    /// # Errors
    /// The engine is gone or refuses another process; the kernel has no descriptor or memory left.
    pub fn join(guest: BorrowedFd<'_>) -> Result<GuestProcess, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (own, engines) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        send_message(guest, &Message::Join, &[engines.as_fd()])?;
        drop(engines);
        let (reply, [control, data, bell]) = receive_reply(own.as_fd())?;
        let (Some(control), Some(data), Some(bell)) = (control, data, bell) else { return Err(Errno::PROTO) };
        let (slots, rings, buffer_shift) = (reply.slots, u32::from(reply.rings), reply.buffer_shift);
        let layout = Layout { slots, rings, buffer_shift };
        if !layout.is_valid() || reply.ring >= layout.rings {
            return Err(Errno::PROTO);
        }
        let (bell, own) = (moved(bell), moved(own));
        Ok(GuestProcess {
            own: [bell.as_raw_fd(), own.as_raw_fd()],
            control: SharedMemory::map(&control, layout.control_bytes())?,
            data: SharedMemory::map(&data, layout.data_bytes())?,
            layout,
            ring: Mutex::new(RingWriter::new(layout.ring(reply.ring))),
            bell,
            channel: Mutex::new(own),
        })
    }

    /// Descriptors of the library itself, which a program must not close.
    #[must_use]
    pub const fn own_descriptors(&self) -> [i32; 2] {
        self.own
    }

    /// Streams that the guest may have.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.layout.slots
    }

    fn exchange(&self, message: &Message) -> Result<OpenedStream, Errno> {
        let channel = locked(&self.channel);
        send_message(channel.as_fd(), message, &[]).map_err(|error| match error {
            Errno::PIPE | Errno::CONNRESET => Errno::NETDOWN,
            other => other,
        })?;
        let (reply, [fd, _, _]) = receive_reply(channel.as_fd())?;
        Ok(OpenedStream { fd: fd.ok_or(Errno::PROTO)?, handle: reply.handle })
    }

    /// Makes a socket.
    ///
    /// # Errors
    /// A limit of the guest is reached, or the engine is gone (`ENETDOWN`).
    pub fn open(&self, v6: bool, transport: Transport) -> Result<OpenedStream, Errno> {
        self.open_for(0, v6, transport)
    }

    /// Makes a socket for another process: records show that one if it is in the control group of this one.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_for(&self, process: u32, v6: bool, transport: Transport) -> Result<OpenedStream, Errno> {
        self.exchange(&Message::Open { v6, transport, process })
    }

    /// Takes a connection from a listener.
    ///
    /// # Errors
    /// `EAGAIN`: none waits.
    pub fn take(&self, listener: StreamHandle) -> Result<OpenedStream, Errno> {
        self.exchange(&Message::Accept(listener))
    }

    /// The state of a stream; `None`: the handle is of no stream, or of one that is gone.
    #[must_use]
    pub fn slot(&self, handle: StreamHandle) -> Option<&SlotState> {
        if handle.slot >= self.layout.slots {
            return None;
        }
        let slot: &SlotState = self.control.at(self.layout.slot(handle.slot))?;
        slot.is(handle).then_some(slot)
    }

    /// The stream of a handle, with its descriptor.
    #[must_use]
    pub fn stream<'p>(&'p self, handle: StreamHandle, fd: BorrowedFd<'p>) -> Option<GuestStream<'p>> {
        Some(GuestStream { process: self, slot: self.slot(handle)?, handle, fd })
    }

    /// Puts a request into the control ring and wakes the engine if it sleeps.
    fn submit(&self, request: &Request) {
        let words = request.words();
        let mut ring = locked(&self.ring);
        loop {
            match ring.put(&self.control, &words) {
                Some(true) => {
                    self.ring_bell();
                    return;
                }
                Some(false) => return,
                // The engine has a ring's worth of work: it makes room or is gone.
                None => {
                    self.ring_bell();
                    if self.engine_is_gone() {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    fn ring_bell(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn engine_is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let channel = locked(&self.channel);
        let mut wanted = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = poll(&mut wanted, Some(&now));
        wanted.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR))
    }

    /// Waits until the engine is gone, then ends all streams of the guest, so that threads which sleep in
    /// calls return with `ECONNRESET`. The process that starts a guest's program calls this.
    pub fn watch_engine(&self) {
        use rustix::event::{PollFd, PollFlags, poll};
        let channel = locked(&self.channel);
        loop {
            let mut wanted = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::RDHUP)];
            match poll(&mut wanted, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        drop(channel);
        self.end_streams();
    }

    /// Ends all streams after the engine's death.
    fn end_streams(&self) {
        let slots =
            (0..self.layout.slots).filter_map(|index| self.control.at::<SlotState>(self.layout.slot(index)));
        for slot in slots.filter(|slot| slot.engine.generation.load(Acquire) % 2 == 1) {
            let engine = &slot.engine;
            if engine.state.fetch_or(state::DEAD, AcqRel) & state::DEAD == 0 {
                slot.both.error.store(Errno::CONNRESET.raw_os_error().unsigned_abs(), SeqCst);
            }
            for event in [&engine.rx_event, &engine.tx_event, &engine.completion] {
                event.fetch_add(1, SeqCst);
                let _ = futex::wake(event, futex::Flags::empty(), u32::MAX >> 1);
            }
        }
    }
}
