// SPDX-License-Identifier: Apache-2.0
//! Agents and a controller over a network that delays, splits, loses and duplicates connections, while both
//! crash: seeded, without sockets or clocks. `BARTIZAN_SEED` plays one other seed.
//!
//! Invariants at all times: a device runs the content published under that number for its tenants, its
//! generation never goes back, and an acknowledged generation is durable on the device. At the end every
//! device runs the desired generation.

use bartizan_agent::session::{ControllerGeneration, Session, SessionAction, SessionConfig};
use bartizan_api::southbound::*;
use bartizan_controller::southbound::{
    Backend, Connection, DeviceRecord, EnrolRefusal, PeerIdentity, ServerConfig, SouthboundServer,
    Unavailable, Wanted,
};
use bartizan_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const DEVICES: usize = 8;
const TENANTS: u16 = 4;

/// The controller's durable store, which survives a crash.
#[derive(Debug, Default, Clone)]
struct Stored {
    generation: u64,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    /// All generations published so far.
    published: BTreeMap<u64, BTreeMap<ObjectKey, Arc<Object>>>,
    acknowledged: BTreeMap<DeviceId, u64>,
    refused: BTreeMap<DeviceId, u64>,
    received: BTreeMap<(DeviceId, u64), (u64, u64)>,
    counted: BTreeMap<(DeviceId, u64), u64>,
    alerts: BTreeMap<(DeviceId, u64), u64>,
    /// Writes fail at present.
    failing: bool,
}

fn tenants_of(device: &DeviceId) -> BTreeSet<u16> {
    let number: u16 = device.as_str().trim_start_matches("device-").parse().unwrap();
    BTreeSet::from([number % TENANTS, (number + 1) % TENANTS])
}

impl Backend for Stored {
    fn tick(&mut self, _: Now) {}
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord> {
        Some(DeviceRecord { tenants: tenants_of(device) })
    }
    fn wanted(&self, _: &DeviceId) -> Option<Arc<Wanted>> {
        (self.generation > 0).then(|| Arc::new(Wanted::new(self.generation, self.objects.clone())))
    }
    fn running(&mut self, device: &DeviceId, generation: u64, _: &GenerationAck) -> Result<(), Unavailable> {
        if self.failing {
            return Err(Unavailable);
        }
        let known = self.acknowledged.entry(device.clone()).or_default();
        assert!(generation >= *known, "{device} went back from {known} to {generation}");
        *known = generation;
        Ok(())
    }
    fn refused(
        &mut self,
        device: &DeviceId,
        generation: u64,
        _: &GenerationRefusal,
    ) -> Result<(), Unavailable> {
        self.refused.insert(device.clone(), generation);
        Ok(())
    }
    fn ahead(&mut self, device: &DeviceId, generation: u64) {
        panic!("{device} is ahead with {generation}; only {} were published", self.generation);
    }
    fn received(&self, device: &DeviceId, instance: u64) -> (u64, u64) {
        self.received.get(&(device.clone(), instance)).copied().unwrap_or_default()
    }
    fn statistics(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable> {
        if self.failing {
            return Err(Unavailable);
        }
        let key = (device.clone(), instance);
        self.received.entry(key.clone()).or_default().0 = sequence;
        *self.counted.entry(key).or_default() += delta.counters.values().sum::<u64>();
        Ok(())
    }
    fn alerts(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<AlertAggregate>,
        _: u64,
    ) -> Result<(), Unavailable> {
        let key = (device.clone(), instance);
        self.received.entry(key.clone()).or_default().1 = sequence;
        *self.alerts.entry(key).or_default() += alerts.iter().map(|alert| alert.count).sum::<u64>();
        Ok(())
    }
    fn function(&mut self, _: &DeviceId, _: u32, _: FunctionState) {}
    fn enrol(&mut self, _: Now, _: &str, _: &Enrol, _: Option<&DeviceId>) -> Result<Enrolled, EnrolRefusal> {
        unreachable!("nobody enrols here")
    }
    fn is_revoked(&self, _: &str) -> bool {
        false
    }
}

/// One direction of a connection: pieces with their arrival times.
#[derive(Debug, Default)]
struct Pipe(VecDeque<(u64, Vec<u8>)>);

#[derive(Debug)]
struct Wire {
    id: Connection,
    up: Pipe,
    down: Pipe,
    /// The agent has closed the connection; the controller does not know yet.
    abandoned: bool,
    /// The connection loses everything silently.
    dead: bool,
}

#[derive(Debug)]
struct Device {
    id: DeviceId,
    session: Session,
    /// The device's durable state.
    disk: ControllerGeneration,
    building: VecDeque<(u64, ControllerGeneration)>,
    wire: Option<Connection>,
    instance: u64,
    counted: u64,
    raised: u64,
}

struct World {
    random: Random,
    now: u64,
    server: Option<SouthboundServer<Stored>>,
    /// The controller's durable state while it is down.
    disk: Stored,
    devices: Vec<Device>,
    wires: BTreeMap<Connection, Wire>,
    next_wire: Connection,
    faults: bool,
    /// Devices create no new reports.
    silent: bool,
    /// Reports handed over by earlier starts of agents: device, instance and number.
    past: Vec<(DeviceId, u64, u64)>,
    /// Sessions, and replaced sessions, of earlier starts of the controller.
    sessions: u64,
    replaced: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let devices = (0..DEVICES)
            .map(|n| Device::new(&format!("device-{n}"), ControllerGeneration::default(), random.draw()))
            .collect();
        World {
            random,
            now: 1,
            server: Some(SouthboundServer::new(config(), Stored::default())),
            disk: Stored::default(),
            devices,
            wires: BTreeMap::new(),
            next_wire: 1,
            faults: true,
            silent: false,
            past: Vec::new(),
            sessions: 0,
            replaced: 0,
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.draw().is_multiple_of(one_in)
    }

