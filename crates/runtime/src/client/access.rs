// SPDX-License-Identifier: Apache-2.0
//! The address of the controller and the token: as given, else from variables of the environment, else from a
//! file of the user. Tokens come from files that only the user can read, never from the command line, where
//! all users of the machine can see them.

use crate::error::Failure;
use crate::input;
use bartizan_config::policy::read;
use bartizan_config::yaml;
use bartizan_controller::client::Client;
use serde::Deserialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Access to a controller, as far as it is given; the environment and the user's file supply the rest.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// URL of the controller.
    pub controller: Option<String>,
    /// File with the token.
    pub token_file: Option<PathBuf>,
    /// Certificate of the controller, or of the authority that signed it.
    pub ca: Option<PathBuf>,
}

/// The user's file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct UserConfigFile {
    controller: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
}

/// The controller of this machine, unless another is given.
const USUAL: &str = "https://localhost:9443";
/// Its certificate.
const USUAL_CA: &str = "/var/lib/bartizan/controller/tls-certificate.pem";
/// The port of a URL without one.
const PORT: u16 = 9443;

/// Path of the user's file.
fn own_path() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    Some(folder.or_else(home)?.join("bartizan/ctl.yaml"))
}

/// Refuses a file that others can read: its content would not be this user's alone.
fn secret(path: &Path) -> Result<(), Failure> {
    let unreadable = |error| Failure::input(format!("cannot read {}: {error}", path.display()));
    let mode = std::fs::metadata(path).map_err(unreadable)?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Failure::input(format!(
        "{} contains a token, and other users can read it (mode {:04o}): `chmod 600` it; if others could have read it, revoke the token",
        path.display(),
        mode & 0o7777
    )))
}

fn own() -> Result<UserConfigFile, Failure> {
    let Some(path) = own_path().filter(|path| path.exists()) else { return Ok(UserConfigFile::default()) };
    secret(&path)?;
    let text = input::read_text(&path, "settings")?;
    let text = String::from_utf8_lossy(&text);
    let node = yaml::parse(&text).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    let mut own: UserConfigFile = read::read(&node).map_err(|problems| {
        let line = |problem: &read::ConfigProblem| {
            format!("{}:{}: {}", path.display(), problem.position.line, problem.message)
        };
        Failure::input(problems.iter().map(line).collect::<Vec<_>>().join("\n"))
    })?;
    // Relative paths in the file are relative to the file's folder.
    let folder = path.parent().unwrap_or(Path::new(""));
    for named in [&mut own.token_file, &mut own.ca].into_iter().flatten() {
        *named = folder.join(&*named);
    }
    Ok(own)
}

/// Host and port of a URL.
fn host(url: &str) -> Result<(String, u16), String> {
    let rest = url.strip_prefix("https://").ok_or(
        "the address of a controller begins with https: write \
         `https://HOST:PORT`",
    )?;
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("`]` is followed by `:PORT`")?)),
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains(['/', '@', '?', '#']) {
        return Err("write `https://HOST:PORT`, without a path".to_owned());
    }
    let port = port.map_or(Ok(PORT), str::parse);
    Ok((host.to_owned(), port.map_err(|_| "the port is a number from 0 to 65535".to_owned())?))
}

fn token(path: &Path) -> Result<String, Failure> {
    secret(path)?;
    let text = input::read_text(path, "token")?;
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => Err(Failure::input(format!("{}: the file contains no token", path.display()))),
        token => Ok(token.to_owned()),
    }
}

impl Access {
    /// A client of the controller.
    ///
    /// # Errors
    /// Something is missing, or cannot be read.
    pub fn client(&self) -> Result<Client, Failure> {
        let own = own()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = self.controller.clone().or_else(|| variable("BARTIZAN_CONTROLLER")).or(own.controller);
        let url = url.unwrap_or_else(|| USUAL.to_owned());
        let (host, port) = host(&url).map_err(|why| Failure::usage(format!("`{url}`: {why}")))?;
        let file = self.token_file.clone().or_else(|| variable("BARTIZAN_TOKEN_FILE").map(PathBuf::from));
        let token = match (file, own.token, own.token_file) {
            (Some(path), ..) | (None, None, Some(path)) => Some(token(&path)?),
            (None, token, _) => token,
        };
        let token = token.ok_or_else(|| {
            Failure::usage("a token is needed: name its file by --token-file, $BARTIZAN_TOKEN_FILE, or `token-file` in ctl.yaml")
        })?;
        let ca = self.ca.clone().or_else(|| variable("BARTIZAN_CA").map(PathBuf::from)).or(own.ca);
        let ca = ca.unwrap_or_else(|| PathBuf::from(USUAL_CA));
        Client::of(&host, port, &ca, Some(token)).map_err(Failure::stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_hosts_and_ports() {
        let good = |url: &str| host(url).unwrap();
        assert_eq!(good("https://localhost"), ("localhost".to_owned(), 9443));
        assert_eq!(good("https://10.0.0.1:443/"), ("10.0.0.1".to_owned(), 443));
        assert_eq!(good("https://[2001:db8::1]:443"), ("2001:db8::1".to_owned(), 443));
        assert_eq!(good("https://[::1]"), ("::1".to_owned(), 9443));
        for bad in [
            "http://localhost",
            "localhost:9443",
            "https://",
            "https://a:b",
            "https://a/b",
            "https://[::1]443",
            "https://me@a",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
