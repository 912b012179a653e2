// SPDX-License-Identifier: Apache-2.0
//! Ports that do not take some frames, on several workers: each worker reports refusals of its own ports, for
//! received and for handed-over frames, at most once a second, and the numbers sum up to the ports' counters.

use super::*;

/// Content of frames that [`Narrow`] refuses.
const WIDE: &[u8] = b"wide";

/// A port that refuses frames with [`WIDE`] content, with either way of sending.
struct Narrow {
    name: String,
    port: TestPort,
    refused: u64,
}

fn take_or_refuse(port: &mut TestPort, refused: &mut u64, frame: &[u8]) -> Result<(), SendRefusal> {
    if frame.windows(WIDE.len()).any(|w| w == WIDE) {
        *refused += 1;
        return Err(SendRefusal::TooLarge);
    }
    port.transmit_frame(frame)
}

impl Port for Narrow {
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> u32 {
        self.port.mtu()
    }
    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }
    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        self.port.receive(batch)
    }
    fn transmit(&mut self, batch: &mut Batch) -> usize {
        let Narrow { port, refused, .. } = self;
        batch.send_each(|_, frame| take_or_refuse(port, refused, frame))
    }
    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        take_or_refuse(&mut self.port, &mut self.refused, frame)
    }
    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }
    fn ready(&self) -> bool {
        self.port.ready()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }
    fn stats(&mut self) -> PortStats {
        let mut stats = self.port.stats();
        stats.send_failures.add(SendRefusal::TooLarge, self.refused);
        stats
    }
    fn now(&mut self) -> Timestamp {
        self.port.now()
    }
}

/// A rig whose ports are narrow and named after their worker: `a0`, `b0`, `a1` and so on.
fn narrow_rig(bench: &Bench, count: u16) -> Rig {
    let mut rig = rig(bench, count, 4_000);
    for worker in 0..usize::from(count) {
        let clock = rig.clock.clone();
        let make = |outside: &str, inside: &str| {
            let (out, port) = TestPort::pair([outside, "inside"], 1500, 1 << 20, &clock).unwrap();
            (out, Box::new(Narrow { name: format!("{inside}{worker}"), port, refused: 0 }))
        };
        let ((client, a), (server, b)) = (make("client", "a"), make("server", "b"));
        rig.outside[worker] = [client, server];
        rig.drivers[worker].source = Some(Box::new(InlineSource::new(InlinePair::new(a, b, false).unwrap())));
    }
    rig
}

#[test]
fn each_worker_tells_what_its_ports_refused_and_the_numbers_sum_up() {
    let count = 2u16;
    let bench = bench(true, "no");
    let mut rig = narrow_rig(&bench, count);
    let (seen, log) = (Arc::clone(&bench.seen), rig.log.clone());
    let (flows, per_round) = (16u32, 30u32);
    let is_wide = |flow: u32, number: u32| (flow + number).is_multiple_of(4);
    let wide_before = |end: u32| {
        (0..end).flat_map(|number| (0..flows).map(move |flow| is_wide(flow, number))).filter(|w| *w).count()
    };
    let told = || log.unsent.lock().unwrap().iter().map(|one| one.frames).sum::<u64>();
    rig.run(|outside, _, clock| {
        for round in 0..3 {
            let numbers = round * per_round..(round + 1) * per_round;
            for number in numbers.clone() {
                for flow in 0..flows {
                    let word = if is_wide(flow, number) { WIDE } else { b"" };
                    let frame = marked_saying(flow % 8 > 3, flow, number, Shape::Plain, word).remove(0);
                    arrive(outside, clock, flow as usize % usize::from(count), side_of(number), &frame);
                }
            }
            wait_until("all packets are seen", || seen.lock().unwrap().len() as u32 == flows * numbers.end);
            if round < 2 {
                // Told without further frames, when a second has passed; what the last round leaves is told
                // at the end.
                clock.advance(PacketDuration::from_secs(1));
                wait_until("all is told", || told() == wide_before(numbers.end) as u64);
            }
        }
    })
    .unwrap();
    let balance = rig.balance();
    assert!(balance.is_exact(), "{balance:?}");
    let wide = wide_before(3 * per_round) as u64;
    assert_eq!((balance.not_sent, balance.refused, told()), (wide, 0, wide), "{balance:?}");

    // Every flow has one owner, which refuses its frames by its own ports, wherever they came in.
    let mut owners = HashMap::new();
    let mut expected: HashMap<String, u64> = HashMap::new();
    let mut handed_and_wide = 0;
    for packet in seen.lock().unwrap().iter() {
        let (flow, number) = packet.mark.unwrap();
        assert_eq!(*owners.entry(flow).or_insert(packet.worker), packet.worker);
        if is_wide(flow, number) {
            let port = if side_of(number) == PairSide::A { 'b' } else { 'a' };
            *expected.entry(format!("{port}{}", packet.worker)).or_default() += 1;
            handed_and_wide += u64::from(flow % u32::from(count) != u32::from(packet.worker));
        }
    }
    assert!(handed_and_wide > 0 && handed_and_wide < wide, "both ways: {handed_and_wide} of {wide}");
    assert_eq!(expected.len(), 2 * usize::from(count), "{expected:?}");
    let mut summed: HashMap<String, u64> = HashMap::new();
    let mut records: HashMap<String, u32> = HashMap::new();
    for one in log.unsent.lock().unwrap().iter() {
        assert_eq!(one.cause, "too_large");
        let (flow, number) = one.mark.expect("the record shows a frame");
        assert!(is_wide(flow, number), "{one:?}");
        let port = if side_of(number) == PairSide::A { 'b' } else { 'a' };
        assert_eq!(one.port, format!("{port}{}", owners[&flow]), "the frame is one of that port's");
        *summed.entry(one.port.clone()).or_default() += one.frames;
        *records.entry(one.port.clone()).or_default() += 1;
    }
    assert_eq!(summed, expected);
    // In each round the first at once and the others a second later; of the last round what was left, at the
    // end.
    assert!(records.values().all(|n| (3..=6).contains(n)), "{records:?}");
    for driver in &mut rig.drivers {
        driver.each_port(|name, stats, _| {
            assert_eq!(stats.send_failures.get(SendRefusal::TooLarge), summed[name], "{name}");
        });
    }
}
