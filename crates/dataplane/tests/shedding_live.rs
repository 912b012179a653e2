// SPDX-License-Identifier: Apache-2.0
//! Two links of two workers each, offered twice their capacity, on veth pairs in a network namespace (needs
//! root; says so and returns otherwise): with priorities flows of the higher one lose no packet and no ring
//! is full, without them all lose some. The sum of packets sent equals those that arrived, were refused for
//! overload, or were lost for lack of room in the kernel.

use crate::inline_net::{in_namespace, run, sysctl};

use bartizan_base::{LinkId, Reason};
use bartizan_config::suricata;
use bartizan_dataplane::driver::{Balance, Control, Driver, LiveOptions, run_drivers};
use bartizan_dataplane::source::InlineSource;
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_function::{FunctionModel, FunctionSpec};
use bartizan_ports::{Batch, InlineOptions, InlinePair, InlinePort, Port};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{address, ethernet, ip, udp};
use bartizan_testkit_worker::{Made, Nothing, Stack, header_function};
use std::time::{Duration, Instant};

/// Time that a function takes for a packet at least: it sleeps, so that a busy machine does not change how
/// much a worker takes by much.
const COST: Duration = Duration::from_millis(1);
const RING: usize = 2_048;
const BATCH: usize = 64;
const WORKERS: u16 = 2;
/// Frames that come to each worker, one each half `COST`.
const FRAMES: u32 = 8_000;
/// After so long without a frame none is on its way.
const PATIENCE: Duration = Duration::from_secs(4);

static SPEC: FunctionSpec = FunctionSpec {
    name: "slow",
    summary: "Takes its time for each packet.",
    model: FunctionModel::StatefulHeaders,
    runs_after: &["gate"],
    runs_before: &["sfw", "ids"],
    header_half: None,
    host_slot: None,
    counters: &[],
};

fn engine_settings() -> EngineSettings {
    EngineSettings::from_settings(&suricata::shipped(), true, [1, 2]).unwrap().0
}

/// Frames by the host that they go to, and of each link.
type Frames = [[u64; 2]; 2];

/// The far ends of a link, and their counters.
struct Far {
    from: InlinePort,
    to: InlinePort,
    /// Frames to hosts 2 and 3, of flows that each worker has as many of.
    frames: [Vec<Vec<u8>>; 2],
    sent: [u64; 2],
    arrived: [u64; 2],
}

/// Interfaces `a0` and `a1`, `b0` and `b1`: the program's are those with a 1.
fn ends([a, b]: [&str; 2]) -> [InlinePort; 2] {
    [a, b].map(|name| {
        run(&format!("ip link add {name}0 type veth peer name {name}1"));
        for end in [format!("{name}0"), format!("{name}1")] {
            sysctl(&format!("net.ipv6.conf.{end}.disable_ipv6"), "1");
            run(&format!("ip link set dev {end} arp off multicast off up"));
        }
        let options = InlineOptions { frames: 8_192, ..InlineOptions::default() };
        InlinePort::open(&format!("{name}0"), &options).unwrap()
    })
}

/// Frames of four flows to a host for each worker, both families, the workers in turn.
fn frames(link: LinkId, host: u8, home: &dyn Fn(&FlowKey) -> Option<u16>) -> Vec<Vec<u8>> {
    let scope = FlowScope { link, ..FlowScope::default() };
    let of = |worker: u16| {
        let flows = (1_000..9_000u16).map(|port| (port % 2 == 0, port));
        let key =
            move |(v6, port)| FlowKey::ported(&scope, 17, (address(v6, 1), port), (address(v6, host), 53));
        let here = flows.filter(move |flow| home(&key(*flow)) == Some(worker));
        let here = here
            .take(4)
            .map(|(v6, port)| ethernet(v6, &ip(v6, (1, host), 17, &udp((port, 53), &[host; 20]))));
        here.collect::<Vec<_>>()
    };
    let [one, other] = [of(0), of(1)];
    one.into_iter().zip(other).flat_map(|(a, b)| [a, b]).collect()
}

impl Far {
    /// Sends what is due: three of ten frames go to host 3.
    fn send(&mut self, due: u64) {
        while self.sent[0] + self.sent[1] < due {
            // Each worker's frames come two by two.
            let number = self.sent[0] + self.sent[1];
            let host = usize::from((number / u64::from(WORKERS)) % 10 >= 7);
            let frames = &self.frames[host];
            let frame = &frames[self.sent[host] as usize % frames.len()];
            if self.from.transmit_frame(frame).is_err() {
                break;
            }
            self.sent[host] += 1;
        }
        self.from.flush().unwrap();
    }

    /// Takes what has arrived; whether something has.
    fn take(&mut self, batch: &mut Batch) -> bool {
        self.to.receive(batch).unwrap();
        for bytes in batch.indices().filter_map(|at| batch.bytes(at)) {
            self.arrived[usize::from(*bytes.last().unwrap()) - 2] += 1;
        }
        let any = !batch.is_empty();
        batch.clear();
        any
    }
}

/// Outcome of a run, by link.
#[derive(Debug)]
struct Ran {
    sent: Frames,
    arrived: Frames,
    refused: [u64; 2],
    full: [u64; 2],
    begun: [u64; 2],
}

