// SPDX-License-Identifier: Apache-2.0
//! The links and ports of devices' host files, and the documents that name them: a policy for a link that a
//! device lacks can never match there.
//!
//! Devices report their links and ports with each session, from version 5 of the southbound protocol on; the
//! report is stored for devices that are away. For an older agent, only the links are known, from its
//! workers, while it is connected.

use crate::device::{self, DeviceSpec, DeviceStatus, SESSIONS};
use crate::held;
use crate::model::Model;
use crate::problem::Fault;
use crate::render::{DEFAULT, POLICIES, SETTINGS, TENANTS};
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Display};

/// The status kind of reports about interfaces.
pub const INTERFACES: &str = "interfaces";
/// Most remembered documents that name a link or port which the device lacks.
const LACKING_MAX: usize = 64;
/// Most names in a message.
const SHOWN: usize = 8;

/// The kind of a name from a host file that policies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceKind {
    /// A link: `link` of policies, and of tenants' selectors.
    Link,
    /// A port: `egress` of filter rules.
    Port,
}

impl InterfaceKind {
    const fn name(self) -> &'static str {
        match self {
            InterfaceKind::Link => "link",
            InterfaceKind::Port => "port",
        }
    }
}

/// A link or port that a document names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInterface {
    /// The kind of the name.
    pub kind: InterfaceKind,
    /// The link or port's name.
    pub name: String,
    /// The link or port's place in the document, as a JSON pointer.
    pub pointer: String,
}

impl Display for NamedInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind.name(), self.name)
    }
}

/// The links and ports that a document names.
#[must_use]
pub fn named(kind: &str, body: &Value) -> Vec<NamedInterface> {
    match kind {
        POLICIES => of_policy(body.get("policy"), "/policy"),
        TENANTS => links(body.pointer("/select/link"), "/select/link"),
        SETTINGS => of_policy(Some(body), ""),
        _ => Vec::new(),
    }
}

fn of_policy(policy: Option<&Value>, under: &str) -> Vec<NamedInterface> {
    let Some(policy) = policy else { return Vec::new() };
    let mut all = links(policy.get("link"), &format!("{under}/link"));
    let rules = items(policy.pointer("/pfw/rules"));
    all.extend(rules.filter_map(|(at, rule)| {
        let name = text(rule.get("egress")?)?.into_owned();
        let pointer = format!("{under}/pfw/rules/{at}/egress");
        Some(NamedInterface { kind: InterfaceKind::Port, name, pointer })
    }));
    all
}

fn links(value: Option<&Value>, pointer: &str) -> Vec<NamedInterface> {
    let link = |(at, value): (usize, &Value)| {
        let (name, pointer) = (text(value)?.into_owned(), format!("{pointer}/{at}"));
        Some(NamedInterface { kind: InterfaceKind::Link, name, pointer })
    };
    items(value).filter_map(link).collect()
}

/// The items of a JSON list; a single value counts as a list of one.
fn items(value: Option<&Value>) -> impl Iterator<Item = (usize, &Value)> {
    let all = match value {
        Some(Value::Array(all)) => all.as_slice(),
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    };
    all.iter().enumerate()
}

/// A name as text; numbers count as texts, as policy readers treat them.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// The links and ports that a device reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInterfaces {
    /// Names of its links.
    pub links: Vec<String>,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Documents, by kind and name, that named a missing link or port at the time of the report.
    lacking: Vec<(String, String)>,
}

impl DeviceInterfaces {
    /// A report of these links and ports.
    #[must_use]
    pub fn new(links: Vec<String>, ports: Vec<String>) -> Self {
        DeviceInterfaces { links, ports, lacking: Vec::new() }
    }

    /// The latest report of a device.
    #[must_use]
    pub fn of(model: &Model, device: &str) -> Option<Self> {
        DeviceInterfaces::deserialize(model.status(INTERFACES, device)?).ok()
    }

