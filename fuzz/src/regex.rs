// SPDX-License-Identifier: Apache-2.0
//! Regular expressions: flags, expression, a zero byte, and the text to search.

use crate::planted::planted;
use bartizan_pattern::{Compiler, Config, JitMode, Limits, Regex, RegexFlags, RegexPattern, Scratch};
use std::cell::RefCell;
use std::sync::LazyLock;

static COMPILER: LazyLock<Compiler> =
    LazyLock::new(|| Compiler::new(Config::default()).expect("a compiler without a cache"));

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// Compiles the expression and searches, alone and as a set of one.
pub fn run(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (pattern, haystack) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if pattern.len() > 256 {
        return;
    }
    let flags = RegexFlags::from_bits_truncate(u32::from(*flags));
    let Ok(regex) = Regex::new(pattern, flags, Limits::default(), JitMode::Lazy) else { return };
    SCRATCH.with_borrow_mut(|scratch| {
        let found = regex.is_match(scratch, haystack);
        let _ = (regex.group_count(), regex.group_names(), regex.memory_usage());
        planted(found == Ok(true) && haystack.len() > 8 && regex.group_count() > 0);
    });
    let _ = COMPILER.regex_set(&[RegexPattern { id: 1, pattern, flags }]);
}
