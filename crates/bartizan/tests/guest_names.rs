// SPDX-License-Identifier: Apache-2.0
//! Names and datagrams of confined guests: what plain sockets send, the resolver of the C library among them,
//! goes by the stream path (needs root; without, it prints so and returns).

use crate::common::{Ended, Folder, PROGRAM, Running};
use crate::guests::{begin, eve, library, network, of_type, web_server};
use crate::namespace::in_namespace;
use std::process::Command;

/// A name server: A and AAAA of `good.example`; of `long.example` only by TCP, over UDP it says so.
const NAME_SERVER: &str = "\
import socket, struct, sys, threading
v4, v6 = socket.inet_aton('192.0.2.3'), socket.inet_pton(socket.AF_INET6, '2001:db8::3')
def answer(query, by_tcp):
    end = 12
    while query[end]: end += query[end] + 1
    name, kind, question = query[12:end], query[end + 2], query[12:end + 5]
    cut = name.startswith(b'\\4long') and not by_tcp
    data = {1: v4, 28: v6}.get(kind)
    known = name.endswith(b'example') and data is not None and not cut
    head = query[:2] + struct.pack('!H4H', 0x8580 | (0x200 if cut else 0), 1, int(known), 0, 0)
    record = b'\\xc0\\x0c' + struct.pack('!HHIH', kind, 1, 60, len(data)) + data if known else b''
    print('asked', name[1:].decode('latin1'), kind, 'tcp' if by_tcp else 'udp', flush=True)
    return head + question + record
def tcp(listener):
    while True:
        peer, _ = listener.accept()
        def serve(peer=peer):
            while True:
                size = peer.recv(2, socket.MSG_WAITALL)
                if len(size) < 2: return
                reply = answer(peer.recv(struct.unpack('!H', size)[0], socket.MSG_WAITALL), True)
                peer.sendall(struct.pack('!H', len(reply)) + reply)
        threading.Thread(target=serve, daemon=True).start()
listeners = [socket.create_server((at, 53), family=family) for family, at in
             ((socket.AF_INET, '192.0.2.3'), (socket.AF_INET6, '2001:db8::3'))]
for listener in listeners: threading.Thread(target=tcp, args=(listener,), daemon=True).start()
def bound(family, at):
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((at, 53))
    return server
def udp(server):
    while True:
        query, peer = server.recvfrom(2048)
        server.sendto(answer(query, False), peer)
servers = [bound(socket.AF_INET, '192.0.2.3'), bound(socket.AF_INET6, '2001:db8::3'),
           bound(socket.AF_INET, '192.0.2.2')]
for other in servers[1:]: threading.Thread(target=udp, args=(other,), daemon=True).start()
print('serves names', flush=True)
udp(servers[0])
";

/// Asks by plain sockets: connected, not connected and by an IPv4-mapped address, of two destinations by one
/// socket; prints from whom the answers came.
const PLAIN_QUERIES: &str = "\
import socket, struct
query = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + b'\\4good\\7example\\0' + struct.pack('!2H', 1, 1)
def ask(family, *destinations, connects=False):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        for to in destinations:
            if connects:
                s.connect((to, 53))
                assert s.getpeername()[:2] == (to, 53), s.getpeername()
                s.send(query)
            else:
                s.sendto(query, (to, 53))
            answer, peer = s.recvfrom(512)
            print(peer[:2], answer[-4:].hex(), flush=True)
ask(socket.AF_INET, '192.0.2.3', connects=True)
ask(socket.AF_INET, '192.0.2.3', '192.0.2.2', '192.0.2.3')
ask(socket.AF_INET6, '2001:db8::3', connects=True)
ask(socket.AF_INET6, '2001:db8::3', '::ffff:192.0.2.3')
ask(socket.AF_INET6, '::ffff:192.0.2.3', connects=True)
";

/// Runs commands of a shell as a confined guest whose names come from the servers in `resolv.conf`.
fn confined(folder: &Folder, script: &str) -> Ended {
    let bound = "mount --bind resolv.conf /etc/resolv.conf && mount --bind nsswitch.conf /etc/nsswitch.conf && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", bound, "sh", PROGRAM, "guest", "run", "--confine", "--socket"]);
    command.arg(folder.path("client.socket")).arg("--library").arg(library());
    command.args(["--", "sh", "-c", script]).current_dir(&folder.0);
    Running::start(&mut command).wait()
}

