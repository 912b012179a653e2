// SPDX-License-Identifier: Apache-2.0
//! Keeping idle processors from deep sleep while packets come.
//!
//! A packet that passes between processors meets a sleeping one at every step: the worker's, the receiver's.
//! Waking a processor takes tens of microseconds, most of all a virtual one, which the host has to start
//! again. The kernel can let idle processors wait awake on request (the power management's quality of service
//! for processor latency). The request costs power on the whole machine, so it lasts only while there is
//! traffic.
//!
//! Source: Linux `Documentation/power/pm_qos_interface.rst`: a request lasts as long as the file is open,
//! four bytes written are its value in microseconds.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The device that takes requests.
pub const DEVICE: &str = "/dev/cpu_dma_latency";
/// The value for waiting awake.
const NONE: i32 = 0;
/// The kernel's own value for "as you like" (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const ANY: i32 = 2_000_000_000;

/// A request of one worker.
#[derive(Debug, Default)]
pub struct Awake {
    request: Option<File>,
    requested: bool,
}

impl Awake {
    /// Opens the device; the first request is that of the first [`Awake::packets`].
    ///
    /// # Errors
    /// The kernel has no such device, or not for this user.
    pub fn open() -> io::Result<Self> {
        Self::at(Path::new(DEVICE))
    }

    fn at(device: &Path) -> io::Result<Self> {
        let request = OpenOptions::new().write(true).open(device)?;
        Ok(Self { request: Some(request), requested: false })
    }

    /// Notes packets: idle processors wait awake. A system call only the first time after a silence.
    #[inline]
    pub fn packets(&mut self) {
        if !self.requested {
            self.request_awake(true);
        }
    }

    /// Notes a silence: idle processors may sleep.
    pub fn silence(&mut self) {
        if self.requested {
            self.request_awake(false);
        }
    }

    #[cold]
    fn request_awake(&mut self, awake: bool) {
        self.requested = awake;
        let value = if awake { NONE } else { ANY };
        if let Some(file) = &mut self.request
            && file.write_all(&value.to_ne_bytes()).is_err()
        {
            // The request is optional; a kernel that refuses it now will refuse it again.
            self.request = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_once_for_each_burst() {
        let path = std::env::temp_dir().join(format!("bartizan-awake-{}", std::process::id()));
        std::fs::write(&path, []).unwrap();
        let mut awake = Awake::at(&path).unwrap();
        awake.silence();
        for _ in 0..2 {
            awake.packets();
            awake.packets();
            awake.silence();
            awake.silence();
        }
        drop(awake);
        let asked = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let expected: Vec<u8> = [NONE, ANY, NONE, ANY].into_iter().flat_map(i32::to_ne_bytes).collect();
        assert_eq!(asked, expected);
        // Without such a device there is no request.
        Awake::default().packets();
        assert!(Awake::at(&path).is_err());
    }
}
