// SPDX-License-Identifier: Apache-2.0
//! All streams of the engine, by keys that are not used again soon.

use super::stream::EngineStream;

/// Name of a stream within the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    pub(crate) index: u32,
    /// 24 bits: what an event of epoll has room for.
    pub(crate) serial: u32,
}

#[derive(Debug, Default)]
struct StreamPlace {
    serial: u32,
    stream: Option<Box<EngineStream>>,
}

/// The streams.
#[derive(Debug, Default)]
pub(crate) struct StreamSlab {
    places: Vec<StreamPlace>,
    free: Vec<u32>,
}

impl StreamSlab {
    /// Reserves a key.
    pub(crate) fn reserve(&mut self) -> Option<StreamKey> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(StreamPlace::default());
                index
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.serial = place.serial.wrapping_add(1) & 0x00FF_FFFF;
        Some(StreamKey { index, serial: place.serial })
    }

    /// Puts a stream under its key.
    pub(crate) fn put(&mut self, key: StreamKey, stream: Box<EngineStream>) {
        if let Some(place) = self.places.get_mut(key.index as usize) {
            place.stream = Some(stream);
        }
    }

    /// Takes a stream out, to be put back or removed.
    pub(crate) fn take(&mut self, key: StreamKey) -> Option<Box<EngineStream>> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.serial == key.serial { place.stream.take() } else { None }
    }

    /// A stream in its place.
    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut EngineStream> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.serial == key.serial { place.stream.as_deref_mut() } else { None }
    }

    /// Frees a key whose stream was taken out.
    pub(crate) fn free(&mut self, key: StreamKey) {
        self.free.push(key.index);
    }
}
