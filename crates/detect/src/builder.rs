// SPDX-License-Identifier: Apache-2.0
//! Building a signature, keyword by keyword.

use crate::buffers::{BufferRef, Buffers};
use crate::condition::{Effect, PacketCondition, Transform, TxCondition};
use crate::content::{Item, Literal, Number, Program, VARIABLES_MAX};
use crate::keyword::{KeywordError, RefusalCode};
use crate::shared::Shared;
use crate::signature::{Absent, AlertTarget, FlowNeeds, ProtocolMatch, TxCheck, ValueCheck};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, PerDirection, RuleId, Settings};
use std::sync::Arc;

/// What building needs from outside of the rule.
pub struct Environment<'e> {
    /// Buffers by name.
    pub buffers: &'e Buffers,
    /// Settings of the engine.
    pub settings: &'e Settings,
    /// Names, datasets, thresholds: what outlives a generation.
    pub shared: &'e Arc<Shared>,
    /// Folder to which relative file names in rules are resolved after the working folder (the rule file's own).
    pub rule_folder: &'e std::path::Path,
}

/// How a rule uses a kind of variable: rules that write come before those that read (Suricata's order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Not at all.
    #[default]
    None,
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
    /// Writes.
    Write,
}

impl Use {
    /// This use and another one in the same rule.
    #[must_use]
    pub fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::None, one) | (one, Use::None) => one,
            (a, b) if a == b => a,
            _ => Use::ReadWrite,
        }
    }
}

/// What the order of evaluation depends on besides action and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ordering {
    /// `flowbits`.
    pub flowbits: Use,
    /// `flowint`.
    pub flowints: Use,
    /// Captured flow variables.
    pub flowvars: Use,
    /// Captured packet variables.
    pub pktvars: Use,
    /// `hostbits`, `xbits` by host.
    pub hostbits: Use,
    /// `xbits` by pair.
    pub pairbits: Use,
}

/// A signature in the making.
pub struct SignatureBuilder<'e> {
    /// Surroundings.
    pub environment: &'e Environment<'e>,
    /// Identity; known before the keywords are parsed.
    pub id: RuleId,
    /// The header's protocol; keywords of an application protocol narrow it.
    pub protocol: ProtocolMatch,
    /// `flow:`.
    pub flow: FlowNeeds,
    /// `noalert`.
    pub noalert: bool,
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
    /// Thresholds.
    pub thresholds: Vec<Box<dyn Effect>>,
    /// MD5, SHA-1, SHA-256 of files are asked for.
    pub file_hashes: [bool; 3],
    /// How the rule takes part in the order of evaluation.
    pub ordering: Ordering,
    /// Keywords seen so far, in order, for those that must stand before or after others.
    pub seen: Vec<&'static str>,
    values: Vec<ValueCheck>,
    /// Index of the value that content keywords add to; `None` for the payload.
    current: Option<usize>,
    /// Where the last `content` stands: value and item.
    last_literal: Option<(usize, usize)>,
    /// A `base64_data` is open: further items belong to the innermost program of this value.
    in_base64: bool,
    variables: Vec<String>,
}

impl<'e> SignatureBuilder<'e> {
    /// An empty signature.
    #[must_use]
    pub fn new(environment: &'e Environment<'e>, id: RuleId, protocol: ProtocolMatch) -> Self {
        SignatureBuilder {
            environment,
            id,
            protocol,
            flow: FlowNeeds::empty(),
            noalert: false,
            bypass: false,
            target: None,
            priority: None,
            packet: Vec::new(),
            tx: Vec::new(),
            effects: Vec::new(),
            thresholds: Vec::new(),
            file_hashes: [false; 3],
            ordering: Ordering::default(),
            seen: Vec::new(),
            values: Vec::new(),
            current: None,
            last_literal: None,
            in_base64: false,
            variables: Vec::new(),
        }
    }

    /// Makes a buffer the one that the following content keywords look at.
    ///
    /// # Errors
    /// The buffer is unknown, or the rule's application protocol does not have it.
    pub fn sticky(&mut self, name: &str) -> Result<(), KeywordError> {
        self.sticky_in(name, None)
    }