fn offer(name: &str, [low, high]: [u8; 2], ports: [[&str; 2]; 2]) -> Ran {
    let made = Made { name, policy: "chain: [slow]", set: &[], tune: |_| (), rules: "", thresholds: "" };
    let mut stack = Stack::with_functions(&made, vec![header_function(&SPEC, |_| std::thread::sleep(COST))]);
    let one = |host: u8, priority: u8| {
        format!(
            "- {{name: h{host}, to: [10.0.0.{host}, \"2001:db8::{host}\"], chain: [slow], overload: {{priority: {priority}}}}}"
        )
    };
    stack.swap_file(
        &format!(
            "policies:\n    {}\n    {}\ndefault: {{action: drop, overload: {{priority: {low}}}}}\n",
            one(2, low),
            one(3, high)
        ),
        "",
    );
    let settings = engine_settings();
    let options = InlineOptions { frames: RING, ..InlineOptions::default() };
    let (mut drivers, mut far) = (Vec::new(), Vec::new());
    for (link, [a, b]) in (0u16..).zip(ports) {
        let [from, to] = ends([a, b]);
        let spread = settings.spread(WORKERS).of_link(LinkId(link));
        let (pairs, _) =
            InlinePair::open_group(&format!("{a}1"), &format!("{b}1"), &options, &spread, false).unwrap();
        let stations = stack.stations(usize::from(WORKERS));
        let owners = stations[0].owners();
        let of = |host| frames(LinkId(link), host, &|key| owners.home(key).map(|worker| worker.0));
        far.push(Far { from, to, frames: [of(2), of(3)], sent: [0; 2], arrived: [0; 2] });
        for (station, pair) in stations.into_iter().zip(pairs) {
            let mut driver = Driver::new(station, Box::new(InlineSource::new(pair)), Box::new(Nothing));
            (driver.link, driver.first) = (LinkId(link), link * WORKERS);
            drivers.push(driver);
        }
    }
    let control = Control::for_workers(2 * WORKERS).unwrap();
    let live = LiveOptions { batch: BATCH, spin: Duration::ZERO, awake: false, ..LiveOptions::default() };
    run_drivers(&mut drivers, &live, &control, |is_over| {
        let (begun, mut quiet) = (Instant::now(), Instant::now());
        let mut batch = Batch::with_capacity(256);
        let all = u64::from(FRAMES) * u64::from(WORKERS);
        while quiet.elapsed() < PATIENCE && !is_over() {
            // Twice as many as workers take that have nothing else to do.
            let due = 2 * u64::from(WORKERS) * begun.elapsed().as_micros() as u64 / COST.as_micros() as u64;
            for far in &mut far {
                let sends = far.sent[0] + far.sent[1] < all;
                far.send(due.min(all));
                if far.take(&mut batch) || sends {
                    quiet = Instant::now();
                }
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        control.stop();
    })
    .unwrap();
    let mut batch = Batch::with_capacity(256);
    far.iter_mut().for_each(|far| while far.take(&mut batch) {});
    let mut ran = Ran {
        sent: [far[0].sent, far[1].sent],
        arrived: [far[0].arrived, far[1].arrived],
        refused: [0; 2],
        full: [0; 2],
        begun: [0; 2],
    };
    let mut balance = Balance::default();
    for driver in &mut drivers {
        let (link, counters) = (usize::from(driver.link.0), *driver.station.worker().counters());
        balance.add(&counters, &driver.counters);
        ran.refused[link] += counters.refused[Reason::Overload as usize];
        ran.begun[link] += counters.shed.begun;
        driver.each_port(|_, stats, waiting| {
            balance.add_port(stats, waiting);
            ran.full[link] += stats.ring_dropped;
        });
    }
    assert!(balance.is_exact(), "{balance:?}");
    for link in 0..2 {
        let sum = |of: [u64; 2]| of[0] + of[1];
        let known = sum(ran.arrived[link]) + ran.refused[link] + ran.full[link];
        assert_eq!(sum(ran.sent[link]), known, "{ran:?}");
    }
    ran
}

#[test]
fn at_twice_the_rate_of_live_links_the_higher_priority_loses_nothing() {
    in_namespace("at_twice_the_rate_of_live_links_the_higher_priority_loses_nothing", || {
        let ran = offer("live-priority", [100, 200], [["a", "b"], ["c", "d"]]);
        eprintln!("with priorities {ran:?}");
        for link in 0..2 {
            assert_eq!((ran.arrived[link][1], ran.full[link]), (ran.sent[link][1], 0), "{ran:?}");
            assert!(ran.refused[link] > ran.sent[link][0] / 3 && ran.begun[link] >= 2, "{ran:?}");
        }
    });
}

#[test]
fn without_priorities_live_links_lose_of_all() {
    in_namespace("without_priorities_live_links_lose_of_all", || {
        let ran = offer("live-equal", [100, 100], [["e", "f"], ["g", "h"]]);
        eprintln!("without priorities {ran:?}");
        for link in 0..2 {
            assert_eq!((ran.refused[link], ran.begun[link]), (0, 0), "{ran:?}");
            let lost = |host: usize| ran.sent[link][host] - ran.arrived[link][host];
            assert!(lost(0) > ran.sent[link][0] / 10 && lost(1) > ran.sent[link][1] / 10, "{ran:?}");
        }
    });
}
