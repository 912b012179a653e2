// SPDX-License-Identifier: Apache-2.0
//! Two ports between which packets pass: packets that arrive at one leave at the other.

use crate::error::{OpenError, PortError};
use crate::inline::{InlineOptions, InlinePort};
use crate::offload::Warning;
use crate::port::Port;
use crate::wait::{Waker, Woke, busy_poll_any, wait_any};
use bartizan_base::Spread;
use std::time::Duration;

/// A side of an inline pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairSide {
    /// The first port.
    A,
    /// The second port.
    B,
}

impl PairSide {
    /// Both.
    pub const BOTH: [PairSide; 2] = [PairSide::A, PairSide::B];

    /// The opposite side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            PairSide::A => PairSide::B,
            PairSide::B => PairSide::A,
        }
    }
}

/// Two ports that forward to each other: one link.
pub struct InlinePair {
    a: Box<dyn Port>,
    b: Box<dyn Port>,
    /// The named ports, by their numbers.
    exits: Vec<Box<dyn Port>>,
}

impl InlinePair {
    /// Pairs two ports.
    ///
    /// # Errors
    /// Their MTUs differ, unless `mtu_may_differ` (packets too large for the egress are then refused and
    /// counted).
    pub fn new(a: Box<dyn Port>, b: Box<dyn Port>, mtu_may_differ: bool) -> Result<Self, OpenError> {
        if a.mtu() != b.mtu() && !mtu_may_differ {
            return Err(OpenError::MtuMismatch {
                a: a.name().to_owned(),
                mtu_a: a.mtu(),
                b: b.name().to_owned(),
                mtu_b: b.mtu(),
            });
        }
        Ok(Self { a, b, exits: Vec::new() })
    }

    /// Adds named ports through which redirected packets leave, in the order of their numbers. They receive
    /// no packets.
    #[must_use]
    pub fn with_exits(self, exits: Vec<Box<dyn Port>>) -> Self {
        Self { exits, ..self }
    }

    /// Opens two interfaces and pairs them. Returns also the warnings for the operator.
    ///
    /// # Errors
    /// The errors of [`InlinePort::open`]; one interface is named twice, or the MTUs differ.
    pub fn open(
        a: &str,
        b: &str,
        options: &InlineOptions,
        mtu_may_differ: bool,
    ) -> Result<(Self, Vec<Warning>), OpenError> {
        if a == b {
            return Err(OpenError::SameInterface { name: a.to_owned() });
        }
        let (a, b) = (InlinePort::open(a, options)?, InlinePort::open(b, options)?);
        let warnings = a.warnings().iter().chain(b.warnings()).cloned().collect();
        Ok((Self::new(Box::new(a), Box::new(b), mtu_may_differ)?, warnings))
    }

    /// Opens two interfaces for each worker and pairs them. The packets of a flow reach one of the pairs, the
    /// same one from both sides: see [`InlinePort::open_group`]. Returns also the warnings for the operator.
    ///
    /// # Errors
    /// The errors of [`InlinePort::open_group`]; one interface is named twice, or the MTUs differ.
    pub fn open_group(
        a: &str,
        b: &str,
        options: &InlineOptions,
        spread: &Spread,
        mtu_may_differ: bool,
    ) -> Result<(Vec<Self>, Vec<Warning>), OpenError> {
        if a == b {
            return Err(OpenError::SameInterface { name: a.to_owned() });
        }
        let one = InlinePort::open_group(a, options, spread)?;
        let other = InlinePort::open_group(b, options, spread)?;
        let firsts = one.first().into_iter().chain(other.first());
        let warnings = firsts.flat_map(InlinePort::warnings).cloned().collect();
        let pairs =
            one.into_iter().zip(other).map(|(a, b)| Self::new(Box::new(a), Box::new(b), mtu_may_differ));
        Ok((pairs.collect::<Result<_, _>>()?, warnings))
    }

    /// (ingress port, egress port) of packets that arrive at `side`.
    pub fn direction(&mut self, side: PairSide) -> (&mut dyn Port, &mut dyn Port) {
        let (ingress, egress, _) = self.ways(side);
        (ingress, egress)
    }

    /// [`InlinePair::direction`], and the named ports.
    pub fn ways(&mut self, side: PairSide) -> (&mut dyn Port, &mut dyn Port, &mut [Box<dyn Port>]) {
        match side {
            PairSide::A => (&mut *self.a, &mut *self.b, self.exits.as_mut_slice()),
            PairSide::B => (&mut *self.b, &mut *self.a, self.exits.as_mut_slice()),
        }
    }

    /// The named ports.
    pub fn exits(&mut self) -> &mut [Box<dyn Port>] {
        &mut self.exits
    }

    /// The port of a side.
    pub fn port(&mut self, side: PairSide) -> &mut dyn Port {
        self.direction(side).0
    }

    /// The greater backlog of the two: see [`Port::backlog`].
    #[must_use]
    pub fn backlog(&self) -> u8 {
        self.a.backlog().max(self.b.backlog())
    }

    /// Sleeps until a side has packets: see [`wait_any`].
    ///
    /// # Errors
    /// See [`wait_any`].
    pub fn wait(
        &mut self,
        waker: Option<&Waker>,
        spin: Duration,
        timeout: Duration,
    ) -> Result<Woke, PortError> {
        wait_any(&mut [&mut *self.a, &mut *self.b], waker, spin, timeout)
    }

    /// Polls until a side has packets, `else_ready` is true, or `spin` is over: see [`busy_poll_any`].
    #[must_use]
    pub fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        busy_poll_any(&[&mut *self.a, &mut *self.b], else_ready, spin)
    }
}
