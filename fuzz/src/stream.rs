// SPDX-License-Identifier: Apache-2.0
//! Descriptors of the stream path as a guest may write them, by themselves and in a control ring whose index
//! it may set as well. The first byte moves the index; the rest are descriptors.

use crate::planted::planted;
use bartizan_toe::descriptor::{
    DESCRIPTOR_BYTES, DescriptorWords, Message, Operation, OptionName, Reply, Request, StreamHandle,
    Transport, from_bytes, to_bytes,
};
use bartizan_toe::layout::{Layout, RING_ENTRIES, RingEntry, RingHead};
use bartizan_toe::memory::SharedMemory;
use bartizan_toe::ring::RingReader;
use std::sync::atomic::Ordering::SeqCst;

const LAYOUT: Layout = Layout { slots: 1, rings: 1, buffer_shift: 12 };

/// What was understood is written again as it was.
fn parse(words: &DescriptorWords) {
    if let Ok(request) = Request::parse(words) {
        assert_eq!(request.words(), *words, "{request:?}");
        planted(matches!(request.operation, Operation::SetOption(option) if option.length == 256));
    }
    if let Ok(message) = Message::parse(words) {
        assert_eq!(Message::parse(&message.words()), Ok(message));
    }
    if let Ok(reply) = Reply::parse(words) {
        assert_eq!(Reply::parse(&reply.words()), Ok(reply));
    }
}

/// Puts the descriptors into a ring and sets its index; the engine's side takes what the index allows, or
/// sees that the ring is broken.
fn take(descriptors: &[DescriptorWords], tail: u32) {
    let Ok((_fd, memory)) = SharedMemory::create("fuzz", LAYOUT.control_bytes()) else { return };
    let place = LAYOUT.ring(0);
    let mut reader = RingReader::begin(&memory, place).expect("the ring is in the segment");
    for (index, words) in descriptors.iter().take(RING_ENTRIES as usize).enumerate() {
        let entry: &RingEntry = memory.at(place + 4096 + index * DESCRIPTOR_BYTES).expect("in the segment");
        entry.0.iter().zip(words).for_each(|(word, value)| word.store(*value, SeqCst));
    }
    let head: &RingHead = memory.at(place).expect("in the segment");
    head.producer.tail.store(tail, SeqCst);
    let mut taken = 0;
    loop {
        match reader.take(&memory) {
            Ok(Some(words)) => {
                assert_eq!(words, descriptors.get(taken).copied().unwrap_or_default());
                taken += 1;
            }
            Ok(None) => break assert_eq!(taken, tail as usize),
            Err(_) => break assert!(taken == 0 && tail > RING_ENTRIES),
        }
    }
}

/// First inputs: a request of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let handle = StreamHandle { slot: 1, generation: 1 };
    let option = OptionName { level: 1, name: 9, length: 4 };
    let addresses = ["192.0.2.1:80", "[2001:db8::1]:443"].map(|text| text.parse().ok());
    let connections =
        addresses.into_iter().flatten().flat_map(|at| [Operation::Connect(at), Operation::Bind(at)]);
    let others = [
        Operation::Transmit,
        Operation::Listen(8),
        Operation::Disconnect,
        Operation::SetOption(option),
        Operation::GetOption(option),
        Operation::Synchronise,
    ];
    let requests =
        connections.chain(others).map(|operation| Request { handle, sequence: 7, operation }.words());
    let messages = [
        Message::Join,
        Message::Open { v6: true, transport: Transport::Tcp, process: 0 },
        Message::Accept(handle),
    ];
    let all = requests.chain(messages.map(|message| message.words()));
    all.map(|words| [&[1][..], &to_bytes(&words)].concat()).collect()
}

/// Reads all descriptors, and takes them out of a ring.
pub fn run(data: &[u8]) {
    let Some((index, bytes)) = data.split_first() else { return };
    let descriptors: Vec<_> = bytes.chunks_exact(DESCRIPTOR_BYTES).filter_map(from_bytes).collect();
    descriptors.iter().for_each(parse);
    let tail = match index {
        0..=199 => u32::from(*index),
        _ => u32::MAX - u32::from(*index),
    };
    take(&descriptors, tail);
}
