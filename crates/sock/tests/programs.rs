// SPDX-License-Identifier: Apache-2.0
//! Real programs, unchanged, as guests. A program that is not installed is named and left out.

use crate::common::{ATTACK, Guest, Host};
use bartizan_testkit::namespace::{inside, run};
use bartizan_testkit::random::Random;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Sizes of what is transferred, in bytes.
const SIZES: [(&str, usize); 3] = [("small", 3_000), ("m1", 1_000_000), ("m60", 60_000_000)];

/// A folder of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bartizan-sock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("put")).unwrap();
        let some = Random::new(1).bytes(1_000);
        for (file, size) in SIZES {
            // Each thousand bytes begin with their number, so that none is taken for another.
            let numbered = (0_u64..).flat_map(|number| [&number.to_le_bytes()[..], &some[8..]].concat());
            std::fs::write(path.join(file), numbered.take(size).collect::<Vec<u8>>()).unwrap();
        }
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.file(name), text).unwrap();
        self.file(name)
    }

    fn assert_equal(&self, one: &str, other: &str) {
        let same = std::fs::read(self.file(one)).unwrap() == std::fs::read(self.file(other)).unwrap();
        assert!(same, "{one} and {other} differ");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that is stopped at the end.
struct Server(Child);

impl Server {
    /// Starts a server and waits until its port answers.
    fn start(command: &mut Command, client: &Guest, port: u16) -> Server {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Server(child);
        let code = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 1)");
        let begin = Instant::now();
        while !client.command("python3").args(["-c", &code]).stderr(Stdio::null()).status().unwrap().success()
        {
            assert!(begin.elapsed() < Duration::from_secs(60), "{command:?} does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        eprintln!("{program} is not installed: left out (scripts/needs.sh)");
    }
    found.status.success()
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Downloads and uploads of all sizes by curl.
fn transfer(folder: &Folder, client: &Guest, url: &str, uploads: bool) {
    for (file, _) in SIZES {
        let address = format!("{url}/{file}");
        let out = folder.file("out");
        done(client.command("curl").args(["-sSfk", "--max-time", "60", "-o"]).arg(&out).arg(&address));
        folder.assert_equal("out", file);
        if uploads {
            let put = format!("{url}/put/{file}");
            let from = folder.file(file);
            done(client.command("curl").args(["-sSf", "--max-time", "60", "-T"]).arg(from).arg(&put));
            folder.assert_equal(&format!("put/{file}"), file);
            std::fs::remove_file(folder.file(&format!("put/{file}"))).unwrap();
        }
    }
}

/// The bytes of the transfers went through the engine: those that plain sockets carried would be missing.
fn check(host: &Host, guests: &[Guest], least: u64) {
    for guest in guests {
        let report = host.wait_until_empty(guest);
        assert!(report.sent + report.received >= least, "{report:?}");
    }
}

/// Two guests: a client and a server, without TCP and by TCP.
fn each_way(test: &str, work: impl Fn(&Folder, &Guest, &Guest), least: u64) {
    let folder = Folder::new(test);
    run("ip", "link set lo up");
    for always_tcp in [false, true] {
        let host = Host::start();
        let guests = [host.guest(0, always_tcp), host.guest(1, always_tcp)];
        let [client, server] = &guests;
        work(&folder, client, server);
        check(&host, &guests, least);
    }
}

#[test]
fn python_serves_curl() {
    if !inside("python_serves_curl") {
        return;
    }
    each_way(
        "python",
        |folder, client, server| {
            let mut command = server.command("python3");
            command.args(["-m", "http.server", "8101", "--bind", "127.0.0.1", "-d"]).arg(&folder.0);
            let _server = Server::start(&mut command, client, 8101);
            transfer(folder, client, "http://127.0.0.1:8101", false);
        },
        61_000_000,
    );
}

#[test]
fn shells_and_python_go_on_after_commands_that_cannot_be_executed() {
    if !inside("shells_and_python_go_on_after_commands_that_cannot_be_executed") {
        return;
    }
    let host = Host::start();
    let guest = host.guest(0, false);
    // dash and Python start commands by vfork.
    let shell = "/etc/passwd; echo x | cat; echo y | cat";
    let python = "import subprocess as s\n\
                  try: s.run(['/etc/passwd'])\n\
                  except PermissionError: print('x', flush=True)\n\
                  s.run(['echo', 'y'])";
    for (program, flag, text) in [("sh", "-c", shell), ("python3", "-c", python)] {
        let output = guest.command(program).args([flag, text]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"x\ny\n", "{program}: {output:?} {errors}");
    }
}

fn nginx_settings(folder: &Path) -> String {
    let mut text = String::new();
    let at = folder.display();
    let _ = writeln!(text, "worker_processes 2; daemon off; user root; pid {at}/pid; error_log {at}/errors;");
    let _ = writeln!(text, "events {{ worker_connections 512; }}");
    let _ =
        writeln!(text, "http {{ access_log off; client_max_body_size 100m; client_body_temp_path {at}/body;");
    let _ = writeln!(text, "proxy_temp_path {at}/proxy; root {at}; sendfile on;");
    let _ = writeln!(
        text,
        "server {{ listen 127.0.0.1:8111; location / {{ proxy_pass http://127.0.0.1:8112; }} }}"
    );
    let _ = writeln!(text, "server {{ listen 127.0.0.1:8112; location / {{ dav_methods PUT; }} }} }}");
    text
}

#[test]
fn nginx_serves_and_proxies_downloads_and_uploads() {
    if !inside("nginx_serves_and_proxies_downloads_and_uploads") || !has("nginx") {
        return;
    }
    each_way(
        "nginx",
        |folder, client, server| {
            let settings = folder.write("nginx.conf", &nginx_settings(&folder.0));
            let mut command = server.command("nginx");
            command.arg("-c").arg(settings);
            let _server = Server::start(&mut command, client, 8111);
            // Through the proxy, and to the server behind it.
            transfer(folder, client, "http://127.0.0.1:8111", true);
            transfer(folder, client, "http://127.0.0.1:8112", true);
            if has("wrk") {
                let mut command = client.command("wrk");
                let output = done(command.args(["-t2", "-c32", "-d1", "http://127.0.0.1:8111/small"]));
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(text.contains("requests in") && !text.contains("  0 requests"), "{text}");
                assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
            }
        },
        240_000_000,
    );
}

#[test]
fn an_attack_on_a_neighbour_is_blocked() {
    if !inside("an_attack_on_a_neighbour_is_blocked") {
        return;
    }
    let folder = Folder::new("attack");
    run("ip", "link set lo up");
    let host = Host::start();
    let (client, server) = (host.guest(0, false), host.guest(1, false));
    let mut command = server.command("python3");
    command.args(["-m", "http.server", "8121", "--bind", "127.0.0.1", "-d"]).arg(&folder.0);
    let _server = Server::start(&mut command, &client, 8121);
    let ask = |path: &str| {
        let mut command = client.command("curl");
        command.args(["-sS", "-m", "20", "-o", "/dev/null", &format!("http://127.0.0.1:8121/{path}")]);
        command.output().unwrap()
    };
    assert!(ask("small").status.success());
    let attack = ask(ATTACK);
    let message = String::from_utf8_lossy(&attack.stderr).into_owned();
    assert!(!attack.status.success() && message.contains("ermission denied"), "{message}");
    assert!(ask("small").status.success());
    let refused = host.report(&client).refused;
    assert_eq!(refused.of(bartizan_toe::reason::StreamRefusal::Function), 1, "{refused:?}");
}

#[test]
fn redis_serves_its_clients() {
    if !inside("redis_serves_its_clients") || !has("redis-server") {
        return;
    }
    each_way(
        "redis",
        |folder, client, server| {
            let mut command = server.command("redis-server");
            command.args(["--port", "8131", "--save", "", "--dir"]).arg(&folder.0);
            let _server = Server::start(&mut command, client, 8131);
            done(client.command("redis-cli").args(["-p", "8131", "set", "key", "value"]));
            let output = done(client.command("redis-cli").args(["-p", "8131", "get", "key"]));
            assert_eq!(output.stdout, b"value\n");
            let mut bench = client.command("redis-benchmark");
            done(bench.args(["-p", "8131", "-n", "4000", "-c", "20", "-q", "-t", "set,get", "-d", "3000"]));
        },
        12_000_000,
    );
}

#[test]
fn openssl_serves_curl() {
    if !inside("openssl_serves_curl") {
        return;
    }
    each_way(
        "openssl",
        |folder, client, server| {
            let (key, certificate) = (folder.file("key"), folder.file("certificate"));
            let mut make = Command::new("openssl");
            make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-keyout"]);
            done(make.arg(&key).arg("-out").arg(&certificate));
            let mut command = server.command("openssl");
            command.args(["s_server", "-accept", "8141", "-WWW", "-key"]).arg(&key).arg("-cert");
            command.arg(&certificate).current_dir(&folder.0);
            let _server = Server::start(&mut command, client, 8141);
            transfer(folder, client, "https://127.0.0.1:8141", false);
        },
        61_000_000,
    );
}

#[test]
fn iperf3_sends_both_ways() {
    if !inside("iperf3_sends_both_ways") || !has("iperf3") {
        return;
    }
    each_way(
        "iperf3",
        |_, client, server| {
            for reverse in [&[][..], &["-R"]] {
                let mut command = server.command("iperf3");
                let mut server =
                    command.args(["-s", "-1", "-p", "8151"]).stdout(Stdio::null()).spawn().unwrap();
                let begin = Instant::now();
                loop {
                    let mut command = client.command("iperf3");
                    command.args(["-c", "127.0.0.1", "-p", "8151", "-n", "20M"]).args(reverse);
                    let output = command.output().unwrap();
                    if output.status.success() {
                        break;
                    }
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert!(begin.elapsed() < Duration::from_secs(60), "{text}");
                    std::thread::sleep(Duration::from_millis(100));
                }
                server.wait().unwrap();
            }
        },
        25_000_000,
    );
}

const NODE: &str = r#"
const http = require("http"), fs = require("fs"), body = fs.readFileSync("m60");
const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", part => parts.push(part));
  request.on("end", () => response.end(Buffer.concat(parts)));
}).listen(8161, "127.0.0.1", () => {
  const request = http.request({ port: 8161, host: "127.0.0.1", method: "POST" }, response => {
    const parts = [];
    response.on("data", part => parts.push(part));
    response.on("end", () => process.exit(Buffer.concat(parts).equals(body) ? 0 : 1));
  });
  request.end(body);
});
"#;

#[test]
fn node_serves_itself() {
    if !inside("node_serves_itself") || !has("node") {
        return;
    }
    each_way(
        "node",
        |folder, client, server| {
            let script = folder.write("echo.js", NODE);
            for guest in [client, server] {
                done(guest.command("node").arg(&script).current_dir(&folder.0));
            }
        },
        240_000_000,
    );
}

const JAVA: &str = r#"
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.nio.file.*;
import java.util.Arrays;

class Echo {
    public static void main(String[] arguments) throws Exception {
        byte[] body = Files.readAllBytes(Path.of(arguments[0]));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8171), 0);
        server.createContext("/", exchange -> {
            byte[] got = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, got.length);
            exchange.getResponseBody().write(got);
            exchange.close();
        });
        server.start();
        URI uri = URI.create("http://127.0.0.1:8171/");
        HttpURLConnection old = (HttpURLConnection) uri.toURL().openConnection();
        old.setDoOutput(true);
        old.getOutputStream().write(body);
        boolean first = Arrays.equals(old.getInputStream().readAllBytes(), body);
        HttpRequest request = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
        HttpClient client = HttpClient.newHttpClient();
        byte[] answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body();
        System.exit(first && Arrays.equals(answer, body) ? 0 : 1);
    }
}
"#;

#[test]
fn java_serves_itself() {
    if !inside("java_serves_itself") || !has("java") {
        return;
    }
    each_way(
        "java",
        |folder, client, server| {
            let source = folder.write("Echo.java", JAVA);
            for (guest, file) in [(client, "m60"), (server, "m1")] {
                let mut command = guest.command("java");
                done(command.arg(&source).arg(folder.file(file)));
            }
        },
        4_000_000,
    );
}
