// SPDX-License-Identifier: Apache-2.0
//! Building a signature, keyword by keyword.

pub use crate::compile::environment::Environment;
use crate::compile::magic;
use crate::compile::refusal::{KeywordError, RefusalCode};
use crate::model::buffers::BufferRef;
use crate::model::condition::{Effect, Limit, PacketCondition, Transform, TxCondition};
use crate::model::content::{Item, Literal, Number, Program, VARIABLES_MAX};
use crate::model::detection::DetectionQuery;
use crate::model::hook::Hook;
pub use crate::model::ordering::{Ordering, Use};
use crate::model::request::Request;
use crate::model::signature::{Absent, AlertTarget, FlowNeeds, ProtocolMatch, TxCheck, ValueCheck};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, PerDirection, RuleId};
use std::sync::Arc;

/// Size of the signature after a keyword: the number of its parts of each kind so far. For `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The keyword.
    pub keyword: &'static str,
    /// Conditions on packet and flow.
    pub packet: usize,
    /// Conditions on transactions.
    pub tx: usize,
    /// Effects, and requests about records and files.
    pub effects: usize,
    /// Thresholds.
    pub thresholds: usize,
}

/// A signature under construction.
pub struct SignatureBuilder<'e> {
    /// Inputs from outside of the rule.
    pub environment: &'e Environment<'e>,
    /// Identity; known before the keywords are parsed.
    pub id: RuleId,
    /// The header's protocol; keywords of an application protocol narrow it.
    pub protocol: ProtocolMatch,
    /// The state of a transaction at which the rule is evaluated.
    pub hook: Option<Hook>,
    /// Some keyword is tied to a state of transactions.
    pub hooked: bool,
    /// Queries about the result of protocol detection.
    pub detection: Vec<DetectionQuery>,
    /// `flow:`.
    pub flow: FlowNeeds,
    /// `noalert`.
    pub noalert: bool,
    /// `alert`.
    pub alert: bool,
    /// `bypass`.
    pub bypass: bool,
    /// `target`.
    pub target: Option<AlertTarget>,
    /// `priority` where given.
    pub priority: Option<u32>,
    /// Conditions on packet and flow.
    pub packet: Vec<Box<dyn PacketCondition>>,
    /// Conditions on transactions.
    pub tx: Vec<TxCheck>,
    /// Effects.
    pub effects: Vec<Box<dyn Effect>>,
    /// Requests about records and files.
    pub requests: Vec<Request>,
    /// Thresholds.
    pub thresholds: Vec<Arc<dyn Limit>>,
    /// Number of keywords that set a field above that is no list (`noalert`, `bypass`, `ip_proto`).
    pub flags_set: u32,
    /// The rule needs the MD5, SHA-1 or SHA-256 of files.
    pub file_hashes: [bool; 3],
    /// The rule's part in the order of evaluation.
    pub ordering: Ordering,
    /// Keywords so far, in order; some keywords must precede or follow others.
    pub seen: Vec<&'static str>,
    /// The signature's size after the head and after each keyword.
    pub origins: Vec<Origin>,
    values: Vec<ValueCheck>,
    /// Index of the value that content keywords add to; `None` for the payload.
    current: Option<usize>,
    /// Position of the last `content`: value and item.
    last_literal: Option<(usize, usize)>,
    /// Value that received the last item. Relative items without a sticky buffer go to the same value.
    last_value: Option<usize>,
    /// The current sticky buffer was named again and has no condition since.
    reselected: bool,
    /// A `base64_data` is open: further items belong to the program of the `base64_decode` in this value.
    in_base64: Option<usize>,
    variables: Vec<String>,
    /// Returned in place of a missing value; never evaluated.
    spare: ValueCheck,
}

/// A check of a buffer without conditions.
fn empty_check(buffer: BufferRef, direction: Option<Direction>) -> ValueCheck {
    ValueCheck { buffer, direction, transforms: Vec::new(), program: Program::default(), absent: Absent::No }
}

