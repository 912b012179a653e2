// SPDX-License-Identifier: Apache-2.0
//! Measures the duration of a change, beside the disk's own time: 1,000 tenants, 10,000 policies and 50
//! devices over REST with TLS, each answered once it is on the disk; then single changes alternating with
//! bare fsyncs of as many bytes on the same disk; then 8 and 32 writers at once.
//!
//! `cargo run --release -p bartizan-controller --example load [FOLDER]`

use bartizan_controller::access::Secret;
use bartizan_controller::client::Client;
use bartizan_controller::clock::WallClock;
use bartizan_controller::fleet::MemoryFleet;
use bartizan_controller::rest::Method;
use bartizan_controller::server::Bounds;
use bartizan_controller::store::SqliteStore;
use bartizan_controller::{Api, Controller, Server, Settings, resources, state};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Failed = Box<dyn std::error::Error>;

const TENANTS: usize = 1000;
const POLICIES: usize = 10;
const DEVICES: usize = 50;
const SAMPLES: usize = 1000;
/// Numbers of concurrent writers, each with the number of changes per writer.
const WRITERS: [(usize, usize); 2] = [(8, 250), (32, 100)];

fn start(folder: &Path) -> Result<(Server, Client, String), Failed> {
    let _ = std::fs::remove_dir_all(folder);
    state::make(folder)?;
    let store = SqliteStore::open(&folder.join(state::STORE))?;
    let fleet = Arc::new(MemoryFleet::default());
    let controller = Controller::new(Box::new(store), Arc::new(WallClock), fleet, Settings::default())?;
    let token = controller
        .bootstrap(false, |secret: &Secret| Ok::<_, Failed>(secret.reveal()))?
        .ok_or("not empty")??;
    let api = Arc::new(Api::new(Arc::new(controller), resources::routes()));
    let (listener, bounds) = (TcpListener::bind("127.0.0.1:0")?, Bounds::default());
    let server = Server::start(listener, api, state::identity(folder)?, bounds)?;
    let mut client = Client::new(server.address(), &folder.join(state::CERTIFICATE), Some(token))?;
    let body = json!({ "name": "load", "scope": "admin" });
    let made = client.request(Method::Post, "/v1/tokens", Some(&body), &[])?;
    let token = made.body["token"].as_str().ok_or("no token")?.to_owned();
    client.set_token(Some(token.clone()));
    Ok((server, client, token))
}

/// Runs concurrent writers, each with tenants of its own.
fn together(server: &Server, folder: &Path, token: &str, writers: usize, each: usize) -> Result<(), Failed> {
    let certificate = folder.join(state::CERTIFICATE);
    let open = |_| Client::new(server.address(), &certificate, Some(token.to_owned()));
    let clients = (0..writers).map(open).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let done: Vec<_> = std::thread::scope(|scope| {
        let all = clients.into_iter().enumerate();
        let all: Vec<_> =
            all.map(|(writer, client)| scope.spawn(move || write(client, writer, each))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a writer broke".to_owned()))).collect()
    });
    let mut times = done.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let seconds = begun.elapsed().as_secs_f64();
    show(&format!("{writers} writers"), &mut times);
    println!("{:<28} {:>6.0} changes/s", "", times.len() as f64 / seconds);
    Ok(())
}

fn write(mut client: Client, writer: usize, each: usize) -> Result<Vec<Duration>, String> {
    let change = |number: usize| {
        let path = format!("/v1/tenants/t{}/policies/p0", writer + 32 * (number % 8));
        put(&mut client, &path, &policy(writer * 1000 + number)).map_err(|error| error.to_string())
    };
    (0..each).map(change).collect()
}

fn policy(port: usize) -> Value {
    let rules = json!([{ "allow": "tcp", "to-ports": [port % 65536] }]);
    json!({ "policy": { "from": "10.0.0.0/8", "chain": ["pfw", "ids"], "pfw": { "default": "drop", "rules": rules } } })
}

fn put(client: &mut Client, path: &str, body: &Value) -> Result<Duration, Failed> {
    let begun = Instant::now();
    let answer = client.request(Method::Put, path, Some(body), &[])?;
    let took = begun.elapsed();
    if answer.done() { Ok(took) } else { Err(format!("{path}: {} {}", answer.status, answer.body).into()) }
}

fn sync(file: &mut File) -> Result<Duration, Failed> {
    let begun = Instant::now();
    file.write_all(&[7; 8192])?;
    file.sync_data()?;
    Ok(begun.elapsed())
}

fn show(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default().as_micros();
    println!("{name:<28} {:>6} times   p50 {:>6} us   p99 {:>7} us", times.len(), at(50), at(99));
}

fn main() -> Result<(), Failed> {
    let folder =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/controller-load"), PathBuf::from);
    let (server, mut client, token) = start(&folder)?;
    let begun = Instant::now();
    let (mut tenants, mut policies) = (Vec::new(), Vec::new());
    for tenant in 0..TENANTS {
        let body = json!({ "select": { "vni": tenant + 1 } });
        tenants.push(put(&mut client, &format!("/v1/tenants/t{tenant}"), &body)?);
    }
    for device in 0..DEVICES {
        let own: Vec<String> =
            (device..TENANTS).step_by(DEVICES).map(|tenant| format!("t{tenant}")).collect();
        put(&mut client, &format!("/v1/devices/d{device}"), &json!({ "tenants": own }))?;
    }
    for number in 0..TENANTS * POLICIES {
        let path = format!("/v1/tenants/t{}/policies/p{}", number % TENANTS, number / TENANTS);
        policies.push(put(&mut client, &path, &policy(number))?);
    }
    println!("all of it in {:.1} s", begun.elapsed().as_secs_f64());
    show("a tenant", &mut tenants);
    show("a policy", &mut policies);
    let path = folder.join("fsync");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let (mut changes, mut syncs) = (Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        let path = format!("/v1/tenants/t{number}/policies/p0");
        changes.push(put(&mut client, &path, &policy(number + 7))?);
        syncs.push(sync(&mut file)?);
    }
    show("a policy, all there", &mut changes);
    show("append 8 KiB and fdatasync", &mut syncs);
    WRITERS.iter().try_for_each(|(writers, each)| together(&server, &folder, &token, *writers, *each))
}
