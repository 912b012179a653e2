// SPDX-License-Identifier: Apache-2.0
//! Storage of fragments: nodes and chunks of bytes from pools that only grow, up to a limit.
//!
//! A fragment's bytes are in a chain of small chunks, so that an eight-byte fragment costs one chunk and
//! not a frame's worth. No memory is returned to the allocator; free nodes and chunks are used again.

use super::shares::Usage;
use core::mem::size_of;

/// "None" of the index lists.
pub(super) const NIL: u32 = u32::MAX;
/// Bytes in a chunk.
pub(super) const CHUNK: usize = 256;
/// Chunks allocated together.
const SLAB: usize = 64;

/// A held fragment: one node of its datagram's list, which is ordered by `offset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentNode {
    /// The offset of its data in the datagram, without the part trimmed on arrival.
    pub(super) offset: u32,
    /// The number of bytes from there.
    pub(super) len: u32,
    /// Start of the part that later fragments left of it, in the datagram.
    pub(super) live: u32,
    /// The position of the data in the chain; the header comes before it, if kept.
    pub(super) data_at: u32,
    /// Bytes of the IP header at the chain's start; 0 unless this is the first fragment.
    pub(super) header_len: u32,
    pub(super) more: bool,
    /// IPv6: the protocol that the fragment header names as the next one.
    pub(super) next_header: u8,
    pub(super) first_chunk: u32,
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl FragmentNode {
    const EMPTY: FragmentNode = FragmentNode {
        offset: 0,
        len: 0,
        live: 0,
        data_at: 0,
        header_len: 0,
        more: false,
        next_header: 0,
        first_chunk: NIL,
        prev: NIL,
        next: NIL,
    };

    /// The end of the fragment in the datagram (exclusive).
    pub(super) const fn end(&self) -> u32 {
        self.offset.saturating_add(self.len)
    }
}

/// Frames in the order of arrival: a list of nodes, linked by `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragmentQueue {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: u32,
}

impl FragmentQueue {
    pub(super) const EMPTY: FragmentQueue = FragmentQueue { first: NIL, last: NIL, len: 0 };

    /// Appends a stored frame.
    pub(super) fn push(&mut self, store: &mut FragmentStore, index: u32) {
        self.append(store, FragmentQueue { first: index, last: index, len: 1 });
    }

    /// Appends all frames of another queue to this one.
    pub(super) fn append(&mut self, store: &mut FragmentStore, other: FragmentQueue) {
        if other.len == 0 {
            return;
        }
        match store.node_mut(self.last) {
            Some(last) => last.next = other.first,
            None => self.first = other.first,
        }
        self.last = other.last;
        self.len = self.len.saturating_add(other.len);
    }

    /// Takes the first frame: its note and, directly after it, its bytes replace the contents of `out`.
    /// Returns the length of the note.
    pub(super) fn pop(&mut self, store: &mut FragmentStore, out: &mut Vec<u8>) -> Option<usize> {
        let node = store.node(self.first).copied()?;
        out.clear();
        out.resize(node.header_len.saturating_add(node.len) as usize, 0);
        store.copy(&node, 0, out);
        store.free(self.first);
        self.first = node.next;
        self.len = self.len.saturating_sub(1);
        if self.first == NIL {
            *self = FragmentQueue::EMPTY;
        }
        Some(node.header_len as usize)
    }
}

struct Slab {
    bytes: [[u8; CHUNK]; SLAB],
    next: [u32; SLAB],
}

/// The pool that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Fragments,
    Memory,
}

/// The pools.
pub(super) struct FragmentStore {
    nodes: Vec<FragmentNode>,
    free_node: u32,
    max_nodes: u32,
    slabs: Vec<Box<Slab>>,
    free_chunk: u32,
    free_chunks: usize,
    nodes_used: u32,
}

impl FragmentStore {
    pub(super) fn new(max_nodes: u32) -> Self {
        Self {
            nodes: Vec::new(),
            free_node: NIL,
            max_nodes: max_nodes.min(NIL - 1),
            slabs: Vec::new(),
            free_chunk: NIL,
            free_chunks: 0,
            nodes_used: 0,
        }
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let slabs = self.slabs.len().saturating_mul(size_of::<Slab>().saturating_add(size_of::<usize>()));
        self.nodes.capacity().saturating_mul(size_of::<FragmentNode>()).saturating_add(slabs)
    }

    /// Fragments held.
    pub(super) fn fragments(&self) -> u32 {
        self.nodes_used
    }

    pub(super) fn node(&self, index: u32) -> Option<&FragmentNode> {
        self.nodes.get(index as usize)
    }

    pub(super) fn node_mut(&mut self, index: u32) -> Option<&mut FragmentNode> {
        self.nodes.get_mut(index as usize)
    }

    /// Stores header and payload in a fresh node; `room` is the number of bytes that may still be allocated.
    pub(super) fn put(&mut self, header: &[u8], payload: &[u8], room: usize) -> Result<u32, Full> {
        let bytes = header.len().saturating_add(payload.len());
        let chunks = bytes.div_ceil(CHUNK).max(1);
        let mut room = room;
        while self.free_chunks < chunks {
            room = room.checked_sub(size_of::<Slab>() + size_of::<usize>()).ok_or(Full::Memory)?;
            self.add_slab();
        }
        let index = self.take_node(room)?;
        let first_chunk = self.fill(header, payload, chunks);
        if let Some(node) = self.node_mut(index) {
            *node = FragmentNode {
                header_len: header.len() as u32,
                data_at: header.len() as u32,
                len: payload.len() as u32,
                first_chunk,
                ..FragmentNode::EMPTY
            };
        }
        self.nodes_used = self.nodes_used.saturating_add(1);
        Ok(index)
    }