impl<'e> SignatureBuilder<'e> {
    /// An empty signature.
    #[must_use]
    pub fn new(environment: &'e Environment<'e>, id: RuleId, protocol: ProtocolMatch) -> Self {
        SignatureBuilder {
            environment,
            id,
            protocol,
            hook: None,
            hooked: false,
            detection: Vec::new(),
            flow: FlowNeeds::empty(),
            noalert: false,
            alert: false,
            bypass: false,
            target: None,
            priority: None,
            packet: Vec::new(),
            tx: Vec::new(),
            effects: Vec::new(),
            requests: Vec::new(),
            thresholds: Vec::new(),
            flags_set: 0,
            file_hashes: [false; 3],
            ordering: Ordering::default(),
            seen: Vec::new(),
            origins: Vec::new(),
            values: Vec::new(),
            current: None,
            last_literal: None,
            last_value: None,
            reselected: false,
            in_base64: None,
            variables: Vec::new(),
            spare: empty_check(BufferRef::Payload, None),
        }
    }

    /// Makes the rule report nothing.
    pub fn silence(&mut self) {
        self.noalert = true;
        self.flags_set += 1;
    }

    /// Weight of all that keywords have added so far; grows with every condition, modifier, effect and limit.
    /// A keyword of such a role that leaves the weight unchanged had no effect.
    #[must_use]
    pub fn weight(&self) -> usize {
        let of_value = |value: &ValueCheck| {
            // An item that a modifier moves to a buffer weighs more there.
            let place = if value.buffer == BufferRef::Payload { 1 } else { 2 };
            let items: usize = value.program.items.iter().map(|i| place + i.weight()).sum();
            items + value.transforms.len() + usize::from(value.absent != Absent::No)
        };
        let listed = self.packet.len() + self.tx.len() + self.effects.len() + self.requests.len();
        let flow = self.flow.bits().count_ones() as usize;
        listed
            + self.thresholds.len()
            + self.flags_set as usize
            + flow
            + self.values.iter().map(of_value).sum::<usize>()
    }

    /// Records that a keyword was parsed.
    pub fn note(&mut self, keyword: &'static str) {
        self.seen.push(keyword);
        self.note_origin(keyword);
    }

    /// Records the signature's size after a keyword, or after the head, which is no keyword.
    pub fn note_origin(&mut self, keyword: &'static str) {
        self.origins.push(Origin {
            keyword,
            packet: self.packet.len(),
            tx: self.tx.len(),
            effects: self.effects.len() + self.requests.len(),
            thresholds: self.thresholds.len(),
        });
    }

    /// Selects the buffer that the following content keywords inspect.
    ///
    /// # Errors
    /// The buffer is unknown, or the rule's application protocol does not have it.
    pub fn sticky(&mut self, name: &str) -> Result<(), KeywordError> {
        self.sticky_in(name, None)
    }

