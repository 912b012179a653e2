// SPDX-License-Identifier: Apache-2.0
//! Bounds of application layers, for docs/limits.md. Bounds that are settings of the data plane are declared
//! where those settings are read.

use crate::content::file::{FileSettings, SIDS_MAX};
use crate::flow::{HOLDS_MAX, HOLDS_SPAN, OPEN_LIMIT, SWITCHED_LIMIT};
use crate::{content::magic, frames, protocols};
use bartizan_base::limit::LimitTrace::{Event, NotNeeded, Nothing, Stats};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate: those of all protocols, then those that each protocol declares.
pub fn all() -> impl Iterator<Item = &'static [LimitSpec]> {
    core::iter::once(COMMON).chain(protocols::TABLE.iter().map(|spec| spec.limits))
}

const COMMON: &[LimitSpec] = limits! {
    Flow "bytes of a direction that wait for the protocol to be known" = "{}; after a switch of protocols {}"
        [bytes(OPEN_LIMIT), bytes(SWITCHED_LIMIT)] in ["applayer/flow.rs"],
        "the flow is of no known protocol: rules look at its raw stream; one-sided ones as well",
        [Event("applayer_proto_detection_skipped"), Stats("app_layer.flow.failed_*")];
    Flow "transactions of a flow that functions hold beyond their end" = "{}; each until {} have begun after it"
        [count(HOLDS_MAX), count(HOLDS_SPAN)] in ["applayer/flow/readers.rs"],
        "a further one is not held, an old one is let go of; records are the same", [Stats("app_layer_memory.holds_refused")];
    Rule "frames of a direction; bytes kept of them" = "{}, {}; none unless a rule or an output needs it"
        [count(frames::FRAMES_MAX), bytes(frames::WINDOW)] in ["applayer/frames.rs"],
        "the oldest frame is let go of; of a longer one rules and events see the latest bytes", [Nothing];
    Rule "bytes of a file that libmagic sees" = "from the first {} bytes on or at its end, when a rule needs it; of its first {}" [count(magic::ENOUGH), bytes(magic::LOOKED_AT)]
        in ["applayer/content/magic.rs", "applayer/content/file.rs"], "a kind that only later bytes tell is not found", [NotNeeded];
    Rule "files of a flow that rules may still ask for: bytes held of each" = "{} with the output `file-store`, else {}"
        [bytes(FileSettings::STORE_WINDOW), bytes(FileSettings::default().window)] in ["applayer/content/file.rs"],
        "a rule that decides later does not keep the file", [Stats("file_store.too_late")];
    Rule "rules noted of one file" = "{}" [count(SIDS_MAX)] in ["applayer/content/file.rs"],
        "further ones are not in `fileinfo.sid`", [Nothing];
};