    fn at(&self) -> Now {
        Now { ms: self.now, unix: self.now / 1_000 }
    }

    /// An operator changes some policies, which makes a new generation.
    fn publish(&mut self) {
        let Some(server) = &mut self.server else { return };
        let changes = 1 + self.random.draw() % 4;
        let stored = server.backend();
        for _ in 0..changes {
            let number = self.random.draw();
            let tenant = (number % u64::from(TENANTS)) as u16;
            let object = if number.is_multiple_of(5) {
                // A group belongs to one tenant for ever.
                let (id, tenant) = ((number >> 8) as u32 % 3, (number >> 8) as u16 % 3);
                let long = "x".repeat(if number.is_multiple_of(50) { 200_000 } else { 900 });
                let rules = (0..number % 9)
                    .map(|n| format!("alert ip any any -> any any (msg:\"{long}\"; sid:{n};)"));
                let rules = GroupRules::Raw(rules.collect());
                Object::Group(RuleGroup { id, tenant, rule_type: RuleType::Ids, rules })
            } else {
                let name = format!("p{}", (number >> 16) % 6);
                Object::Policy(Policy { name, tenant, text: format!("text {number}") })
            };
            if number % 7 == 1 {
                stored.objects.remove(&object.key());
            } else {
                stored.objects.insert(object.key(), Arc::new(object));
            }
        }
        stored.generation += 1;
        stored.published.insert(stored.generation, stored.objects.clone());
        for device in &self.devices {
            server.changed(&device.id);
        }
    }

    fn step(&mut self) {
        self.now += 1 + self.random.draw() % 50;
        if self.faults {
            self.fault();
        }
        self.deliver();
        let now = self.at();
        if let Some(server) = &mut self.server {
            server.tick(now);
        }
        for index in 0..self.devices.len() {
            self.drive(index);
        }
        self.send();
        self.check();
    }

