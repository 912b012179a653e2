// SPDX-License-Identifier: Apache-2.0
//! Checks of interfaces before the program is attached to any of them.

use super::{XdpProgram, query_interface};
use crate::error::XdpError;
use crate::port::{Mode, ModeChoice};
use crate::prove::{self, RedirectProbe};
use crate::rights;

impl XdpProgram {
    /// Checks interfaces before any of them is attached: reports all their faults, so that they can be mended
    /// at once. Faults that only attaching shows are left to [`XdpProgram::attach`].
    ///
    /// # Errors
    /// See [`XdpProgram::attach`].
    pub fn check(&mut self, interfaces: &[u32]) -> Result<(), XdpError> {
        // Without it nothing that is said of interfaces below can be put right.
        if rights::missing().contains(&rights::ATTACHING) {
            return Err(XdpError::no_permission("attaching its program"));
        }
        let mut unfit = Vec::new();
        for ifindex in interfaces {
            let link = query_interface(*ifindex)?;
            unfit.extend(prove::port(&link).err());
            // Other faults show once the program is attached, or depend on its mode.
            let native = self.mode != ModeChoice::Only(Mode::Generic) && link.mtu <= prove::ANY_DRIVER_MTU;
            if link.is_up() && link.kind == "veth" && native {
                let probe = match self.probe.take() {
                    Some(probe) => probe,
                    None => RedirectProbe::load()?,
                };
                let probe = self.probe.insert(probe);
                unfit.extend(probe.try_port(&link.name, &link.kind, *ifindex).err());
                // These are no losses of a port.
                let _ = probe.take_lost();
            }
        }
        XdpError::of_ports(unfit)
    }
}
