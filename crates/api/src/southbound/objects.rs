// SPDX-License-Identifier: Apache-2.0
//! Objects for devices: policies and groups of rules. Each has a key, by which it is replaced, and a content
//! hash, by which both sides compare.

use super::ids::Hash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The key of an object: `policy:TENANT:NAME` or `group:ID`. Ordered by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// The key of a policy. Policies of different tenants may have the same name.
    #[must_use]
    pub fn policy(tenant: u16, name: &str) -> Self {
        ObjectKey(format!("policy:{tenant}:{name}"))
    }

    /// The key of a rule group.
    #[must_use]
    pub fn group(id: u32) -> Self {
        ObjectKey(format!("group:{id}"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id in a rule group's key.
    #[must_use]
    pub fn group_id(&self) -> Option<u32> {
        self.0.strip_prefix("group:")?.parse().ok()
    }

    /// Tenant and name in a policy's key.
    #[must_use]
    pub fn policy_name(&self) -> Option<(u16, &str)> {
        let (tenant, name) = self.0.strip_prefix("policy:")?.split_once(':')?;
        Some((tenant.parse().ok()?, name))
    }
}

/// An abstract policy as the operator declares it, without the rules derived from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The name, unique within the tenant.
    pub name: String,
    /// The tenant that owns the policy.
    pub tenant: u16,
    /// The policy, in the format of policy files. Diagnostics refer to places in this text.
    pub text: String,
}

/// The function that rules are for (`Rule_Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum RuleType {
    /// The packet filter.
    Pfw = 1,
    /// The stateful firewall.
    Sfw = 2,
    /// The detection.
    Ids = 3,
    /// The flood defence.
    Ddos = 4,
}

/// Rules as text, or by their ids in the device's library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupRules {
    /// Text of rules, one rule each.
    Raw(Vec<String>),
    /// Generator and signature ids of rules.
    Ids(Vec<(u32, u32)>),
}

impl GroupRules {
    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            GroupRules::Raw(rules) => rules.len(),
            GroupRules::Ids(ids) => ids.len(),
        }
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A rule group, whose rules share one head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleGroup {
    /// `Rule_Group_ID`, unique within the device.
    pub id: u32,
    /// The tenant that owns the rules.
    pub tenant: u16,
    /// The function that the rules are for.
    pub rule_type: RuleType,
    /// The rules.
    pub rules: GroupRules,
}

/// A policy or a rule group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Object {
    /// A policy.
    Policy(Policy),
    /// A rule group.
    Group(RuleGroup),
}

impl Object {
    /// The key by which the object is replaced.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Object::Policy(policy) => ObjectKey::policy(policy.tenant, &policy.name),
            Object::Group(group) => ObjectKey::group(group.id),
        }
    }

    /// The tenant that owns the object.
    #[must_use]
    pub fn tenant(&self) -> u16 {
        match self {
            Object::Policy(policy) => policy.tenant,
            Object::Group(group) => group.tenant,
        }
    }

    /// Bytes of the object's text.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Object::Policy(policy) => policy.name.len() + policy.text.len(),
            Object::Group(RuleGroup { rules: GroupRules::Raw(rules), .. }) => {
                rules.iter().map(String::len).sum()
            }
            Object::Group(RuleGroup { rules: GroupRules::Ids(ids), .. }) => ids.len() * 8,
        }
    }

    /// SHA-256 over the parts of the object, each after its length (u32, network order), as
    /// docs/southbound.md lists them.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        match self {
            Object::Policy(policy) => {
                part(&mut hasher, b"policy");
                part(&mut hasher, &policy.tenant.to_be_bytes());
                part(&mut hasher, policy.name.as_bytes());
                part(&mut hasher, policy.text.as_bytes());
            }
            Object::Group(group) => {
                part(&mut hasher, b"group");
                part(&mut hasher, &group.tenant.to_be_bytes());
                part(&mut hasher, &group.id.to_be_bytes());
                part(&mut hasher, &[group.rule_type as u8]);
                match &group.rules {
                    GroupRules::Raw(rules) => {
                        rules.iter().for_each(|rule| part(&mut hasher, rule.as_bytes()))
                    }
                    GroupRules::Ids(ids) => ids.iter().for_each(|(gid, sid)| {
                        part(&mut hasher, &[gid.to_be_bytes(), sid.to_be_bytes()].concat());
                    }),
                }
            }
        }
        Hash(hasher.finalize().into())
    }
}

/// Hashes a part after its length, so that different lists of parts never give the same bytes.
pub(crate) fn part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    hasher.update(bytes);
}

/// Keys and hashes of all objects of a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(pub BTreeMap<ObjectKey, Hash>);

impl Manifest {
    /// The manifest of these objects.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Self {
        Manifest(objects.into_iter().map(|object| (object.key(), object.hash())).collect())
    }

    /// SHA-256 over the key (after its length) and hash of each object, in the order of the keys' bytes.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        for (key, hash) in &self.0 {
            part(&mut hasher, key.as_str().as_bytes());
            hasher.update(hash.0);
        }
        Hash(hasher.finalize().into())
    }
}