    fn fault(&mut self) {
        if self.chance(40) {
            self.publish();
        }
        if self.chance(25) {
            // Cuts a connection, with or without notice.
            let ids: Vec<Connection> = self.wires.keys().copied().collect();
            if !ids.is_empty() {
                let id = ids[self.random.draw() as usize % ids.len()];
                if self.chance(2) { self.cut(id) } else { self.wires.get_mut(&id).unwrap().dead = true }
            }
        }
        if self.chance(150) {
            let index = self.random.draw() as usize % self.devices.len();
            self.crash(index);
        }
        if self.chance(300) {
            match self.server.take() {
                Some(mut server) => {
                    self.count(&server);
                    self.disk = std::mem::take(server.backend());
                    for id in self.wires.keys().copied().collect::<Vec<_>>() {
                        self.cut(id);
                    }
                }
                None => self.start_server(),
            }
        }
        if self.server.is_none() && self.chance(30) {
            self.start_server();
        }
        let fails = self.chance(20);
        if let Some(server) = &mut self.server {
            server.backend().failing = fails;
        }
    }

    /// Delivers all pending reports and checks that no report of a living agent is missing, except those that
    /// it counted as lost.
    fn drain(&mut self) {
        self.silent = true;
        for _ in 0..400 {
            self.step();
        }
        let stored = self.stored().clone();
        for device in &self.devices {
            let counters = device.session.counters();
            let key = (device.id.clone(), device.instance);
            let came = stored.counted.get(&key).copied().unwrap_or(0);
            assert!(came + 3 * counters.statistics_lost >= device.counted, "statistics vanished");
            let came = stored.alerts.get(&key).copied().unwrap_or(0);
            assert!(came + counters.alerts_lost >= device.raised, "alerts vanished");
        }
    }

    fn count(&mut self, server: &SouthboundServer<Stored>) {
        self.sessions += server.counters().sessions;
        self.replaced += server.counters().refused.get(&RefuseCode::Replaced).copied().unwrap_or(0);
        assert!(server.counters().malformed.is_empty());
        assert!(!server.counters().refused.contains_key(&RefuseCode::Protocol));
    }

    fn start_server(&mut self) {
        self.server = Some(SouthboundServer::new(config(), std::mem::take(&mut self.disk)));
    }

    fn crash(&mut self, index: usize) {
        let number = self.random.draw();
        let device = &mut self.devices[index];
        self.past.push((device.id.clone(), device.instance, device.counted));
        let wire = device.wire;
        self.devices[index] = Device::new(device.id.as_str(), device.disk.clone(), number);
        // The connection is cut, or the controller keeps it until it detects the crash.
        match wire {
            Some(id) if self.chance(2) => self.cut(id),
            Some(id) => self.wires.get_mut(&id).into_iter().for_each(|wire| wire.abandoned = true),
            None => {}
        }
    }

    fn cut(&mut self, id: Connection) {
        let now = self.at();
        if self.wires.remove(&id).is_none() {
            return;
        }
        if let Some(server) = &mut self.server {
            server.lost(id);
        }
        for device in self.devices.iter_mut().filter(|device| device.wire == Some(id)) {
            device.wire = None;
            device.session.lost(now);
        }
    }

    fn deliver(&mut self) {
        let now = self.at();
        for wire in self.wires.values_mut().filter(|wire| !wire.dead) {
            while let Some((_, piece)) = wire.up.0.pop_front_if(|(at, _)| *at <= now.ms) {
                if let Some(server) = &mut self.server {
                    server.receive(now, wire.id, &piece);
                }
            }
            while let Some((_, piece)) = wire.down.0.pop_front_if(|(at, _)| *at <= now.ms) {
                let taker = self.devices.iter_mut().find(|device| device.wire == Some(wire.id));
                taker.into_iter().for_each(|device| device.session.receive(now, &piece));
            }
        }
    }

    /// Executes the actions of a device's session, and lets the device report.
    fn drive(&mut self, index: usize) {
        let now = self.at();
        let reports = self.chance(10) && !self.silent;
        let device = &mut self.devices[index];
        if reports {
            device.report(now.ms);
        }
        device.session.tick(now);
        while let Some((_, held)) = device.building.pop_front_if(|(at, _)| *at <= now.ms) {
            device.finish(held);
        }
        while let Some(action) = self.devices[index].session.action() {
            match action {
                SessionAction::Dial => self.dial(index),
                SessionAction::HangUp(_) => {
                    if let Some(id) = self.devices[index].wire.take()
                        && let Some(wire) = self.wires.get_mut(&id)
                    {
                        wire.abandoned = true;
                    }
                }
                SessionAction::Apply(candidate) => {
                    let ready = now.ms + self.random.draw() % 400;
                    self.devices[index].building.push_back((ready, candidate.held));
                }
                SessionAction::Order { .. } | SessionAction::Renewed(_) => unreachable!(),
            }
        }
    }

