// SPDX-License-Identifier: Apache-2.0
//! Options of the command line that choose the controller and its token.

use bartizan_controller::client::Client;
use bartizan_runtime::client::access::Access;
use bartizan_runtime::error::Failure;
use std::path::PathBuf;

/// The controller to connect to.
#[derive(clap::Args)]
#[command(next_help_heading = "Which controller")]
pub struct Whom {
    /// The controller [else $BARTIZAN_CONTROLLER, `controller` of the user's ctl.yaml,
    /// https://localhost:9443].
    #[arg(long, value_name = "URL", global = true)]
    controller: Option<String>,
    /// File with the token [else $BARTIZAN_TOKEN_FILE, `token` or `token-file` of ctl.yaml].
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Certificate that signed the controller's, or is it [else $BARTIZAN_CA, `ca` of ctl.yaml, that of a
    /// controller on this machine].
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

impl Whom {
    /// Connects a client to it.
    pub fn client(&self) -> Result<Client, Failure> {
        let (controller, token_file, ca) =
            (self.controller.clone(), self.token_file.clone(), self.ca.clone());
        Access { controller, token_file, ca }.client()
    }
}
