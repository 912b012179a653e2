// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for the devices of a change.

use super::{ChangeOutcome, Controller};
use crate::access::Principal;
use crate::device::{DeviceStatus, State};
use crate::problem::Refusal;
use crate::shares::SharePermit;
use crate::waiting::{DeviceAnswer, SHARE_MAX, WAITING_MAX};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Controller {
    /// Reserves a place for a request that will wait for devices. Taken before the change, so that nothing is
    /// changed for a request that is then refused.
    ///
    /// # Errors
    /// All places are taken.
    pub fn wait_place(&self, who: &Principal) -> Result<SharePermit<'_>, Refusal> {
        self.bell.places.take(who.tenant.as_ref().unwrap_or(&who.id)).ok_or_else(|| {
            Refusal::Busy(format!(
                "too many requests wait for devices (at most {SHARE_MAX} of a tenant, {WAITING_MAX} in all); nothing was changed: try again, or leave out `wait`"
            ))
        })
    }

    /// Waits, up to `most`, until the devices of a change have answered its generation or a later one. A
    /// caller of one tenant gets only that tenant's part of the answers ([`DeviceAnswer::only_of`]).
    #[must_use]
    pub fn answers(
        &self,
        _place: &SharePermit<'_>,
        who: &Principal,
        outcome: &ChangeOutcome,
        most: Duration,
    ) -> BTreeMap<String, DeviceAnswer> {
        let mut answers = BTreeMap::new();
        self.bell.until(Instant::now() + most, || {
            let model = self.model();
            let mut all = true;
            for device in &outcome.devices {
                let status = DeviceStatus::of(&model, device);
                // A refusal concerns the desired generation; a device that runs a later generation runs this
                // change too.
                let refused = status.state == State::Refused && status.wanted >= outcome.generation;
                all &= refused || status.running >= outcome.generation;
                let mut answer = DeviceAnswer::of(status);
                if let Some(tenant) = &who.tenant {
                    answer.only_of(&model, tenant);
                }
                answers.insert(device.clone(), answer);
            }
            all
        });
        answers
    }
}
