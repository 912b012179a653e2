// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` without one of the rights that it needs, in a network namespace of its own (needs root;
//! without, it prints so and returns): it does not start, and names the missing right. The page about rights
//! names all of them.

use crate::common::{Ended, Folder, PROGRAM, Running, run, until};
use crate::level::network;
use crate::namespace::in_namespace;

use std::process::Command;

const RIGHTS: [&str; 4] = ["net_raw", "net_admin", "bpf", "perfmon"];
const LINE: [&str; 10] =
    ["run", "--inline", "a1", "b1", "--cache", "none", "--policy", "policy.yaml", "--out", "out"];

/// Runs the program with these rights until it ends by itself.
fn run_with(folder: &Folder, rights: &[&str], more: &[&str]) -> Ended {
    let kept: Vec<_> = rights.iter().map(|right| format!(",+{right}")).collect();
    let kept = format!("-all{}", kept.concat());
    let mut command = Command::new("setpriv");
    command.args([format!("--bounding-set={kept}"), format!("--inh-caps={kept}")]);
    command.arg(PROGRAM).args(LINE).args(more).current_dir(&folder.0);
    Running::start(&mut command).wait()
}

#[test]
fn a_right_that_is_missing_is_named() {
    in_namespace(|| {
        if !Command::new("setpriv").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
            eprintln!("needs `setpriv`: not run (apt-get install util-linux)");
            return;
        }
        let folder = Folder::new();
        folder.write("policy.yaml", "default: {action: allow}\n");
        let _ends = network(1500);
        for missing in RIGHTS {
            let rest: Vec<_> = RIGHTS.into_iter().filter(|right| *right != missing).collect();
            let ended = run_with(&folder, &rest, &["--offload", "xdp"]);
            let named = format!("the right CAP_{} is missing", missing.to_uppercase());
            assert_eq!(ended.code, Some(1), "{missing}: {}", ended.stderr);
            assert!(ended.stderr.contains(&named), "{missing}: {}", ended.stderr);
            assert!(ended.stderr.contains("setcap cap_"), "{missing}: {}", ended.stderr);
            assert!(!ended.stderr.contains("fault of this build"), "{missing}: {}", ended.stderr);
        }
        let ended = run_with(&folder, &["net_admin", "net_raw"], &["--offload", "xdp"]);
        assert!(ended.stderr.contains("the rights CAP_BPF, CAP_PERFMON are missing"), "{}", ended.stderr);
        // Programs load with CAP_SYS_ADMIN alone; interfaces that are not fit are not what lacks.
        crate::level::tool("ethtool", "-K a1 gro on");
        for more in [&["--offload", "xdp"][..], &["--offload", "xdp", "--fix-offloads"]] {
            let ended = run_with(&folder, &["net_raw", "sys_admin"], more);
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert!(ended.stderr.contains("the right CAP_NET_ADMIN is missing"), "{}", ended.stderr);
        }
        crate::level::tool("ethtool", "-K a1 gro off");
        let ended = run_with(&folder, &["net_admin"], &[]);
        assert!(ended.stderr.contains("the right CAP_NET_RAW is missing"), "{}", ended.stderr);
        // With all of them it begins.
        let all = RIGHTS.map(|right| format!("+{right}")).join(",");
        let mut command = Command::new("setpriv");
        command.args([format!("--bounding-set=-all,{all}"), format!("--inh-caps=-all,{all}")]);
        command.arg(PROGRAM).args(LINE).args(["--offload", "xdp"]).current_dir(&folder.0);
        let running = Running::start(&mut command);
        running.until("running on a1-b1");
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn what_a_link_is_not_fit_for_the_level_for_is_said_at_once() {
    in_namespace(|| {
        let folder = Folder::new();
        folder.write("policy.yaml", "default: {action: allow}\n");
        let ends = network(1500);
        let tool = crate::level::tool;
        tool("ethtool", "-K a1 tx on rxvlan on");
        tool("ethtool", "-K b1 gro on rxvlan on");
        tool("ethtool", "-K b0 gro off");
        let line = [&LINE[..], &["--offload", "xdp"]].concat();
        let ended = run(&folder.0, &line);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        for said in [
            "`ethtool -K a1 tx off rxvlan off`",
            "`ethtool -K b1 gro off rxvlan off`",
            "`b1` does not take redirected frames",
            "`ethtool -K OTHER_END gro on`",
        ] {
            assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("`a1` does not take"), "{}", ended.stderr);
        // What this program may switch off it does, and on again.
        tool("ethtool", "-K b0 gro on");
        let fixing = [&line[..], &["--fix-offloads"]].concat();
        let running = Running::start(Command::new(PROGRAM).args(fixing).current_dir(&folder.0));
        running.until("running on a1-b1");
        assert_eq!(running.stop().code, Some(0));
        let ended = run(&folder.0, &line);
        assert!(ended.stderr.contains("`ethtool -K a1 tx off rxvlan off`"), "{}", ended.stderr);
        drop(ends);
    });
}

#[test]
fn a_page_names_all_rights() {
    let page = include_str!("../../../docs/running.md");
    for right in RIGHTS {
        assert!(page.contains(&format!("`CAP_{}`", right.to_uppercase())), "{right}");
    }
}

/// Values of a line in the status of each thread of a process.
fn of_threads(pid: u32, line: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let value = |status: String| {
        let found =
            status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':').map(str::trim));
        found.unwrap_or_else(|| panic!("no {line}")).to_owned()
    };
    tasks.flatten().filter_map(status).map(value).collect()
}

