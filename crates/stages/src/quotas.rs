// SPDX-License-Identifier: Apache-2.0
//! Quotas of tenants and their use: flows, alerts and bytes of state of all workers together.
//!
//! A tenant with a quota has a [`Meter`], which all workers share and which outlives generations. A flow is
//! counted when it is made, by one atomic step that refuses a flow above the quota, so the sum over the
//! workers never exceeds the quota; the flow holds its place ([`QuotaReservation`]) until it ends, also when
//! it moves to another worker. At the quota, one of the tenant's own flows on the same worker gives way:
//! among the oldest ones, half-open flows before idle ones (`QuotaFlows::victim`). Flows of other tenants are
//! untouched. If no flow may give way, the new flow is refused, as where the table is full.
//!
//! Tenants without quotas cost a list lookup when a flow is made and when an alert is written, and nothing
//! for a packet.
//!
//! Bytes of state (streams, application layers and state of functions) are counted as they change
//! (`StateCharge`); above the quota, flows of the tenant give way in the order of `crate::app_memory`, on the
//! worker whose packet increased the state. The sum exceeds the quota by at most one packet's state per
//! worker.
//!
//! Flows that are older than their tenant's quota count from their next packet on.

use crate::notice::{Exceeded, QuotaKind};
use bartizan_base::turns::wait_for_turn;
use bartizan_base::{FlowId, PacketDuration, TenantId, Timestamp};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Maximum number of a tenant's flows that one search for a flow to evict visits.
pub const LOOKED_AT: usize = 32;
/// An established flow without a packet for this time counts as idle.
pub const IDLE: PacketDuration = PacketDuration::from_secs(10);

/// The quotas of a tenant; `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Flows.
    pub flows: Option<u64>,
    /// Alerts written per second of the packet clock.
    pub alerts: Option<u32>,
    /// Bytes of streams, application layers and state of functions.
    pub state: Option<u64>,
}

/// The use of a tenant's quotas by all workers.
#[derive(Debug, Default)]
pub struct Meter {
    flows: AtomicU64,
    gave_way: AtomicU64,
    flows_refused: AtomicU64,
    /// Second, and the number of its alerts in the lowest 24 bits.
    alerts: AtomicU64,
    alerts_left_out: AtomicU64,
    state: AtomicU64,
    closed: AtomicU64,
    /// End of the time without further notices, by quota; seconds of the packet clock.
    quiet: [AtomicU64; QuotaKind::ALL.len()],
}

/// A snapshot of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Flows now.
    pub flows: u64,
    /// Flows that ended to make room for others of the tenant.
    pub gave_way: u64,
    /// Packets that opened no flow because of the quota.
    pub flows_refused: u64,
    /// Alerts that were counted and not written.
    pub alerts_left_out: u64,
    /// Bytes of state now.
    pub state: u64,
    /// Flows closed because of these bytes.
    pub closed: u64,
}

/// Bits of [`Meter::alerts`] that hold the count.
const COUNT_BITS: u32 = 24;
const COUNT_MOST: u64 = (1 << COUNT_BITS) - 1;

/// Least time between two notices of a quota that is used up, in seconds of the packet clock.
pub const TOLD_APART: u64 = 60;

