// SPDX-License-Identifier: Apache-2.0
//! Settings that orders give to functions, in addition to their sections of the policy.

use super::{Agent, GATE, Overrides};
use bartizan_config::policy::unknown_function;
use serde_json::{Map, Value};

impl Agent {
    /// Gives a function settings from the next generation on, in all its sections; `null` removes one. The
    /// function itself checks their values when it is built. Returns the settings before, for
    /// [`Agent::restore`].
    ///
    /// # Errors
    /// The function does not exist, or has no such setting that can be changed by an order.
    pub fn configure(&mut self, function: &str, settings: &Map<String, Value>) -> Result<Overrides, String> {
        let Some(kind) = self.kinds.iter().find(|kind| kind.spec().name == function && function != GATE)
        else {
            return Err(unknown_function(function, &self.function_names()));
        };
        let known = kind.changeable();
        if known.is_empty() {
            return Err(format!(
                "`{function}` has no settings that can change while it runs; change its section of the policy and reload"
            ));
        }
        if let Some(other) = settings.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!(
                "`{function}` has no setting `{other}` that can change while it runs; settings: {}",
                known.join(", ")
            ));
        }
        if settings.is_empty() {
            return Err(format!("no setting is given; settings of `{function}`: {}", known.join(", ")));
        }
        let before = self.overrides.clone();
        let own = self.overrides.entry(function.to_owned()).or_default();
        for (name, value) in settings {
            if value.is_null() {
                own.remove(name);
            } else {
                own.insert(name.clone(), value.clone());
            }
        }
        Ok(before)
    }

    /// All settings given by orders, by function.
    #[must_use]
    pub const fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Restores earlier settings.
    pub fn restore(&mut self, overrides: Overrides) {
        self.overrides = overrides;
    }
}
