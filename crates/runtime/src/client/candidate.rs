// SPDX-License-Identifier: Apache-2.0
//! The policy file of a device of a controller: that of a generation, or the one that would result from
//! documents which are not put yet. The controller's own code renders it.

use super::apply;
use super::request::{self, ClientRequest, send_request};
use crate::error::Failure;
use bartizan_controller::client::Client;
use bartizan_controller::device::DeviceSpec;
use bartizan_controller::model::Model;
use bartizan_controller::render;
use bartizan_controller::store::{Document, StoreContent};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A device, and a client of its controller.
pub struct DeviceCandidate {
    client: Client,
    device: String,
    spec: DeviceSpec,
    running: u64,
    /// Libraries with the new documents, by name.
    libraries: Vec<(String, Value)>,
}

impl DeviceCandidate {
    /// Reads the device.
    ///
    /// # Errors
    /// The controller refuses, or does not answer.
    pub fn new(mut client: Client, device: &str) -> Result<Self, Failure> {
        let path = format!("/v1/devices/{}", request::path_part(device));
        let answer = send_request(&mut client, ClientRequest::get(path))?;
        let spec = DeviceSpec::deserialize(answer.body.get("spec").unwrap_or(&Value::Null))
            .map_err(Failure::stopped)?;
        let running = answer.body.pointer("/status/running").and_then(Value::as_u64).unwrap_or(0);
        Ok(DeviceCandidate { client, device: device.to_owned(), spec, running, libraries: Vec::new() })
    }

    /// The generation that the device runs; 0: none yet.
    pub const fn running(&self) -> u64 {
        self.running
    }

    /// The device's policy file of a generation.
    ///
    /// # Errors
    /// The controller refuses, or does not answer.
    pub fn of_generation(&mut self, generation: u64) -> Result<Value, Failure> {
        let path = format!("/v1/devices/{}/policy?generation={generation}", request::path_part(&self.device));
        let mut answer = send_request(&mut self.client, ClientRequest::get(path))?;
        Ok(answer.body.get_mut("policy").map(Value::take).unwrap_or_default())
    }

    /// The device's policy file of the newest generation.
    ///
    /// # Errors
    /// The controller refuses, or does not answer.
    pub fn newest(&mut self) -> Result<Value, Failure> {
        let answer = send_request(&mut self.client, ClientRequest::get("/v1/generations".to_owned()))?;
        self.of_generation(answer.body.get("generation").and_then(Value::as_u64).unwrap_or(0))
    }

    /// The device's policy file as it would be with the documents.
    ///
    /// # Errors
    /// A document cannot be used, or the controller refuses.
    pub fn with(&mut self, paths: &[PathBuf]) -> Result<Value, Failure> {
        let wanted = apply::read(paths)?;
        let mut documents = self.documents("tenants", render::TENANTS, "")?;
        documents.extend(self.documents("libraries", render::LIBRARIES, "")?);
        documents.extend(self.documents("settings", render::SETTINGS, "")?);
        for one in wanted.iter().filter(|one| one.kind == "device" && one.name == self.device) {
            self.spec = DeviceSpec::deserialize(&one.spec).map_err(|error| one.wrong(&error.to_string()))?;
        }
        let own = documents.iter().filter(|d| d.kind == render::TENANTS && self.spec.serves(&d.id));
        for tenant in own.map(|document| document.id.clone()).collect::<Vec<String>>() {
            for (list, kind) in [("policies", render::POLICIES), ("groups", render::GROUPS)] {
                let path = format!("tenants/{}/{list}", request::path_part(&tenant));
                documents.extend(self.documents(&path, kind, &format!("{tenant}/"))?);
            }
        }
        for one in wanted.into_iter().filter(|one| one.kind != "device") {
            let kind = match one.kind {
                "tenant" => render::TENANTS,
                "policy" => render::POLICIES,
                "group" => render::GROUPS,
                "library" => render::LIBRARIES,
                _ => render::SETTINGS,
            };
            if kind == render::LIBRARIES {
                self.libraries.push((one.name.clone(), one.spec.clone()));
            }
            let id = one
                .tenant
                .as_ref()
                .map_or_else(|| one.name.clone(), |tenant| format!("{tenant}/{}", one.name));
            documents.retain(|document| document.kind != kind || document.id != id);
            documents.push(Document { kind: kind.to_owned(), id, generation: 0, body: one.spec });
        }
        let model = Model::of(StoreContent { generation: 0, documents, status: Vec::new() });
        Ok(render::policy_file(&model, |tenant| self.spec.serves(tenant)))
    }

