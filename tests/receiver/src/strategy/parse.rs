// SPDX-License-Identifier: Apache-2.0
//! Parses strategies from text and writes them as text.

use super::{Action, Change, Gas, Strategy, Tree, Trigger};
use std::fmt;

/// The error of a text that is no strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Description of the error.
    pub what: String,
    /// Byte offset of the error.
    pub at: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

impl Strategy {
    /// Parses a strategy.
    ///
    /// # Errors
    /// The first error and its offset.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let (end, begin) = text.find("\\/").map_or((text.len(), text.len()), |at| (at, at + 2));
        Ok(Strategy { outbound: trees(&text[..end], 0)?, inbound: trees(&text[begin..], begin)? })
    }
}

/// Parses the trees of a part that begins at byte `base` of the strategy.
fn trees(text: &str, base: usize) -> Result<Vec<Tree>, Wrong> {
    let mut reader = Reader { text, at: 0, base };
    let mut trees = Vec::new();
    loop {
        reader.skip();
        if reader.rest().is_empty() {
            return Ok(trees);
        }
        trees.push(reader.tree()?);
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    base: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong { what: what.into(), at: self.base + self.at })
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, what: char) -> bool {
        let found = self.rest().starts_with(what);
        self.at += if found { what.len_utf8() } else { 0 };
        found
    }

    fn until(&mut self, end: char) -> Result<&'t str, Wrong> {
        let Some(length) = self.rest().find(end) else { return self.wrong(format!("`{end}` is missing")) };
        let text = &self.rest()[..length];
        self.at += length + end.len_utf8();
        Ok(text)
    }

    fn tree(&mut self) -> Result<Tree, Wrong> {
        if !self.take('[') {
            return self.wrong("a trigger `[PROTO:FIELD:VALUE]` is expected");
        }
        let words: Vec<&str> = self.until(']')?.split(':').collect();
        let (protocol, field, value, gas) = match words[..] {
            [protocol, field, value] => (protocol, field, value, Gas::Unlimited),
            [protocol, field, value, gas] => match gas.parse::<i32>() {
                Ok(gas) if gas < 0 => (protocol, field, value, Gas::After(gas.unsigned_abs())),
                Ok(gas) => (protocol, field, value, Gas::Times(gas.unsigned_abs())),
                Err(_) => return self.wrong(format!("`{gas}` is no count")),
            },
            _ => return self.wrong("a trigger has three or four parts"),
        };
        let trigger = Trigger { protocol: protocol.into(), field: field.into(), value: value.into(), gas };
        if !self.take('-') {
            return self.wrong("`-` is expected behind the trigger");
        }
        let action = self.action()?;
        if !self.take('-') {
            return self.wrong("`-` is expected behind the action");
        }
        self.take('|');
        Ok(Tree { trigger, action })
    }

    /// Parses an action; an empty text means to send.
    fn action(&mut self) -> Result<Action, Wrong> {
        self.skip();
        let length = self.rest().find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest().len());
        let name = &self.rest()[..length];
        if name.is_empty() {
            return Ok(Action::Send);
        }
        self.at += length;
        let words: Vec<&str> =
            if self.take('{') { self.until('}')?.split(':').collect() } else { Vec::new() };
        let (left, right) = self.branches()?;
        match (name, &words[..]) {
            ("send", []) => Ok(Action::Send),
            ("drop", []) => Ok(Action::Drop),
            ("duplicate", []) => Ok(Action::Duplicate(left, right)),
            ("sleep", [seconds]) => match seconds.parse::<f64>() {
                Ok(seconds) if (0.0..=3600.0).contains(&seconds) => {
                    Ok(Action::Sleep((seconds * 1000.0) as u64, left))
                }
                _ => self.wrong(format!("`{seconds}` is no time in seconds")),
            },
            ("tamper", [protocol, field, how @ ..]) => {
                let how = match how {
                    ["corrupt"] => Change::Corrupt,
                    ["replace", value] => Change::Replace((*value).to_owned()),
                    ["add", value] => match value.parse() {
                        Ok(value) => Change::Add(value),
                        Err(_) => return self.wrong(format!("`{value}` is no number")),
                    },
                    _ => return self.wrong("`corrupt`, `replace:V` or `add:N` is expected"),
                };
                Ok(Action::Tamper { protocol: (*protocol).into(), field: (*field).into(), how, next: left })
            }
            ("fragment", [what, size, order, overlap @ ..]) => {
                let overlap = overlap.first().map_or(Ok(0), |overlap| overlap.parse());
                let (Ok(size), Ok(overlap)) = (size.parse(), overlap) else {
                    return self.wrong("sizes of a fragment are numbers");
                };
                Ok(Action::Fragment {
                    segments: what.eq_ignore_ascii_case("tcp"),
                    size,
                    in_order: order.eq_ignore_ascii_case("true"),
                    overlap,
                    left,
                    right,
                })
            }
            _ => self.wrong(format!("`{name}` with {} parts is no action", words.len())),
        }
    }

    fn branches(&mut self) -> Result<(Box<Action>, Box<Action>), Wrong> {
        if !self.take('(') {
            return Ok((Box::new(Action::Send), Box::new(Action::Send)));
        }
        let left = self.action()?;
        let right = if self.take(',') { self.action()? } else { Action::Send };
        if !self.take(')') {
            return self.wrong("`)` is expected");
        }
        Ok((Box::new(left), Box::new(right)))
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tree in &self.outbound {
            write!(f, "{tree}")?;
        }
        write!(f, " \\/ ")?;
        self.inbound.iter().try_for_each(|tree| write!(f, "{tree}"))
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trigger { protocol, field, value, gas } = &self.trigger;
        write!(f, "[{protocol}:{field}:{value}")?;
        match gas {
            Gas::Unlimited => {}
            Gas::Times(times) => write!(f, ":{times}")?,
            Gas::After(times) => write!(f, ":-{times}")?,
        }
        write!(f, "]-{}-|", self.action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Send => Ok(()),
            Action::Drop => write!(f, "drop"),
            Action::Duplicate(left, right) => write!(f, "duplicate({left},{right})"),
            Action::Tamper { protocol, field, how, next } => {
                write!(f, "tamper{{{protocol}:{field}:")?;
                match how {
                    Change::Replace(value) => write!(f, "replace:{value}")?,
                    Change::Corrupt => write!(f, "corrupt")?,
                    Change::Add(value) => write!(f, "add:{value}")?,
                }
                write!(f, "}}({next},)")
            }
            Action::Fragment { segments, size, in_order, overlap, left, right } => {
                let (what, order) =
                    (if *segments { "tcp" } else { "ip" }, if *in_order { "True" } else { "False" });
                write!(f, "fragment{{{what}:{size}:{order}")?;
                if *overlap > 0 {
                    write!(f, ":{overlap}")?;
                }
                write!(f, "}}({left},{right})")
            }
            Action::Sleep(time, next) => write!(f, "sleep{{{}}}({next},)", *time as f64 / 1000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_forms_are_read_and_written_alike() {
        for text in [
            "[TCP:flags:PA]-duplicate(tamper{TCP:dataofs:replace:10}(tamper{TCP:chksum:replace:25776},),)-",
            "[TCP:flags:PA]-fragment{tcp:8:False}-|[TCP:flags:A]-tamper{TCP:seq:replace:2258679050}-",
            "[TCP:flags:SA]-duplicate(tamper{TCP:flags:replace:FREC}(duplicate,),tamper{TCP:flags:replace:FSEC})-| \\/",
            "\\/ [UDP:sport:53:2]-drop-",
            "[TCP:options-mss:]-tamper{TCP:options-md5header:corrupt}-| \\/",
            "[IP:ttl:64]-sleep{0.5}(fragment{ip:2:True:8}(drop,duplicate),)-| \\/ [TCP:flags:R]-drop-|",
        ] {
            let strategy = Strategy::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(Strategy::parse(&strategy.to_string()).unwrap(), strategy, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, at) in [
            ("TCP:flags:S-drop-|", 0),
            ("[TCP:flags]-drop-|", 11),
            ("[TCP:flags:S]-explode-|", 21),
            ("[TCP:flags:S]-drop-| \\/ [TCP:flags:S]-duplicate(drop-|", 53),
        ] {
            let wrong = Strategy::parse(text).unwrap_err();
            assert!(wrong.at.abs_diff(at) <= 2, "{text}: {wrong}");
        }
    }
}
