// SPDX-License-Identifier: Apache-2.0
//! State that the application layers of all flows share: detection, parsers, settings of file tracking.

use crate::detection::{Detector, Switch, switch};
use crate::expectation::ExpectationStore;
use crate::file::FileSettings;
use crate::frames::Frames;
use crate::magic::Magic;
use crate::protocol::{Parser, ParserFactory, ProtocolId, Transport};
use crate::protocols;
use bartizan_base::{SettingError, SettingsMap};
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Detector, parser factories and file settings of all flows. Built from settings.
pub struct Engine {
    pub(crate) detector: Detector,
    factories: Vec<Option<Box<dyn ParserFactory>>>,
    parses: Vec<[bool; 2]>,
    files: FileSettings,
    /// Hashes that rules need, a bit each.
    requested: AtomicU8,
    /// libmagic, if rules of a later generation need the types of files.
    magic: OnceLock<Arc<Magic>>,
    /// Database of libmagic (`magic-file`).
    magic_file: Option<String>,
    expectations: Option<Arc<dyn ExpectationStore>>,
}

impl Engine {
    /// Builds the engine.
    ///
    /// # Errors
    /// A setting of a protocol cannot be understood.
    pub fn new(settings: &SettingsMap, files: FileSettings) -> Result<Self, SettingError> {
        let mut factories = Vec::new();
        let mut parses = Vec::new();
        for spec in protocols::TABLE {
            let section = settings.section(&format!("app-layer.protocols.{}", spec.name));
            let factory = (spec.configure)(&section);
            settings.mark_section_read(&section);
            factories.push(Some(factory?));
            let mut on = [false; 2];
            for (flag, transport) in on.iter_mut().zip([Transport::Tcp, Transport::Udp]) {
                *flag = switch(spec, transport, settings)? == Switch::On;
            }
            parses.push(on);
        }
        Ok(Engine {
            detector: Detector::new(settings)?,
            factories,
            parses,
            files,
            requested: AtomicU8::new(0),
            magic: OnceLock::new(),
            magic_file: settings.get("magic-file").map(str::to_owned),
            expectations: None,
        })
    }

    /// Settings of file tracking, with the needs of all generations so far.
    #[must_use]
    pub fn files(&self) -> FileSettings {
        let asked = self.requested.load(Ordering::Relaxed);
        let mut files = self.files.clone();
        files.md5 |= asked & 1 != 0;
        files.sha1 |= asked & 2 != 0;
        files.sha256 |= asked & 4 != 0;
        if files.magic.is_none() {
            files.magic = self.magic.get().cloned();
        }
        files
    }

    /// Records that rules of a new generation need hashes of files: MD5, SHA-1, SHA-256. Files that begin
    /// from now on have them.
    pub fn request_hashes(&self, [md5, sha1, sha256]: [bool; 3]) {
        let bits = u8::from(md5) | u8::from(sha1) << 1 | u8::from(sha256) << 2;
        self.requested.fetch_or(bits, Ordering::Relaxed);
    }

    /// Records whether rules or outputs need protocol frames; `streams`: also the frame of the whole stream.
    /// Flows that begin from now on have them.
    pub fn request_frames(&self, frames: bool, streams: bool) {
        self.requested.fetch_or(u8::from(frames || streams) << 3 | u8::from(streams) << 4, Ordering::Relaxed);
    }

    /// Frames for a flow, if rules or outputs need them.
    pub(crate) fn frames(&self) -> Option<Box<Frames>> {
        let asked = self.requested.load(Ordering::Relaxed);
        (asked & 8 != 0).then(|| Box::new(Frames::new(asked & 16 != 0)))
    }

    /// Records that rules of a new generation need the types of files. Files that begin from now on have
    /// them.
    pub fn request_magic(&self) {
        if self.files.magic.is_none()
            && self.magic.get().is_none()
            && let Ok(magic) = Magic::of(&self.magic_file)
        {
            let _ = self.magic.set(Arc::new(magic));
        }
    }

    /// Keeps the expected connections of all flows in this store. Without one no connection is expected.
    #[must_use]
    pub fn with_expectations(mut self, store: Arc<dyn ExpectationStore>) -> Self {
        self.expectations = Some(store);
        self
    }

    /// The store of expected connections, if there is one.
    #[must_use]
    pub fn expectations(&self) -> Option<&dyn ExpectationStore> {
        self.expectations.as_deref()
    }

    pub(crate) fn make(&self, id: ProtocolId, transport: Transport) -> Option<Box<dyn Parser>> {
        self.factory(id, transport).map(|factory| factory.make())
    }

    pub(crate) fn make_expected(&self, id: ProtocolId, context: &[u8]) -> Option<Box<dyn Parser>> {
        self.factory(id, Transport::Tcp).map(|factory| factory.make_expected(context))
    }

    fn factory(&self, id: ProtocolId, transport: Transport) -> Option<&dyn ParserFactory> {
        let index = usize::from(id.0);
        let [tcp, udp] = *self.parses.get(index)?;
        let on = match transport {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
        };
        if !on {
            return None;
        }
        self.factories.get(index)?.as_deref()
    }
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine").field("detector", &self.detector).finish_non_exhaustive()
    }
}
