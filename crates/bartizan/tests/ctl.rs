// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl` for a controller, as programs: every route has its command, documents go to it and come
//! back, folders are applied in an order that works, mistakes are reported with file and line, and tokens
//! come from files that only their owner reads.

use crate::common;
use crate::planes;

use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use common::{Ended, Folder, PROGRAM};
use planes::Controller;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A running controller, and a user with a configuration file for it.
struct World {
    controller: Controller,
    folder: Folder,
}

impl World {
    fn new() -> Self {
        let folder = Folder::new();
        let state = folder.path("state");
        let controller = Controller::start(&state);
        let port = controller.address.port();
        let world = World { controller, folder };
        world.write("config/bartizan/ctl.yaml", &format!("controller: https://localhost:{}\nca: ../../state/tls-certificate.pem\ntoken-file: ../../token\n", port));
        world.secret("config/bartizan/ctl.yaml", 0o600);
        let bootstrap = state.join("bootstrap-token");
        let made = world.ctl(&[
            "--token-file",
            bootstrap.to_str().unwrap(),
            "--json",
            "tokens",
            "create",
            "--name",
            "me",
            "--scope",
            "admin",
        ]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let made: Value = serde_json::from_str(&made.stdout).unwrap();
        world.write("token", made["token"].as_str().unwrap());
        world.secret("token", 0o600);
        world
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn secret(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.folder.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("ctl").args(arguments).current_dir(&self.folder.0);
        command.env("XDG_CONFIG_HOME", self.folder.path("config"));
        ["BARTIZAN_CONTROLLER", "BARTIZAN_TOKEN_FILE", "BARTIZAN_CA"]
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command
    }

    fn ctl(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// The output of a command that has to work.
    fn told(&self, arguments: &[&str]) -> String {
        let ended = self.ctl(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    }

    /// Checks the exit code and the message of a command that has to be refused.
    fn refused(&self, arguments: &[&str], code: i32, says: &str) {
        let ended = self.ctl(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
    }

    fn client(&self) -> Client {
        let token = std::fs::read_to_string(self.folder.path("token")).unwrap();
        self.controller.client(&self.folder.path("state"), &token)
    }
}

const POLICY: &str = "order: 10\npolicy:\n  from: lan\n  chain: [pfw, sfw]\n  pfw:\n    default: drop\n    rules:\n      - allow: tcp\n        to-ports: [80, 443]\n";

#[test]
fn every_route_has_its_command() {
    let table = bartizan_controller::resources::routes();
    let world = Folder::new();
    let help = |arguments: &[&str]| {
        let all = [&["ctl"], arguments, &["--help"]].concat();
        common::run(&world.0, &all).stdout
    };
    let whole = help(&[]);
    // What each does is its command's help.
    let mut told = String::new();
    for line in whole.lines().skip_while(|line| !line.starts_with("Commands to a controller")).skip(1) {
        let Some(resource) = line.split_whitespace().next() else { break };
        told += &help(&[resource]);
    }
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = flat(&told);
    for route in table {
        let about = route.about.trim_end_matches('.');
        // Where two routes have one command, the help shows the first.
        assert!(
            told.contains(&flat(about)) || route.operation == "list-tenant-alerts",
            "{}: {about}\n{told}",
            route.operation
        );
    }
}

#[test]
fn documents_go_there_and_come_back() {
    let world = World::new();
    assert!(world.told(&["settings", "list"]).starts_with("NAME"));
    world.write("acme.yaml", "select: {vni: 101}\n");
    assert!(world.told(&["tenants", "put", "acme", "acme.yaml"]).starts_with("tenants acme: new\n"));
    world.write("lan.json", "{\"members\": [\"10.1.0.0/16\", \"2001:db8:1::/48\"]}");
    world.told(&["groups", "put", "acme", "lan", "lan.json", "--description", "the office"]);
    world.write("web.yaml", POLICY);
    let dry = world.told(&["policies", "put", "acme", "web", "web.yaml", "--dry-run"]);
    assert!(dry.contains("policies acme/web: new") && dry.contains("nothing was changed"), "{dry}");
    world.refused(&["policies", "get", "acme", "web"], 1, "there is no policy `web`");
    world.told(&["policies", "put", "acme", "web", "web.yaml"]);
    // The printed document can be put again.
    let text = world.told(&["policies", "get", "acme", "web"]);
    world.write("again.yaml", &text);
    assert!(world.told(&["policies", "put", "acme", "web", "again.yaml"]).starts_with("nothing to change"));
    let table = world.told(&["policies", "list", "acme"]);
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .eq(["web", "5", "10", "lan", "-", "pfw,sfw", "-", "-"]),
        "{table}"
    );
    assert!(world.told(&["groups", "list", "acme"]).contains("the office"));
    let listed: Value = serde_json::from_str(&world.told(&["policies", "list", "acme", "--json"])).unwrap();
    assert_eq!(listed[0]["spec"]["order"], 10);
    // Options alone say a device; roll-outs have steps.
    assert!(
        world
            .told(&[
                "devices",
                "put",
                "edge",
                "--tenants",
                "acme",
                "--labels",
                "ring=canary",
                "--follow",
                "manual"
            ])
            .contains("devices edge: new")
    );
    let begun = world.told(&["rollouts", "start", "--percent", "50,100"]);
    assert!(begun.contains("devices that are to run it at once: edge"), "{begun}");
    let table = world.told(&["rollouts", "list"]);
    assert!(table.contains("running"), "{table}");
    let name = table.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    world.told(&["rollouts", "cancel", &name]);
    // A file of rules has the name of its content.
    world.write("web.rules", "alert tcp any any -> any any (msg:\"x\"; sid:1;)\n");
    let put = world.told(&["rule-files", "put", "web.rules"]);
    let hash = put.split_whitespace().nth(1).unwrap().trim_end_matches(':').to_owned();
    world.write("library.json", &json!({ "files": [hash] }).to_string());
    world.told(&["libraries", "put", "web", "library.json"]);
    let rules = world.told(&["libraries", "rules", "web"]);
    assert!(rules.lines().count() == 2 && rules.contains("SID") && rules.contains('x'), "{rules}");
    assert!(world.told(&["rule-files", "get", &hash]).starts_with("alert tcp"));
    // Tags.
    world.refused(&["policies", "delete", "acme", "web", "--if-match", "1"], 1, "the document is at \"5\"");
    world.refused(&["groups", "put", "acme", "lan", "lan.json", "--new"], 1, "the document already exists");
    assert!(
        world
            .told(&["policies", "delete", "acme", "web", "--if-match", "5"])
            .contains("policies acme/web: gone")
    );
    assert!(world.told(&["audit"]).lines().count() > 10);
    assert!(world.told(&["metrics"]).contains("bartizan_controller_generation"));
    let restored = world.told(&["generations", "restore", "5", "--dry-run"]);
    assert!(restored.contains("policies acme/web: new"), "{restored}");
    assert!(world.told(&["generations", "diff", "5"]).contains("policies"));
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let world = World::new();
    world.write("acme.yaml", "select: {vni: 101}\n");
    world.told(&["tenants", "put", "acme", "acme.yaml"]);
    world.write("web.yaml", "order: 10\npolicy:\n  from: nowhere\n  chain: [pfw]\n  pfw:\n    default: drop\n    rules:\n      - allow: tcp\n        to-port: 80\n");
    world.refused(&["policies", "put", "acme", "web", "web.yaml"], 1, "web.yaml:3:");
    world.refused(&["policies", "put", "acme", "web", "web.yaml"], 1, "/policy/from: ");
    world.write("web.yaml", "policy:\n  chain: [pfw\n");
    world.refused(&["policies", "put", "acme", "web", "web.yaml"], 1, "web.yaml:");
    world.refused(&["policies", "put", "acme", "web", "none.yaml"], 1, "none.yaml");
    world.refused(&["policies", "put", "acme"], 2, "required");
    world.refused(&["no-such"], 2, "there is no command `no-such`; known: `command-list`");
    world.refused(&["tenants", "list", "--controller", "http://localhost"], 2, "https");
    world.refused(
        &["tenants", "list", "--controller", "https://localhost:1"],
        3,
        "cannot reach the controller",
    );
    world.refused(&["tenants", "list", "--ca", "token"], 3, "no certificate");
    // What others can read is no secret.
    world.secret("token", 0o640);
    world.refused(&["tenants", "list"], 1, "chmod 600");
    world.secret("token", 0o600);
    world.secret("config/bartizan/ctl.yaml", 0o604);
    world.refused(&["tenants", "list"], 1, "chmod 600");
    world.secret("config/bartizan/ctl.yaml", 0o600);
    world.write("wrong", "btz_wrong");
    world.secret("wrong", 0o600);
    world.refused(&["tenants", "list", "--token-file", "wrong"], 1, "the token is unknown or has expired");
    world.write("config/bartizan/ctl.yaml", "controler: https://localhost\n");
    world.refused(&["tenants", "list"], 1, "ctl.yaml:1: ");
}

#[test]
fn a_folder_is_applied_in_an_order_that_works() {
    let world = World::new();
    world.write(
        "site/rules/web.rules",
        "alert tcp any any -> any any (msg:\"x\"; classtype:web-application-attack; sid:1;)\n",
    );
    world.write("site/a.yaml", &format!(
        "kind: policy\ntenant: acme\nname: web\nspec:\n{}---\n# the device\nkind: device\nname: edge\nspec: {{tenants: [acme]}}\n",
        POLICY.lines().map(|line| format!("  {line}\n")).collect::<String>()
    ));
    world.write("site/b.yaml", "kind: group\ntenant: acme\nname: all\nspec: {members: [lan, 192.0.2.0/24]}\n---\nkind: group\ntenant: acme\nname: lan\nspec: {members: [10.0.0.0/8]}\n");
    world.write("site/c/z.yml", "kind: library\nname: web\nspec: {files: [../rules/web.rules]}\n---\nkind: tenant\nname: acme\nspec: {select: {vni: 7}}\n");
    world.write(
        "site/c/s.json",
        "{\"kind\": \"setting\", \"name\": \"default\", \"spec\": {\"action\": \"drop\"}}",
    );
    let dry = world.told(&["apply", "-f", "site", "--dry-run"]);
    assert!(
        dry.contains("policy acme/web: new") && dry.contains("7 would change") && dry.contains("+ rule file"),
        "{dry}"
    );
    assert!(!world.told(&["tenants", "list"]).contains("acme"));
    let done = world.told(&["apply", "-f", "site"]);
    assert!(done.contains("7 changed, 0 unchanged; generation"), "{done}");
    assert!(world.told(&["apply", "-f", "site"]).starts_with("nothing to change: 7 documents"));
    // Only a change is shown and put.
    world.write(
        "site/c/s.json",
        "{\"kind\": \"setting\", \"name\": \"default\", \"spec\": {\"action\": \"allow\"}}",
    );
    let done = world.told(&["apply", "-f", "site"]);
    assert!(
        done.contains("    - action: drop\n    + action: allow\n") && done.contains("1 changed, 6"),
        "{done}"
    );
    let changes: Value = serde_json::from_str(&world.told(&["apply", "-f", "site", "--json"])).unwrap();
    assert_eq!(changes["same"], 7);
    // Mistakes have the place in the whole file.
    world.write("bad.yaml", "kind: tenant\nname: other\nspec: {select: {vni: 8}}\n---\nkind: policy\ntenant: other\nname: web\nspec:\n  policy:\n    from: nowhere\n    chain: []\n");
    world.refused(&["apply", "-f", "bad.yaml"], 1, "bad.yaml:10:");
    world.refused(
        &["apply", "-f", "bad.yaml"],
        1,
        "0 of 1 documents are applied; not applied: policy other/web",
    );
    for (text, says) in [
        ("kind: polcy\nname: x\nspec: {}\n", "bad.yaml:1:7: there is no kind `polcy`"),
        ("kind: policy\nname: x\nspec: {}\n", "`tenant` is missing"),
        ("kind: tenant\ntenant: x\nname: x\nspec: {}\n", "bad.yaml:2:"),
        (
            "kind: tenant\nname: x\nspec: {}\n---\nkind: tenant\nname: x\nspec: {}\n",
            "bad.yaml:6:7: tenant x is already at bad.yaml:2:7",
        ),
        ("kind: tenant\nname: x\nspce: {}\n", "the key `spce` is not known"),
        ("# nothing\n", "there are no documents"),
    ] {
        world.write("bad.yaml", text);
        world.refused(&["apply", "-f", "bad.yaml"], 1, says);
    }
}

#[test]
fn alerts_are_followed() {
    let world = World::new();
    world.write("acme.yaml", "select: {vni: 101}\n");
    world.told(&["tenants", "put", "acme", "acme.yaml"]);
    world.told(&["devices", "put", "edge", "--tenants", "acme"]);
    let mut client = world.client();
    let mut report = |key: &str| {
        let event = json!({ "src_ip": "192.0.2.1", "dest_ip": "10.0.0.1", "alert": { "signature": format!("seen {key}"), "signature_id": 7 } });
        let body = json!({ "alerts": [{ "tenant": "acme", "key": key, "event": event }] });
        assert!(client.request(Method::Post, "/v1/devices/edge/alerts", Some(&body), &[]).unwrap().done());
    };
    report("a");
    assert!(world.told(&["alerts", "acme"]).contains("seen a"));
    assert!(world.told(&["alerts", "list"]).contains("192.0.2.1"));
    let mut following =
        world.command(&["alerts", "acme", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["event"]["alert"]["signature"], "seen a");
    report("b");
    report("c");
    assert_eq!(next()["event"]["alert"]["signature"], "seen b");
    assert_eq!(next()["event"]["alert"]["signature"], "seen c");
    report("b");
    let again = next();
    assert_eq!((&again["event"]["alert"]["signature"], &again["count"]), (&json!("seen b"), &json!(2)));
    following.kill().unwrap();
    let begun = Instant::now();
    following.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_change_is_replayed_before_it_is_put() {
    let world = World::new();
    world.write("acme.yaml", "select: {prefixes: [192.0.2.0/24]}\n");
    world.told(&["tenants", "put", "acme", "acme.yaml"]);
    world.write("lan.yaml", "members: [192.0.2.1]\n");
    world.told(&["groups", "put", "acme", "lan", "lan.yaml"]);
    let policy = |ports: &str| {
        format!(
            "order: 10\npolicy:\n  from: lan\n  chain: [pfw]\n  pfw: {{default: drop, rules: [{{allow: udp, to-ports: [{ports}]}}]}}\n"
        )
    };
    world.write("web.yaml", &policy("53"));
    world.told(&["policies", "put", "acme", "web", "web.yaml"]);
    world.told(&["devices", "put", "edge", "--tenants", "acme"]);
    let spec: String = policy("99").lines().map(|line| format!("  {line}\n")).collect();
    world.write("new.yaml", &format!("kind: policy\ntenant: acme\nname: web\nspec:\n{spec}"));
    let frames = [53, 99].map(|port| common::udp(false, 1000, port, b"hello"));
    world.folder.write("c.pcap", common::capture(&frames));
    let told = |arguments: &[&str]| -> Value {
        let all = [&["replay", "--json", "--device", "edge"], arguments].concat();
        serde_json::from_str(&world.told(&all)).unwrap()
    };
    // The device runs nothing yet: nothing to compare with.
    let report = told(&["c.pcap"]);
    assert_eq!((&report["all"]["flows"], &report["changing"]["flows"]), (&2.into(), &0.into()));
    world.refused(
        &["replay", "--device", "edge", "--against", "running", "c.pcap"],
        1,
        "has not reported a running generation yet",
    );
    let generation: Value = serde_json::from_str(&world.told(&["generations", "get", "--json"])).unwrap();
    let generation = generation["generation"].to_string();
    world.told(&["devices", "acknowledge", "edge", "--generation", &generation, "--accepted"]);
    // A policy that is not deployed yet, compared with the one in force.
    let report = told(&["--with", "new.yaml", "c.pcap"]);
    assert_eq!(report["changing"]["flows"], 2, "{report}");
    assert_eq!(report["changed"][0]["after"]["policy"], "acme/web");
    // As it says when it is put.
    world.told(&["apply", "-f", "new.yaml"]);
    assert_eq!(told(&["c.pcap"]), report);
    let back = told(&["--generation", &generation, "--against", "running", "c.pcap"]);
    assert_eq!(back["changing"]["flows"], 0);
    world.refused(&["replay", "--device", "none", "c.pcap"], 1, "there is no device `none`");
}

/// A document larger than the controller's limit is refused by a message, not by a signal, though the socket
/// closes while it is sent.
#[test]
fn a_document_beyond_the_limit_is_refused_in_words() {
    let world = World::new();
    world.write("acme.yaml", "select: {vni: 101}\n");
    world.told(&["tenants", "put", "acme", "acme.yaml"]);
    let members: String =
        (0..200_000u32).map(|n| format!(" - 10.{}.{}.{}\n", n >> 16, (n >> 8) & 255, n & 255)).collect();
    world.write("big.yaml", &format!("members:\n{members}"));
    for _ in 0..3 {
        world.refused(&["groups", "put", "acme", "big", "big.yaml"], 1, "larger than 1048576 bytes");
    }
    // Rule files have a limit of their own, and come whole.
    let rules: String = (1..30_000u32)
        .map(|sid| format!("alert tcp any any -> any any (msg:\"{sid}\"; content:\"{sid}\"; sid:{sid};)\n"))
        .collect();
    world.write("large.rules", &rules);
    assert!(rules.len() > 1 << 20);
    world.told(&["rule-files", "put", "large.rules"]);
}

/// The reader of its output goes away: the program ends without a message, as others do.
#[test]
fn ctl_ends_with_its_reader() {
    let world = World::new();
    let mut child =
        world.command(&["openapi"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!((std::os::unix::process::ExitStatusExt::signal(&ended), said.as_str()), (Some(13), ""));
}

#[test]
fn the_document_of_the_api_is_printed_and_served() {
    let world = World::new();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap();
    let printed = common::run(&world.folder.0, &["controller", "--openapi"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), committed.as_str()));
    assert_eq!(world.told(&["openapi", "--json"]), committed);
    let mut client = world.client();
    client.set_token(None);
    assert_eq!(client.request(Method::Get, "/v1/openapi.json", None, &[]).unwrap().status, 401);
}
