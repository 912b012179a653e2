// SPDX-License-Identifier: Apache-2.0
//! Notifies sessions of changes: wakes the listener's thread, which sends each device its desired generation
//! at once.

use super::own::Own;
use crate::fleet::{Fleet, Invitation, NoWay, Order};
use crate::southbound::listener::ListenerHandle;
use bartizan_api::southbound::DeviceId;
use bartizan_channel::ChannelError;
use bartizan_channel::authority::Withdrawn;
use bartizan_channel::tls::HandshakeClock;
use bartizan_channel::token::Tokens;
use std::sync::OnceLock;

/// Validity of a one-time token, in seconds.
const TOKEN_SECONDS: u64 = 3_600;

/// Notifies the sessions of the listener.
pub struct FleetNotifier {
    own: Own,
    clock: HandshakeClock,
    listener: OnceLock<(ListenerHandle, u16)>,
}

impl FleetNotifier {
    /// A notifier without a listener; until one is set, sessions fetch the desired generation when they
    /// begin.
    #[must_use]
    pub fn new(own: Own, clock: HandshakeClock) -> Self {
        FleetNotifier { own, clock, listener: OnceLock::new() }
    }

    /// Sets the listener to notify, and its port.
    pub fn set_listener(&self, listener: ListenerHandle, port: u16) {
        let _ = self.listener.set((listener, port));
    }
}

fn failed(error: ChannelError) -> NoWay {
    NoWay::Failed(error.to_string())
}

impl Fleet for FleetNotifier {
    fn wanted(&self, device: &str, _: u64) {
        self.changed(device);
    }

    fn changed(&self, device: &str) {
        if let (Some((listener, _)), Ok(device)) = (self.listener.get(), DeviceId::new(device)) {
            listener.changed(&device);
        }
    }

    fn order(&self, device: &str, order: Order) -> Result<(), NoWay> {
        let (listener, _) = self.listener.get().ok_or(NoWay::None)?;
        let device = DeviceId::new(device).map_err(|error| NoWay::Failed(error.to_string()))?;
        listener.order(&device, order.request, order.order, order.function, order.settings);
        Ok(())
    }

    fn invite(&self, device: &str) -> Result<Invitation, NoWay> {
        let (_, port) = self.listener.get().ok_or(NoWay::None)?;
        let now = (self.clock)();
        // The pin is read now: the certificate may have been renewed.
        let pin = self.own.tls_material(now).and_then(|shown| shown.pin()).map_err(failed)?;
        let tokens = Tokens::new(self.own.authority.folder());
        let token = tokens.make(device, pin, now, TOKEN_SECONDS).map_err(failed)?;
        Ok(Invitation { token: token.text(), expires: now.saturating_add(TOKEN_SECONDS), port: *port })
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let Some((listener, _)) = self.listener.get() else { return Vec::new() };
        let (sessions, links) = listener.counters();
        let plain = [
            ("sessions", sessions.sessions),
            ("enrolled", sessions.enrolled),
            ("acknowledged", sessions.acknowledged),
            ("generations-refused", sessions.generations_refused),
            ("objects-sent", sessions.objects_sent),
            ("bytes-sent", sessions.bytes_sent),
            ("objects-withheld", sessions.withheld),
            ("alerts-foreign", sessions.alerts_foreign),
            ("repeated", sessions.repeated),
            ("ahead", sessions.ahead),
            ("twins", sessions.twins),
            ("functions-failed", sessions.functions_failed),
            ("orders-refused", sessions.orders_refused),
            ("connections-refused", sessions.connections_refused + links.source_refused),
            ("gave-way", links.gave_way),
            ("handshakes-failed", links.handshakes_failed + links.handshakes_late),
        ];
        let plain = plain.into_iter().map(|(name, count)| (format!("agents-{name}"), count));
        let name = |code| serde_json::to_value(code).ok().and_then(|name| Some(name.as_str()?.to_owned()));
        let refused = sessions
            .refused
            .iter()
            .filter_map(|(code, count)| Some((format!("agents-refused-{}", name(code)?), *count)));
        let malformed = sessions.malformed.iter();
        let malformed = malformed.map(|(kind, count)| (format!("agents-malformed-{}", kind.name()), *count));
        plain.chain(refused).chain(malformed).collect()
    }

    fn revoke(&self, device: &str) -> Result<Withdrawn, NoWay> {
        self.own.authority.revoke(device, (self.clock)()).map_err(failed)
    }
}
