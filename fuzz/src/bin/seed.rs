// SPDX-License-Identifier: Apache-2.0
//! Writes first inputs for the targets from captures and rule files: `seed CORPUS FILE...`.
//!
//! Captures become frames (decode, worker), streams (protocol, split, tcp) and whole files (capture); files
//! named `*.rules` become rules (rules, load), `*.yaml` settings and policies, `*.json` messages of the
//! command socket, `*.conversation` flows of the protocol in their names, `*.southbound` messages between
//! planes, `*.joined` parts of a policy file, `*.eve` flow records. Names are numbers; too large inputs are
//! left out.

use bartizan_fuzz::applayer::flows;
use bartizan_fuzz::protocol::choices;
use bartizan_packet::capture::CaptureReader;
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

// The coverage of the other crates calls it; libFuzzer's own `main` stays out, since this program has one.
use libfuzzer_sys as _;

const LARGEST: usize = 16 << 10;

/// Requests to the controller, one of each kind of body.
const REQUESTS: &[&str] = &[
    "GET /v1/tenants?limit=2&cursor=61\n",
    "PUT /v1/tenants/other\n{\"select\":{\"vlan\":[2,3],\"prefixes\":\"10.0.0.0/8\"},\"order\":1,\"vars\":{\"address-groups\":{\"HOME_NET\":\"10.0.0.0/8\"}}}",
    "PUT /v1/tenants/acme/groups/dmz\n{\"members\":[\"lan\",\"2001:db8::/32\"]}",
    "PUT /v1/tenants/acme/policies/web\npolicy:\n  from: [lan]\n  to: any\n  chain: [pfw, sfw, ids]\n  pfw: {default: drop, rules: [{allow: tcp, to: lan, to-ports: [80, 8000-8010]}]}\n  sfw: {initiate: both}\n  ids: {level: none}\n",
    "PUT /v1/settings/default\n{\"action\":\"allow\",\"chain\":[\"ids\"]}",
    "PUT /v1/devices/far\n{\"tenants\":[\"acme\"],\"labels\":{\"ring\":\"canary\"},\"follow\":\"manual\"}",
    "POST /v1/rollouts?dry-run=true\n{\"generation\":3,\"steps\":[{\"percent\":10},{\"labels\":{\"a\":\"b\"}}]}",
    "POST /v1/devices/edge/alerts\n{\"alerts\":[{\"tenant\":\"acme\",\"key\":\"1\",\"event\":{}}]}",
    "POST /v1/devices/edge/acknowledgements\n{\"generation\":2,\"accepted\":false,\"diagnostics\":[\"no\"]}",
    "POST /v1/generations/2/restore\n",
];

struct Corpus {
    root: PathBuf,
    numbers: HashMap<&'static str, usize>,
}

impl Corpus {
    fn add(&mut self, target: &'static str, bytes: &[u8]) {
        let number = self.numbers.entry(target).or_insert(0);
        if bytes.is_empty() || bytes.len() > LARGEST || *number >= 3000 {
            return;
        }
        let folder = self.root.join(target);
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join(format!("seed-{number:05}")), bytes));
        if let Err(error) = written {
            eprintln!("seed: cannot write to {}: {error}", folder.display());
            std::process::exit(1);
        }
        *number += 1;
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(root) = arguments.next() else {
        eprintln!("usage: seed CORPUS FILE...");
        std::process::exit(2);
    };
    let mut corpus = Corpus { root: root.into(), numbers: HashMap::new() };
    for path in arguments.map(PathBuf::from) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rules") => {
                corpus.add("rules", &bytes);
                corpus.add("load", &bytes);
                for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.len() > 20) {
                    corpus.add("load", line);
                    if let Some(at) = line.windows(7).position(|window| window == b"pcre:\"/") {
                        let expression =
                            line[at + 7..].split(|byte| *byte == b'"').next().unwrap_or_default();
                        let end =
                            expression.iter().rposition(|byte| *byte == b'/').unwrap_or(expression.len());
                        let expression = &expression[..end];
                        corpus.add("regex", &[&[0][..], expression, &[0][..], line].concat());
                    }
                }
            }
            Some("json") => {
                corpus.add("control", &[&[64][..], &bytes].concat());
                for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    corpus.add("control", &[&[5][..], line].concat());
                }
            }
            Some("yaml") => {
                corpus.add("settings", &bytes);
                corpus.add("policy", &bytes);
            }
            Some("southbound") => messages(&mut corpus, &bytes),
            Some("conversation") => conversation(&mut corpus, &path, &bytes),
            Some("joined") => corpus.add("joined", &bytes),
            Some("eve") => {
                corpus.add("record", &bytes);
                bytes.split(|byte| *byte == b'\n').for_each(|line| corpus.add("record", line));
            }
            _ => capture(&mut corpus, &path, &bytes),
        }
    }
    for request in REQUESTS {
        corpus.add("request", request.as_bytes());
    }
    for words in bartizan_fuzz::stream::seeds() {
        corpus.add("stream", &words);
    }
    let mut targets: Vec<_> = corpus.numbers.iter().collect();
    targets.sort();
    for (target, number) in targets {
        println!("{target}: {number} seeds");
    }
}

