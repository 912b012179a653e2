// SPDX-License-Identifier: Apache-2.0
//! Properties of control rings, byte rings and descriptors.

use bartizan_toe::descriptor::{
    Message, Operation, OptionName, Reply, Request, StreamHandle, Transport, from_bytes, to_bytes,
};
use bartizan_toe::layout::{Layout, RING_ENTRIES, RingHead};
use bartizan_toe::memory::{ByteRing, SharedMemory};
use bartizan_toe::ring::{RingReader, RingWriter};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering::SeqCst;

const LAYOUT: Layout = Layout { slots: 4, rings: 2, buffer_shift: 12 };

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<u32>(), any::<u16>())
            .prop_map(|(ip, port)| SocketAddr::new(IpAddr::from(ip.to_be_bytes()), port)),
        (any::<u128>(), any::<u16>(), any::<u32>())
            .prop_map(|(ip, port, scope)| SocketAddr::V6(SocketAddrV6::new(ip.into(), port, 0, scope))),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let option = (any::<u32>(), any::<u32>(), 0_u16..=256).prop_map(|(level, name, length)| OptionName {
        level,
        name,
        length,
    });
    prop_oneof![
        Just(Operation::Transmit),
        Just(Operation::Window),
        Just(Operation::Finish),
        Just(Operation::Disconnect),
        Just(Operation::Synchronise),
        address().prop_map(Operation::Connect),
        address().prop_map(Operation::Bind),
        any::<u32>().prop_map(Operation::Listen),
        option.clone().prop_map(Operation::SetOption),
        option.prop_map(Operation::GetOption),
    ]
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(
        slot: u32, generation: u32, sequence: u32, operation in operation()
    ) {
        let request = Request { handle: StreamHandle { slot, generation }, sequence, operation };
        let words = request.words();
        prop_assert_eq!(Request::parse(&words), Ok(request));
        prop_assert_eq!(from_bytes(&to_bytes(&words)), Some(words));
    }

    #[test]
    fn accepted_descriptors_are_those_of_requests(mut words: [u64; 8], operation in 0_u64..16, zero in any::<u8>()) {
        // Most random words are refused at once: some fields are made likely.
        words[0] = words[0] & !0xFF | operation;
        for (index, word) in words.iter_mut().enumerate().skip(1) {
            if zero & (1 << index) != 0 {
                *word = 0;
            }
        }
        if let Ok(request) = Request::parse(&words) {
            prop_assert_eq!(request.words(), words);
        }
        if let Ok(message) = Message::parse(&words) {
            prop_assert_eq!(Message::parse(&message.words()), Ok(message));
        }
        let _ = Reply::parse(&words);
    }

    #[test]
    fn a_ring_is_a_bounded_queue(steps in prop::collection::vec(0_u8..5, 1..400)) {
        let (_fd, memory) = SharedMemory::create("test", LAYOUT.control_bytes()).unwrap();
        let mut reader = RingReader::begin(&memory, LAYOUT.ring(1)).unwrap();
        let mut writer = RingWriter::new(LAYOUT.ring(1));
        let mut model = VecDeque::new();
        let mut sleeps = true;
        for (number, step) in steps.into_iter().enumerate() {
            let words = [number as u64, 1, 2, 3, 4, 5, 6, 7];
            match step {
                0..=2 => match writer.put(&memory, &words) {
                    Some(woken) => {
                        prop_assert_eq!(woken, sleeps);
                        model.push_back(words);
                    }
                    None => prop_assert_eq!(model.len(), RING_ENTRIES as usize),
                },
                3 => prop_assert_eq!(reader.take(&memory).unwrap(), model.pop_front()),
                _ => {
                    let sleeps_now = reader.sleep(&memory);
                    prop_assert_eq!(sleeps_now, model.is_empty());
                    sleeps = sleeps_now;
                }
            }
        }
    }

    #[test]
    fn a_broken_index_is_told_and_nothing_is_read(tail: u32) {
        let (_fd, memory) = SharedMemory::create("test", LAYOUT.control_bytes()).unwrap();
        let mut reader = RingReader::begin(&memory, LAYOUT.ring(0)).unwrap();
        memory.at::<RingHead>(LAYOUT.ring(0)).unwrap().producer.tail.store(tail, SeqCst);
        let taken = reader.take(&memory);
        match tail {
            0 => prop_assert_eq!(taken, Ok(None)),
            1..=RING_ENTRIES => prop_assert_eq!(taken, Ok(Some([0; 8]))),
            _ => prop_assert!(taken.is_err()),
        }
    }

    #[test]
    fn bytes_come_out_of_a_byte_ring_as_they_went_in(
        start: u32, pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..8)
    ) {
        let (_fd, memory) = SharedMemory::create("test", LAYOUT.data_bytes()).unwrap();
        let ring = ByteRing { memory: &memory, offset: LAYOUT.rx(3), size: LAYOUT.buffer() };
        let mut index = start;
        for piece in pieces {
            ring.write(index, &piece).unwrap();
            let (mut copied, mut read) = (vec![9], vec![0; piece.len()]);
            ring.copy_out(index, piece.len(), &mut copied).unwrap();
            ring.read(index, &mut read).unwrap();
            prop_assert_eq!(&copied[1..], &piece[..]);
            prop_assert_eq!(&read, &piece);
            index = index.wrapping_add(u32::try_from(piece.len()).unwrap());
        }
    }
}

#[test]
fn two_threads_pass_descriptors_in_order() {
    let (_fd, memory) = SharedMemory::create("test", LAYOUT.control_bytes()).unwrap();
    let mut reader = RingReader::begin(&memory, LAYOUT.ring(0)).unwrap();
    let mut writer = RingWriter::new(LAYOUT.ring(0));
    const COUNT: u64 = 30_000;
    std::thread::scope(|scope| {
        let memory = &memory;
        scope.spawn(move || {
            for number in 0..COUNT {
                while writer.put(memory, &[number; 8]).is_none() {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..COUNT {
            let words = loop {
                if let Some(words) = reader.take(memory).unwrap() {
                    break words;
                }
                std::thread::yield_now();
            };
            assert_eq!(words, [number; 8]);
        }
    });
}

#[test]
fn segments_are_mapped_only_with_their_size_sealed() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let (fd, memory) = SharedMemory::create("test", 8192).unwrap();
    assert!(SharedMemory::map(&fd, 8192).is_ok());
    assert!(SharedMemory::map(&fd, 4096).is_err());
    assert!(ftruncate(&fd, 0).is_err());
    assert!(memory.write(8190, b"abc").is_none());
    assert!(memory.copy_out(usize::MAX, 2, &mut Vec::new()).is_none());
    assert!(memory.at::<RingHead>(8192 - 64).is_none());
    assert!(memory.at::<RingHead>(1).is_none());
    let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&open, 8192).unwrap();
    assert!(SharedMemory::map(&open, 8192).is_err());
}

#[test]
fn messages_are_read_as_they_were_written() {
    for message in [
        Message::Join,
        Message::Open { v6: true, transport: Transport::Tcp, process: 0 },
        Message::Open { v6: false, transport: Transport::Udp, process: 7 },
        Message::Accept(StreamHandle { slot: 7, generation: 9 }),
    ] {
        assert_eq!(Message::parse(&message.words()), Ok(message));
    }
    let reply = Reply { error: 5, ring: 6, slots: 7, rings: 8, buffer_shift: 9, ..Reply::default() };
    assert_eq!(Reply::parse(&reply.words()), Ok(reply));
}
