// SPDX-License-Identifier: Apache-2.0
//! Program and controller for tests of several planes: the program between two interfaces with its own
//! controller, or with one in this process; or the controller as a program of its own.

use crate::common::{Folder, PROGRAM, Running};
use crate::inline_pair::{network, start};
use crate::rest::Rest;
use bartizan_agent::session::client::{enrol, wall_clock};
use bartizan_api::southbound::DeviceId;
use bartizan_controller::Settings;
use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use bartizan_controller::southbound::ServerConfig;
use bartizan_controller::start::{ControllerConfig, Plane, Southbound, start as start_controller};
use bartizan_ports::InlinePort;
use bartizan_testkit::packet::udp;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The controller's address for devices.
const AGENTS: &str = "127.0.0.1:7443";
/// The controller's address for REST.
pub const LISTEN: &str = "127.0.0.1:9443";

/// A host file with an inline link; `controller` is the address of its controller.
fn host(controller: &str) -> String {
    format!(
        "links: [{{name: wan, inline: {{a: a1, b: b1}}}}]\ncache: none\noutputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: c.socket}}\n\
         settings: {{capture.checksum-validation: none}}\ncontroller: {{{controller}, identity: identity, state: device, statistics-every: 1s}}\n"
    )
}

/// A folder with the host file of a program with its own controller, and the device `edge`.
pub fn folder() -> Folder {
    let folder = Folder::new();
    let own = format!("here: {{state: controller, listen: '{LISTEN}', agents: '{AGENTS}', device: edge}}");
    folder.write("bartizan.yaml", host(&own));
    folder
}

/// All planes in one process; stopped before its folder is removed.
pub struct Here {
    pub running: Running,
    pub net: [InlinePort; 2],
    pub rest: Rest,
    pub folder: Folder,
}

impl Here {
    /// Starts the program with an empty state.
    pub fn begin() -> Self {
        let (folder, net) = (folder(), network());
        let running = start(&folder);
        let rest = Rest::administrator(&folder.path("controller"));
        Here { running, net, rest, folder }
    }

    /// A user with a scope in one tenant.
    pub fn user(&mut self, tenant: &str, scope: &str) -> Rest {
        let body = json!({"name": tenant, "scope": scope, "tenant": tenant});
        let token = self.rest.ask(Method::Post, "/v1/tokens", Some(body))["token"].clone();
        Rest::new(&self.folder.path("controller"), token.as_str().unwrap())
    }
}

/// A controller in this process, which does not check the sections of functions, and a folder for a program
/// that is its device `edge` and may come and go.
pub struct Apart {
    pub net: [InlinePort; 2],
    pub rest: Rest,
    pub folder: Folder,
    _plane: Plane,
}

impl Apart {
    /// Starts the controller, and enrols the device.
    pub fn begin() -> Self {
        let (folder, net) = (Folder::new(), network());
        folder.write("bartizan.yaml", host(&format!("address: '{AGENTS}'")));
        let server = ServerConfig { keep_alive_ms: 1_000, ..ServerConfig::default() };
        let functions = ["portscan", "pfw", "sfw", "ids"].map(str::to_owned).to_vec();
        let config = ControllerConfig {
            state: folder.path("controller"),
            listen: LISTEN.parse().unwrap(),
            southbound: Some(Southbound { listen: AGENTS.parse().unwrap(), authority: None, server }),
            bootstrap: false,
            settings: Settings { functions, ..Settings::default() },
            log: |line| eprintln!("controller: {line}"),
        };
        let plane = start_controller(&config).unwrap();
        let mut rest = Rest::administrator(&folder.path("controller"));
        rest.put("/v1/devices/edge", json!({"tenants": ["*"]}));
        let token = rest.ask(Method::Post, "/v1/devices/edge/enrolment", None)["token"].clone();
        let device = DeviceId::new("edge").unwrap();
        std::fs::create_dir_all(folder.path("identity")).unwrap();
        enrol(AGENTS, token.as_str().unwrap(), &device, &folder.path("identity"), &wall_clock()).unwrap();
        Apart { net, rest, folder, _plane: plane }
    }
}

/// A datagram from host 1 to host 2 of a network, in a frame.
pub fn datagram(network: &str, (source, destination): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let host = |number: u8| format!("{network}.{number}").parse().unwrap();
    udp((host(1), source), (host(2), destination), payload).frame()
}

/// A controller as a program; killed when dropped.
pub struct Controller {
    pub child: Child,
    pub address: SocketAddr,
}

impl Controller {
    /// Starts it on a state, at a free port.
    pub fn command(state: &Path) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["controller", "--listen", "127.0.0.1:0", "--state"]).arg(state);
        command
    }

    pub fn start(state: &Path) -> Self {
        Controller::of(Controller::command(state)).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Waits until the controller listens; returns its messages if it ends before.
    pub fn of(mut command: Command) -> Result<Self, String> {
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Controller { child, address: ([127, 0, 0, 1], 0).into() };
        let mut said = String::new();
        let mut lines = BufReader::new(running.child.stderr.take().unwrap());
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                return Err(said);
            }
            if let Some((_, address)) = line.split_once("listens on https://") {
                running.address = address.trim().parse().unwrap();
                // What it says later has to go somewhere.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok(running);
            }
            said.push_str(&line);
        }
    }

    pub fn client(&self, state: &Path, token: &str) -> Client {
        let certificate = state.join("tls-certificate.pem");
        Client::new(self.address, &certificate, Some(token.to_owned())).unwrap()
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