    /// The report as a line of status.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: INTERFACES.to_owned(), id: device.to_owned(), body }
    }

    fn names(&self, kind: InterfaceKind) -> &[String] {
        match kind {
            InterfaceKind::Link => &self.links,
            InterfaceKind::Port => &self.ports,
        }
    }

    fn has(&self, named: &NamedInterface) -> bool {
        self.names(named.kind).contains(&named.name)
    }

    /// Names in a document that the device does not have.
    fn lacks_of(&self, kind: &str, body: &Value) -> Vec<NamedInterface> {
        let mut all = named(kind, body);
        all.retain(|named| !self.has(named));
        all
    }

    /// Names in a tenant's documents that the device does not have.
    fn lacks_of_tenant(&self, model: &Model, tenant: &str) -> Vec<MissingInterface> {
        let prefix = format!("{tenant}/");
        let own = model.get(TENANTS, tenant).into_iter().chain(model.list(POLICIES, &prefix, None));
        let of = own.flat_map(|document| {
            let lacks = self.lacks_of(&document.kind, &document.body);
            lacks.into_iter().map(|named| MissingInterface::of(&document.kind, &document.id, named))
        });
        of.collect()
    }

    /// Finds names that the device lacks, in documents of the tenants it serves and in the default; remembers
    /// the documents.
    pub fn find_missing(&mut self, model: &Model, spec: &DeviceSpec) -> Vec<MissingInterface> {
        let tenants = held::served(model, spec);
        let mut all: Vec<MissingInterface> =
            tenants.into_iter().flat_map(|tenant| self.lacks_of_tenant(model, tenant)).collect();
        if let Some(default) = model.get(SETTINGS, DEFAULT) {
            let lacks = self.lacks_of(SETTINGS, &default.body).into_iter();
            all.extend(lacks.map(|named| MissingInterface::of(SETTINGS, DEFAULT, named)));
        }
        let documents: BTreeSet<(String, String)> =
            all.iter().map(|lack| (lack.kind.clone(), lack.id.clone())).collect();
        self.lacking = documents.into_iter().take(LACKING_MAX).collect();
        all
    }

    /// Names in the remembered documents that the device still lacks.
    fn still_missing(&self, model: &Model) -> Vec<MissingInterface> {
        let of = |(kind, id): &(String, String)| {
            let lacks = model.get(kind, id).map(|document| self.lacks_of(kind, &document.body));
            lacks.into_iter().flatten().map(|named| MissingInterface::of(kind, id, named)).collect::<Vec<_>>()
        };
        self.lacking.iter().flat_map(of).collect()
    }
}

/// A link or port that a document names and a device lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingInterface {
    kind: String,
    id: String,
    named: NamedInterface,
}

impl MissingInterface {
    fn of(kind: &str, id: &str, named: NamedInterface) -> Self {
        MissingInterface { kind: kind.to_owned(), id: id.to_owned(), named }
    }
}

impl Display for MissingInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.kind.as_str() {
            POLICIES => "policy",
            TENANTS => "tenant",
            _ => "setting",
        };
        write!(f, "{}, named by {whose} `{}` at {}", self.named, self.id, self.named.pointer)
    }
}

/// A device's links and ports, and the names in its policy that it lacks, for people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterfacesView {
    /// Names of its links.
    pub links: Vec<String>,
    /// Names of the ports that policies may redirect to.
    pub ports: Vec<String>,
    /// Names in documents of the served tenants that the device lacks.
    pub missing: Vec<String>,
}

impl InterfacesView {
    /// The view of a device; `None` if it has not reported its links and ports.
    #[must_use]
    pub fn of(model: &Model, device: &str) -> Option<Self> {
        let has = DeviceInterfaces::of(model, device)?;
        let missing = has.still_missing(model).iter().map(MissingInterface::to_string).collect();
        Some(InterfacesView { links: has.links, ports: has.ports, missing })
    }
}

/// Whether a device has a link or port, as far as known.
enum Availability<'k> {
    Has,
    /// The device lacks it; the names that it has of the kind.
    Lacks(&'k [String]),
    /// Unknown; the reason.
    Unknown(&'static str),
}

/// The knowledge about a device's links and ports.
struct ReportedInterfaces<'m> {
    device: &'m str,
    /// The device's report; for a connected older agent, its links only.
    has: Option<DeviceInterfaces>,
    /// Whether the report is complete.
    is_whole: bool,
    /// Why nothing more is known.
    why: &'static str,
}