    /// Does as [`SignatureBuilder::sticky`], for one direction only.
    ///
    /// # Errors
    /// As there.
    pub fn sticky_in(&mut self, name: &str, direction: Option<Direction>) -> Result<(), KeywordError> {
        let buffer = self.environment.buffers.find(name).ok_or_else(|| {
            KeywordError::new(
                RefusalCode::UnsupportedKeyword,
                format!("no protocol parser of this build offers the buffer `{name}`"),
            )
        })?;
        self.close_empty()?;
        if name == magic::BUFFER {
            magic::libmagic(self.environment.settings).map_err(|error| {
                KeywordError::new(RefusalCode::UnsupportedKeyword, error.to_string())
                    .help("install libmagic, or remove the keywords that need the type of a file")
            })?;
        }
        if self.in_base64.is_some() {
            return Err(KeywordError::context(format!(
                "`{name}` selects a buffer, which is not possible after `base64_data`"
            ))
            .help(
                "put the conditions on that buffer before `base64_decode`; `pkt_data` returns to the payload",
            ));
        }
        if let BufferRef::Tx(index) = buffer {
            let providers: Vec<ProtocolId> = self
                .environment
                .buffers
                .tx(index)
                .map(|b| b.providers.iter().map(|(p, _)| *p).collect())
                .unwrap_or_default();
            self.narrow_app(&providers, name)?;
        }
        // A buffer with one value is one program, however often a rule names it. Each naming of a buffer with
        // several values may concern another of its values.
        let single = match buffer {
            BufferRef::Tx(index) => !self.environment.buffers.tx(index).is_some_and(|b| b.is_multi()),
            BufferRef::Packet(_) | BufferRef::Payload => true,
            BufferRef::Frame(_) => false,
        };
        let same = |v: &ValueCheck| v.buffer == buffer && v.direction == direction && v.transforms.is_empty();
        let known = if single { self.values.iter().position(same) } else { None };
        self.reselected = known.is_some();
        self.current = Some(known.unwrap_or(self.values.len()));
        if known.is_none() {
            self.values.push(empty_check(buffer, direction));
        }
        self.in_base64 = None;
        Ok(())
    }

    /// Selects frames of a kind as the buffer that the following content keywords inspect.
    ///
    /// # Errors
    /// The previous buffer has no condition.
    pub fn sticky_frame(&mut self, frame: BufferRef) -> Result<(), KeywordError> {
        self.close_empty()?;
        self.reselected = false;
        self.current = Some(self.values.len());
        self.values.push(empty_check(frame, None));
        self.in_base64 = None;
        Ok(())
    }

    /// Selects the payload again (`pkt_data`).
    ///
    /// # Errors
    /// The previous buffer has no condition.
    pub fn payload(&mut self) -> Result<(), KeywordError> {
        self.close_empty()?;
        self.current = None;
        self.in_base64 = None;
        Ok(())
    }

    /// A sticky buffer without a condition is an error, as in Suricata.
    fn close_empty(&self) -> Result<(), KeywordError> {
        let Some(value) = self.current.and_then(|i| self.values.get(i)) else { return Ok(()) };
        let is_asked = !value.program.is_empty() || value.absent != Absent::No;
        if !value.transforms.is_empty() && !is_asked {
            return Err(KeywordError::context("no condition uses the result of the transforms")
                .help("add a content, pcre, bsize, ... after them"));
        }
        if value.program.is_empty() && value.absent == Absent::No {
            let name = self.environment.buffers.name(value.buffer);
            return Err(KeywordError::context(format!("no condition uses the buffer `{name}`"))
                .help("add a content, pcre, bsize, ... after the buffer's keyword"));
        }
        Ok(())
    }

    /// Removes transforms after the last condition on their buffer. They change nothing, and Suricata accepts
    /// such a rule.
    fn forget_trailing_transforms(&mut self) {
        let Some(index) = self.current else { return };
        let Some((value, before)) = self.values.get(..=index).and_then(|v| v.split_last()) else { return };
        let is_asked = |v: &ValueCheck| v.buffer == value.buffer && !v.program.is_empty();
        if value.program.is_empty() && !value.transforms.is_empty() && before.last().is_some_and(is_asked) {
            self.current = None;
        }
    }

    /// Narrows the rule to application protocols.
    ///
    /// # Errors
    /// The rule concerns other protocols already.
    pub fn narrow_app(&mut self, protocols: &[ProtocolId], keyword: &str) -> Result<(), KeywordError> {
        if self.protocol.app.is_empty() {
            self.protocol.app = protocols.to_vec();
            return Ok(());
        }
        let both: Vec<ProtocolId> =
            self.protocol.app.iter().copied().filter(|p| protocols.contains(p)).collect();
        if both.is_empty() {
            let name = |p: &ProtocolId| protocols::spec(*p).map_or("?", |s| s.name);
            let is: Vec<_> = self.protocol.app.iter().map(name).collect();
            let wants: Vec<_> = protocols.iter().map(name).collect();
            return Err(KeywordError::context(format!(
                "`{keyword}` belongs to {}, but the rule is about {}",
                wants.join("/"),
                is.join("/")
            )));
        }
        self.protocol.app = both;
        Ok(())
    }

