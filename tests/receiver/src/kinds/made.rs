// SPDX-License-Identifier: Apache-2.0
//! The inputs from which the families build a case.

use super::case::Play;
use super::payload;
use crate::client::{Client, Out};
use crate::receivers::Service;
use crate::server::Call;
use crate::strategy::Strategy;
use bartizan_testkit::packet::{Datagram, Ip, Layer, Packet, UDP};
use bartizan_testkit::random::Random;

/// Inputs and results of building one case.
pub(super) struct Made<'r> {
    pub(super) random: &'r mut Random,
    pub(super) ip: Ip,
    pub(super) sport: u16,
    pub(super) service: Service,
    pub(super) good: Option<Vec<u8>>,
    pub(super) note: String,
    pub(super) call: Option<Call>,
    pub(super) fragmented: u64,
}

impl Made<'_> {
    /// A connection that sends the forbidden version in one piece.
    pub(super) fn client(&mut self) -> Client {
        let (evil, good) = payload::pair(self.service, self.random);
        self.client_of(evil, good)
    }

    pub(super) fn client_of(&mut self, truth: Vec<u8>, lie: Vec<u8>) -> Client {
        let random = Random::new(self.random.draw());
        let mut client = Client::new(self.ip.clone(), (self.sport, self.service.port()), truth, lie, random);
        client.timestamps = self.random.percent(30);
        client
    }

    pub(super) fn tcp_service(&mut self) {
        self.service = *self.random.pick(&[Service::Raw, Service::Http, Service::Http, Service::Tls]);
    }

    /// A request that goes through a strategy.
    pub(super) fn with(&mut self, strategy: Strategy) -> Play {
        if self.service != Service::Dns {
            let mut client = self.client();
            client.strategy = Some(strategy);
            return Play::Tcp(Box::new(client));
        }
        // A client that sends the query three times.
        let mut strategy = strategy;
        self.ip.protocol = UDP;
        let mut out = Out::new();
        for turn in 0..3 {
            let (evil, _) = payload::pair(Service::Dns, self.random);
            let datagram =
                Datagram { sport: self.sport, dport: Service::Dns.port(), load: evil, ..Datagram::default() };
            let packet = Packet { ip: self.ip.clone(), layer: Layer::Udp(datagram), piece: None };
            let sent = strategy.out(packet, self.random);
            out.extend(sent.into_iter().map(|(wait, packet)| (turn * 100 + wait.min(300), packet.frame())));
        }
        Play::Frames(out)
    }
}
