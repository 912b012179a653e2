// SPDX-License-Identifier: Apache-2.0
//! With the feature `verilator`: makes models of the logic in `hw/rtl` with Verilator, and compiles them with
//! the shim in `cpp/`. Without it nothing is done, and Verilator is not needed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "verilator")]
    verilated::build();
}

#[cfg(feature = "verilator")]
mod verilated {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// A configuration of the logic, by the parameters of `bartizan_top`; `src/model.rs` names the same ones.
    struct Configuration {
        name: &'static str,
        parameters: [u32; 6],
    }

    /// DataW, NumRules, Stride, Block, Ipv6, FlowBuckets.
    const CONFIGURATIONS: [Configuration; 3] = [
        Configuration { name: "narrow", parameters: [64, 128, 4, 0, 1, 64] },
        Configuration { name: "middle", parameters: [128, 64, 9, 1, 1, 1024] },
        Configuration { name: "wide", parameters: [512, 128, 9, 1, 0, 64] },
    ];

    pub fn build() {
        let logic = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hw/rtl");
        println!("cargo::rerun-if-changed={}", logic.display());
        println!("cargo::rerun-if-changed=cpp/shim.cpp");
        println!("cargo::rerun-if-env-changed=VERILATOR");
        println!("cargo::rerun-if-env-changed=BARTIZAN_RTL");
        println!("cargo::rerun-if-env-changed=BARTIZAN_RTL_ONLY");
        // For tests of one configuration: it stands in for the others as well, which no test may use then.
        let only = std::env::var("BARTIZAN_RTL_ONLY").ok();
        let is_built = |one: &&Configuration| only.as_deref().is_none_or(|only| only == one.name);
        // Beside each other: each is a compiler of its own for most of the time.
        std::thread::scope(|scope| {
            for configuration in CONFIGURATIONS.iter().filter(is_built) {
                let logic = &logic;
                scope.spawn(move || {
                    if let Err(problem) = model(logic, configuration) {
                        println!("cargo::error=the model `{}` of hw/rtl: {problem}", configuration.name);
                    }
                });
            }
        });
        for Configuration { name, .. } in CONFIGURATIONS.iter().filter(|one| !is_built(one)) {
            if let Err(problem) = stand_in(only.as_deref().unwrap_or_default(), name) {
                println!("cargo::error=the model in the place of `{name}`: {problem}");
            }
        }
        if let Err(problem) = runtime() {
            println!("cargo::error=Verilator's library: {problem}");
        }
    }

    fn out() -> PathBuf {
        PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default())
    }

    fn verilator() -> String {
        std::env::var("VERILATOR").unwrap_or_else(|_| "verilator".into())
    }

    fn run(command: &mut Command) -> Result<String, String> {
        let output = command.output().map_err(|error| {
            format!(
                "cannot run `{}`: {error}; the feature `verilator` needs Verilator 5.006 or newer: `apt-get \
                 install verilator`, or name another one in the variable VERILATOR",
                command.get_program().display()
            )
        })?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Folders of Verilator's headers.
    fn includes() -> Result<[PathBuf; 2], String> {
        let root = PathBuf::from(run(Command::new(verilator()).args(["--getenv", "VERILATOR_ROOT"]))?);
        Ok([root.join("include"), root.join("include/vltstd")])
    }

    /// A compiler. The model is what takes the time of a test: it is optimised whatever the profile is, but
    /// for what runs once.
    fn compiler(runs_once: bool) -> Result<cc::Build, String> {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(if runs_once { 0 } else { 2 }).debug(false).warnings(false);
        for folder in includes()? {
            build.include(folder);
        }
        Ok(build)
    }

    fn model(logic: &Path, configuration: &Configuration) -> Result<(), String> {
        let Configuration { name, parameters: [width, rules, stride, block, ipv6, buckets] } = configuration;
        let prefix = format!("V{name}");
        let made = out().join(name);
        // What an older version of the logic has left is not compiled again.
        let _ = std::fs::remove_dir_all(&made);
        // Another folder of sources: a script of tests changes a copy of the logic.
        let logic = std::env::var_os("BARTIZAN_RTL").map_or_else(|| logic.to_owned(), PathBuf::from);
        run(Command::new(verilator())
            .current_dir(&logic)
            .args(["--cc", "--top-module", "bartizan_top", "-Wall", "--assert", "-O3", "--x-assign", "fast"])
            .args(["--x-initial", "unique", "--prefix", &prefix, "lint.vlt"])
            .args([format!("-GDataW={width}"), format!("-GNumRules={rules}"), format!("-GStride={stride}")])
            .args([format!("-GBlock={block}"), format!("-GIpv6={ipv6}"), format!("-GFlowBuckets={buckets}")])
            // A planted fault may leave a signal unused; the committed logic has no warning.
            .args(std::env::var_os("BARTIZAN_RTL").map(|_| "-Wno-fatal"))
            .arg("--Mdir")
            .arg(&made)
            .args(["-f", "files.f"]))?;
        let mut build = compiler(false)?;
        build.include(&made);
        build.define("MODEL", prefix.as_str()).define("MODEL_NAME", *name);
        build.define("MODEL_HEADER", format!("\"{prefix}.h\"").as_str());
        let folder = std::fs::read_dir(&made).map_err(|error| format!("{}: {error}", made.display()))?;
        let mut sources: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
        sources.sort();
        let (slow, fast): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|path| path.to_string_lossy().contains("__Slow"));
        // In one file: an object of the shim would have the same name for every model.
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp/shim.cpp");
        build.file(joined(&made, "fast", fast.iter().chain([&shim]))?);
        build.try_compile(&format!("bartizan_rtl_{name}")).map_err(|error| error.to_string())?;
        let mut build = compiler(true)?;
        build.include(&made).file(joined(&made, "slow", slow.iter())?);
        build.try_compile(&format!("bartizan_rtl_{name}_once")).map_err(|error| error.to_string())
    }

    /// The functions of a name over the model of another one.
    fn stand_in(own: &str, name: &str) -> Result<(), String> {
        let made = out().join(own);
        let mut build = compiler(true)?;
        build.include(&made).define("MODEL", format!("V{own}").as_str()).define("MODEL_NAME", name);
        build.define("MODEL_HEADER", format!("\"V{own}.h\"").as_str());
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp/shim.cpp");
        let copy = out().join(format!("{name}_shim.cc"));
        let lines = format!("#include \"{}\"\n", shim.display());
        std::fs::write(&copy, lines).map_err(|error| format!("{}: {error}", copy.display()))?;
        build.file(copy);
        build.try_compile(&format!("bartizan_rtl_{name}")).map_err(|error| error.to_string())
    }

    /// A file that includes others: most of the time for one goes into its headers, which are the same in
    /// all.
    fn joined<'s>(
        made: &Path,
        name: &str,
        sources: impl Iterator<Item = &'s PathBuf>,
    ) -> Result<PathBuf, String> {
        let lines: String = sources.map(|path| format!("#include \"{}\"\n", path.display())).collect();
        let file = made.join(format!("{name}.cc"));
        std::fs::write(&file, lines).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }

    /// Verilator's own sources, after the models that use them.
    fn runtime() -> Result<(), String> {
        let [folder, _] = includes()?;
        let mut build = compiler(false)?;
        build.file(folder.join("verilated.cpp"));
        let threads = folder.join("verilated_threads.cpp");
        if threads.exists() {
            build.file(threads);
        }
        build.try_compile("bartizan_rtl_verilated").map_err(|error| error.to_string())
    }
}
