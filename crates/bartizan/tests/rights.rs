// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` without one of the rights that it needs, in a network namespace of its own (needs root;
//! without, it prints so and returns): it does not start, and names the missing right. The page about rights
//! names all of them.

use crate::common::{Ended, Folder, PROGRAM, Running, run};
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
