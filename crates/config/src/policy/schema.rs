// SPDX-License-Identifier: Apache-2.0
//! The JSON schema of policy files, generated from the types.

use super::sections::{IdsSection, PfwSection, SfwSection};
use super::{
    DefaultPolicy, DnsSection, GroupMember, Labels, OneOrMany, PolicyDefinition, SectionType, ServiceLevel,
    Tenant,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The keys of a policy file, for the schema only: the reader reads each list's items one by one.
#[derive(JsonSchema)]
#[schemars(rename = "PolicyFile", rename_all = "kebab-case", deny_unknown_fields)]
#[allow(dead_code)] // See above.
struct File {
    /// Names for lists of addresses; groups may contain groups.
    #[schemars(default)]
    groups: BTreeMap<String, OneOrMany<GroupMember>>,
    /// Labels of groups, by the group's name; policies can select groups by them.
    #[schemars(default)]
    labels: BTreeMap<String, Labels>,
    /// Resolvers that are trusted for the DNS names of groups.
    #[schemars(default)]
    dns: DnsSection,
    /// Names for lists of rule files.
    #[schemars(default)]
    rule_groups: BTreeMap<String, OneOrMany<String>>,
    /// Tenants with the selectors of their traffic; first match first.
    #[schemars(default)]
    tenants: Vec<Tenant>,
    /// Service levels of hosts, whatever policy their flows belong to; first match first.
    #[schemars(default)]
    service_levels: Vec<ServiceLevel>,
    /// The policies; a flow belongs to the first that it matches.
    #[schemars(default)]
    policies: Vec<PolicyDefinition>,
    /// The default for traffic that no policy matches.
    default: DefaultPolicy,
}

/// The schema of a section that this crate defines, with its key.
fn own<T: SectionType + JsonSchema>(generator: &mut SchemaGenerator) -> (String, Schema) {
    (T::FUNCTION.to_owned(), generator.subschema_for::<T>())
}

/// The schema of policy files; `more`: sections of other functions, by the function's name.
#[must_use]
pub fn schema(more: &[(&str, Schema)]) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut sections: Vec<(String, Schema)> = vec![
        own::<PfwSection>(&mut generator),
        own::<SfwSection>(&mut generator),
        own::<IdsSection>(&mut generator),
    ];
    sections.extend(more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
    let mut root = generator.into_root_schema_for::<File>().to_value();
    if let Some(defs) = root.get_mut("$defs").and_then(Value::as_object_mut) {
        for owner in ["Policy", "DefaultPolicy"] {
            for (name, schema) in &sections {
                insert(defs, owner, name, schema);
            }
        }
    }
    if let Some(object) = root.as_object_mut() {
        object.insert("title".to_owned(), json!("Bartizan policy file"));
    }
    root
}

fn insert(defs: &mut Map<String, Value>, owner: &str, name: &str, schema: &Schema) {
    let properties = defs.get_mut(owner).and_then(|d| d.get_mut("properties")).and_then(Value::as_object_mut);
    if let Some(properties) = properties {
        properties.insert(name.to_owned(), schema.clone().to_value());
    }
}