    /// Narrows the rule to a protocol by name.
    ///
    /// # Errors
    /// This build has no such parser, or the rule concerns other protocols already.
    pub fn narrow_app_named(&mut self, name: &str, keyword: &str) -> Result<ProtocolId, KeywordError> {
        let (id, _) = protocols::by_name(name).ok_or_else(|| {
            KeywordError::new(
                RefusalCode::UnsupportedKeyword,
                format!("no parser for `{name}` in this build"),
            )
        })?;
        self.narrow_app(&[id], keyword)?;
        Ok(id)
    }

    /// The value that receives content keywords; the payload's value is made when it is missing.
    pub fn value(&mut self) -> &mut ValueCheck {
        let index = self.value_index();
        self.values.get_mut(index).unwrap_or(&mut self.spare)
    }

    fn value_index(&mut self) -> usize {
        if let Some(index) = self.current {
            return index;
        }
        match self.values.iter().position(|v| v.buffer == BufferRef::Payload) {
            Some(index) => index,
            None => {
                self.values.push(empty_check(BufferRef::Payload, None));
                self.values.len() - 1
            }
        }
    }

    /// The buffer that content keywords inspect now.
    #[must_use]
    pub fn current_buffer(&self) -> BufferRef {
        self.current.and_then(|i| self.values.get(i)).map_or(BufferRef::Payload, |v| v.buffer)
    }

    /// Adds an item to the current value.
    ///
    /// # Errors
    /// The buffer must be missing (`absent`).
    pub fn push_item(&mut self, item: Item) -> Result<(), KeywordError> {
        let index = self.in_base64.unwrap_or_else(|| self.value_index());
        self.push_to(index, item)
    }

    /// Adds an item that may start from the cursor. Without a sticky buffer a relative item joins the value
    /// of the item before it (`content:"a"; http_uri; isdataat:5,relative;`).
    ///
    /// # Errors
    /// As [`SignatureBuilder::push_item`].
    pub fn push_positional(&mut self, item: Item) -> Result<(), KeywordError> {
        match self.last_value {
            Some(index) if item.is_relative() && self.current.is_none() && self.in_base64.is_none() => {
                self.push_to(index, item)
            }
            _ => self.push_item(item),
        }
    }

    fn push_to(&mut self, index: usize, item: Item) -> Result<(), KeywordError> {
        let is_literal = matches!(item, Item::Literal(_));
        let inner = self.in_base64.is_some();
        let Some(value) = self.values.get_mut(index) else { return Ok(()) };
        if value.absent == Absent::Only {
            return Err(KeywordError::context(
                "a buffer that must be absent has no bytes that a condition could match",
            )
            .help("write `absent: or_else;` to match a buffer that is present as well"));
        }
        self.reselected = false;
        if inner {
            let decode = value.program.items.iter_mut().rev().find_map(|i| match i {
                Item::Base64 { inner, .. } => Some(inner),
                _ => None,
            });
            if let Some(inner) = decode {
                Arc::make_mut(inner).items.push(item);
            }
            return Ok(());
        }
        value.program.items.push(item);
        self.last_value = Some(index);
        if is_literal {
            self.last_literal = Some((index, value.program.items.len() - 1));
        }
        Ok(())
    }

    /// Whether the current value has a literal or expression already, from which a relative item can start.
    #[must_use]
    pub fn has_anchor(&self) -> bool {
        let index = self.current.or_else(|| self.values.iter().position(|v| v.buffer == BufferRef::Payload));
        let items = index.and_then(|i| self.values.get(i)).map_or(&[][..], |v| &v.program.items);
        items.iter().any(|i| matches!(i, Item::Literal(_) | Item::Regex(_)))
    }

