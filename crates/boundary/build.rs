// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of the boundary with clang. The object is embedded into the crate.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf");
    for name in ["guest.bpf.c", "bpf.h"] {
        println!("cargo::rerun-if-changed={}", sources.join(name).display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(problem) = compile(&sources, &out) {
        println!("cargo::error=ebpf/guest.bpf.c: {problem}");
    }
}

/// Compiles the object. An error says what is wrong and what to do.
fn compile(sources: &Path, out: &Path) -> Result<(), String> {
    let compiler = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let variable = |name| std::env::var(name).unwrap_or_default();
    let target = if variable("CARGO_CFG_TARGET_ENDIAN") == "big" { "bpfeb" } else { "bpfel" };
    // Where Debian has the headers of a processor; others have them where clang looks anyway.
    let headers = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let output = Command::new(&compiler)
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-isystem", &headers])
        .arg("-I")
        .arg(sources)
        .arg("-c")
        .arg(sources.join("guest.bpf.c"))
        .arg("-o")
        .arg(out.join("guest.o"))
        .output()
        .map_err(|error| {
            format!("cannot run `{compiler}`: {error}; `apt-get install clang libc6-dev`, or name a clang in the variable CLANG")
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " | ");
    Err(format!("`{compiler}` failed; it has to be 14 or newer with the target bpf: {said}"))
}
