// SPDX-License-Identifier: Apache-2.0
//! Offers frames to both sides of a pair at a rate, in small bursts.

use crate::flows::{CLASSES, LARGEST};
use crate::play::{Count, Made, Player};
use crate::sys;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Pause between bursts.
const PAUSE: Duration = Duration::from_micros(50);
/// Backlog, as time at the offered rate, that is sent at once after the process was delayed; older frames are
/// given up, because they would make a burst above the rate.
const LATE: Duration = Duration::from_millis(4);

/// Frames offered by a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered {
    /// Frames and bytes sent, by class.
    pub sent: [Count; CLASSES.len()],
    /// Frames among `sent` from the clients' side.
    pub from_clients: u64,
    /// Frames not made because this process was late.
    pub late: u64,
    /// Frames that the interface rejected.
    pub refused: u64,
    /// Frames among `sent` that were offered at the rate: all but the resets at the end.
    pub paced: u64,
    /// Time until the last frame of `paced` was sent.
    pub took: Duration,
    /// Processor time of sending all frames.
    pub processor: Duration,
}

/// Frames queued for the next call on one interface.
struct Side {
    socket: OwnedFd,
    buffers: Vec<Vec<u8>>,
    waiting: Vec<Made>,
}

impl Side {
    fn new(interface: &str) -> io::Result<Self> {
        let buffers = vec![vec![0; usize::from(LARGEST)]; sys::BATCH];
        Ok(Side { socket: sys::sender(interface)?, buffers, waiting: Vec::with_capacity(sys::BATCH) })
    }

    fn flush(&mut self, offered: &mut Offered) -> io::Result<()> {
        let mut done = 0;
        while done < self.waiting.len() {
            let mut frames: [&[u8]; sys::BATCH] = [&[]; sys::BATCH];
            let left = self.waiting.len() - done;
            for ((frame, buffer), made) in
                frames.iter_mut().zip(&self.buffers[done..]).zip(&self.waiting[done..])
            {
                *frame = &buffer[..made.length];
            }
            let went = match sys::send(&self.socket, &frames[..left]) {
                Ok(went) => went,
                // The interface has no room: this one frame is lost, and counted.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => {
                    offered.refused += 1;
                    done += 1;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for made in &self.waiting[done..done + went] {
                offered.sent[made.class].packets += 1;
                offered.sent[made.class].bytes += made.length as u64;
                offered.from_clients += u64::from(made.from_client);
            }
            done += went;
        }
        self.waiting.clear();
        Ok(())
    }
}

/// Both sides of a pair.
pub struct Pair {
    /// The clients' side, then the servers'.
    sides: [Side; 2],
    frame: Vec<u8>,
}

impl Pair {
    /// Opens both interfaces.
    ///
    /// # Errors
    /// As [`sys::sender`].
    pub fn open(clients: &str, servers: &str) -> io::Result<Self> {
        Ok(Pair { sides: [Side::new(clients)?, Side::new(servers)?], frame: vec![0; usize::from(LARGEST)] })
    }

    fn queue(&mut self, made: Made, offered: &mut Offered) -> io::Result<()> {
        let side = &mut self.sides[usize::from(!made.from_client)];
        // The next free buffer takes the place of the one just written.
        std::mem::swap(&mut side.buffers[side.waiting.len()], &mut self.frame);
        side.waiting.push(made);
        if side.waiting.len() == sys::BATCH { side.flush(offered) } else { Ok(()) }
    }

    fn flush(&mut self, offered: &mut Offered) -> io::Result<()> {
        self.sides.iter_mut().try_for_each(|side| side.flush(offered))
    }

    /// Plays `rate` frames per second for `length`, then resets the open flows at the same rate.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn play(&mut self, player: &mut Player, rate: u64, length: Duration) -> io::Result<Offered> {
        let (mut offered, begun) = (Offered::default(), sys::thread_time());
        self.pace(rate, length, &mut offered, |frame| Some(player.make(frame)))?;
        // Resets do not count towards the rate.
        let (late, took) = (offered.late, offered.took);
        offered.paced = offered.sent.iter().map(|count| count.packets).sum();
        self.pace(rate, Duration::MAX, &mut offered, |frame| player.close(frame))?;
        (offered.took, offered.late) = (took, late);
        offered.processor = sys::thread_time() - begun;
        Ok(offered)
    }

    fn pace(
        &mut self,
        rate: u64,
        length: Duration,
        offered: &mut Offered,
        mut make: impl FnMut(&mut [u8]) -> Option<Made>,
    ) -> io::Result<()> {
        let frames_in = |time: Duration| (time.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        let (begin, most) = (Instant::now(), frames_in(LATE).max(1));
        let mut made = 0;
        let mut more = true;
        while more {
            let passed = begin.elapsed();
            more = passed < length;
            let due = frames_in(passed.min(length));
            let late = (due - made).saturating_sub(most);
            offered.late += late;
            made += late;
            while made < due {
                let Some(one) = make(&mut self.frame) else {
                    more = false;
                    break;
                };
                self.queue(one, offered)?;
                made += 1;
            }
            self.flush(offered)?;
            offered.took = begin.elapsed();
            if more {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;
    use crate::frames::Maker;
    use crate::list::Plan;

    /// Needs root. Uses a pair of connected interfaces in its own namespace.
    #[test]
    fn what_is_offered_arrives_at_the_rate_and_is_counted() {
        match sys::own_namespace() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("left out: not root");
                return;
            }
            done => done.unwrap(),
        }
        for words in ["link add c0 type veth peer name s0", "link set c0 up", "link set s0 up"] {
            let done = std::process::Command::new("ip").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "ip (iproute2): {words}");
        }
        let sizes = vec![(64, 1), (594, 1)];
        let list = Plan { flows: 2000, bypassable: 0.7, v6: 0.25, sizes, seed: 5 }.list();
        let mut player = Player::new(list, Maker::new(&[64, 594]), 100, 0);
        let counters = [Counter::new("c0").unwrap(), Counter::new("s0").unwrap()];
        let mut pair = Pair::open("c0", "s0").unwrap();
        let length = Duration::from_millis(300);
        let offered = pair.play(&mut player, 20_000, length).unwrap();
        assert_eq!(offered.paced + offered.late + offered.refused, 6000, "{offered:?}");
        assert!(offered.took >= length && player.begun.iter().sum::<u64>() > 100);
        let all: u64 = offered.sent.iter().map(|count| count.packets).sum();
        let to = [all - offered.from_clients, offered.from_clients];
        let [at_clients, at_servers] = [0, 1].map(|side| counters[side].wait_for(to[side]));
        for (class, sent) in offered.sent.iter().enumerate() {
            let (one, other) = (at_clients[class], at_servers[class]);
            let came = Count { packets: one.packets + other.packets, bytes: one.bytes + other.bytes };
            assert_eq!(came, *sent, "{}", CLASSES[class].name);
        }
        // Frames that the clients' side sends arrive at the servers' side.
        let to_servers: u64 = at_servers[..CLASSES.len()].iter().map(|count| count.packets).sum();
        assert_eq!(to_servers, offered.from_clients);
        assert!(
            offered.sent.iter().map(|count| count.packets).sum::<u64>() > offered.paced,
            "resets at the end"
        );
    }
}
