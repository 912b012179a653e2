// SPDX-License-Identifier: Apache-2.0
//! The kinds of level below the host, by their names in a host file. A further kind of this program takes one
//! line here; a program that embeds the runtime adds its own ([`Levels::with`]).

use bartizan_offload::level::LevelDriver;
use bartizan_xdp::XdpDriver;
use std::fmt;

/// The kinds of this program.
const OWN: &[&dyn LevelDriver] = &[
    &XdpDriver,
    #[cfg(feature = "rtl")]
    &bartizan_rtl::SmartNicDriver,
];

/// A kind that a program has only if it was built with a feature of the same name, and what the build needs.
const OPTIONAL: [(&str, &str); 1] = [("rtl", "Verilator")];

/// The kinds of level that a run may use.
#[derive(Clone, Default)]
pub struct Levels {
    more: Vec<&'static dyn LevelDriver>,
}

impl Levels {
    /// Adds one more kind.
    #[must_use]
    pub fn with(mut self, level: &'static dyn LevelDriver) -> Self {
        self.more.push(level);
        self
    }

    /// All kinds.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn LevelDriver> + '_ {
        OWN.iter().copied().chain(self.more.iter().copied())
    }

    /// The kind with a name.
    ///
    /// # Errors
    /// No kind has the name: the message lists those that exist.
    pub fn of_name(&self, name: &str) -> Result<&'static dyn LevelDriver, String> {
        self.iter().find(|level| level.name() == name).ok_or_else(|| {
            if let Some((name, needs)) = OPTIONAL.iter().find(|(of, _)| *of == name) {
                return format!(
                    "this program was built without the level `{name}`; install {needs} and build it with `--features {name}`"
                );
            }
            let known: Vec<String> = self.iter().map(|level| format!("`{}`", level.name())).collect();
            format!("there is no level `{name}`; levels are {}", known.join(", "))
        })
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(LevelDriver::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_found_by_its_name() {
        let levels = Levels::default();
        assert_eq!(levels.of_name("xdp").ok().unwrap().title(), "XDP");
        let unknown = levels.of_name("xdq").err().unwrap();
        assert!(unknown.starts_with("there is no level `xdq`; levels are `xdp`"), "{unknown}");
        if cfg!(not(feature = "rtl")) {
            let without = levels.of_name("rtl").err().unwrap();
            assert!(without.contains("--features rtl") && without.contains("Verilator"), "{without}");
        }
        for level in levels.iter() {
            assert!(levels.of_name(level.name()).is_ok_and(|of| of.title() == level.title()));
            assert!(format!("{levels:?}").contains(level.name()));
        }
    }
}
