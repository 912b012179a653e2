// SPDX-License-Identifier: Apache-2.0
//! Waiting for sockets and pipes with poll(2).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until there is data to read (or the other end is closed, or failed), for at most `limit`. Files are
/// always ready. Returns `false` if a signal ends the wait.
pub fn wait_readable(from: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    poll_once(from, PollFlags::IN, &limit).unwrap_or(false)
}

/// Whether the other end of a socket is closed in both directions, so that no answer can be delivered.
pub fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    poll_once(socket, PollFlags::empty(), &Timespec { tv_sec: 0, tv_nsec: 0 }).unwrap_or(false)
}

fn poll_once(on: BorrowedFd<'_>, wanted: PollFlags, limit: &Timespec) -> rustix::io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(on, wanted)];
    poll(&mut polled, Some(limit)).map(|ready| ready != 0 && !polled[0].revents().is_empty())
}
