// SPDX-License-Identifier: Apache-2.0
//! `stream-readers CONFIG`: a run of a host file whose policies may name the functions `reader1` to
//! `reader4`, for `benches/stream/run`. Each reads every payload byte by the hash of `proxy.c`, and refuses
//! none. The run ends when standard input does; then the program prints the bytes that each has read.

use bartizan_base::{Decision, FunctionId};
use bartizan_function::classes;
use bartizan_function::{
    Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, PacketContext, RuleSource,
    RulesError, WorkerState,
};
use bartizan_runtime::allocator::{self, Allocator};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::plan::RunOptions;
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use serde::Deserialize;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
static REQUESTS: Requests = Requests::new();

/// The declaration of a reader.
const fn spec(name: &'static str, runs_after: &'static [&'static str]) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Reads every payload byte.",
        model: FunctionModel::Payload,
        runs_after,
        runs_before: &["ids"],
        header_half: None,
        host_slot: None,
        counters: &[FunctionCounter { name: "bytes", help: "Bytes read." }],
    }
}

/// Readers that a chain may name.
static SPECS: [FunctionSpec; 4] = [
    spec("reader1", &["gate", "pfw", "sfw"]),
    spec("reader2", &["reader1"]),
    spec("reader3", &["reader2"]),
    spec("reader4", &["reader3"]),
];
/// Bytes that each reader has read.
static BYTES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Section of a policy: it has no keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {}

/// Makes a reader: its place among the readers.
struct ReaderKind(usize);

impl FunctionKind for ReaderKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPECS[self.0]
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        classes::read::<Section>(self.spec().name, source)?;
        Ok(Box::new(Reader { id: source.id, place: self.0 }))
    }
}

/// A reader.
struct Reader {
    id: FunctionId,
    place: usize,
}

/// The state of a worker: the hash of all bytes and their number.
#[derive(Default)]
struct Kept {
    lanes: [u64; 4],
    bytes: u64,
}

impl Kept {
    /// Four lanes of words, as `proxy.c` has them.
    fn read(&mut self, bytes: &[u8]) {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (lane, word) in self.lanes.iter_mut().zip(words) {
                *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
            }
        }
        for byte in rest {
            self.lanes[0] = (self.lanes[0] ^ u64::from(*byte)).wrapping_mul(FACTOR).rotate_left(29);
        }
        self.bytes += bytes.len() as u64;
    }
}

impl Function for Reader {
    fn spec(&self) -> &'static FunctionSpec {
        &SPECS[self.place]
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(Kept::default())
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        if let (Some(news), Some(kept)) = (context.facts.stream, context.worker.downcast_mut::<Kept>()) {
            kept.read(news.with_overlap(0));
            BYTES[self.place].store(std::hint::black_box(&*kept).bytes, Relaxed);
        }
        Decision::CONTINUE
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        each("bytes", worker.downcast_ref::<Kept>().map_or(0, |kept| kept.bytes));
    }
}

fn main() -> ExitCode {
    allocator::set_up();
    let Some(config) = std::env::args_os().nth(1) else {
        eprintln!("stream-readers CONFIG");
        return ExitCode::from(2);
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        REQUESTS.stop();
    });
    let functions: Vec<Arc<dyn FunctionKind>> =
        (0..SPECS.len()).map(|place| Arc::new(ReaderKind(place)) as Arc<dyn FunctionKind>).collect();
    let build = BuildOptions { functions, ..BuildOptions::default() };
    let options = RunOptions { config: Some(config.into()), options: build, ..RunOptions::default() };
    match run::run(&options, &REQUESTS).map(|outcome| outcome.failure) {
        Ok(None) => {
            let read: Vec<String> = BYTES.iter().map(|bytes| bytes.load(Relaxed).to_string()).collect();
            println!("read {}", read.join(" "));
            ExitCode::SUCCESS
        }
        Ok(Some(failure)) | Err(failure) => {
            eprintln!("stream-readers: {failure}");
            ExitCode::FAILURE
        }
    }
}
