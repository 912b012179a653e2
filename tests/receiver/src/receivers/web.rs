// SPDX-License-Identifier: Apache-2.0
//! nginx, whose access log is its record; a TLS server on OpenSSL, which prints the requested names; the web
//! server of Python's library, which prints paths.

use super::daemon::GrowingLog;
use super::{Records, Service};
use crate::net::{Problem, problem};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The three servers, which end when this is dropped.
pub struct Web {
    nginx: Child,
    tls: Child,
    python: Child,
    log: GrowingLog,
}

impl Web {
    /// Starts the servers; their files are in `folder`.
    ///
    /// # Errors
    /// If a server cannot be started.
    pub fn start(folder: &Path, records: &Arc<Records>) -> Result<Self, Problem> {
        let folder =
            std::path::absolute(folder).map_err(|error| problem(format!("{}: {error}", folder.display())))?;
        let show = folder.display();
        let log = folder.join("access.log");
        // Clears the log of an earlier run.
        put(&log, "")?;
        let long = "long ".repeat(400);
        let config = format!(
            "daemon off; user root; worker_processes 1; pid {show}/nginx.pid; error_log {show}/nginx.log crit;
events {{ worker_connections 16000; }}
http {{
  client_body_temp_path {show}/body; proxy_temp_path {show}/proxy; fastcgi_temp_path {show}/fcgi; uwsgi_temp_path {show}/uwsgi; scgi_temp_path {show}/scgi;
  log_format record escape=json '[\"$remote_addr\",$remote_port,$status,\"$uri\"]';
  access_log {show}/access.log record; keepalive_timeout 4; client_header_timeout 4; client_body_timeout 4; keepalive_requests 1000000; reset_timedout_connection on;
  server {{ listen 80 backlog=8192; listen [::]:80 backlog=8192; location / {{ return 200 \"ok\\n\"; }} location /long {{ return 200 \"{long}ok\\n\"; }} }}
}}
"
        );
        put(&folder.join("nginx.conf"), &config)?;
        let nginx = Command::new("nginx")
            .args([
                "-e",
                &format!("{show}/nginx.log"),
                "-c",
                &format!("{show}/nginx.conf"),
                "-p",
                &show.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| problem(format!("nginx: {error}: apt-get install nginx-light")))?;
        let program = folder.join("tls.py");
        put(&program, include_str!("tls.py"))?;
        crate::net::run(&format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {show}/key.pem -out {show}/cert.pem -days 2 -subj /CN=receiver"
        ))?;
        let (ready, wait) = mpsc::channel();
        let (port, files) = (Service::Tls.port(), [folder.join("cert.pem"), folder.join("key.pem")]);
        let mut tls = python(&program, Service::Tls, &files)?;
        listen(&mut tls, port, records, &ready);
        let program = folder.join("web.py");
        put(&program, include_str!("web.py"))?;
        // From here on an error ends all servers.
        let mut web =
            Web { nginx, tls, python: python(&program, Service::Web, &[])?, log: GrowingLog::new(log) };
        listen(&mut web.python, Service::Web.port(), records, &ready);
        for _ in 0..2 {
            wait.recv_timeout(Duration::from_secs(10))
                .map_err(|_| problem("the TLS server or Python's web server does not start"))?;
        }
        let begun = Instant::now();
        while std::net::TcpStream::connect(("::1", Service::Http.port())).is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(problem(format!("nginx does not start: see {show}/nginx.log")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(web)
    }

    /// Adds nginx's new log lines to the records.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn collect(&mut self, records: &Records) -> Result<(), Problem> {
        for line in self.log.lines()? {
            let Ok(said) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            let (Some(Ok(address)), Some(port), Some(status), Some(path)) = (
                said[0].as_str().map(str::parse::<std::net::IpAddr>),
                said[1].as_u64(),
                said[2].as_u64(),
                said[3].as_str(),
            ) else {
                continue;
            };
            // A request that nginx rejected as malformed was not served.
            if status < 400 {
                let key = (address.to_canonical(), port as u16, Service::Http.port());
                records.add(key, |read| {
                    read.stream.extend(path.bytes());
                    read.stream.push(b'\n');
                });
            }
        }
        Ok(())
    }
}

/// Starts a Python program at the service's port.
fn python(program: &Path, service: Service, more: &[PathBuf]) -> Result<Child, Problem> {
    Command::new("python3")
        .arg(program)
        .arg(service.port().to_string())
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| problem(format!("python3: {error}")))
}

/// Reads the program's output in a thread: a line when it is ready, then names or paths with their clients.
fn listen(child: &mut Child, own: u16, records: &Arc<Records>, ready: &mpsc::Sender<()>) {
    let lines = child.stdout.take().map(BufReader::new);
    let (records, ready) = (Arc::clone(records), ready.clone());
    std::thread::spawn(move || {
        for line in lines.into_iter().flat_map(|lines| lines.lines().map_while(Result::ok)) {
            let Ok(said) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            if said["ready"] == true {
                let _ = ready.send(());
            } else if let (Some(Ok(address)), Some(port)) =
                (said["address"].as_str().map(str::parse::<std::net::IpAddr>), said["port"].as_u64())
            {
                let names = said["names"].as_array().into_iter().flatten();
                let names: Vec<&str> = names.filter_map(|name| name.as_str()).collect();
                let text = names.join("\n").into_bytes();
                records.add((address.to_canonical(), port as u16, own), |read| {
                    read.stream.extend(text);
                    read.stream.push(b'\n');
                });
            }
        }
    });
}

fn put(path: &Path, text: &str) -> Result<(), Problem> {
    std::fs::write(path, text).map_err(|error| problem(format!("{}: {error}", path.display())))
}

impl Drop for Web {
    fn drop(&mut self) {
        // The master process stops its worker; a killed one could not.
        let _ = Command::new("kill").args(["-TERM", &self.nginx.id().to_string()]).status();
        for child in [&mut self.tls, &mut self.python] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.nginx.wait();
    }
}
