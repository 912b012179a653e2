// SPDX-License-Identifier: Apache-2.0
//! Guests: links whose programs use the stream path (docs/stream.md).
//!
//! All guests of a run share one engine and one worker, that of the first of them, so that connections
//! between them need no TCP. Each guest has a Unix socket, at which its programs are started.
//!
//! * `source`: the engine as a source of connections in order.
//! * `origin`: the program behind a connection.
//! * `view`: streams and refusals, for queries.
//! * `start`: starts a program at a guest's socket.

mod origin;
mod source;
pub mod start;
mod view;

pub use view::{BLOCKED_KEPT, GuestView};

use crate::error::Failure;
use crate::lock;
use crate::log::Note;
use crate::plan::{LinkPlan, LinkPorts};
use bartizan_base::{LinkId, RuleId};
use bartizan_config::host::GuestSection;
use bartizan_dataplane::source::Source;
use bartizan_events::output::Rights;
use bartizan_toe::engine::{Engine, GuestLimits, GuestSpec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use source::GuestSource;
use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use view::GuestDoor;

/// Programs of the owner, and of the group, may be started at a guest's socket.
const MODE: u32 = 0o660;
/// Most connections that wait to be accepted at a guest's socket.
const BACKLOG: i32 = 64;
/// Rules that a note names.
const RULES_NAMED: usize = 5;
/// Most bytes of a socket's path (`sun_path`, without its zero).
const PATH_MAX: usize = 107;

/// The default path of a guest's socket; `None`: this user has no runtime folder.
#[must_use]
pub fn usual_socket(guest: &str) -> Option<PathBuf> {
    Some(lock::runtime_folder()?.join(format!("guest-{guest}.socket")))
}

/// The note about rules that no connection of a guest can meet; `None`: there are none.
pub(crate) fn packet_rules_note(rules: impl Iterator<Item = RuleId>) -> Option<Note> {
    let mut count = 0_usize;
    let mut first = Vec::new();
    for rule in rules {
        count += 1;
        if first.len() < RULES_NAMED {
            first.push(rule.sid.to_string());
        }
    }
    let named = first.join(", ");
    let (rules, have, more) = match count {
        0 => return None,
        1 => ("rule has a condition", "is", ""),
        n if n > RULES_NAMED => ("rules have conditions", "are", ", ..."),
        _ => ("rules have conditions", "are", ""),
    };
    Some(Note::Line(format!(
        "warning: {count} {rules} on packets' headers or sizes (sid {named}{more}) and {have} not evaluated on the TCP connections of \
         guests, which have no packets; write them for streams, or give their traffic an inline link"
    )))
}

/// The guests of a run, opened.
pub(crate) struct OpenedGuests {
    /// The source of the worker that serves them.
    pub(crate) source: Box<dyn Source>,
    /// Their state, for queries.
    pub(crate) view: Arc<GuestView>,
}

/// Opens the sockets of all guests, and makes their engine; `None`: the plan has no guests.
///
/// # Errors
/// A socket cannot be made, or the kernel refuses memory or descriptors.
pub(crate) fn open(links: &[LinkPlan], functions: &[&'static str]) -> Result<Option<OpenedGuests>, Failure> {
    let mut engine = None;
    let (mut doors, mut numbers) = (Vec::new(), Vec::new());
    for (number, link) in (0u16..).zip(links) {
        let LinkPorts::Guest(section) = &link.ports else { continue };
        let failed = |error: &dyn std::fmt::Display| {
            Failure::stopped(format!("guest `{}` cannot be served: {error}", link.name))
        };
        let engine = match &mut engine {
            Some(engine) => engine,
            None => engine.insert(Engine::new().map_err(|error| failed(&error))?),
        };
        let (door, listener) = listen(&link.name, section)?;
        let spec = GuestSpec {
            addresses: section.addresses.clone(),
            shares_loopback: section.shares_loopback,
            limits: limits(section),
            ..GuestSpec::default()
        };
        engine.add_guest_at(spec, listener).map_err(|error| failed(&error))?;
        doors.push(door);
        numbers.push(LinkId(number));
    }
    let Some(engine) = engine else { return Ok(None) };
    let view = Arc::new(GuestView::new(engine.control(), doors, functions.to_vec()));
    let source = Box::new(GuestSource::new(engine, numbers, Arc::clone(&view)));
    Ok(Some(OpenedGuests { source, view }))
}

fn limits(section: &GuestSection) -> GuestLimits {
    let usual = GuestLimits::default();
    GuestLimits {
        streams: section.streams.unwrap_or(usual.streams),
        processes: section.processes.unwrap_or(usual.processes),
        bytes: section.memory.map_or(usual.bytes, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
        connects_per_second: section.connects.unwrap_or(usual.connects_per_second),
        ..usual
    }
}

/// Listens at a guest's socket.
fn listen(name: &str, section: &GuestSection) -> Result<(GuestDoor, OwnedFd), Failure> {
    let path = match &section.socket {
        Some(path) => path.clone(),
        None => usual_socket(name).ok_or_else(|| {
            Failure::input(format!(
                "guest `{name}`: this user has no default path for the guest's socket; set one: `guest: {{socket: PATH}}`"
            ))
        })?,
    };
    let shown = path.display().to_string();
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::stopped(format!(
            "guest `{name}`: {what} {shown}: {error}; guests start programs by this socket: check the folder's permissions or set another `socket`"
        ))
    };
    if path.as_os_str().len() > PATH_MAX {
        return Err(failed("cannot listen on", &format!("the path is longer than {PATH_MAX} bytes")));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Rights::default().make_folder(folder).map_err(|error| failed("cannot create the folder of", &error))?;
    remove_abandoned(&path).map_err(|why| failed("cannot listen on", &why))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(|error| failed("cannot make", &error))?;
    let address = SocketAddrUnix::new(&path).map_err(|error| failed("cannot name", &error))?;
    rustix::net::bind(&socket, &address).map_err(|error| failed("cannot make", &error))?;
    // Nobody can connect before it listens, and by then it has its rights.
    std::fs::set_permissions(&path, Permissions::from_mode(MODE))
        .map_err(|error| failed("cannot set the permissions of", &error))?;
    rustix::net::listen(&socket, BACKLOG).map_err(|error| failed("cannot listen on", &error))?;
    let file = std::fs::symlink_metadata(&path).map(|found| (found.dev(), found.ino()));
    let file = file.map_err(|error| failed("cannot examine", &error))?;
    Ok((GuestDoor { name: name.into(), path, file }, socket))
}

/// Removes a socket whose program was killed. The error: somebody listens there, or the file is no socket.
fn remove_abandoned(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !found.file_type().is_socket() {
        return Err("the file exists and is not a socket; remove it".to_owned());
    }
    match start::connect(path) {
        Ok(_) => Err("another bartizan serves a guest on it; stop that one".to_owned()),
        Err(error) if error == rustix::io::Errno::CONNREFUSED => {
            std::fs::remove_file(path).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("the socket of another program is there ({error}); remove it")),
    }
}
