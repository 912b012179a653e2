// SPDX-License-Identifier: Apache-2.0
//! How the program ends.

use std::process::ExitCode;

/// Exit codes, as README and man page promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Input was refused.
    Input = 1,
    /// Wrong usage.
    Usage = 2,
    /// Stopped by a signal, a limit or an output error; what was read is written.
    Stopped = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// What stopped the program: what, where, why, what to do, in one message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The message.
    pub message: String,
    /// The exit code.
    pub exit: Exit,
}

impl Failure {
    /// Input that cannot be used.
    pub fn input(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), exit: Exit::Input }
    }

    /// Output that cannot be written, or a limit.
    pub fn stopped(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), exit: Exit::Stopped }
    }

    /// Wrong usage.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), exit: Exit::Usage }
    }
}