impl<'m> ReportedInterfaces<'m> {
    fn of(model: &Model, device: &'m str) -> Self {
        if let Some(has) = DeviceInterfaces::of(model, device) {
            return ReportedInterfaces { device, has: Some(has), is_whole: true, why: "" };
        }
        let status = DeviceStatus::of(model, device);
        let links: BTreeSet<String> = status.workers.into_iter().map(|worker| worker.link).collect();
        let tells = is_connected(model, device) && !links.is_empty();
        let has = tells.then(|| DeviceInterfaces::new(links.into_iter().collect(), Vec::new()));
        let why = match status.seen {
            0 => "has not connected yet",
            _ => "has an agent that does not report its links and ports; update the agent",
        };
        ReportedInterfaces { device, has, is_whole: false, why }
    }

    fn on(&self, named: &NamedInterface) -> Availability<'_> {
        match &self.has {
            Some(has) if self.is_whole || named.kind == InterfaceKind::Link => match has.has(named) {
                true => Availability::Has,
                false => Availability::Lacks(has.names(named.kind)),
            },
            _ => Availability::Unknown(self.why),
        }
    }
}

fn is_connected(model: &Model, device: &str) -> bool {
    model.status(SESSIONS, device).and_then(|session| session.get("connected")) == Some(&Value::Bool(true))
}

/// The devices that a document goes to: those that serve its tenant; all without a tenant.
fn devices<'m>(model: &'m Model, tenant: Option<&str>) -> Vec<ReportedInterfaces<'m>> {
    let serves = |body: &Value| {
        let spec = DeviceSpec::deserialize(body).unwrap_or_default();
        tenant.is_none_or(|tenant| spec.serves(tenant))
    };
    let all = model.all(device::KIND).filter(|document| serves(&document.body));
    all.map(|document| ReportedInterfaces::of(model, &document.id)).collect()
}

/// The result of a check of names.
#[derive(Debug, Default)]
pub struct InterfaceCheck {
    /// Names that a device does not have.
    pub faults: Vec<Fault>,
    /// Checks that could not be made, with the reason.
    pub notes: Vec<String>,
}

/// Checks the names in a document against the devices that it goes to: those that serve `tenant`, or all.
/// `shows`: whether the caller may see a device's names.
#[must_use]
pub fn check(
    model: &Model,
    tenant: Option<&str>,
    names: &[NamedInterface],
    shows: impl Fn(&NamedInterface) -> bool,
) -> InterfaceCheck {
    let mut checked = InterfaceCheck::default();
    if names.is_empty() {
        return checked;
    }
    let devices = devices(model, tenant);
    for named in names {
        let (mut lacking, mut unknown) = (Vec::new(), Vec::new());
        for device in &devices {
            match device.on(named) {
                Availability::Has => {}
                Availability::Lacks(has) => lacking.push((device.device, has)),
                Availability::Unknown(why) => unknown.push((device.device, why)),
            }
        }
        if let Some(((device, has), others)) = lacking.split_first() {
            let others: Vec<&str> = others.iter().map(|(device, _)| *device).collect();
            let shown = |name: &&String| {
                let kind = named.kind;
                shows(&NamedInterface { kind, name: (*name).clone(), pointer: String::new() })
            };
            let has: Vec<&str> = has.iter().filter(shown).map(String::as_str).collect();
            let lacking =
                LackingDevice { name: device, serves: tenant.is_some(), has: &has, others: &others };
            let message = lacks(model, named, lacking);
            checked.faults.push(Fault::new(named.pointer.clone(), message));
        }
        for why in unknown.iter().map(|(_, why)| *why).collect::<BTreeSet<_>>() {
            let of: Vec<&str> =
                unknown.iter().filter(|(_, w)| *w == why).map(|(device, _)| *device).collect();
            let each = if of.len() > 1 { ", each of which" } else { ", which" };
            let note = format!("{named} was not checked for {}{each} {why}", listed("device", &of));
            if !checked.notes.contains(&note) {
                checked.notes.push(note);
            }
        }
    }
    checked
}

