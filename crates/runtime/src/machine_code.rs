// SPDX-License-Identifier: Apache-2.0
//! The note about systems that keep PCRE2 from making machine code, with its cost.

use bartizan_pattern::{JitSupport, pcre2_version};

/// The note for an operator where regular expressions are interpreted; `None` where they are machine code.
pub fn note(support: JitSupport) -> Option<String> {
    let (why, what) = match support {
        JitSupport::Works => return None,
        JitSupport::NotBuilt => {
            ("this PCRE2 was built without JIT", "install a PCRE2 that was built with --enable-jit")
        }
        JitSupport::Refused => (
            "the system refuses memory that is writable and executable, as MemoryDenyWriteExecute= of systemd and execmem of SELinux do",
            "allow such memory for this program",
        ),
    };
    Some(format!(
        "regular expressions of rules (`pcre`) are interpreted, because PCRE2 {} cannot compile them to \
         machine code (JIT): {why}; each search takes several times as long, and match-limit and \
         match-limit-recursion of `pcre` end expensive searches earlier; if this is too slow, {what}",
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
            [(JitSupport::Refused, "MemoryDenyWriteExecute"), (JitSupport::NotBuilt, "built without JIT")]
        {
            let text = note(support).unwrap();
            assert!(text.contains("PCRE2") && text.contains(why) && text.contains("several times"), "{text}");
        }
    }
}
