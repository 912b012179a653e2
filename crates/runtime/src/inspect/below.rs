// SPDX-License-Identifier: Apache-2.0
//! A level below the worker of an inspection: it sees the frames of captures first.

use super::InspectOptions;
use crate::error::Failure;
use bartizan_base::{Generation, LinkId, Spread};
use bartizan_config::host::OFFLOAD_ENTRIES_USUAL;
use bartizan_offload::FlowManager;
use bartizan_offload::level::{
    AttachMode, DeviceSetup, Fail, FramePath, LevelError, LevelOptions, LevelView, OpenLevel, PortSetup,
    PortSide, Watch,
};
use bartizan_stages::settings::EngineSettings;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Frames at a level below, by outcome.
#[derive(Debug, Serialize)]
pub struct LevelSummary {
    /// The level's name.
    pub level: String,
    /// Frames that it saw.
    pub frames: u64,
    /// Frames that it passed to the worker.
    pub up: u64,
    /// Frames that it forwarded.
    pub forwarded: u64,
    /// Frames that it dropped.
    pub dropped: u64,
    /// The level's further counters that are not zero.
    pub counters: BTreeMap<&'static str, u64>,
}

/// An open level with the links of captures.
pub(super) struct CaptureLevel {
    name: String,
    level: Box<dyn OpenLevel>,
    path: Arc<dyn FramePath>,
    ports: Vec<u8>,
    max_layers: u8,
}

impl CaptureLevel {
    /// Opens the level that the options name, if any.
    pub(super) fn open(
        options: &InspectOptions,
        settings: &EngineSettings,
        links: &[LinkId],
    ) -> Result<Option<Self>, Failure> {
        let Some(name) = &options.offload else { return Ok(None) };
        if options.threads != 1 {
            return Err(Failure::usage(format!(
                "--offload {name} with {} threads: on captures a level serves only one worker; remove --threads",
                options.threads
            )));
        }
        let driver = options.levels.of_name(name).map_err(Failure::usage)?;
        let failed = |error: LevelError| Failure::input(format!("--offload {name}: {}", error.explain()));
        let [one, other] = settings.seed;
        let level_options = LevelOptions {
            flows: OFFLOAD_ENTRIES_USUAL,
            mode: AttachMode::Auto,
            tunnels: settings.decoder,
            workers: 1,
            early: None,
            seed: one ^ other.rotate_left(32),
        };
        let mut level = driver.open(&level_options).map_err(failed)?;
        let Some(path) = level.frame_path() else {
            return Err(Failure::usage(format!(
                "--offload {name}: the {} level works on interfaces, and a capture has none; use a level that runs in this program",
                driver.title()
            )));
        };
        let mut ports = Vec::new();
        for link in links {
            let first = u8::try_from(link.0.saturating_mul(2)).unwrap_or(u8::MAX - 1);
            for index in [first, first + 1] {
                // Captures do not say by which side a frame came, so keys have none.
                let setup = PortSetup {
                    ifindex: 0,
                    link: *link,
                    side: PortSide::Unknown,
                    index,
                    pair: index ^ 1,
                    vlans_in_key: settings.vlan_in_key,
                    drop_samples: None,
                    early: None,
                    watch: None,
                };
                level.attach(&setup).map_err(failed)?;
                ports.push(index);
            }
        }
        ports.dedup();
        let max_layers = settings.decoder.max_layers;
        Ok(Some(CaptureLevel { name: name.clone(), level, path, ports, max_layers }))
    }

    /// The manager of flows at the level.
    pub(super) fn manager(&self, generation: Generation) -> FlowManager {
        let watch =
            Watch { fail: Fail::Closed, stale: Duration::ZERO, spread: Spread::new([0; 2], 1), first: 0 };
        let device = self.level.device(DeviceSetup {
            first_slot: 0,
            entries: OFFLOAD_ENTRIES_USUAL,
            max_layers: self.max_layers,
            worker: 0,
            watch,
            exits: Vec::new(),
            early: None,
        });
        FlowManager::new(device, generation)
    }

    /// The way of frames.
    pub(super) fn path(&self) -> Arc<dyn FramePath> {
        Arc::clone(&self.path)
    }

    /// Frames so far.
    pub(super) fn summary(&self) -> LevelSummary {
        let view: Arc<dyn LevelView> = self.level.view();
        let mut summary = LevelSummary {
            level: self.name.clone(),
            frames: 0,
            up: 0,
            forwarded: 0,
            dropped: 0,
            counters: view.more().into_iter().filter(|(_, count)| *count > 0).collect(),
        };
        for counters in self.ports.iter().filter_map(|port| view.port_counters(*port)) {
            summary.frames += counters.frames;
            summary.up += counters.up;
            summary.forwarded += counters.forwarded;
            summary.dropped += counters.dropped;
        }
        summary
    }
}
