// SPDX-License-Identifier: Apache-2.0
//! The commands that wait for a reply, in order (RFC 2920): which reply belongs to which command.

use crate::memory::Held as _;
use crate::transaction::TxId;
use std::collections::VecDeque;

/// Limit of the commands that wait.
pub(super) const WAITING_MAX: usize = 1_024;

/// A command, as far as its reply means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedReply {
    /// To a command whose reply changes nothing.
    Other,
    /// To STARTTLS: `220` begins TLS.
    StartTls,
    /// To DATA: `354` asks for the message.
    Data,
    /// To MAIL of this envelope: a code of failure leaves it without a sender.
    Sender(TxId),
    /// To a command or a message that ends an envelope, if its code begins with this digit or with any (0).
    Ends {
        /// The envelope.
        tx: TxId,
        /// First digit of the code.
        digit: u8,
    },
}

/// Commands that wait for a reply.
#[derive(Debug, Default)]
pub(super) struct AwaitedReplies {
    list: VecDeque<AwaitedReply>,
}

impl AwaitedReplies {
    /// Adds a command. Returns whether the one before must have been the last of its group.
    pub(super) fn push(&mut self, awaited: AwaitedReply) -> bool {
        let follows_last = matches!(self.list.back(), Some(AwaitedReply::StartTls | AwaitedReply::Data));
        if self.list.len() >= WAITING_MAX {
            self.list.pop_front();
        }
        self.list.push_back(awaited);
        follows_last
    }

    /// The command of the next reply.
    pub(super) fn front(&self) -> Option<AwaitedReply> {
        self.list.front().copied()
    }

    /// Removes the commands before DATA, if it waits.
    pub(super) fn drop_before_data(&mut self) {
        if let Some(at) = self.list.iter().position(|awaited| *awaited == AwaitedReply::Data) {
            self.list.drain(..at);
        }
    }

    /// Removes the command whose reply is complete.
    pub(super) fn pop(&mut self) {
        self.list.pop_front();
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.list.held()
    }
}
