// SPDX-License-Identifier: Apache-2.0
//! The note about systems that keep PCRE2 from making machine code, with its cost.

use bartizan_pattern::{JitSupport, pcre2_version};

/// The note for an operator where regular expressions are interpreted; `None` where they are machine code.
pub fn note(support: JitSupport) -> Option<String> {
    let (why, what) = match support {
        JitSupport::Works => return None,
        JitSupport::NotBuilt => {
            ("this PCRE2 was built without it", "install one that was built with --enable-jit")
        }
        JitSupport::Refused => (
            "the system refuses memory that is writable and executable, as MemoryDenyWriteExecute= of systemd and execmem of SELinux do",
            "allow it to this program",
        ),
    };
    Some(format!(
        "regular expressions of rules (`pcre`) are interpreted: PCRE2 {} makes no machine code (JIT) here, as {why}; each search takes several \
         times as long, and match-limit and match-limit-recursion of `pcre` count otherwise, so that expensive searches are given up earlier; \
         {what} if that is too slow",
        pcre2_version()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_interpreted_is_said_with_its_reason_and_its_cost() {
        assert_eq!(note(JitSupport::Works), None);
        for (support, why) in
            [(JitSupport::Refused, "MemoryDenyWriteExecute"), (JitSupport::NotBuilt, "built without it")]
        {
            let text = note(support).unwrap();
            assert!(text.contains("PCRE2") && text.contains(why) && text.contains("several times"), "{text}");
        }
    }
}
