// SPDX-License-Identifier: Apache-2.0
//! A controller that is killed repeatedly while operators write and devices report: no acknowledged change is
//! lost, nothing counts twice, and devices reach the desired state.

use super::site::{Site, config, until};
use bartizan_api::southbound::{AlertAggregate, Delta};
use bartizan_controller::rest::Method;
use bartizan_controller::start::start;
use bartizan_testkit::namespace::only;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable with the address for agents and the folder of the controller's state.
const PLACE: &str = "BARTIZAN_TEST_PLACE";
const KILLS: u16 = 6;

/// Runs this program as a controller until it is killed.
#[test]
#[ignore = "a process of the next test"]
fn a_controller_until_it_is_killed() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (agents, folder) = place.split_once(' ').unwrap();
    let plane = start(&config(Path::new(folder), agents.parse().unwrap())).unwrap();
    println!("\nlistens {}", plane.address);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A child process that is killed with the test.
struct Process(Child);

impl Process {
    fn start(site: &Site) -> (Self, SocketAddr) {
        let place = format!("{} {}", site.agents, site.folder.0.display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(only("a_controller_until_it_is_killed"))
            .arg("--ignored")
            .env(PLACE, place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("listens ")?.parse().ok()).unwrap();
        // Drains further output: the controller would die of a pipe without a reader.
        std::thread::spawn(move || lines.for_each(drop));
        (Process(child), address)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Sends SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An operator and a device act between two kills of the controller, which does not wait for either of them
/// to finish.
#[test]
fn what_was_answered_survives_a_controller_that_is_killed() {
    let mut site = Site::new("killed");
    site.tenant("acme", 1);
    let edge = site.agent("edge", &["acme"]);
    drop(site.plane.take());
    let (mut answered, mut reported) = (0, 0u64);
    let mut last = 0;
    for round in 0..KILLS {
        let (process, address) = Process::start(&site);
        site.rest = site.client(address);
        if last > 0 {
            until("what was answered is there", || {
                let policy = site.get("/v1/tenants/acme/policies/web")["spec"]["policy"].take();
                policy["pfw"]["rules"][0]["to-ports"][0] == last
            });
        }
        // The device receives and sends while the controller dies.
        until("the session", || site.status("edge")["session"]["connected"] == true);
        for port in 1..=20 {
            let port = round * 100 + port;
            let rules = json!([{ "allow": "tcp", "to-ports": [port] }]);
            let policy = json!({ "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } });
            let body = json!({ "policy": policy });
            let answer =
                site.rest.request(Method::Put, "/v1/tenants/acme/policies/web", Some(&body), &[]).unwrap();
            assert!(answer.done());
            (answered, last) = (answer.body["generation"].as_u64().unwrap(), u64::from(port));
            let counters = BTreeMap::from([("link/wan/packets".to_owned(), 1)]);
            edge.handle.statistics(Delta { counters, ..Delta::default() });
            edge.handle.alert(AlertAggregate {
                key: "k".into(),
                tenant: 1,
                rule: "1:7:1".into(),
                message: "m".into(),
                count: 1,
                first: 1,
                last: 1,
                event: Map::new(),
            });
            reported += 1;
        }
        drop(process);
    }
    let (_process, address) = Process::start(&site);
    site.rest = site.client(address);
    site.runs("edge", answered);
    until("each alert counts once", || site.get("/v1/alerts")["items"][0]["count"] == reported);
    let sums = json!({ "link/wan/packets": reported });
    assert_eq!(edge.handle.status().counters.statistics_lost, 0, "its queue was never full");
    until("each delta counts once", || site.get("/v1/devices/edge/statistics")["counters"] == sums);
}
