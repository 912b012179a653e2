// SPDX-License-Identifier: Apache-2.0
//! Numbers of tenants and rule files, by which devices know them. A number belongs to a name for good: no
//! other name ever gets it, and a name that is removed and made again gets it back.

use crate::model::Model;
use crate::problem::Refusal;
use crate::render::{RULE_FILES, TENANTS};
use crate::store::Status;
use serde_json::Value;

/// The status kind of numbers.
const KIND: &str = "numbers";
/// Most tenants ever, by name: the protocol has sixteen bits for a tenant.
pub const TENANTS_MAX: u64 = u16::MAX as u64;
/// The kinds that have numbers, and the highest number of each. Number 0 means all devices may read the
/// object.
const NUMBERED: &[(&str, u64)] = &[(TENANTS, TENANTS_MAX), (RULE_FILES, u32::MAX as u64)];

fn number(model: &Model, kind: &str, name: &str) -> Option<u64> {
    model.status(KIND, &format!("{kind}/{name}"))?.as_u64()
}

/// The number of a tenant.
#[must_use]
pub fn tenant(model: &Model, name: &str) -> Option<u16> {
    u16::try_from(number(model, TENANTS, name)?).ok()
}

/// The number of a rule file, by the SHA-256 of its content.
#[must_use]
pub fn rule_file(model: &Model, hash: &str) -> Option<u32> {
    u32::try_from(number(model, RULE_FILES, hash)?).ok()
}

/// The rule file that has a number: the SHA-256 of its content.
#[must_use]
pub fn file_of(model: &Model, number: u32) -> Option<String> {
    let prefix = format!("{RULE_FILES}/");
    let mut all = model.statuses(KIND, &prefix);
    let (id, _) = all.find(|(_, of)| of.as_u64() == Some(u64::from(number)))?;
    id.strip_prefix(&prefix).map(str::to_owned)
}

/// Gives numbers to new documents, by kind and name.
///
/// # Errors
/// All numbers are used up.
pub fn assign(model: &Model, names: &[(&str, &str)]) -> Result<Vec<Status>, Refusal> {
    let line =
        |id: String, number: u64| Status { kind: KIND.to_owned(), id, body: Some(Value::from(number)) };
    let mut lines = Vec::new();
    for (kind, most) in NUMBERED {
        let last = format!("last {kind}");
        let before = model.status(KIND, &last).and_then(Value::as_u64).unwrap_or(0);
        let mut given = before;
        for (_, name) in names.iter().filter(|(of, _)| of == kind) {
            if number(model, kind, name).is_some() {
                continue;
            }
            given += 1;
            if given > *most {
                let message = format!(
                    "all {most} numbers of {kind} are used up, and a number is never used for another name: reuse the name of one that was removed"
                );
                return Err(Refusal::Conflict(message));
            }
            lines.push(line(format!("{kind}/{name}"), given));
        }
        if given > before {
            lines.push(line(last, given));
        }
    }
    Ok(lines)
}

/// Gives numbers to documents that an older program stored without a number.
///
/// # Errors
/// All numbers are used up.
pub fn missing(model: &Model) -> Result<Vec<Status>, Refusal> {
    let all = NUMBERED.iter().flat_map(|(kind, _)| model.all(kind));
    let names: Vec<(&str, &str)> =
        all.map(|document| (document.kind.as_str(), document.id.as_str())).collect();
    assign(model, &names)
}
