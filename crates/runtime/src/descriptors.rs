// SPDX-License-Identifier: Apache-2.0
//! File descriptors: a controller needs one for each agent and each client, and the usual limit of shells is
//! 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit to at most its hard limit; `wanted` are enough. Returns the resulting limit;
/// `None`: no limit.
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
