// SPDX-License-Identifier: Apache-2.0
//! The inputs from which the families build a case.

use super::case::Play;
use super::payload;
use crate::client::{Client, Out};
use crate::receivers::Service;
use crate::server::Call;
use crate::strategy::Strategy;
use crate::talk::{Act, Talk};
use bartizan_testkit::packet::{Datagram, Ip, Layer, Packet, UDP};
use bartizan_testkit::random::Random;
use std::net::IpAddr;

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
    /// Address of the host, if the case is a conversation.
    pub(super) talker: IpAddr,
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

    /// A conversation. One in four is that of an ordinary client: the server has to record its mark.
    pub(super) fn talk(&mut self, service: Service, act: Act, good: Act) -> Play {
        self.service = service;
        let is_good = self.random.percent(25);
        let random = Random::new(self.random.draw());
        let mut talk = Talk::new(self.talker, service, if is_good { good } else { act }, random);
        if is_good {
            (talk.is_good, talk.word) = (true, "good");
            self.good = Some(talk.mark.clone().into_bytes());
        }
        self.note = if is_good { "a good conversation".into() } else { String::new() };
        Play::Talk(Box::new(talk))
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