    /// Usage of a node: the same however much of it was trimmed.
    pub(super) fn usage_of(&self, index: u32) -> Usage {
        let Some(node) = self.node(index) else { return Usage::default() };
        let bytes = (node.data_at as usize).saturating_add(node.len as usize);
        Usage { nodes: 1, chunks: bytes.div_ceil(CHUNK).max(1) as u32 }
    }

    /// Frees a node and its chunks. The caller has removed it from its list.
    pub(super) fn free(&mut self, index: u32) {
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        let mut chunk = core::mem::replace(&mut node.first_chunk, NIL);
        node.next = self.free_node;
        self.free_node = index;
        self.nodes_used = self.nodes_used.saturating_sub(1);
        while chunk != NIL {
            let following = self.next_chunk(chunk);
            self.release_chunk(chunk);
            chunk = following;
        }
    }

    /// Copies `out.len()` bytes from position `at` of a node's chain.
    pub(super) fn copy(&self, node: &FragmentNode, at: u32, out: &mut [u8]) {
        let mut chunk = node.first_chunk;
        let mut skip = at as usize;
        while skip >= CHUNK && chunk != NIL {
            chunk = self.next_chunk(chunk);
            skip -= CHUNK;
        }
        let mut out = out;
        while !out.is_empty() {
            let Some(bytes) = self.chunk(chunk).and_then(|bytes| bytes.get(skip..)) else { return };
            let n = bytes.len().min(out.len());
            let (Some(from), Some((to, rest))) = (bytes.get(..n), out.split_at_mut_checked(n)) else {
                return;
            };
            to.copy_from_slice(from);
            out = rest;
            skip = 0;
            chunk = self.next_chunk(chunk);
        }
    }

    fn take_node(&mut self, room: usize) -> Result<u32, Full> {
        if self.free_node != NIL {
            let index = self.free_node;
            self.free_node = self.nodes.get(index as usize).map_or(NIL, |node| node.next);
            return Ok(index);
        }
        let used = self.nodes.len();
        if used >= self.max_nodes as usize {
            return Err(Full::Fragments);
        }
        if used == self.nodes.capacity() {
            let more = used.clamp(64, 4096).min((self.max_nodes as usize).saturating_sub(used));
            if room < more.saturating_mul(size_of::<FragmentNode>()) {
                return Err(Full::Memory);
            }
            self.nodes.reserve_exact(more);
        }
        self.nodes.push(FragmentNode::EMPTY);
        Ok(used as u32)
    }

    fn add_slab(&mut self) {
        let base = self.slabs.len().saturating_mul(SLAB) as u32;
        self.slabs.push(Box::new(Slab { bytes: [[0; CHUNK]; SLAB], next: [NIL; SLAB] }));
        for index in (0..SLAB as u32).rev() {
            self.release_chunk(base.saturating_add(index));
        }
    }

    /// Writes both parts into `chunks` free chunks, whose existence the caller has ensured.
    fn fill(&mut self, header: &[u8], payload: &[u8], chunks: usize) -> u32 {
        let first = self.free_chunk;
        let mut parts = [header, payload];
        let mut chunk = first;
        for n in 1..=chunks {
            let following = self.next_chunk(chunk);
            if let Some(bytes) = self.chunk_mut(chunk) {
                let mut filled = 0;
                for part in &mut parts {
                    let room = bytes.get_mut(filled..).unwrap_or_default();
                    let take = part.len().min(room.len());
                    if let (Some((from, left)), Some(to)) =
                        (part.split_at_checked(take), room.get_mut(..take))
                    {
                        to.copy_from_slice(from);
                        *part = left;
                        filled = filled.saturating_add(take);
                    }
                }
            }
            if n == chunks {
                self.set_next_chunk(chunk, NIL);
            }
            chunk = following;
        }
        self.free_chunk = chunk;
        self.free_chunks = self.free_chunks.saturating_sub(chunks);
        first
    }

    fn release_chunk(&mut self, chunk: u32) {
        let head = self.free_chunk;
        self.set_next_chunk(chunk, head);
        self.free_chunk = chunk;
        self.free_chunks = self.free_chunks.saturating_add(1);
    }

    fn chunk(&self, chunk: u32) -> Option<&[u8; CHUNK]> {
        self.slabs.get(chunk as usize / SLAB)?.bytes.get(chunk as usize % SLAB)
    }

    fn chunk_mut(&mut self, chunk: u32) -> Option<&mut [u8; CHUNK]> {
        self.slabs.get_mut(chunk as usize / SLAB)?.bytes.get_mut(chunk as usize % SLAB)
    }

    fn next_chunk(&self, chunk: u32) -> u32 {
        self.slabs
            .get(chunk as usize / SLAB)
            .and_then(|slab| slab.next.get(chunk as usize % SLAB))
            .map_or(NIL, |n| *n)
    }

    fn set_next_chunk(&mut self, chunk: u32, next: u32) {
        if let Some(slot) = self
            .slabs
            .get_mut(chunk as usize / SLAB)
            .and_then(|slab| slab.next.get_mut(chunk as usize % SLAB))
        {
            *slot = next;
        }
    }
}