/// A device that lacks an interface.
struct LackingDevice<'d> {
    name: &'d str,
    /// It serves the tenant whose document names the interface.
    serves: bool,
    /// The interfaces of that kind that it has and the caller may see.
    has: &'d [&'d str],
    /// Further devices that lack the interface.
    others: &'d [&'d str],
}

/// Formats the fault: which device lacks which name, which names it has, and what to do.
fn lacks(model: &Model, named: &NamedInterface, lacking: LackingDevice<'_>) -> String {
    let LackingDevice { name: device, serves, has, others } = lacking;
    let kind = named.kind.name();
    let serves = if serves { ", which serves this tenant," } else { "" };
    let has = match has.is_empty() {
        true => String::new(),
        false => format!(" (it has {})", listed(kind, has)),
    };
    let away = match is_connected(model, device) {
        true => "",
        false => ", as it reported when it was last connected",
    };
    let others = match others.is_empty() {
        true => String::new(),
        false => {
            format!("; nor {} {}", if others.len() > 1 { "have" } else { "has" }, listed("device", others))
        }
    };
    format!(
        "the device `{device}`{serves} has no {named}{has}{away}{others}; name one that it has, or add it to `{kind}s` of its host file and start it again"
    )
}

/// Joins names for a message: `device `a``, `devices `a`, `b` and 3 more`.
#[must_use]
pub fn listed(what: &str, names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what}{plural} {}{more}", shown.join(", "))
}

/// Faults of a tenant's redirect permission: ports that no serving device has. Empty while one of these
/// devices has not reported its ports.
#[must_use]
pub fn permitted_nowhere(model: &Model, tenant: &str, ports: &[String]) -> Vec<Fault> {
    let devices = devices(model, Some(tenant));
    let fault = |(at, name): (usize, &String)| {
        let pointer = format!("/ports/{at}");
        let named = NamedInterface { kind: InterfaceKind::Port, name: name.clone(), pointer };
        let mut has = BTreeSet::new();
        for device in &devices {
            match device.on(&named) {
                Availability::Lacks(ports) => has.extend(ports.iter().cloned()),
                Availability::Has | Availability::Unknown(_) => return None,
            }
        }
        let has: Vec<&str> = has.iter().map(String::as_str).collect();
        let have = if has.is_empty() { "none".to_owned() } else { listed("port", &has) };
        (!devices.is_empty()).then(|| {
            let message = format!(
                "no device that serves this tenant has a {named} (they have {have}): name one that a device has, or add it to `ports` of a host file and start that device again"
            );
            Fault::new(named.pointer.clone(), message)
        })
    };
    ports.iter().enumerate().filter_map(fault).collect()
}

/// Faults of tenants that a device begins to serve although their documents name links or ports it lacks, by
/// place in the device's `tenants`.
#[must_use]
pub fn unservable(model: &Model, device: &str, spec: &DeviceSpec) -> Vec<Fault> {
    let Some(has) = DeviceInterfaces::of(model, device) else { return Vec::new() };
    let before = model.get(device::KIND, device);
    let before = before.map(|document| DeviceSpec::deserialize(&document.body).unwrap_or_default());
    let serves_already = |tenant: &str| before.as_ref().is_some_and(|before| before.serves(tenant));
    let mut faults = Vec::new();
    for (at, name) in spec.tenants.iter().enumerate() {
        let one = DeviceSpec { tenants: vec![name.clone()], ..DeviceSpec::default() };
        let new = held::served(model, &one).into_iter().filter(|tenant| !serves_already(tenant));
        let lacks: Vec<MissingInterface> =
            new.flat_map(|tenant| has.lacks_of_tenant(model, tenant)).collect();
        let Some(first) = lacks.first() else { continue };
        let names: Vec<&str> = has.names(first.named.kind).iter().map(String::as_str).collect();
        let kind = first.named.kind.name();
        let has = if names.is_empty() { "none".to_owned() } else { listed(kind, &names) };
        let more = match lacks.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        faults.push(Fault::new(
            format!("/tenants/{at}"),
            format!(
                "the device `{device}` has no {first}{more}; it has {has}: change the name, or add it to `{kind}s` of its host file and start it again"
            ),
        ));
    }
    faults
}
