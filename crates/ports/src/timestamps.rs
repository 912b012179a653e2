// SPDX-License-Identifier: Apache-2.0
//! The source of received frames' timestamps: the kernel, or the device if it can.
//!
//! Source: Linux `Documentation/networking/timestamping.rst`, `include/uapi/linux/net_tstamp.h`,
//! `packet_mmap.rst` (`PACKET_TIMESTAMP`). A device is of use here if it stamps *all* received frames, not
//! only those of PTP, and if its clock has the system's time: flows, timeouts and events use the time of
//! frames and the system's clock alike.
//!
//! The capabilities and settings of a device are read first ([`TimestampDevice::query`]); the decision is
//! separate ([`decide`]), so that it can be tested without such a device.

use crate::sys::{self, StampSettings};
use std::os::fd::AsFd;

/// The source of the timestamps of a port's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// The kernel, when it receives frames from the driver.
    #[default]
    Software,
    /// The device, if it stamps all frames already; else the kernel. No setting is changed.
    Auto,
    /// The device, which is set to stamp all frames if it does not yet; the setting is restored when the port
    /// is dropped. An error if the device cannot.
    Hardware,
}

/// The reason why a device does not stamp frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoStamps {
    /// The device cannot stamp frames.
    #[error("its driver stamps no received packets")]
    NotOffered,
    /// It stamps only some frames.
    #[error("its driver stamps only packets of PTP, not all")]
    NotAll,
    /// It could, but is not set to.
    #[error("it could stamp all packets, and is not set to (`timestamps: hardware` sets it)")]
    NotOn,
    /// Its clock differs from the system's.
    #[error(
        "its clock /dev/ptp{clock} is {} than the system's, and all times would be; keep it by that with `phc2sys -s CLOCK_REALTIME -c /dev/ptp{clock} -O 0`",
        apart(*.nanos)
    )]
    Apart {
        /// The number of its clock.
        clock: i32,
        /// The nanoseconds by which it is ahead of the system's.
        nanos: i64,
    },
    /// Its clock cannot be read.
    #[error("its clock cannot be read ({0}), so it is unknown whether it is right")]
    NoClock(String),
    /// The driver refused.
    #[error("its driver refuses to stamp all packets ({0})")]
    Refused(String),
}

/// A difference as text: `37.0 s later`.
fn apart(nanos: i64) -> String {
    let word = if nanos < 0 { "earlier" } else { "later" };
    format!("{:.3} s {word}", nanos.unsigned_abs() as f64 / 1e9)
}

/// The most that a device's clock may differ from the system's, in nanoseconds: less than the time that
/// frames of several interfaces wait for one another.
const APART_MOST: i64 = 10_000_000;

/// `SOF_TIMESTAMPING_RX_HARDWARE` and `SOF_TIMESTAMPING_RAW_HARDWARE`.
const RECEIVED_RAW: u32 = 1 << 2 | 1 << 6;
/// `HWTSTAMP_FILTER_ALL`.
const ALL: i32 = 1;

/// The capabilities and settings of an interface.
#[derive(Clone, Debug)]
pub(crate) struct TimestampDevice {
    /// The kinds of timestamps (`SOF_TIMESTAMPING_*`).
    pub(crate) able: u32,
    /// The available filters for received frames, by their bits.
    pub(crate) filters: u32,
    /// The settings; `None`: the device does not report them.
    pub(crate) settings: Option<StampSettings>,
    /// The number of its clock, -1 for none, and the nanoseconds by which that is ahead of the system's, or
    /// the reason why it cannot be read.
    pub(crate) clock: (i32, Result<i64, String>),
}

impl TimestampDevice {
    /// Reads an interface's capabilities. Drivers that do not support the request have no timestamps.
    pub(crate) fn query(name: &str) -> std::io::Result<Self> {
        let socket = sys::request_socket()?;
        let fd = socket.as_fd();
        let info = sys::stamp_abilities(fd, name).unwrap_or_default();
        let beyond = sys::device_clock_beyond_system(info.clock).map_err(|error| error.to_string());
        Ok(TimestampDevice {
            able: info.able,
            filters: info.filters,
            settings: sys::stamp_settings(fd, name).ok(),
            clock: (info.clock, beyond),
        })
    }
}

/// The decision about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The kernel's timestamps are used; with the reason, if the device's were preferred.
    Kernel(Option<NoStamps>),
    /// The device's timestamps are used, after these settings.
    Device(Option<StampSettings>),
}

/// Decides by the capabilities of a device. The error is the reason why required device timestamps are
/// impossible.
pub(crate) fn decide(wanted: Timestamps, device: &TimestampDevice) -> Result<Decision, NoStamps> {
    match (wanted, usable(wanted == Timestamps::Hardware, device)) {
        (Timestamps::Software, _) => Ok(Decision::Kernel(None)),
        (_, Ok(set)) => Ok(Decision::Device(set)),
        (Timestamps::Auto, Err(why)) => Ok(Decision::Kernel(Some(why))),
        (Timestamps::Hardware, Err(why)) => Err(why),
    }
}

