// SPDX-License-Identifier: Apache-2.0
//! Parses HTTP/1 conversations from text dumps and prints their transactions as JSON lines: a development
//! aid.
//!
//! `cargo run -p bartizan-applayer --example http_dump -- DUMP... [KEY=VALUE]...`. A line of the dump is `>
//! HEX` (to the server), `< HEX` (to the client), `>gap N`, `<gap N`; keys are those below
//! `app-layer.protocols.http.`.

use bartizan_applayer::event::Events;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::protocol::{BufferKind, Input, ParseContext, Progress, Transport};
use bartizan_applayer::protocols::http::SPEC;
use bartizan_applayer::transaction::{BufferQuery, LogOptions};
use bartizan_base::{Direction, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;

fn unhex(text: &str) -> Vec<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
    text.trim().as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |byte, b| byte << 4 | digit(b))).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (settings, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|a| a.contains('='));
    for path in &paths {
        dump(path, &settings)?;
        if paths.len() > 1 {
            println!("{}", serde_json::json!({"end": path}));
        }
    }
    Ok(())
}

fn dump(path: &str, pairs: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = SettingsMap::new();
    for (key, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
        settings.set(key, value);
    }
    let mut parser = (SPEC.configure)(&settings)?.make();
    let (files, mut events) = (FileSettings::default(), Events::default());
    let mut context = ParseContext {
        now: Timestamp::default(),
        server_port: 80,
        client_port: 1,
        transport: Transport::Tcp,
        files: &files,
        prevents: false,
        events: &mut events,
    };
    let mut held: [Vec<u8>; 2] = Default::default();
    let mut stopped = false;
    for line in std::fs::read_to_string(path)?.lines() {
        let direction = if line.starts_with('>') { Direction::ToServer } else { Direction::ToClient };
        let slot = usize::from(direction == Direction::ToClient);
        if stopped {
            break;
        }
        if let Some(missing) = line.get(1..).and_then(|l| l.strip_prefix("gap ")) {
            parser.gap(direction, missing.trim().parse()?, &mut context);
            continue;
        }
        held[slot].extend(unhex(line.get(1..).unwrap_or_default()));
        let data = std::mem::take(&mut held[slot]);
        match parser.parse(direction, Input { data: &data, offset: 0, eof: false }, &mut context) {
            Progress::Incomplete { consumed, .. } => held[slot] = data[consumed..].to_vec(),
            Progress::Done => {}
            other => {
                println!("{}", serde_json::json!({"stopped": format!("{other:?}")}));
                stopped = true;
            }
        }
    }
    for direction in Direction::BOTH {
        parser.end(direction, &mut context);
    }
    for id in parser.tx_range() {
        let Some(tx) = parser.tx(id) else { continue };
        let mut json = JsonWriter::new();
        json.begin_object();
        tx.log(&mut json, &LogOptions { extended: true, ..LogOptions::default() }, false);
        json.end_object();
        let length =
            SPEC.number("http.request_len").and_then(|number| tx.number(number, Direction::ToServer));
        let mut shown = serde_json::json!({"tx": id, "request_length": length, "progress": [tx.progress(Direction::ToServer), tx.progress(Direction::ToClient)],
            "http": serde_json::from_slice::<serde_json::Value>(json.bytes())?,
            "events": tx.common().events.as_slice().iter().map(|c| SPEC.events[usize::from(*c)]).collect::<Vec<_>>()});
        let mut tracks = Vec::new();
        for direction in Direction::BOTH {
            for file in tx.files_of(direction) {
                tracks.push(
                    serde_json::json!({"filename": String::from_utf8_lossy(&file.name), "size": file.size,
                    "state": file.state.eve_name(), "gaps": file.gaps, "start": file.start, "end": file.end}),
                );
            }
            for spec in SPEC.buffers.iter().filter(|s| s.directions[direction]) {
                let key =
                    format!("{} {}", if direction == Direction::ToServer { ">" } else { "<" }, spec.name);
                let mut values: Vec<String> = Vec::new();
                for index in 0.. {
                    let mut scratch = Vec::new();
                    let query = BufferQuery { id: spec.id, direction, index };
                    let Some(view) = tx.buffer(query, &mut scratch) else { break };
                    values.push(view.data.iter().map(|b| char::from(*b)).collect());
                    if spec.kind != BufferKind::Multi {
                        break;
                    }
                }
                if !values.is_empty() {
                    shown[key] = values.into();
                }
            }
        }
        shown["files"] = tracks.into();
        println!("{shown}");
    }
    Ok(())
}
