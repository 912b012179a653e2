// SPDX-License-Identifier: Apache-2.0
//! File descriptors: a controller has one for each agent and each client, and shells give programs 1,024
//! unless told otherwise.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets the process have as many as it may, if that is more than it has; `wanted` are enough. How many it has
/// then; `None`: without bound.
pub fn raise(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current?;
    let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if most <= now {
        return Some(now);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }) {
        Ok(()) => Some(most),
        Err(_) => Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_never_made_less() {
        let before = getrlimit(Resource::Nofile).current;
        assert_eq!(raise(1), before);
        let after = raise(u64::MAX);
        assert!(after >= before && after == getrlimit(Resource::Nofile).current);
    }
}