/// The settings that make a device usable, if it needs others; `may_set`: they may be changed.
pub(crate) fn usable(may_set: bool, device: &TimestampDevice) -> Result<Option<StampSettings>, NoStamps> {
    if device.able & RECEIVED_RAW != RECEIVED_RAW || device.filters == 0 {
        return Err(NoStamps::NotOffered);
    }
    let set = match device.settings {
        Some(settings) if settings.filter == ALL => None,
        _ if device.filters & 1 << ALL == 0 => return Err(NoStamps::NotAll),
        _ if !may_set => return Err(NoStamps::NotOn),
        // Its settings for sent frames (PTP) stay.
        settings => Some(StampSettings { filter: ALL, ..settings.unwrap_or_default() }),
    };
    match &device.clock {
        (_, Err(error)) => Err(NoStamps::NoClock(error.clone())),
        (clock, Ok(nanos)) if nanos.unsigned_abs() > APART_MOST.unsigned_abs() => {
            Err(NoStamps::Apart { clock: *clock, nanos: *nanos })
        }
        _ => Ok(set),
    }
}

/// A device that was set to stamp all frames; its settings are restored when this is dropped.
#[derive(Debug)]
pub(crate) struct StampGuard {
    interface: String,
    before: StampSettings,
    ours: StampSettings,
}

impl StampGuard {
    /// Changes the settings of the device.
    pub(crate) fn set(interface: &str, before: StampSettings, ours: StampSettings) -> std::io::Result<Self> {
        let socket = sys::request_socket()?;
        let taken = sys::set_stamp_settings(socket.as_fd(), interface, ours)?;
        // Drivers may choose a narrower or a wider filter than the one requested.
        if taken.filter != ALL {
            let _ = sys::set_stamp_settings(socket.as_fd(), interface, before);
            return Err(std::io::Error::other(format!("it took filter {} instead", taken.filter)));
        }
        Ok(StampGuard { interface: interface.to_owned(), before, ours: taken })
    }
}

impl Drop for StampGuard {
    fn drop(&mut self) {
        let Ok(socket) = sys::request_socket() else { return };
        // Settings that another program has made since, for PTP for example, are kept; the interface may be
        // gone, too.
        if sys::stamp_settings(socket.as_fd(), &self.interface).is_ok_and(|now| now == self.ours) {
            let _ = sys::set_stamp_settings(socket.as_fd(), &self.interface, self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with all capabilities of `ethtool -T`, with these settings, and with a right clock.
    fn able() -> TimestampDevice {
        TimestampDevice {
            able: 0x5f,
            filters: 1 | 1 << ALL,
            settings: Some(StampSettings { flags: 0, transmit: 1, filter: ALL }),
            clock: (0, Ok(1_000)),
        }
    }

    #[test]
    fn what_is_done_follows_from_what_the_device_says() {
        let off = Some(StampSettings { flags: 0, transmit: 1, filter: 0 });
        let on = Some(StampSettings { flags: 0, transmit: 1, filter: ALL });
        let fresh = Some(StampSettings { flags: 0, transmit: 0, filter: ALL });
        let apart = |nanos| NoStamps::Apart { clock: 0, nanos };
        for (what, device, auto, hardware) in [
            ("all, and on", able(), Ok(None), Ok(None)),
            ("all, and off", TimestampDevice { settings: off, ..able() }, Err(NoStamps::NotOn), Ok(on)),
            (
                "it does not say how it is set",
                TimestampDevice { settings: None, ..able() },
                Err(NoStamps::NotOn),
                Ok(fresh),
            ),
            (
                "PTP only (filter 12: PTP v2 events)",
                TimestampDevice { filters: 1 | 1 << 12, settings: off, ..able() },
                Err(NoStamps::NotAll),
                Err(NoStamps::NotAll),
            ),
            (
                "a veth: software only",
                TimestampDevice { able: 0x1a, filters: 0, settings: None, clock: (-1, Err("none".into())) },
                Err(NoStamps::NotOffered),
                Err(NoStamps::NotOffered),
            ),
            (
                "only what is sent",
                TimestampDevice { able: 1 | 1 << 6, ..able() },
                Err(NoStamps::NotOffered),
                Err(NoStamps::NotOffered),
            ),
            (
                "TAI, which is ahead of UTC",
                TimestampDevice { clock: (0, Ok(37_000_000_000)), ..able() },
                Err(apart(37_000_000_000)),
                Err(apart(37_000_000_000)),
            ),
            (
                "since the device was switched on",
                TimestampDevice { clock: (0, Ok(-1_700_000_000_000_000_000)), settings: off, ..able() },
                Err(NoStamps::NotOn),
                Err(apart(-1_700_000_000_000_000_000)),
            ),
            (
                "a clock without a right to read it",
                TimestampDevice { clock: (3, Err("no".into())), ..able() },
                Err(NoStamps::NoClock("no".into())),
                Err(NoStamps::NoClock("no".into())),
            ),
        ] {
            assert_eq!(decide(Timestamps::Software, &device), Ok(Decision::Kernel(None)), "{what}");
            let of_auto = match auto {
                Ok(set) => Decision::Device(set),
                Err(why) => Decision::Kernel(Some(why)),
            };
            assert_eq!(decide(Timestamps::Auto, &device), Ok(of_auto), "{what}");
            assert_eq!(decide(Timestamps::Hardware, &device), hardware.map(Decision::Device), "{what}");
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let apart = NoStamps::Apart { clock: 2, nanos: -37_000_000_000 }.to_string();
        assert!(
            apart.contains("37.000 s earlier") && apart.contains("phc2sys -s CLOCK_REALTIME -c /dev/ptp2")
        );
    }
}