    fn documents(&mut self, path: &str, kind: &str, prefix: &str) -> Result<Vec<Document>, Failure> {
        let items = request::items(&mut self.client, &format!("/v1/{path}"), None)?;
        let document = |mut item: Value| Document {
            kind: kind.to_owned(),
            id: format!("{prefix}{}", item.get("name").and_then(Value::as_str).unwrap_or_default()),
            generation: item.get("generation").and_then(Value::as_u64).unwrap_or(0),
            body: item.get_mut("spec").map(Value::take).unwrap_or_default(),
        };
        Ok(items.into_iter().map(document).collect())
    }

    /// The selected rules of a library, as stored at the controller.
    fn rules(&mut self, library: &str) -> Result<String, Failure> {
        if self.libraries.iter().any(|(name, _)| name == library) {
            return Err(Failure::input(format!(
                "the documents contain the library `{library}`; apply it first, since the controller evaluates its selection"
            )));
        }
        let path = format!("/v1/libraries/{}/text", request::path_part(library));
        let answer = send_request(&mut self.client, ClientRequest::get(path))?;
        Ok(answer.body.as_str().unwrap_or_default().to_owned())
    }
}

/// A choice among the policy files of a device, and of another one to compare it with.
pub struct Choice<'c> {
    /// Name of the device.
    pub device: &'c str,
    /// Generation; the newest unless given.
    pub generation: Option<u64>,
    /// Documents that are not put yet.
    pub with: &'c [PathBuf],
    /// The base: a policy file, the number of a generation, or `running`. By default the generation that the
    /// device runs.
    pub against: Option<&'c str>,
    /// Whether a base is needed even if none is given.
    pub needs_base: bool,
}

/// Writes the policy file of a choice and that of its base into a folder.
///
/// # Errors
/// The device has no such generation, or the controller refuses.
pub fn policies(
    client: Client,
    choice: &Choice<'_>,
    folder: &Folder,
) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let device = choice.device;
    let mut candidate = DeviceCandidate::new(client, device)?;
    let policy = match (choice.generation, choice.with) {
        (Some(generation), _) => candidate.of_generation(generation)?,
        (None, []) => candidate.newest()?,
        (None, documents) => candidate.with(documents)?,
    };
    let path = folder.put(&mut candidate, "after", &policy)?;
    let running = candidate.running();
    let against = match choice.against {
        None if !choice.needs_base || running == 0 => return Ok((path, None)),
        None | Some("running") if running > 0 => running,
        Some("running") | None => {
            return Err(Failure::input(format!(
                "device `{device}` has not reported a running generation yet"
            )));
        }
        Some(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return Ok((path, Some(PathBuf::from(text)))),
        },
    };
    let policy = candidate.of_generation(against)?;
    let base = folder.put(&mut candidate, "before", &policy)?;
    Ok((path, Some(base)))
}

/// A folder for policy files and their rules; it is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder, for its owner only.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("bartizan-replay-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::stopped(format!("cannot create {}: {error}", path.display())))?;
        Ok(Folder(path))
    }

    /// Writes a policy file into the folder, with the rules of the libraries that its policies name.
    ///
    /// # Errors
    /// A file cannot be written, or the controller refuses.
    pub fn put(
        &self,
        candidate: &mut DeviceCandidate,
        name: &str,
        policy: &Value,
    ) -> Result<PathBuf, Failure> {
        let folder = self.0.join(name);
        let write = |path: &Path, text: &str| {
            let written = std::fs::write(path, text);
            written.map_err(|error| Failure::stopped(format!("cannot write {}: {error}", path.display())))
        };
        std::fs::create_dir_all(&folder).map_err(Failure::stopped)?;
        let named: BTreeSet<&str> = levels(policy).collect();
        for (library, files) in policy.get("rule-groups").and_then(Value::as_object).into_iter().flatten() {
            let text =
                if named.contains(library.as_str()) { candidate.rules(library)? } else { String::new() };
            for file in files.as_array().into_iter().flatten().filter_map(Value::as_str) {
                // Names of libraries have no slashes.
                if !file.contains('/') {
                    write(&folder.join(file), &text)?;
                }
            }
        }
        let path = folder.join("policy.yaml");
        write(&path, &format!("{policy:#}\n"))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A remainder lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The libraries that policies name.
fn levels(policy: &Value) -> impl Iterator<Item = &str> {
    let policies = policy.get("policies").and_then(Value::as_array).into_iter().flatten();
    policies.chain(policy.get("default")).filter_map(|one| one.pointer("/ids/level")?.as_str())
}