    fn dial(&mut self, index: usize) {
        let now = self.at();
        let fails = self.faults && self.chance(4);
        let device = &mut self.devices[index];
        let Some(server) = self.server.as_mut().filter(|_| !fails) else {
            device.session.lost(now);
            return;
        };
        let id = self.next_wire;
        self.next_wire += 1;
        let peer = PeerIdentity { device: device.id.clone(), serial: "01".into(), valid_until: u64::MAX };
        assert!(server.connected(now, id, Some(peer), "simulated"));
        let (up, down) = (Pipe::default(), Pipe::default());
        self.wires.insert(id, Wire { id, up, down, abandoned: false, dead: false });
        device.wire = Some(id);
        device.session.dialled(now);
    }

    /// Moves the sessions' output to the connections in pieces, as far as there is room.
    fn send(&mut self) {
        let now = self.at();
        let mut over = Vec::new();
        for wire in self.wires.values_mut() {
            let device = self.devices.iter_mut().find(|device| device.wire == Some(wire.id));
            if let Some(device) = device {
                while wire.up.0.len() < 8
                    && let Some(bytes) = device.session.transmit(now)
                {
                    push(&mut wire.up, &bytes, now.ms, &mut self.random);
                }
            }
            let Some(server) = &mut self.server else { continue };
            while wire.down.0.len() < 8
                && let Some(bytes) = server.transmit(now, wire.id)
            {
                push(&mut wire.down, &bytes, now.ms, &mut self.random);
            }
            let drained = wire.down.0.is_empty() || wire.dead || wire.abandoned;
            if (server.is_over(wire.id) && drained)
                || (wire.abandoned && self.random.draw().is_multiple_of(100))
            {
                over.push(wire.id);
            }
        }
        over.into_iter().for_each(|id| self.cut(id));
    }

    fn stored(&mut self) -> &Stored {
        self.server.as_mut().map_or(&self.disk, |server| server.backend())
    }

    /// The objects of a published generation that a device must run.
    fn expected(
        published: &BTreeMap<ObjectKey, Arc<Object>>,
        device: &DeviceId,
    ) -> BTreeMap<ObjectKey, Arc<Object>> {
        let tenants = tenants_of(device);
        let served = published.iter().filter(|(_, object)| tenants.contains(&object.tenant()));
        served.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    fn check(&mut self) {
        let stored = self.server.as_mut().map_or(&self.disk, |server| server.backend());
        for device in &self.devices {
            let durable = device.disk.generation;
            assert!(stored.acknowledged.get(&device.id).is_none_or(|known| *known <= durable));
            assert_eq!(device.session.running().generation, durable);
            if durable > 0 {
                assert_eq!(device.disk.objects, Self::expected(&stored.published[&durable], &device.id));
            }
            let key = (device.id.clone(), device.instance);
            assert!(stored.counted.get(&key).copied().unwrap_or(0) <= device.counted, "counted twice");
            assert!(stored.alerts.get(&key).copied().unwrap_or(0) <= device.raised, "alerts twice");
        }
        for (device, instance, counted) in &self.past {
            let came = stored.counted.get(&(device.clone(), *instance)).copied().unwrap_or(0);
            assert!(came <= *counted, "counted twice");
        }
    }
}

impl Device {
    fn new(id: &str, disk: ControllerGeneration, instance: u64) -> Self {
        let id = DeviceId::new(id).unwrap();
        let mut config = SessionConfig::new(id.clone(), instance);
        (config.statistics, config.alerts) = (16, 32);
        let session = Session::new(config, disk.clone(), Vec::new());
        Device { id, session, disk, building: VecDeque::new(), wire: None, instance, counted: 0, raised: 0 }
    }