impl Meter {
    /// Whether a notice is due that a quota is used up: once in [`TOLD_APART`] seconds of the packet clock,
    /// over all workers.
    fn is_news(&self, quota: QuotaKind, now: Timestamp) -> bool {
        let Some(quiet) = self.quiet.get(quota as usize) else { return false };
        let until = quiet.load(Ordering::Relaxed);
        let then = now.as_secs().saturating_add(TOLD_APART);
        now.as_secs() >= until
            && quiet.compare_exchange(until, then, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A snapshot of the use.
    #[must_use]
    pub fn used(&self) -> QuotaUsage {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QuotaUsage {
            flows: of(&self.flows),
            gave_way: of(&self.gave_way),
            flows_refused: of(&self.flows_refused),
            alerts_left_out: of(&self.alerts_left_out),
            state: of(&self.state),
            closed: of(&self.closed),
        }
    }

    /// Counts a flow, if there are fewer than `most`.
    fn count(self: &Arc<Self>, most: u64) -> Option<QuotaReservation> {
        // Captures: workers touch shared state in the order of the packets.
        wait_for_turn();
        let one_more = |flows| (flows < most).then_some(flows + 1);
        let counted = self.flows.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.ok().map(|_| QuotaReservation { meter: Arc::clone(self), may_give_way: true })
    }

    /// Whether an alert may be written: one of the first `most` of its second. A worker whose clock lags
    /// behind another one's counts in that worker's second.
    fn alert(&self, now: Timestamp, most: u32) -> bool {
        let most = u64::from(most).min(COUNT_MOST);
        let next = |word: u64| {
            let (second, count) = (word >> COUNT_BITS, word & COUNT_MOST);
            let (second, count) = if now.as_secs() > second { (now.as_secs(), 0) } else { (second, count) };
            (count < most).then_some(second << COUNT_BITS | (count + 1))
        };
        let written = self.alerts.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok();
        if !written {
            self.alerts_left_out.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

/// The place that a flow holds in its tenant's quota; dropped with the flow.
#[derive(Debug)]
pub struct QuotaReservation {
    meter: Arc<Meter>,
    may_give_way: bool,
}

impl QuotaReservation {
    /// Whether the flow may end for another one of its tenant: only flows opened under a quota may.
    #[must_use]
    pub const fn may_give_way(&self) -> bool {
        self.may_give_way
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        // Captures: a worker that is ahead must not free places for earlier packets.
        wait_for_turn();
        self.meter.flows.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The state that a worker's flows of a tenant hold, as charged to the tenant's quota; dropping it ends the
/// charge. Over captures each access waits for the worker's turn, so that each run closes the same flows.
#[derive(Debug)]
pub struct StateCharge {
    most: u64,
    meter: Arc<Meter>,
    charged: u64,
}

impl StateCharge {
    /// Sets the bytes that the flows hold now.
    pub fn set(&mut self, used: u64) {
        if used == self.charged {
            return;
        }
        wait_for_turn();
        let before = core::mem::replace(&mut self.charged, used);
        match used.checked_sub(before) {
            Some(more) => self.meter.state.fetch_add(more, Ordering::AcqRel),
            None => self.meter.state.fetch_sub(before.saturating_sub(used), Ordering::AcqRel),
        };
    }

    /// Whether the tenant's state on all workers exceeds the quota.
    pub fn is_over(&self) -> bool {
        if self.charged == 0 {
            return false;
        }
        wait_for_turn();
        self.meter.state.load(Ordering::Acquire) > self.most
    }

    /// Counts a flow closed for the quota.
    pub fn note_closed(&self) {
        wait_for_turn();
        self.meter.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for StateCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The quotas of a generation.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// Quota and meter by the tenant's number.
    tenants: Vec<Option<(Quota, Arc<Meter>)>>,
    names: Vec<(TenantId, Arc<str>)>,
}

/// The error for a tenant that has reached its quota of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant's quota of flows is used up")]
pub struct FlowsUsedUp;

impl Quotas {
    /// The quotas of these tenants: number, name, quota and meter.
    #[must_use]
    pub fn new(of: Vec<(TenantId, Arc<str>, Quota, Arc<Meter>)>) -> Self {
        let mut quotas = Quotas::default();
        for (tenant, name, quota, meter) in of {
            let at = usize::from(tenant.0);
            if quotas.tenants.len() <= at {
                quotas.tenants.resize(at + 1, None);
            }
            if let Some(place) = quotas.tenants.get_mut(at) {
                *place = Some((quota, meter));
            }
            quotas.names.push((tenant, name));
        }
        quotas
    }

    /// Whether no tenant has a quota.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    #[inline]
    fn of(&self, tenant: TenantId) -> Option<&(Quota, Arc<Meter>)> {
        self.tenants.get(usize::from(tenant.0))?.as_ref()
    }

    /// The highest number of a tenant with a quota, plus one.
    pub const fn len(&self) -> usize {
        self.tenants.len()
    }

    /// A new charge for a worker's state of a tenant, if the tenant has a quota of state.
    pub fn state_charge(&self, tenant: TenantId) -> Option<StateCharge> {
        let (Quota { state: Some(most), .. }, meter) = self.of(tenant)? else { return None };
        Some(StateCharge { most: *most, meter: Arc::clone(meter), charged: 0 })
    }

    /// The tenants with quotas, by name, with their use.
    pub fn used(&self) -> impl Iterator<Item = (&Arc<str>, Quota, QuotaUsage)> {
        self.names.iter().filter_map(|(tenant, name)| {
            let (quota, meter) = self.of(*tenant)?;
            Some((name, *quota, meter.used()))
        })
    }

    /// The place of a new flow of a tenant. `None`: the tenant has no quota of flows.
    ///
    /// # Errors The quota is used up.
    #[inline]
    pub fn place(&self, tenant: TenantId) -> Result<Option<QuotaReservation>, FlowsUsedUp> {
        let Some((Quota { flows: Some(most), .. }, meter)) = self.of(tenant) else { return Ok(None) };
        meter.count(*most).map(Some).ok_or(FlowsUsedUp)
    }

    /// The place of an existing flow, also beyond the quota. This flow is never evicted for another.
    pub fn place_of_known(&self, tenant: TenantId) -> Option<QuotaReservation> {
        let (Quota { flows: Some(_), .. }, meter) = self.of(tenant)? else { return None };
        let mut counted = meter.count(u64::MAX)?;
        counted.may_give_way = false;
        Some(counted)
    }

    /// The notice of a used-up quota, if one is due.
    #[cold]
    pub fn exceeded(&self, tenant: TenantId, quota: QuotaKind, now: Timestamp) -> Option<Exceeded> {
        let (limits, meter) = self.of(tenant)?;
        if !meter.is_news(quota, now) {
            return None;
        }
        let used = meter.used();
        let (limit, times) = match quota {
            QuotaKind::Flows => (limits.flows?, used.gave_way.saturating_add(used.flows_refused)),
            QuotaKind::Alerts => (limits.alerts?.into(), used.alerts_left_out),
            QuotaKind::State => (limits.state?, used.closed),
        };
        let (_, name) = self.names.iter().find(|(known, _)| *known == tenant)?;
        Some(Exceeded { tenant, name: Arc::clone(name), quota, limit, times })
    }

    /// Counts an evicted flow of the tenant, or a packet that opened no flow.
    pub fn note(&self, tenant: TenantId, gave_way: bool) {
        if let Some((_, meter)) = self.of(tenant) {
            let counter = if gave_way { &meter.gave_way } else { &meter.flows_refused };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether an alert of a tenant may be written; counts it otherwise.
    #[inline]
    pub fn writes_alert(&self, tenant: TenantId, now: Timestamp) -> bool {
        let Some((Quota { alerts: Some(most), .. }, meter)) = self.of(tenant) else { return true };
        wait_for_turn();
        meter.alert(now, *most)
    }
}

/// The order in which flows are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gives {
    /// A flow without a reply or a complete handshake; time of its last packet.
    HalfOpen(Timestamp),
    /// A flow without a packet for [`IDLE`]; time of its last packet.
    Idle(Timestamp),
}

/// A worker's flows of tenants with quotas, in the order of opening: number in the table and serial number.
#[derive(Debug, Default)]
pub struct QuotaFlows {
    by_tenant: HashMap<TenantId, VecDeque<(FlowId, u64)>>,
}

impl QuotaFlows {
    /// Adds an opened flow. `is_there`: whether a flow still exists.
    pub fn push(&mut self, tenant: TenantId, flow: (FlowId, u64), is_there: impl Fn(FlowId, u64) -> bool) {
        let flows = self.by_tenant.entry(tenant).or_default();
        // Ended flows are removed when the list would grow, so its length is at most twice the greatest
        // number of flows.
        if flows.len() == flows.capacity() {
            flows.retain(|(id, serial)| is_there(*id, *serial));
        }
        flows.push_back(flow);
    }

    /// The flow of a tenant to evict: among the [`LOOKED_AT`] flows at the front of the list, the first
    /// half-open one, else the one that has been idle longest. `gives`: the rank of a flow; outer `None`: the
    /// flow has ended, inner `None`: the flow may not be evicted.
    pub fn victim(
        &mut self,
        tenant: TenantId,
        gives: impl Fn(FlowId, u64) -> Option<Option<Gives>>,
    ) -> Option<FlowId> {
        let flows = self.by_tenant.get_mut(&tenant)?;
        let mut first: Option<(Gives, (FlowId, u64))> = None;
        for _ in 0..LOOKED_AT.min(flows.len()) {
            let Some(flow) = flows.pop_front() else { break };
            let Some(given) = gives(flow.0, flow.1) else { continue };
            // A visited flow is visited again after all others.
            flows.push_back(flow);
            if let Some(given) = given
                && first.is_none_or(|(known, _)| given < known)
            {
                first = Some((given, flow));
            }
        }
        first.map(|(_, (id, _))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::turns::CaptureTurns;

    fn quotas(flows: u64, alerts: u32) -> Quotas {
        let quota = Quota { flows: Some(flows), alerts: Some(alerts), state: Some(1_000) };
        Quotas::new(vec![(TenantId(3), Arc::from("acme"), quota, Arc::default())])
    }

    fn used(quotas: &Quotas) -> QuotaUsage {
        quotas.used().next().unwrap().2
    }

    #[test]
    fn workers_together_never_have_more_flows_than_the_quota() {
        let quotas = quotas(100, 1);
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    for step in 0..20_000u32 {
                        match quotas.place(TenantId(3)) {
                            Ok(place) => held.push(place),
                            Err(FlowsUsedUp) => drop(held.pop()),
                        }
                        most.fetch_max(used(&quotas).flows, Ordering::Relaxed);
                        if step % 7 == 0 {
                            drop(held.pop());
                        }
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), used(&quotas).flows), (100, 0));
        assert!(matches!(quotas.place(TenantId(0)), Ok(None)), "others have no bound");
        assert!(matches!(quotas.place(TenantId(4)), Ok(None)));
    }

    #[test]
    fn a_place_that_a_worker_ahead_gives_back_is_not_there_for_packets_before() {
        let (quotas, turns) = (quotas(1, 1), CaptureTurns::new(2));
        let (behind, ahead) = (turns.take_part(0), AtomicU64::new(0));
        behind.at(2, 0);
        std::thread::scope(|scope| {
            let (quotas, turns, ahead) = (&quotas, &turns, &ahead);
            scope.spawn(move || {
                let turn = turns.take_part(1);
                turn.at(1, 0);
                let place = quotas.place(TenantId(3));
                turn.at(9, 0);
                ahead.store(1, Ordering::Release);
                drop(place);
            });
            while ahead.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            // Time for the other worker to do what it must not do.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(quotas.place(TenantId(3)).is_err(), "it was held at 2");
            behind.at(10, 0);
            assert!(quotas.place(TenantId(3)).is_ok(), "given back at 9");
            drop(behind);
        });
    }

    #[test]
    fn state_is_counted_in_the_order_of_the_packets() {
        let (quotas, turns) = (quotas(1, 1), CaptureTurns::new(2));
        let (behind, ahead) = (turns.take_part(0), AtomicU64::new(0));
        let charge = || quotas.state_charge(TenantId(3)).unwrap();
        let mut own = charge();
        behind.at(2, 0);
        std::thread::scope(|scope| {
            let (turns, ahead) = (&turns, &ahead);
            scope.spawn(move || {
                let (turn, mut charge) = (turns.take_part(1), charge());
                turn.at(1, 0);
                charge.set(900);
                turn.at(9, 0);
                ahead.store(1, Ordering::Release);
                // The first worker's flows hold more than the quota, and then nothing, at place 9.
                charge.set(1_900);
                assert!(charge.is_over());
                drop(charge);
                turn.at(11, 0);
            });
            while ahead.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            // Time for the other worker to do what it must not do.
            std::thread::sleep(std::time::Duration::from_millis(20));
            own.set(100);
            assert!(!own.is_over() && used(&quotas).state == 1_000, "at 2 it is as much as there may be");
            behind.at(10, 0);
            assert!(!own.is_over() && used(&quotas).state == 100, "at 10 the other holds nothing");
            drop(own);
            drop(behind);
        });
    }

    #[test]
    fn alerts_are_counted_by_second_and_clocks_behind_do_not_begin_another() {
        let quotas = quotas(1, 2);
        let at = |second| Timestamp::from_parts(second, 5);
        let written: Vec<bool> =
            [7, 7, 7, 8, 7, 8, 9].into_iter().map(|s| quotas.writes_alert(TenantId(3), at(s))).collect();
        assert_eq!(written, [true, true, false, true, true, false, true]);
        assert_eq!(used(&quotas).alerts_left_out, 2);
        assert!((0..9).all(|_| quotas.writes_alert(TenantId(1), at(1))));
    }

    #[test]
    fn that_a_quota_is_used_up_is_told_once_in_a_minute_whatever_the_number_of_workers() {
        let quotas = quotas(7, 2);
        let at = |second| Timestamp::from_parts(second, 5);
        quotas.note(TenantId(3), true);
        let told = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let news = quotas.exceeded(TenantId(3), QuotaKind::Flows, at(1_000));
                        told.fetch_add(u64::from(news.is_some()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(told.into_inner(), 1);
        let again = |quota, second| quotas.exceeded(TenantId(3), quota, at(second));
        assert_eq!(again(QuotaKind::Flows, 1_059), None);
        let news = again(QuotaKind::Flows, 1_060).expect("a minute later");
        assert_eq!((news.name.as_ref(), news.limit, news.times), ("acme", 7, 1));
        assert!(again(QuotaKind::Alerts, 1_060).is_some(), "each quota by itself");
        assert_eq!(quotas.exceeded(TenantId(1), QuotaKind::Flows, at(5_000)), None);
    }

    #[test]
    fn bytes_of_workers_add_up_and_who_goes_holds_none() {
        let quotas = quotas(1, 1);
        let mut charges: Vec<_> = (0..3).filter_map(|_| quotas.state_charge(TenantId(3))).collect();
        for (worker, (used, over)) in [(400, false), (600, false), (1, true)].into_iter().enumerate() {
            charges[worker].set(used);
            assert_eq!(charges[worker].is_over(), over);
        }
        charges[0].set(300);
        assert_eq!((used(&quotas).state, charges[2].is_over()), (901, false));
        drop(charges);
        assert_eq!(used(&quotas).state, 0);
        assert!(quotas.state_charge(TenantId(1)).is_none());
    }

    #[test]
    fn the_oldest_half_open_flow_gives_way_then_the_one_idle_longest() {
        let mut opened = QuotaFlows::default();
        for n in 0..6u32 {
            opened.push(TenantId(1), (FlowId(n), 1), |_, _| true);
        }
        let at = |second| Timestamp::from_parts(second, 0);
        let gives = |half: &'static [u32]| {
            move |id: FlowId, _| {
                let given = match id.0 {
                    0 => return None,
                    n if half.contains(&n) => Some(Gives::HalfOpen(at(u64::from(n)))),
                    1 => Some(Gives::Idle(at(9))),
                    5 => Some(Gives::Idle(at(4))),
                    _ => None,
                };
                Some(given)
            }
        };
        assert_eq!(opened.victim(TenantId(1), gives(&[3, 4])), Some(FlowId(3)));
        assert_eq!(opened.victim(TenantId(1), gives(&[])), Some(FlowId(5)));
        assert_eq!(opened.victim(TenantId(2), gives(&[])), None, "another tenant's are not touched");
    }
}