    /// As [`SignatureBuilder::sticky`], looked at in one direction only.
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
        if let BufferRef::Tx(index) = buffer {
            let providers: Vec<ProtocolId> = self
                .environment
                .buffers
                .tx(index)
                .map(|b| b.providers.iter().map(|(p, _)| *p).collect())
                .unwrap_or_default();
            self.narrow_app(&providers, name)?;
        }
        self.values.push(ValueCheck {
            buffer,
            direction,
            transforms: Vec::new(),
            program: Program::default(),
            absent: Absent::No,
        });
        self.current = Some(self.values.len() - 1);
        self.in_base64 = false;
        Ok(())
    }

    /// Back to the payload (`pkt_data`).
    ///
    /// # Errors
    /// The buffer before was named and not looked at.
    pub fn payload(&mut self) -> Result<(), KeywordError> {
        self.close_empty()?;
        self.current = None;
        self.in_base64 = false;
        Ok(())
    }

    /// A sticky buffer that nothing was asked of is an error, as in Suricata.
    fn close_empty(&self) -> Result<(), KeywordError> {
        let Some(value) = self.current.and_then(|i| self.values.get(i)) else { return Ok(()) };
        if value.program.is_empty() && value.absent == Absent::No {
            let name = self.environment.buffers.name(value.buffer);
            return Err(KeywordError::context(format!("nothing is asked of the buffer `{name}`"))
                .help("put a content, pcre, bsize, ... behind the buffer's keyword"));
        }
        Ok(())
    }

    /// Narrows the rule to application protocols.
    ///
    /// # Errors
    /// The rule is about others already.
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
                "`{keyword}` is of {}, but the rule is about {}",
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
    /// No such parser in this build, or the rule is about others already.
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

    /// The value that content keywords add to, made if it is the payload and not there yet.
    pub fn value(&mut self) -> &mut ValueCheck {
        let index = self.value_index();
        // The index was just made valid; the first element is a stand-in that cannot be reached.
        let last = self.values.len() - 1;
        let index = index.min(last);
        match self.values.get_mut(index) {
            Some(value) => value,
            None => unreachable!("value_index returns a valid index"),
        }
    }

    fn value_index(&mut self) -> usize {
        if let Some(index) = self.current {
            return index;
        }
        match self.values.iter().position(|v| v.buffer == BufferRef::Payload) {
            Some(index) => index,
            None => {
                self.values.push(ValueCheck {
                    buffer: BufferRef::Payload,
                    direction: None,
                    transforms: Vec::new(),
                    program: Program::default(),
                    absent: Absent::No,
                });
                self.values.len() - 1
            }
        }
    }

    /// The buffer that content keywords look at now.
    #[must_use]
    pub fn current_buffer(&self) -> BufferRef {
        self.current.and_then(|i| self.values.get(i)).map_or(BufferRef::Payload, |v| v.buffer)
    }

    /// Adds an item to the current value.
    ///
    /// # Errors
    /// None so far; keywords pass it on so that bounds can be added here.
    pub fn push_item(&mut self, item: Item) -> Result<(), KeywordError> {
        let is_literal = matches!(item, Item::Literal(_));
        let index = self.value_index();
        let in_base64 = self.in_base64;
        let Some(value) = self.values.get_mut(index) else { return Ok(()) };
        if in_base64 && let Some(Item::Base64 { inner, .. }) = value.program.items.last_mut() {
            Arc::make_mut(inner).items.push(item);
            return Ok(());
        }
        value.program.items.push(item);
        if is_literal {
            self.last_literal = Some((index, value.program.items.len() - 1));
        }
        Ok(())
    }

    /// `base64_data`: what follows looks at the decoded bytes.
    ///
    /// # Errors
    /// There is no `base64_decode` before it.
    pub fn enter_base64(&mut self) -> Result<(), KeywordError> {
        let index = self.value_index();
        match self.values.get(index).and_then(|v| v.program.items.last()) {
            Some(Item::Base64 { .. }) => {
                self.in_base64 = true;
                Ok(())
            }
            _ => Err(KeywordError::context("`base64_data` needs a `base64_decode` before it")),
        }
    }

    /// The literal that a modifier (`nocase`, `depth`, ...) is about: the last one, in the current buffer.
    ///
    /// # Errors
    /// There is none.
    pub fn last_literal(&mut self, modifier: &str) -> Result<&mut Literal, KeywordError> {
        let missing = || {
            KeywordError::context(format!("`{modifier}` needs a `content` before it"))
                .help("modifiers stand behind the content that they modify")
        };
        if self.in_base64 {
            let index = self.value_index();
            return match self.values.get_mut(index).and_then(|v| v.program.items.last_mut()) {
                Some(Item::Base64 { inner, .. }) => Arc::make_mut(inner)
                    .items
                    .iter_mut()
                    .rev()
                    .find_map(|i| if let Item::Literal(l) = i { Some(l) } else { None })
                    .ok_or_else(missing),
                _ => Err(missing()),
            };
        }
        let (value, item) = self.last_literal.ok_or_else(missing)?;
        match self.values.get_mut(value).and_then(|v| v.program.items.get_mut(item)) {
            Some(Item::Literal(literal)) => Ok(literal),
            _ => Err(missing()),
        }
    }

    /// An old-style buffer modifier (`http_uri`): moves the last literal of the payload to a buffer.
    ///
    /// # Errors
    /// There is none, or it stands in a sticky buffer.
    pub fn move_last_to(&mut self, name: &str, modifier: &str) -> Result<(), KeywordError> {
        if self.current.is_some() {
            return Err(KeywordError::context(format!("`{modifier}` cannot be used behind a sticky buffer"))
                .help(format!("use `{name}` before the content instead")));
        }
        let index = self.value_index();
        // The last literal, though other items (`isdataat`, ...) may stand behind it.
        let taken = self.values.get_mut(index).map(|v| &mut v.program.items).and_then(|items| {
            let at = items.iter().rposition(|i| matches!(i, Item::Literal(_)))?;
            Some(items.remove(at))
        });
        let Some(item) = taken else {
            return Err(KeywordError::context(format!("`{modifier}` needs a `content` before it")));
        };
        if self.values.get(index).is_some_and(|v| v.program.is_empty()) {
            self.values.remove(index);
        }
        self.push_named(name, item)
    }

    /// Adds an item to a named buffer without making it sticky.
    ///
    /// # Errors
    /// The buffer is not known, or not of the rule's protocol.
    pub fn push_named(&mut self, name: &str, item: Item) -> Result<(), KeywordError> {
        let buffer = self.environment.buffers.find(name);
        let known = self.values.iter().position(|v| Some(v.buffer) == buffer && v.transforms.is_empty());
        match known {
            Some(index) => self.current = Some(index),
            None => self.sticky(name)?,
        }
        self.push_item(item)?;
        self.current = None;
        Ok(())
    }

    /// Adds an item to a named buffer and leaves the current one as it is. Of a buffer that can have several values
    /// each item asks for one of its own.
    ///
    /// # Errors
    /// As [`SignatureBuilder::push_named`].
    pub fn push_aside(&mut self, name: &str, item: Item) -> Result<(), KeywordError> {
        let before = (self.current.take(), self.last_literal, core::mem::take(&mut self.in_base64));
        let multi = match self.environment.buffers.find(name) {
            Some(BufferRef::Tx(index)) => self.environment.buffers.tx(index).is_some_and(|b| b.is_multi()),
            _ => false,
        };
        let added = if multi {
            self.sticky(name).and_then(|()| self.push_item(item))
        } else {
            self.push_named(name, item)
        };
        (self.current, self.last_literal, self.in_base64) = before;
        added
    }

    /// Adds a transform to the current buffer.
    ///
    /// # Errors
    /// There is no sticky buffer, or it was matched already.
    pub fn push_transform(
        &mut self,
        transform: Arc<dyn Transform>,
        keyword: &str,
    ) -> Result<(), KeywordError> {
        let Some(value) = self.current.and_then(|i| self.values.get_mut(i)) else {
            return Err(KeywordError::context(format!("`{keyword}` needs a sticky buffer before it")));
        };
        if !value.program.is_empty() {
            return Err(KeywordError::context(format!(
                "`{keyword}` must stand before the first match on the buffer"
            )));
        }
        value.transforms.push(transform);
        Ok(())
    }

    /// Adds a condition on the transactions of one protocol.
    ///
    /// # Errors
    /// The rule is about other protocols.
    pub fn push_tx(
        &mut self,
        protocol: &str,
        keyword: &str,
        directions: PerDirection<bool>,
        ready: u8,
        condition: Box<dyn TxCondition>,
    ) -> Result<(), KeywordError> {
        let id = self.narrow_app_named(protocol, keyword)?;
        self.tx.push(TxCheck { protocols: vec![id], directions, ready, condition });
        Ok(())
    }

    /// The variable of a name, made if `create`.
    ///
    /// # Errors
    /// It does not exist, or there are too many.
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

    /// A number or the name of a variable.
    ///
    /// # Errors
    /// It is neither.
    pub fn number(&mut self, text: &str) -> Result<Number, KeywordError> {
        match bartizan_rules::integer(text.as_bytes()) {
            Ok(value) => Ok(Number::Constant(value)),
            Err(_) => Ok(Number::Variable(self.variable(text, false)?)),
        }
    }

    /// Ends the building of values: what was collected, checked.
    ///
    /// # Errors
    /// The last sticky buffer was not looked at; a content can never match in its buffer.
    pub fn finish_values(&mut self) -> Result<Vec<ValueCheck>, KeywordError> {
        self.close_empty()?;
        let mut values = core::mem::take(&mut self.values);
        crate::keywords::validate::values(&mut values, self.environment.buffers)?;
        Ok(values)
    }
}
