// SPDX-License-Identifier: Apache-2.0
//! Helpers that tests share: frames ([`packet`], [`layers`], [`hosts`], [`tunnels`]), QUIC packets
//! ([`quic`]), capture files ([`capture`]), numbers that follow from a seed ([`random`]) and committed
//! files that are generated ([`generated`]); network namespaces of their own ([`namespace`]) and named
//! pipes ([`pipe`]).
//!
//! It uses no other crate of the project, for two reasons. Packets and their checksums are made without the
//! code under test, so that a fault cannot hide in both. And the tests of every crate may use it: if it used
//! `packet`, the unit tests of `packet` could not use it, because each type would exist twice for them.
//!
//! Tests that need a whole worker or read events use `bartizan-testkit-worker` (`testkit/worker`), which uses
//! the data plane. It is a crate of its own and no feature of this one: features of all tests that are built
//! together are united, and then the tests of `base` would wait for the data plane.

pub mod capture;
pub mod dns;
pub mod generated;
pub mod hosts;
pub mod layers;
pub mod namespace;
pub mod packet;
pub mod pipe;
pub mod quic;
pub mod random;
pub mod tunnels;
