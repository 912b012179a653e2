// SPDX-License-Identifier: Apache-2.0
//! The outputs of the host file, as settings of EVE outputs.
//!
//! Events and fields are those of the first EVE output in the Suricata settings; the host file defines the
//! destinations. Its outputs replace all outputs of the settings.

use bartizan_base::SettingsMap;
use bartizan_config::host::{Outputs, Rotate};
use std::path::PathBuf;

/// Number of the first output that the host file makes.
const FIRST: u32 = 900;

/// Requested destinations of events. If none is set, the Suricata settings apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputSelection {
    /// A file `eve.json` in the output folder.
    pub file: bool,
    /// Rotation of that file.
    pub rotate: Rotate,
    /// A Unix socket.
    pub socket: Option<PathBuf>,
    /// Standard output.
    pub stdout: bool,
}

impl OutputSelection {
    /// The destinations of a host file; `folder`: the command line names a folder.
    pub fn of(outputs: &Outputs, folder: bool) -> Self {
        let mut wanted = OutputSelection {
            file: outputs.eve.is_some(),
            rotate: outputs.eve.as_ref().map(|e| e.rotate.clone()).unwrap_or_default(),
            socket: outputs
                .socket
                .as_ref()
                .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            stdout: outputs.stdout,
        };
        wanted.file |= folder && wanted.is_set();
        wanted
    }

    /// Whether a destination is set.
    pub const fn is_set(&self) -> bool {
        self.file || self.socket.is_some() || self.stdout
    }

    /// Puts the outputs into the settings. Warns of outputs that are replaced.
    pub fn apply(&self, settings: &mut SettingsMap, warnings: &mut Vec<String>) {
        if !self.is_set() {
            return;
        }
        let numbers: Vec<String> = settings.children("outputs").map(str::to_owned).collect();
        let enabled: Vec<String> = numbers
            .into_iter()
            .filter(|n| settings.bool(&format!("outputs.{n}.eve-log.enabled"), false).unwrap_or(false))
            .collect();
        let template = match enabled.first() {
            Some(number) => settings.section(&format!("outputs.{number}.eve-log")),
            None => bartizan_config::suricata::shipped().section("outputs.1.eve-log"),
        };
        if enabled.len() > 1 {
            warnings.push(format!(
                "the settings have {} EVE outputs, but the host file sets the destination: the events of outputs.{} go there, the other outputs are off",
                enabled.len(),
                enabled.first().map_or("", String::as_str)
            ));
        }
        for number in &enabled {
            settings.prune(&format!("outputs.{number}"));
        }
        let file = self.file.then(|| {
            let mut keys = vec![("filetype", "regular".to_owned()), ("filename", "eve.json".to_owned())];
            if let Some(size) = &self.rotate.size {
                keys.push(("rotate-size", size.0.to_string()));
            }
            if let Some(every) = &self.rotate.every {
                keys.push(("rotate-every", every.0.to_string()));
            }
            keys.push(("rotate-keep", self.rotate.keep.unwrap_or(u32::MAX).to_string()));
            keys
        });
        let socket = self.socket.as_ref().map(|path| {
            vec![("filetype", "unix_stream".to_owned()), ("filename", path.display().to_string())]
        });
        let stdout = self.stdout.then(|| vec![("filetype", "stdout".to_owned())]);
        for (number, keys) in (FIRST..).zip([file, socket, stdout].into_iter().flatten()) {
            let prefix = format!("outputs.{number}");
            settings.set(prefix.clone(), "eve-log");
            // The host file's mode applies to all files.
            let moded = settings.get("output-rights.mode").is_some();
            for (key, value) in template.iter().filter(|(key, _)| !moded || *key != "filemode") {
                let own = format!("{prefix}.eve-log.{key}");
                // The first of several outputs carries the origins, for findings about a setting.
                match template.origin(key).filter(|_| number == FIRST) {
                    Some(origin) => settings.set_from(own, value, origin),
                    None => settings.set(own, value),
                }
            }
            for (key, value) in
                [("enabled", "yes".to_owned()), ("twin", "yes".to_owned())].into_iter().chain(keys)
            {
                settings.set(format!("{prefix}.eve-log.{key}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_events::EveOutputs;
    use bartizan_events::config::Destination;

    #[test]
    fn every_output_gets_the_same_events() {
        let wanted = OutputSelection {
            file: true,
            rotate: Rotate { keep: Some(3), ..Rotate::default() },
            socket: Some("/run/eve.sock".into()),
            stdout: true,
        };
        let mut settings = bartizan_config::suricata::shipped();
        let before = EveOutputs::from_settings(&settings).unwrap();
        let mut warnings = Vec::new();
        wanted.apply(&mut settings, &mut warnings);
        let after = EveOutputs::from_settings(&settings).unwrap();
        assert!(warnings.is_empty() && after.warnings.is_empty(), "{:?}", after.warnings);
        assert_eq!(after.outputs.len(), 3);
        // Sections contain their place.
        let types = |outputs: &EveOutputs, at: usize| {
            let number = outputs.outputs[at].index;
            format!("{:?}", outputs.outputs[at].types).replace(&format!("outputs.{number}."), "outputs.N.")
        };
        for at in 0..3 {
            assert_eq!(types(&after, at), types(&before, 0));
        }
        let Destination::File(file) = &after.outputs[0].destination else { panic!("a file") };
        assert_eq!((file.path.to_str(), file.rotate_keep), (Some("eve.json"), 3));
        assert_eq!(after.outputs[1].destination, Destination::UnixStream("/run/eve.sock".into()));
        assert_eq!(after.outputs[2].destination, Destination::Stdout);
    }

    #[test]
    fn nothing_wanted_leaves_the_settings_alone() {
        let mut settings = bartizan_config::suricata::shipped();
        let before: Vec<_> = settings.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        OutputSelection::default().apply(&mut settings, &mut Vec::new());
        assert!(settings.iter().eq(before.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
    }
}
