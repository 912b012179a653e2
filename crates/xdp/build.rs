// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `ebpf/` with clang. The objects are embedded into the crate.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs, and what they include.
const PROGRAMS: [&str; 2] = ["flows", "probe"];
const INCLUDED: [&str; 11] = [
    "bpf.h",
    "bartizan_slots.h",
    "casts.h",
    "early.h",
    "icmp.h",
    "index.h",
    "lost.h",
    "open.h",
    "tunnels.h",
    "watch.h",
    "windows.h",
];

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf");
    for name in PROGRAMS.map(|name| format!("{name}.bpf.c")).iter().map(String::as_str).chain(INCLUDED) {
        println!("cargo::rerun-if-changed={}", sources.join(name).display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for program in PROGRAMS {
        if let Err(problem) = compile(&sources, program, &out) {
            println!("cargo::error=ebpf/{program}.bpf.c: {problem}");
        }
    }
}

/// Compiles one program. An error says what is wrong and what to do.
fn compile(sources: &Path, program: &str, out: &Path) -> Result<(), String> {
    let compiler = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let variable = |name| std::env::var(name).unwrap_or_default();
    // The program runs on the machine that the crate is built for, in its order of bytes.
    let target = if variable("CARGO_CFG_TARGET_ENDIAN") == "big" { "bpfeb" } else { "bpfel" };
    // Where Debian has the headers of a processor; others have them where clang looks anyway.
    let headers = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let output = Command::new(&compiler)
        // -g: the descriptions of maps are types of BTF.
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-isystem", &headers])
        .arg("-I")
        .arg(sources)
        .arg("-c")
        .arg(sources.join(format!("{program}.bpf.c")))
        .arg("-o")
        .arg(out.join(format!("{program}.o")))
        .output()
        .map_err(|error| {
            format!(
                "cannot run `{compiler}`: {error}; the programs of the XDP level are compiled with clang 14 or newer: `apt-get install clang libc6-dev`, or \
                 name another one in the variable CLANG"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " | ");
    Err(format!(
        "`{compiler}` failed; it has to be 14 or newer with the target bpf, and the kernel's headers have to be there (`apt-get install linux-libc-dev`): {said}"
    ))
}
