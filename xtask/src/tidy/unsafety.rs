// SPDX-License-Identifier: Apache-2.0
//! `unsafe` in named modules only, each block with the argument beside it.
//!
//! The lint `unsafe_code` (denied for the workspace) makes every use visible as an `allow`; this check
//! compares those with a list, so that a new one is a decision; and each block and implementation has its
//! SAFETY comment (as clippy's `undocumented_unsafe_blocks` requires, which a macro can hide from).

use super::rust::{code, has_word};
use super::{Finding, Tree};

/// Modules (or files) with `unsafe`, by the file that allows it, and the reason.
pub const ALLOWED: &[(&str, &str, &str)] = &[
    ("benches/bypass/generate/src/lib.rs", "sys", "packet sockets and bpf(2), system calls"),
    ("crates/classify/examples/bench/common.rs", "", "thread CPU time, a system call"),
    ("crates/classify/src/split/mod.rs", "vector", "gathers, which read without bounds checks"),
    ("crates/applayer/src/lib.rs", "ffi_magic", "libmagic is a C library, looked up at run time"),
    ("crates/flow/src/lib.rs", "prefetch", "one prefetch instruction"),
    ("crates/pattern/src/lib.rs", "ffi_hs", "libhs is a C library, looked up at run time"),
    ("crates/pattern/src/lib.rs", "ffi_pcre2", "PCRE2 is a C library"),
    ("crates/ports/src/lib.rs", "ffi_pcap", "libpcap is a C library, looked up at run time"),
    ("crates/ports/src/lib.rs", "ring", "memory shared with the kernel"),
    ("crates/ports/src/lib.rs", "sys", "system calls"),
    ("crates/rtl/src/lib.rs", "model", "the model of the SmartNIC's logic is C++"),
    ("crates/boundary/src/lib.rs", "descriptors", "close_range(2)"),
    ("crates/boundary/src/lib.rs", "namespace", "a thread's own network namespace"),
    ("crates/boundary/src/lib.rs", "packet_info", "recvmsg(2) and sendmsg(2) with the address of a datagram"),
    ("crates/sock/src/lib.rs", "calls", "functions of C with the caller's pointers"),
    ("crates/sock/src/lib.rs", "pointers", "the caller's pointers"),
    ("crates/sock/src/lib.rs", "process", "a value that lives for ever, descriptors by number, fork"),
    ("crates/sock/src/lib.rs", "real", "functions of the C library, looked up at run time"),
    ("crates/toe/src/lib.rs", "memory", "memory shared with guests"),
    ("crates/toe/src/lib.rs", "sys", "socket options by number"),
    ("crates/xdp/src/lib.rs", "memory", "memory shared with the kernel"),
    ("crates/xdp/src/lib.rs", "sys", "system calls"),
    ("crates/runtime/src/lib.rs", "allocator", "options of the allocator, a C library"),
    ("crates/pattern/tests/allocation.rs", "", "a counting allocator"),
    ("crates/ports/examples/forward.rs", "", "a signal handler"),
    ("tests/receiver/src/lib.rs", "sys", "a thread's own network namespace, a system call"),
    ("crates/ports/tests/common/mod.rs", "", "system calls that make a test network"),
    ("crates/xdp/tests/common/mod.rs", "", "system calls that make a test network"),
    ("crates/xdp/tests/windows.rs", "", "keeps a thread on a processor"),
    ("crates/bartizan/tests/windows.rs", "", "a thread's own network namespace, a socket option"),
];

/// Finds an `allow(unsafe_code)` that is not on the list and an `unsafe` without its SAFETY comment.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let text = code(&file.text);
        let lines: Vec<&str> = text.lines().collect();
        let source: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if line.contains("allow(unsafe_code") && !listed(&file.path, &lines[index + 1..]) {
                let message = "this place is not on the list in xtask/src/tidy/unsafety.rs: can it do without `unsafe`?";
                findings.push(Finding::new(&file.path, index + 1, message));
            }
            if opens(line) && !argued(&source, index) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    "`unsafe` without a SAFETY comment above it",
                ));
            }
        }
    }
    findings
}

/// Whether the item below an `allow` is a module on the list, or the file as a whole is.
fn listed(path: &str, below: &[&str]) -> bool {
    let item = below.iter().map(|line| line.trim()).find(|line| !line.is_empty() && !line.starts_with("#["));
    let module = item.and_then(|item| item.trim_start_matches("pub ").strip_prefix("mod ")).unwrap_or("");
    let module = module.trim_end_matches([';', '{', ' ']);
    ALLOWED.iter().any(|(file, name, _)| *file == path && (name.is_empty() || *name == module))
}

/// Whether this line of code opens an unsafe block or implementation, which needs an argument.
fn opens(line: &str) -> bool {
    // Functions and function pointers make demands on their callers; only blocks and implementations make
    // claims.
    has_word(line, "unsafe") && ["unsafe {", "unsafe impl"].iter().any(|form| line.contains(form))
}

/// Whether there is a SAFETY comment (or a `# Safety` section) on the line, or in the comments and attributes
/// above it. A statement that begins on a line above is followed.
fn argued(source: &[&str], index: usize) -> bool {
    let says = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    if says(source[index]) {
        return true;
    }
    let mut above = 0;
    for line in source[..index].iter().rev() {
        let line = line.trim();
        if says(line) {
            return true;
        }
        if line.starts_with("//") || line.starts_with("#[") {
            continue;
        }
        above += 1;
        if above > 2 || line.is_empty() || line.ends_with(';') || line.ends_with('}') {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_named_is_found() {
        let tree = Tree::of(&[
            (
                "crates/flow/src/lib.rs",
                "#[allow(unsafe_code)]\nmod prefetch;\n#[allow(unsafe_code)]\nmod other;\n",
            ),
            ("crates/rules/src/lib.rs", "#![allow(unsafe_code)]\n"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|f| (f.path.clone(), f.line)).collect();
        assert_eq!(found, [("crates/flow/src/lib.rs".into(), 3), ("crates/rules/src/lib.rs".into(), 1)]);
    }

    #[test]
    fn each_unsafe_has_its_argument() {
        let text = "// SAFETY: because.\nlet a = unsafe { x() };\nlet b = 1;\nlet c = unsafe { y() };\n// SAFETY: so.\nlet d =\n    unsafe { z() };\n// \"unsafe\" in a comment\nlet e = \"unsafe\";\ntype F = unsafe extern \"C\" fn();\n// SAFETY: plain data.\n#[x]\nunsafe impl Send for X {}\nunsafe impl Sync for X {}\n";
        let tree = Tree::of(&[("crates/ports/src/sys.rs", text)]);
        assert_eq!(check(&tree).iter().map(|f| f.line).collect::<Vec<_>>(), [4, 14]);
    }
}