fn name_server(folder: &Folder) -> Running {
    let mut command = Command::new("python3");
    command.args(["-u", "-c", NAME_SERVER]).current_dir(&folder.0);
    let server = Running::start(&mut command);
    server.until_on_stdout("serves names");
    server
}

fn begin_with_names(folder: &Folder, server: &str) -> Running {
    let running = begin(folder);
    folder.write("resolv.conf", format!("nameserver {server}\noptions timeout:2 attempts:1\n"));
    folder.write("nsswitch.conf", "hosts: files dns\n");
    running
}

#[test]
fn names_are_resolved_by_the_stream_path() {
    in_namespace(|| {
        network();
        for server in ["192.0.2.3", "2001:db8::3"] {
            let folder = Folder::new();
            let running = begin_with_names(&folder, server);
            let (names, web) = (name_server(&folder), web_server(&folder, None, "192.0.2.3"));
            let ended = confined(
                &folder,
                "getent ahosts good.example | cut -d' ' -f1 | sort -u; getent ahostsv4 long.example | cut -d' ' -f1 | sort -u; \
                 curl -4 -s --max-time 60 http://good.example:8000/good.txt; env -u LD_PRELOAD getent ahostsv6 good.example | cut -d' ' -f1 | sort -u",
            );
            let lines: Vec<&str> = ended.stdout.lines().collect();
            let expected = ["192.0.2.3", "2001:db8::3", "192.0.2.3", "good words", "2001:db8::3"];
            assert_eq!(lines, expected, "{ended:?} {}", running.stderr());
            let names = names.stop();
            assert!(names.stdout.contains("long\u{7}example 1 tcp"), "{names:?}");
            drop(web);
            assert_eq!(running.stop().code, Some(0));
            let all = eve(&folder);
            let queries: Vec<_> =
                of_type(&all, "dns").into_iter().filter(|event| event["dns"]["type"] == "request").collect();
            assert!(queries.len() >= 5, "{queries:?}");
            for query in queries {
                let program = query["bartizan"]["stream_path"]["executable"].as_str().unwrap_or_default();
                assert!(program.ends_with("/getent") || program.ends_with("/curl"), "{query}");
            }
        }
    });
}

#[test]
fn a_name_that_the_policy_forbids_is_not_resolved_and_the_record_has_the_program() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin_with_names(&folder, "192.0.2.3");
        let names = name_server(&folder);
        let ended =
            confined(&folder, "getent ahosts bad.example; echo $?; getent ahostsv4 good.example | head -c 9");
        // 2: the name is not found.
        assert_eq!(ended.stdout, "2\n192.0.2.3", "{ended:?} {}", running.stderr());
        let names = names.stop();
        assert!(!names.stdout.contains("bad") && names.stdout.contains("good"), "{names:?}");
        assert_eq!(running.stop().code, Some(0));
        let all = eve(&folder);
        let alerts = of_type(&all, "alert");
        assert!(!alerts.is_empty(), "{all:?}");
        for alert in alerts {
            let rule = (&alert["alert"]["signature_id"], &alert["alert"]["action"], &alert["dest_port"]);
            assert_eq!(rule, (&2.into(), &"blocked".into(), &53.into()), "{alert}");
            let program = alert["bartizan"]["stream_path"]["executable"].as_str().unwrap_or_default();
            assert!(program.ends_with("/getent"), "{alert}");
        }
    });
}

#[test]
fn datagrams_of_plain_sockets_go_to_their_destinations_and_show_them() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin_with_names(&folder, "192.0.2.3");
        let names = name_server(&folder);
        folder.write("ask.py", PLAIN_QUERIES);
        let ended = confined(&folder, "exec env -u LD_PRELOAD python3 ask.py");
        let (v4, v6) = ("('192.0.2.3', 53) c0000203", "('2001:db8::3', 53) c0000203");
        let mapped = "('::ffff:192.0.2.3', 53) c0000203";
        let expected = [v4, v4, "('192.0.2.2', 53) c0000203", v4, v6, v6, mapped, mapped];
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), expected, "{ended:?} {}", running.stderr());
        assert!(
            ended.stderr.contains(
                "0 connects and 16 datagrams were relayed, 0 connects and 0 datagrams were refused"
            ),
            "{ended:?}"
        );
        drop(names);
        assert_eq!(running.stop().code, Some(0));
    });
}
