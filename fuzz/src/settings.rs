// SPDX-License-Identifier: Apache-2.0
//! suricata.yaml (through a file, as the program reads it) and the host file.

use crate::planted::planted;
use bartizan_applayer::{file::FileSettings, flow::Engine};
use bartizan_stages::settings::EngineSettings;
use std::path::PathBuf;
use std::sync::LazyLock;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("bartizan-fuzz-{}.yaml", std::process::id()))
});

/// Reads the text as both.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = bartizan_config::host::parse("fuzz.yaml", &text);
    // Includes read other files, which the fuzzer does not control.
    if text.contains("include") || text.len() > 64 << 10 || std::fs::write(&*FILE, data).is_err() {
        return;
    }
    let Ok(settings) = bartizan_config::suricata::load(&FILE) else { return };
    let engine = EngineSettings::from_settings(&settings, true, [1, 2]);
    let _ = Engine::new(&settings, FileSettings::default());
    let _ = settings.unread();
    planted(engine.is_ok() && settings.number("defrag.timeout", 60u32).is_ok_and(|timeout| timeout < 60));
}
