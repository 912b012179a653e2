// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 3: rules in groups. Head: `Device_ID` u64, `Rule_Type` u8, `Rule_Op` u8, form u8, one
//! reserved byte, `Rule_Group_ID` u32, `Rule_Total_Num` u32, `Current_Rule_ID` u32, generation u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use super::objects::{GroupRules, Object, RuleGroup, RuleType};
use serde::{Deserialize, Serialize};

/// `Rule_Op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RuleOp {
    /// Adds a group that the device does not have.
    Add = 1,
    /// Deletes the group; without a body.
    Delete = 2,
    /// Replaces the group that the device has.
    Update = 3,
}

/// Rules of a group, or a part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMessage {
    /// `Device_ID`: [`super::DeviceId::number`] of the receiver.
    pub device: u64,
    /// `Rule_Type`.
    pub rule_type: RuleType,
    /// `Rule_Op`.
    pub op: RuleOp,
    /// `Rule_Group_ID`.
    pub group: u32,
    /// `Rule_Total_Num`: number of rules in the whole group.
    pub total: u32,
    /// `Current_Rule_ID`: index of the first rule of this message within the group.
    pub current: u32,
    /// The generation that the rules are for.
    pub generation: u64,
    /// The tenant that owns the rules.
    pub tenant: u16,
    /// The rules of this message; none for [`RuleOp::Delete`].
    pub rules: GroupRules,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<T> {
    tenant: u16,
    rules: T,
}

impl RuleMessage {
    /// Bytes of the head.
    const HEAD: usize = 32;

    pub(super) fn encode(&self) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        let mut head = self.device.to_be_bytes().to_vec();
        let (form, body) = match &self.rules {
            GroupRules::Raw(rules) => (1, body::write(&Raw { tenant: self.tenant, rules })?),
            GroupRules::Ids(rules) => (2, body::write(&Raw { tenant: self.tenant, rules })?),
        };
        head.extend([self.rule_type as u8, self.op as u8, form, 0]);
        for number in [self.group, self.total, self.current] {
            head.extend(number.to_be_bytes());
        }
        head.extend(self.generation.to_be_bytes());
        Ok((head, body))
    }

    pub(super) fn split(bytes: &[u8]) -> Result<([u8; Self::HEAD], &[u8]), DecodeError> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::HEAD }>().ok_or(DecodeError::Short("rule"))?;
        Ok((*head, rest))
    }

    pub(super) fn decode(head: [u8; Self::HEAD], bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = head.as_slice();
        let device = u64::from_be_bytes(take(&mut rest)?);
        let [kind, op, form, reserved] = take(&mut rest)?;
        let [group, total, current] =
            [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?].map(u32::from_be_bytes);
        let generation = u64::from_be_bytes(take(&mut rest)?);
        if reserved != 0 {
            return Err(DecodeError::Reserved("rule"));
        }
        let rule_type = [RuleType::Pfw, RuleType::Sfw, RuleType::Ids, RuleType::Ddos]
            .into_iter()
            .find(|known| *known as u8 == kind)
            .ok_or_else(|| wrong(format!("unknown Rule_Type {kind}")))?;
        let op = [RuleOp::Add, RuleOp::Delete, RuleOp::Update]
            .into_iter()
            .find(|known| *known as u8 == op)
            .ok_or(DecodeError::Op { sub: "rule", op })?;
        let (tenant, rules) = match form {
            1 => body::read::<Raw<Vec<String>>>("rule", bytes)
                .map(|raw| (raw.tenant, GroupRules::Raw(raw.rules)))?,
            2 => body::read::<Raw<Vec<(u32, u32)>>>("rule", bytes)
                .map(|raw| (raw.tenant, GroupRules::Ids(raw.rules)))?,
            other => return Err(wrong(format!("unknown form {other}; 1 is text, 2 are identifiers"))),
        };
        let message = RuleMessage { device, rule_type, op, group, total, current, generation, tenant, rules };
        message.check()?;
        Ok(message)
    }

    /// Checks that the body matches the head.
    fn check(&self) -> Result<(), DecodeError> {
        let most = usize::try_from(limits::GROUP_RULES).unwrap_or(usize::MAX);
        body::bound("rule", "rules", usize::try_from(self.total).unwrap_or(usize::MAX), most)?;
        let end = u64::from(self.current) + self.rules.len() as u64;
        if end > u64::from(self.total) {
            return Err(wrong(format!("the part ends at rule {end} of {}", self.total)));
        }
        match self.op {
            RuleOp::Delete if self.total > 0 => Err(wrong("a deletion has rules".into())),
            RuleOp::Add | RuleOp::Update if self.rules.is_empty() && self.total > 0 => {
                Err(wrong("a part without rules".into()))
            }
            _ => Ok(()),
        }
    }
}

