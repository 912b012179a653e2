// SPDX-License-Identifier: Apache-2.0
//! The policy file of a device of a controller: that of a generation, or as it would be with documents that are not put yet. It is made as the
//! controller makes it, by the same code.

use super::apply;
use super::ask::{self, Request, ask};
use bartizan_controller::client::Client;
use bartizan_controller::device::DeviceSpec;
use bartizan_controller::model::Model;
use bartizan_controller::render;
use bartizan_controller::store::{Document, Loaded};
use bartizan_runtime::error::Failure;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A device, and whom it is asked from.
pub struct Candidate {
    client: Client,
    device: String,
    spec: DeviceSpec,
    running: u64,
    /// Libraries as they would be, by name.
    libraries: Vec<(String, Value)>,
}

impl Candidate {
    /// Looks at the device.
    pub fn new(mut client: Client, device: &str) -> Result<Self, Failure> {
        let path = format!("/v1/devices/{}", ask::part(device));
        let answer = ask(&mut client, Request::get(path))?;
        let spec = DeviceSpec::deserialize(&answer.body["spec"]).map_err(Failure::stopped)?;
        let running = answer.body.pointer("/status/running").and_then(Value::as_u64).unwrap_or(0);
        Ok(Candidate { client, device: device.to_owned(), spec, running, libraries: Vec::new() })
    }

    /// The generation that it runs; 0: none yet.
    pub const fn running(&self) -> u64 {
        self.running
    }

    /// Its policy file of a generation.
    pub fn of_generation(&mut self, generation: u64) -> Result<Value, Failure> {
        let path = format!("/v1/devices/{}/policy?generation={generation}", ask::part(&self.device));
        let mut answer = ask(&mut self.client, Request::get(path))?;
        Ok(answer.body["policy"].take())
    }

    /// That of the newest generation.
    pub fn newest(&mut self) -> Result<Value, Failure> {
        let answer = ask(&mut self.client, Request::get("/v1/generations".to_owned()))?;
        self.of_generation(answer.body["generation"].as_u64().unwrap_or(0))
    }

    /// As it would be with documents.
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
                let path = format!("tenants/{}/{list}", ask::part(&tenant));
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
        let model = Model::of(Loaded { generation: 0, documents, status: Vec::new() });
        Ok(render::policy_file(&model, |tenant| self.spec.serves(tenant)))
    }

    fn documents(&mut self, path: &str, kind: &str, prefix: &str) -> Result<Vec<Document>, Failure> {
        let items = ask::items(&mut self.client, &format!("/v1/{path}"), None)?;
        let document = |mut item: Value| Document {
            kind: kind.to_owned(),
            id: format!("{prefix}{}", item["name"].as_str().unwrap_or_default()),
            generation: item["generation"].as_u64().unwrap_or(0),
            body: item["spec"].take(),
        };
        Ok(items.into_iter().map(document).collect())
    }

    /// The rules that a library chooses, as it stands.
    fn rules(&mut self, library: &str) -> Result<String, Failure> {
        if self.libraries.iter().any(|(name, _)| name == library) {
            return Err(Failure::input(format!(
                "the library `{library}` is among the documents; put it first: what it chooses is the controller's to say"
            )));
        }
        let path = format!("/v1/libraries/{}/text", ask::part(library));
        let answer = ask(&mut self.client, Request::get(path))?;
        Ok(answer.body.as_str().unwrap_or_default().to_owned())
    }
}

/// A folder for policy files and their rules; it goes with this.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it, for its owner only.
    pub fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("bartizan-replay-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::stopped(format!("cannot make {}: {error}", path.display())))?;
        Ok(Folder(path))
    }

    /// Puts a policy file there, with the rules of the libraries that its policies name.
    pub fn put(&self, candidate: &mut Candidate, name: &str, policy: &Value) -> Result<PathBuf, Failure> {
        let folder = self.0.join(name);
        let write = |path: &Path, text: &str| {
            let written = std::fs::write(path, text);
            written.map_err(|error| Failure::stopped(format!("cannot write {}: {error}", path.display())))
        };
        std::fs::create_dir_all(&folder).map_err(Failure::stopped)?;
        let named: BTreeSet<&str> = levels(policy).collect();
        for (library, files) in policy["rule-groups"].as_object().into_iter().flatten() {
            let text =
                if named.contains(library.as_str()) { candidate.rules(library)? } else { String::new() };
            for file in files.as_array().into_iter().flatten().filter_map(Value::as_str) {
                // Names of libraries have no slashes; what has one is none of them.
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
        // What is left lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The libraries that policies name.
fn levels(policy: &Value) -> impl Iterator<Item = &str> {
    let policies = policy["policies"].as_array().into_iter().flatten();
    policies.chain([&policy["default"]]).filter_map(|one| one.pointer("/ids/level")?.as_str())
}