    /// Whether a sticky buffer is in force.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        self.current.is_some() || self.in_base64.is_some()
    }

    /// `absent`: the current sticky buffer must, or may, be missing.
    ///
    /// # Errors
    /// The rule has no sticky buffer, or the buffer has a condition already.
    pub fn set_absent(&mut self, absent: Absent) -> Result<(), KeywordError> {
        let Some(value) = self.current.and_then(|i| self.values.get_mut(i)) else {
            return Err(KeywordError::context("`absent` needs a sticky buffer before it"));
        };
        if matches!(value.buffer, BufferRef::Frame(_)) {
            return Err(KeywordError::context("frames cannot be `absent`"));
        }
        if !value.program.is_empty() || value.absent != Absent::No {
            return Err(KeywordError::context("`absent` must directly follow the buffer's keyword, once"));
        }
        value.absent = absent;
        Ok(())
    }

    /// `base64_data`: the following keywords inspect the decoded bytes.
    ///
    /// # Errors
    /// No `base64_decode` precedes it.
    pub fn enter_base64(&mut self) -> Result<(), KeywordError> {
        let decodes = |v: &ValueCheck| v.program.items.iter().any(|i| matches!(i, Item::Base64 { .. }));
        self.in_base64 = self.values.iter().rposition(decodes);
        let only = |v: &ValueCheck| v.program.items.iter().all(|i| matches!(i, Item::Base64 { .. }));
        match self.in_base64.and_then(|index| self.values.get(index)) {
            Some(value) if !value.transforms.is_empty() && only(value) => Err(KeywordError::context(
                "the result of the transforms is only decoded, and no condition uses it",
            )
            .help("put a content between the transforms and `base64_decode`, or use `from_base64`")),
            Some(_) => Ok(()),
            None => Err(KeywordError::context("`base64_data` needs a `base64_decode` before it")),
        }
    }

    /// The literal that a modifier (`nocase`, `depth`, ...) applies to: the last one.
    ///
    /// # Errors
    /// The rule has no literal so far.
    pub fn last_literal(&mut self, modifier: &str) -> Result<&mut Literal, KeywordError> {
        let missing = || {
            KeywordError::context(format!("`{modifier}` needs a `content` before it"))
                .help("modifiers follow the content that they modify")
        };
        if let Some(index) = self.in_base64 {
            let items = self.values.get_mut(index).map(|v| &mut v.program.items).ok_or_else(missing)?;
            let inner = items.iter_mut().rev().find_map(|i| match i {
                Item::Base64 { inner, .. } => Some(Arc::make_mut(inner)),
                _ => None,
            });
            return inner
                .and_then(|p| {
                    p.items.iter_mut().rev().find_map(|i| match i {
                        Item::Literal(literal) => Some(literal),
                        _ => None,
                    })
                })
                .ok_or_else(missing);
        }
        let (value, item) = self.last_literal.ok_or_else(missing)?;
        match self.values.get_mut(value).and_then(|v| v.program.items.get_mut(item)) {
            Some(Item::Literal(literal)) => Ok(literal),
            _ => Err(missing()),
        }
    }

    /// Sets `endswith` on the last literal if that literal is negated and the value's last item. Returns
    /// whether `endswith` was set.
    pub fn end_negated_literal(&mut self) -> bool {
        let items = match self.last_literal {
            Some((value, _)) if self.in_base64.is_none() => self.values.get_mut(value),
            _ => None,
        };
        match items.and_then(|value| value.program.items.last_mut()) {
            Some(Item::Literal(literal)) if literal.negated && !literal.endswith => {
                literal.endswith = true;
                true
            }
            _ => false,
        }
    }

    /// An old-style buffer modifier (`http_uri`): moves the last literal of the payload to a buffer.
    ///
    /// # Errors
    /// The rule has no such literal, or a sticky buffer is in force.
    pub fn move_last_to(&mut self, name: &str, modifier: &str) -> Result<(), KeywordError> {
        if self.is_sticky() {
            return Err(KeywordError::context(format!("`{modifier}` cannot be used after a sticky buffer"))
                .help(format!("use `{name}` before the content instead")));
        }
        let missing = || KeywordError::context(format!("`{modifier}` needs a `content` before it"));
        let payload = self.values.iter().position(|v| v.buffer == BufferRef::Payload).ok_or_else(missing)?;
        let items = self.values.get_mut(payload).map(|v| &mut v.program.items).ok_or_else(missing)?;
        let at = items.iter().rposition(|i| matches!(i, Item::Literal(_))).ok_or_else(missing)?;
        if matches!(items.get(at), Some(Item::Literal(literal)) if literal.replace.is_some()) {
            return Err(KeywordError::context("`replace` works on the payload of packets, not on a buffer")
                .help(format!("remove `{modifier}` or `replace`")));
        }
        let item = items.remove(at);
        if items.is_empty() {
            // The emptied value stays until the end of the rule, since other values are known by their index.
            self.last_value = self.last_value.filter(|v| *v != payload);
        }
        self.push_named(name, item)
    }

    /// Adds an item to a named buffer without making it sticky.
    ///
    /// # Errors
    /// The buffer is unknown, or does not belong to the rule's protocol.
    pub fn push_named(&mut self, name: &str, item: Item) -> Result<(), KeywordError> {
        let buffer = self.environment.buffers.find(name);
        let known = self.values.iter().position(|v| Some(v.buffer) == buffer && v.transforms.is_empty());
        match known {
            Some(index) => self.current = Some(index),
            None => self.sticky(name)?,
        }
        let pushed = self.push_item(item);
        self.current = None;
        pushed
    }

    /// Adds an item to a named buffer and keeps the current buffer. Each item on a buffer with several values
    /// needs a value of its own.
    ///
    /// # Errors
    /// As [`SignatureBuilder::push_named`].
    pub fn push_aside(&mut self, name: &str, item: Item) -> Result<(), KeywordError> {
        let before = (self.current.take(), self.last_literal, self.last_value, self.in_base64.take());
        let multi = match self.environment.buffers.find(name) {
            Some(BufferRef::Tx(index)) => self.environment.buffers.tx(index).is_some_and(|b| b.is_multi()),
            _ => false,
        };
        let added = if multi {
            self.sticky(name).and_then(|()| self.push_item(item))
        } else {
            self.push_named(name, item)
        };
        (self.current, self.last_literal, self.last_value, self.in_base64) = before;
        added
    }

    /// Adds a transform to the current buffer.
    ///
    /// # Errors
    /// There is no sticky buffer.
    pub fn push_transform(
        &mut self,
        transform: Arc<dyn Transform>,
        keyword: &str,
    ) -> Result<(), KeywordError> {
        let Some(index) = self.current.filter(|_| self.in_base64.is_none()) else {
            return Err(KeywordError::context(format!("`{keyword}` needs a sticky buffer before it")));
        };
        // The same buffer before and after a transform is two values: conditions that precede the transform
        // apply to the first.
        let matched = self.values.get(index).is_some_and(|v| !v.program.is_empty());
        if matched && self.values.get(index).is_some_and(|v| !v.transforms.is_empty()) && !self.reselected {
            return Err(KeywordError::context(format!(
                "`{keyword}` follows a condition on other transforms"
            ))
            .help("transforms must directly follow their buffer, without conditions between them"));
        }
        if self.reselected || matched {
            let again = self.values.get(index).map(|v| empty_check(v.buffer, v.direction));
            self.values.extend(again);
            self.current = Some(self.values.len() - 1);
            self.reselected = false;
        }
        let Some(value) = self.current.and_then(|i| self.values.get_mut(i)) else { return Ok(()) };
        value.transforms.push(transform);
        Ok(())
    }

    /// Adds a condition on the transactions of one protocol; `state`: the transaction state that the
    /// condition belongs to, if any ([`TxCheck::state`]).
    ///
    /// # Errors
    /// The rule concerns other protocols.
    pub fn push_tx(
        &mut self,
        protocol: ProtocolId,
        keyword: &str,
        directions: PerDirection<bool>,
        state: Option<u8>,
        condition: Box<dyn TxCondition>,
    ) -> Result<(), KeywordError> {
        self.push_tx_among(vec![protocol], keyword, directions, state, condition)
    }

    /// Adds a condition on transactions of one of these protocols.
    ///
    /// # Errors
    /// The rule concerns other protocols already.
    pub fn push_tx_among(
        &mut self,
        protocols: Vec<ProtocolId>,
        keyword: &str,
        directions: PerDirection<bool>,
        state: Option<u8>,
        condition: Box<dyn TxCondition>,
    ) -> Result<(), KeywordError> {
        self.narrow_app(&protocols, keyword)?;
        self.tx.push(TxCheck { protocols, directions, state, condition });
        Ok(())
    }

    /// The index of a variable by its name; makes the variable if `create`.
    ///
    /// # Errors
    /// The variable does not exist, or the rule has too many.
    pub fn variable(&mut self, name: &str, create: bool) -> Result<u8, KeywordError> {
        if let Some(index) = self.variables.iter().position(|v| v == name) {
            return Ok(index as u8);
        }
        if !create {
            return Err(KeywordError::argument(format!("no variable `{name}`"))
                .help("byte_extract or byte_math must set it before it is used"));
        }
        if self.variables.len() >= VARIABLES_MAX {
            return Err(KeywordError::context(format!("more than {VARIABLES_MAX} variables in one rule")));
        }
        self.variables.push(name.to_owned());
        Ok((self.variables.len() - 1) as u8)
    }

    /// Parses a number or the name of a variable.
    ///
    /// # Errors
    /// The text is neither.
    pub fn number(&mut self, text: &str) -> Result<Number, KeywordError> {
        match bartizan_rules::integer(text.as_bytes()) {
            Ok(value) => Ok(Number::Constant(value)),
            Err(_) => Ok(Number::Variable(self.variable(text, false)?)),
        }
    }

    /// Finishes and checks the values that were collected.
    ///
    /// # Errors
    /// The last sticky buffer has no condition, or literals can never match.
    pub fn finish_values(&mut self) -> Result<Vec<ValueCheck>, KeywordError> {
        self.forget_trailing_transforms();
        self.close_empty()?;
        let mut values = core::mem::take(&mut self.values);
        values.retain(|v| !v.program.is_empty() || v.absent != Absent::No);
        if values.iter().any(|v| v.program.is_empty() && v.absent == Absent::OrElse) {
            return Err(KeywordError::context(
                "`absent: or_else` has no condition for a buffer that is present",
            )
            .help(
                "add a content or `bsize` after it, or write `absent;` for a buffer that must be missing",
            ));
        }
        for value in &mut values {
            value.program.link();
            value.program.check()?;
            value.program.items.shrink_to_fit();
        }
        // A length condition on a buffer holds wherever else the rule names that buffer.
        for value in values.iter().filter(|value| value.transforms.is_empty()) {
            let same = values.iter().rev().filter(|v| v.buffer == value.buffer && v.transforms.is_empty());
            if let Some(room) = same.filter_map(|v| v.program.uri_room()).next().flatten() {
                value.program.check_uri_room(room)?;
            }
        }
        crate::compile::validate::values(&mut values, self.environment.buffers)?;
        values.shrink_to_fit();
        Ok(values)
    }
}
