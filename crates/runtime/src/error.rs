// SPDX-License-Identifier: Apache-2.0
//! Exit codes and failures of the program.

use bartizan_base::{SettingError, SettingsMap};
use bartizan_dataplane::eve::EveError;
use std::process::ExitCode;

/// Exit codes, as README and man page promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
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

/// The failure that ended the program: problem, place, reason and remedy in one message.
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

    /// A malformed setting, with the place that its value comes from.
    pub fn setting(settings: &SettingsMap) -> impl Fn(SettingError) -> Self + '_ {
        |error| Failure::input(settings.explain(&error))
    }

    /// Outputs that cannot be made, because of a malformed setting or a file that cannot be opened.
    pub fn outputs(settings: &SettingsMap) -> impl Fn(EveError) -> Self + '_ {
        |error| match error {
            EveError::Setting(error) => Failure::setting(settings)(error),
            EveError::Open(error) => Failure::stopped(error),
        }
    }

    /// Output that cannot be written, or an exceeded limit.
    pub fn stopped(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), exit: Exit::Stopped }
    }

    /// Wrong usage.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Failure { message: message.to_string(), exit: Exit::Usage }
    }
}