/// The bits of these rights.
fn bits(rights: &[&str]) -> u64 {
    let numbers = [("net_admin", 12), ("net_raw", 13), ("perfmon", 38), ("bpf", 39)];
    numbers.iter().filter(|(name, _)| rights.contains(name)).fold(0, |all, (_, number)| all | 1 << number)
}

#[test]
fn a_confined_run_has_its_user_and_the_rights_that_its_links_need() {
    in_namespace(|| {
        let folder = Folder::new();
        let _ends = network(1500);
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let nobody = passwd.lines().find(|line| line.starts_with("nobody:")).unwrap();
        let uid = nobody.split(':').nth(2).unwrap();
        let inline = "inline: {a: a1, b: b1, offload: {level: xdp}}";
        for (link, running_on, kept) in [
            ("tap: {interface: a1}", "a1", &RIGHTS[..1]),
            ("tap: {interface: a1, fix-offloads: true}", "a1", &RIGHTS[..2]),
            (inline, "a1-b1", &RIGHTS[..]),
        ] {
            folder.write(
                "h.yaml",
                format!("links: [{{name: a, {link}}}]\nworkers: 2\nuser: nobody\ncache: none\npid-file: pid\noutputs: {{eve: {{dir: confined}}}}\n"),
            );
            let mut command = Command::new(PROGRAM);
            let running = Running::start(
                command
                    .args(["run", "-c", "h.yaml"])
                    .current_dir(&folder.0)
                    .env("RUNTIME_DIRECTORY", folder.path("runtime")),
            );
            running.until(&format!("running on {running_on}"));
            let pid = running.id();
            let of = |line| of_threads(pid, line);
            until("the workers start", || {
                of("Name").iter().filter(|name| name.starts_with("worker-")).count() == 2
            });
            let users: Vec<String> = of("Uid").iter().map(|all| all.replace('\t', " ")).collect();
            assert!(users.len() > 2 && users.iter().all(|user| *user == [uid; 4].join(" ")), "{users:?}");
            for set in ["CapEff", "CapPrm", "CapBnd"] {
                let most = if set == "CapBnd" { bits(kept) | bits(&["net_admin"]) } else { bits(kept) };
                let sets = of(set).into_iter().map(|bits| u64::from_str_radix(&bits, 16).unwrap());
                assert!(
                    sets.clone().all(|held| held & !most == 0),
                    "{link}: {set} {:x?}",
                    sets.collect::<Vec<_>>()
                );
            }
            assert!(of("CapInh").iter().chain(&of("CapAmb")).all(|set| set.trim_matches('0').is_empty()));
            assert!(
                of("NoNewPrivs").iter().all(|on| on == "1") && of("Seccomp").iter().all(|mode| mode == "2")
            );
            assert!(running.stderr().contains("confined: user `nobody`"), "{}", running.stderr());
            // A reload reads, compiles, and writes events.
            running.signal("USR2");
            running.until("generation 2");
            let ended = running.stop();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            let written = std::fs::metadata(folder.path("confined/stats.json")).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::uid(&written).to_string(), uid);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1", "--clear-groups", PROGRAM, "run", "-c", "h.yaml"]).current_dir(&folder.0);
        let ended = Running::start(&mut command).wait();
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("user `nobody`"), "{}", ended.stderr);
        folder.write("h.yaml", "links: [{name: a, tap: {interface: a1}}]\nuser: no-such-user\n");
        let ended = run(&folder.0, &["run", "-c", "h.yaml"]);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no user `no-such-user`"), "{}", ended.stderr);
    });
}