    /// A generation was built: stores it, then reports it. Some generations cannot be built.
    fn finish(&mut self, held: ControllerGeneration) {
        let generation = held.generation;
        assert!(generation > self.disk.generation, "{} went back", self.id);
        if generation % 11 == 5 {
            let refusal =
                GenerationRefusal { code: GenerationRefusalCode::Policy, diagnostics: Vec::new(), more: 0 };
            self.session.applied(generation, Err(refusal));
        } else if generation % 13 == 6 && self.instance.is_multiple_of(2) {
            // The disk was full once; a new start of the device, or a new connection, succeeds.
            self.session.applied(
                generation,
                Err(GenerationRefusal {
                    code: GenerationRefusalCode::Store,
                    diagnostics: Vec::new(),
                    more: 0,
                }),
            );
        } else {
            self.disk = held;
            self.session.applied(generation, Ok(Vec::new()));
        }
    }

    fn report(&mut self, now: u64) {
        self.counted += 3;
        let counters = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        self.session.statistics(Delta { from: now, to: now, lost: 0, counters });
        self.raised += 1;
        let tenant = *tenants_of(&self.id).first().unwrap();
        let (key, rule, message) = (format!("key {}", now % 5), "1:1:1".to_owned(), "m".to_owned());
        let event = serde_json::Map::new();
        self.session.alert(AlertAggregate {
            key,
            tenant,
            rule,
            message,
            count: 1,
            first: now,
            last: now,
            event,
        });
    }
}

fn config() -> ServerConfig {
    ServerConfig { keep_alive_ms: 1_000, greeting_ms: 3_000, ..ServerConfig::default() }
}

fn push(pipe: &mut Pipe, bytes: &[u8], now: u64, random: &mut Random) {
    let mut at = pipe.0.back().map_or(now, |(at, _)| (*at).max(now));
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = if random.draw().is_multiple_of(3) { 1 + random.draw() as usize % 40 } else { rest.len() };
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        at += random.draw() % 20;
        pipe.0.push_back((at, piece.to_vec()));
        rest = behind;
    }
}

fn play(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..8_000 {
        world.step();
    }
    // No more faults, and a last generation that every device accepts.
    world.faults = false;
    if world.server.is_none() {
        world.start_server();
    }
    world.server.as_mut().unwrap().backend().failing = false;
    loop {
        world.publish();
        let generation = world.stored().generation;
        if generation % 11 != 5 && generation % 13 != 6 {
            break;
        }
    }
    let wanted = world.stored().generation;
    for _ in 0..20_000 {
        world.step();
        let stored = world.stored().clone();
        if world.devices.iter().all(|device| stored.acknowledged.get(&device.id) == Some(&wanted)) {
            world.drain();
            return world;
        }
    }
    let stands: Vec<_> =
        world.devices.iter().map(|device| (device.disk.generation, device.session.is_in_step())).collect();
    panic!("seed {seed}: not everybody runs {wanted}: {stands:?}\n{:?}", world.server.unwrap().counters());
}

#[test]
fn whatever_the_network_does_everybody_runs_what_is_wanted_in_the_end() {
    let seeds = std::env::var("BARTIZAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seeds.map_or(1..7, |seed: u64| seed..seed + 1);
    let (mut sessions, mut refused, mut lost, mut replaced) = (0, 0, 0, 0);
    for seed in seeds {
        let mut world = play(seed);
        let mut server = world.server.take().unwrap();
        world.count(&server);
        refused += server.backend().refused.len();
        (sessions, replaced) = (sessions + world.sessions, replaced + world.replaced);
        for device in &world.devices {
            let counters = device.session.counters();
            lost += counters.statistics_lost;
            assert_eq!(counters.malformed.len() as u64 + counters.out_of_place + counters.misaddressed, 0);
        }
    }
    // The faults were frequent enough for the test to mean something.
    println!("{sessions} sessions, {refused} devices refused, {lost} lost, {replaced} replaced");
    assert!(sessions > 400 && refused > 5 && lost > 10 && replaced > 3);
}