/// A conversation of the protocol that its file is named after, up to a dash.
fn conversation(corpus: &mut Corpus, path: &Path, bytes: &[u8]) {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.split('-').next().unwrap_or_default();
    for (index, (spec, _)) in flows().into_iter().enumerate() {
        if spec.name.split('-').next() == Some(name) {
            for flags in [0, 1, 2, 4] {
                corpus.add("applayer", &[&[index as u8, flags, 3, 1, 17, 39][..], bytes].concat());
            }
        }
    }
    for (index, (spec, _)) in choices().into_iter().enumerate() {
        if spec.name == name {
            corpus.add("protocol", &[&[index as u8][..], bytes].concat());
            corpus.add("split", &[&[index as u8, 3, 1, 17, 39][..], bytes].concat());
            corpus.add("open", &[&[index as u8, 3, 1, 17, 39][..], bytes].concat());
        }
    }
}

/// Messages of the southbound protocol, each separately and all together.
fn messages(corpus: &mut Corpus, bytes: &[u8]) {
    corpus.add("southbound", bytes);
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let length = head[4..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let Some(body) = behind.get(..length) else { return };
        corpus.add("southbound", &[head.as_slice(), body].concat());
        rest = &behind[length..];
    }
}

fn capture(corpus: &mut Corpus, path: &Path, bytes: &[u8]) {
    corpus.add("capture", bytes);
    let name = path.display().to_string();
    let Ok(mut reader) = CaptureReader::new(std::io::Cursor::new(bytes.to_vec()), name) else { return };
    let mut decoder = Decoder::new(bartizan_fuzz::decode::open_config());
    let mut out = DecodeOutput::new();
    let (mut frames, mut flows) = (Vec::new(), HashMap::<_, Vec<u8>>::new());
    while let Ok(Some(record)) = reader.next() {
        let link_type = LinkType::from_capture(u16::try_from(record.link_type).unwrap_or(u16::MAX));
        let Some(link) = LinkType::SUPPORTED.iter().position(|l| *l == link_type) else { continue };
        corpus.add("decode", &[&[link as u8][..], record.data].concat());
        if frames.is_empty() {
            frames.push((link as u8) << 1);
        }
        if frames.len() + record.data.len() < LARGEST {
            frames.push(0);
            frames.extend((record.data.len() as u16).to_be_bytes());
            frames.extend(record.data);
        }
        decoder.decode(link_type, record.data, record.data.len() as u32, &mut out);
        for packet in out.packets() {
            let (Some(src), Some(dst), Some(ports)) = (packet.src(), packet.dst(), packet.ports()) else {
                continue;
            };
            let payload = PacketView::new(record.data, packet).payload();
            if payload.is_empty() {
                continue;
            }
            let (sender, receiver) = ((src, ports.0), (dst, ports.1));
            // The side with the lower port counts as the server.
            let to_client = ports.0 < ports.1;
            let key = if sender < receiver { (sender, receiver) } else { (receiver, sender) };
            let flow = flows.entry(key).or_default();
            flow.push(u8::from(to_client));
            flow.extend((payload.len() as u16).to_be_bytes());
            flow.extend(payload);
        }
    }
    corpus.add("worker", &frames);
    for (index, (spec, _)) in choices().into_iter().enumerate() {
        for (key, flow) in &flows {
            let near = [key.0.1, key.1.1]
                .iter()
                .any(|port| spec.ports.iter().any(|p| p.port == *port) || *port == 80);
            if near && flow.len() < LARGEST {
                corpus.add("protocol", &[&[index as u8][..], flow].concat());
                corpus.add("split", &[&[index as u8, 3, 1, 17, 39][..], flow].concat());
                corpus.add("open", &[&[index as u8, 3, 1, 17, 39][..], flow].concat());
            }
        }
    }
}
