// SPDX-License-Identifier: Apache-2.0
//! Time from a REST call until REST shows the device's acknowledgement, with many policies and sessions.

use super::site::{Agent, Site};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

const DEVICES: usize = 50;
const CHANGES: usize = 200;

fn show(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_micros();
    println!("{name:<44} p50 {:>6} us   p99 {:>6} us", at(50), at(99));
}

/// Creates tenants with ten policies each.
fn fill(site: &mut Site, tenants: usize) {
    for tenant in 0..tenants {
        site.tenant(&format!("t{tenant}"), u32::try_from(tenant).unwrap() + 1);
    }
    for tenant in 0..tenants {
        for policy in 0..10 {
            site.policy(&format!("t{tenant}"), &format!("p{policy}"), 80);
        }
    }
}

fn acknowledged(site: &Site, device: &str, generation: u64) -> bool {
    let plane = site.plane.as_ref().unwrap();
    let model = plane.controller.model();
    model.status("devices", device).is_some_and(|status| status["running"] == generation)
}

fn run(tenants: usize, devices: usize, changes: usize) {
    let mut site = Site::new("load");
    fill(&mut site, tenants);
    let own = |device: usize| {
        (device..tenants).step_by(devices).map(|tenant| format!("t{tenant}")).collect::<Vec<_>>()
    };
    let agents: Vec<Agent> = (0..devices)
        .map(|device| {
            let own = own(device);
            site.agent(&format!("d{device}"), &own.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    for device in 0..devices {
        let name = format!("d{device}");
        let wanted = site.status(&name)["wanted"].as_u64().unwrap();
        site.runs(&name, wanted);
    }
    let built: usize = agents.iter().map(|agent| agent.shared.lock().unwrap().built).sum();
    let mut file = OpenOptions::new().create(true).append(true).open(site.folder.0.join("fsync")).unwrap();
    let [mut answers, mut came, mut after, mut all, mut syncs] = [const { Vec::new() }; 5];
    for number in 0..changes {
        let begun = Instant::now();
        let generation = site.policy("t0", "p0", u16::try_from(number).unwrap() + 1_000);
        let answered = begun.elapsed();
        while !acknowledged(&site, "d0", generation) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_micros(100));
        }
        let took = begun.elapsed();
        answers.push(answered);
        came.push(agents[0].shared.lock().unwrap().came.unwrap() - begun);
        after.push(took - answered);
        all.push(took);
        let begun = Instant::now();
        file.write_all(&[7; 8_192]).unwrap();
        file.sync_data().unwrap();
        syncs.push(begun.elapsed());
    }
    let now: usize = agents.iter().map(|agent| agent.shared.lock().unwrap().built).sum();
    assert_eq!(now - built, changes, "each change was built once, by the one device that it concerns");
    println!("{} policies, {devices} sessions, {changes} changes that concern one", tenants * 10);
    show("REST call to REST answer", &mut answers);
    show("REST call to the device has it whole", &mut came);
    show("REST answer to acknowledgement", &mut after);
    show("REST call to acknowledgement", &mut all);
    show("append 8 KiB and fdatasync", &mut syncs);
    let status: Value = site.status("d0");
    assert_eq!(status["diagnostics"], json!([]));
}

/// A small run that keeps the measurement itself correct.
#[test]
fn a_change_is_built_once_by_the_device_that_it_concerns() {
    run(20, 5, 10);
}

/// `cargo test --workspace --test southbound -- --ignored --nocapture load::`: 10,000 policies, 50 sessions.
#[test]
#[ignore = "takes minutes: a measurement"]
fn changes_among_ten_thousand_policies_and_fifty_sessions() {
    run(1_000, DEVICES, CHANGES);
}