fn wrong(what: String) -> DecodeError {
    DecodeError::Body { message: "rule", what }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (taken, behind) = rest.split_first_chunk().ok_or(DecodeError::Short("rule"))?;
    *rest = behind;
    Ok(*taken)
}

/// Joins the parts of a group, which must come in order and once each.
#[derive(Debug, Default)]
pub struct RuleParts {
    /// The incomplete group, with its total number of rules.
    open: Option<(RuleGroup, u32)>,
}

impl RuleParts {
    /// Adds a part. Returns the group after the last part.
    ///
    /// # Errors
    /// The part belongs to another group, or is out of order. The incomplete group is discarded.
    pub fn take(&mut self, part: RuleMessage) -> Result<Option<Object>, &'static str> {
        let (mut group, total) = match self.open.take() {
            None if part.current == 0 => {
                let empty = match part.rules {
                    GroupRules::Raw(_) => GroupRules::Raw(Vec::new()),
                    GroupRules::Ids(_) => GroupRules::Ids(Vec::new()),
                };
                let (id, tenant, rule_type) = (part.group, part.tenant, part.rule_type);
                (RuleGroup { id, tenant, rule_type, rules: empty }, part.total)
            }
            None => return Err("a part of a rule group without its first part"),
            Some(open) => open,
        };
        let same = (group.id, group.tenant, group.rule_type, total)
            == (part.group, part.tenant, part.rule_type, part.total);
        if !same || usize::try_from(part.current) != Ok(group.rules.len()) {
            return Err("a part of a rule group out of order");
        }
        match (&mut group.rules, part.rules) {
            (GroupRules::Raw(rules), GroupRules::Raw(more)) => rules.extend(more),
            (GroupRules::Ids(rules), GroupRules::Ids(more)) => rules.extend(more),
            _ => return Err("a rule group with both text and identifiers"),
        }
        if usize::try_from(total) == Ok(group.rules.len()) {
            return Ok(Some(Object::Group(group)));
        }
        self.open = Some((group, total));
        Ok(None)
    }

    /// Whether a group is incomplete.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Discards an incomplete group.
    pub fn clear(&mut self) {
        self.open = None;
    }

    /// Splits a group into parts with at most `bytes` of text each, unless a single rule has more.
    #[must_use]
    pub fn split(
        group: &RuleGroup,
        device: u64,
        generation: u64,
        op: RuleOp,
        bytes: usize,
    ) -> Vec<RuleMessage> {
        let total = u32::try_from(group.rules.len()).unwrap_or(u32::MAX);
        let part = |current: usize, rules: GroupRules| RuleMessage {
            device,
            rule_type: group.rule_type,
            op,
            group: group.id,
            total,
            current: u32::try_from(current).unwrap_or(u32::MAX),
            generation,
            tenant: group.tenant,
            rules,
        };
        let mut parts = Vec::new();
        let mut at = 0;
        match &group.rules {
            GroupRules::Raw(rules) => {
                let mut size = 0;
                let mut open: Vec<String> = Vec::new();
                for rule in rules {
                    // Escapes may double a text.
                    let cost = rule.len() * 2 + 4;
                    if !open.is_empty() && size + cost > bytes {
                        let full = std::mem::take(&mut open);
                        let number = full.len();
                        parts.push(part(at, GroupRules::Raw(full)));
                        (at, size) = (at + number, 0);
                    }
                    size += cost;
                    open.push(rule.clone());
                }
                parts.push(part(at, GroupRules::Raw(open)));
            }
            // At most 24 bytes each.
            GroupRules::Ids(ids) if ids.is_empty() => parts.push(part(0, GroupRules::Ids(Vec::new()))),
            GroupRules::Ids(ids) => {
                for chunk in ids.chunks((bytes / 24).max(1)) {
                    parts.push(part(at, GroupRules::Ids(chunk.to_vec())));
                    at += chunk.len();
                }
            }
        }
        parts
    }
}
