// SPDX-License-Identifier: Apache-2.0
//! Address and port expressions as trees: `[10.0.0.0/8,!10.1.0.0/16]`, `!$HOME_NET`, `[80,1024:]`. Variables
//! stay symbolic here; [`crate::Variables`] turns a tree into a set. Expressions are refused as in Suricata
//! 8, except that blanks after an item are allowed, since they do no harm.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::argument::ArgumentError;
use crate::source::Span;

/// Limit of the nesting of lists and variables, as in Suricata.
pub const MAX_DEPTH: usize = 64;

/// A part of an address or port expression. Equality and hash ignore places.
#[derive(Clone, Debug)]
pub struct Expr<L> {
    /// A `!` precedes the part. (`!!` counts as one `!`, as in Suricata.)
    pub negated: bool,
    /// Kind of the part.
    pub kind: ExprKind<L>,
    /// Place, counted from the start of the whole expression.
    pub span: Span,
}

/// The kind of an expression's part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprKind<L> {
    /// `any`.
    Any,
    /// A variable, without the dollar sign.
    Variable(Arc<str>),
    /// A list in brackets.
    List(ExprList<L>),
    /// One range of addresses or ports.
    Leaf(L),
}

/// The items of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExprList<L> {
    /// Items in the order of the text.
    pub items: Vec<Expr<L>>,
    /// A comma follows the last item: this is allowed, and in port lists it changes the effect of the last
    /// item's negation.
    pub trailing_comma: bool,
}

impl<L: PartialEq> PartialEq for Expr<L> {
    fn eq(&self, other: &Self) -> bool {
        self.negated == other.negated && self.kind == other.kind
    }
}

impl<L: Eq> Eq for Expr<L> {}

impl<L: std::hash::Hash> std::hash::Hash for Expr<L> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.negated, &self.kind).hash(state);
    }
}

impl<L> Expr<L> {
    /// `any` without negation.
    #[must_use]
    pub const fn any() -> Self {
        Self { negated: false, kind: ExprKind::Any, span: Span::new(0, 3) }
    }

    /// Whether the expression is plain `any`.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        !self.negated && matches!(self.kind, ExprKind::Any)
    }

    /// Whether the expression contains a `!` (the values of variables are not searched).
    #[must_use]
    pub fn has_negation(&self) -> bool {
        self.negated || matches!(&self.kind, ExprKind::List(l) if l.items.iter().any(Self::has_negation))
    }

    /// Calls `f` with every variable's name.
    pub fn each_variable(&self, f: &mut impl FnMut(&Arc<str>)) {
        match &self.kind {
            ExprKind::Variable(name) => f(name),
            ExprKind::List(list) => list.items.iter().for_each(|item| item.each_variable(f)),
            ExprKind::Any | ExprKind::Leaf(_) => {}
        }
    }
}

impl<L: fmt::Display> fmt::Display for Expr<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negated {
            f.write_str("!")?;
        }
        match &self.kind {
            ExprKind::Any => f.write_str("any"),
            ExprKind::Variable(name) => write!(f, "${name}"),
            ExprKind::Leaf(leaf) => leaf.fmt(f),
            ExprKind::List(list) => {
                f.write_str("[")?;
                for (i, item) in list.items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                f.write_str(if list.trailing_comma { ",]" } else { "]" })
            }
        }
    }
}

/// A type that represents one range.
pub trait Leaf: Sized {
    /// Subject of such an expression, for messages.
    const WHAT: &'static str;
    /// Parses one range; the text has no blanks around it and is not empty.
    ///
    /// # Errors
    /// Description of the error, for people.
    fn parse(text: &str) -> Result<Self, String>;
}

/// Addresses from `low` to `high`, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressRange {
    /// IPv4, both ends included.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6, both ends included.
    V6(Ipv6Addr, Ipv6Addr),
}

/// Ports from the first to the second, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange(pub u16, pub u16);

/// An address expression.
pub type AddressExpr = Expr<AddressRange>;
/// A port expression.
pub type PortExpr = Expr<PortRange>;

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high, bits): (IpAddr, IpAddr, u32) = match *self {
            Self::V4(a, b) => (a.into(), b.into(), prefix_bits(u32::from(a).into(), u32::from(b).into(), 32)),
            Self::V6(a, b) => (a.into(), b.into(), prefix_bits(a.into(), b.into(), 128)),
        };
        match (low == high, bits) {
            (true, _) => low.fmt(f),
            (_, u32::MAX) => write!(f, "{low}-{high}"),
            _ => write!(f, "{low}/{bits}"),
        }
    }
}

/// Length of the prefix that equals a range; `u32::MAX` if there is none.
fn prefix_bits(low: u128, high: u128, width: u32) -> u32 {
    let host = low ^ high;
    let free = 128 - host.leading_zeros();
    let is_prefix = host.count_ones() == free && low & host == 0;
    if is_prefix { width - free } else { u32::MAX }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { self.0.fmt(f) } else { write!(f, "{}:{}", self.0, self.1) }
    }
}

impl Leaf for AddressRange {
    const WHAT: &'static str = "address";

    fn parse(text: &str) -> Result<Self, String> {
        let v4 = |t: &str| t.parse::<Ipv4Addr>().map_err(|_| format!("`{t}` is not an IPv4 address"));
        let v6 = |t: &str| t.parse::<Ipv6Addr>().map_err(|_| format!("`{t}` is not an IPv6 address"));
        let is_v6 = text.contains(':');
        if let Some((address, mask)) = text.split_once('/') {
            if is_v6 {
                let mask = u128::MAX.checked_shl(128 - prefix_length(mask, 128)?).unwrap_or(0);
                let low = u128::from(v6(address)?) & mask;
                return Ok(Self::V6(low.into(), (low | !mask).into()));
            }
            let mask = if mask.contains('.') {
                let bits = u32::from(v4(mask)?);
                if bits.leading_ones() != bits.count_ones() {
                    return Err(format!("the netmask {mask} is not a prefix: its one bits must come first"));
                }
                bits
            } else {
                u32::MAX.checked_shl(32 - prefix_length(mask, 32)?).unwrap_or(0)
            };
            let low = u32::from(v4(address)?) & mask;
            return Ok(Self::V4(low.into(), (low | !mask).into()));
        }
        let ends = text.split_once('-').unwrap_or((text, text));
        let backwards = || format!("the range {text} ends before it starts");
        if is_v6 {
            let (low, high) = (v6(ends.0)?, v6(ends.1)?);
            return if low <= high { Ok(Self::V6(low, high)) } else { Err(backwards()) };
        }
        let (low, high) = (v4(ends.0)?, v4(ends.1)?);
        if low <= high { Ok(Self::V4(low, high)) } else { Err(backwards()) }
    }
}

fn prefix_length(text: &str, width: u32) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|n| digits && *n <= width)
        .ok_or_else(|| format!("`/{text}` is not a prefix length; it is a number from 0 to {width}"))
}

impl Leaf for PortRange {
    const WHAT: &'static str = "port";

    fn parse(text: &str) -> Result<Self, String> {
        let port = |t: &str, open: u16| match t.trim_matches([' ', '\t']) {
            "" => Ok(open),
            t if t.bytes().all(|b| b.is_ascii_digit()) => {
                t.parse().map_err(|_| format!("{t} is not a port; ports go up to 65535"))
            }
            t => Err(format!("`{t}` is not a port")),
        };
        let Some((low, high)) = text.split_once(':') else {
            let only = port(text, 0)?;
            return Ok(Self(only, only));
        };
        if high.contains('!') {
            return Err("a range of ports cannot contain a `!`".into());
        }
        let (low, high) = (port(low, 0)?, port(high, u16::MAX)?);
        if low > high {
            return Err(format!("the range {low}:{high} ends before it starts"));
        }
        Ok(Self(low, high))
    }
}

/// Reads an expression.
///
/// # Errors
/// Offsets count from the expression's start.
pub fn parse_expr<L: Leaf>(text: &[u8]) -> Result<Expr<L>, ArgumentError> {
    let mut parser = ExprParser { text, at: 0 };
    let mut list = parser.items(0)?;
    if parser.at < text.len() {
        return Err(ArgumentError::new(
            "a `]` without its `[`; brackets must pair up",
            parser.at..parser.at + 1,
        ));
    }
    // A single item without brackets is itself; several (as in variables) are a list.
    if list.items.len() == 1
        && !list.trailing_comma
        && let Some(only) = list.items.pop()
    {
        return Ok(only);
    }
    if list.items.is_empty() {
        return Err(ArgumentError::new(format!("the {} is missing", L::WHAT), 0..text.len()));
    }
    Ok(Expr { negated: false, kind: ExprKind::List(list), span: Span::of(0, text.len()) })
}

struct ExprParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl ExprParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Parses items up to the end or to a `]`, which is not consumed.
    fn items<L: Leaf>(&mut self, depth: usize) -> Result<ExprList<L>, ArgumentError> {
        let mut list = ExprList { items: Vec::new(), trailing_comma: false };
        if depth > MAX_DEPTH {
            let message = format!("lists nest deeper than {MAX_DEPTH}");
            return Err(ArgumentError::new(message, self.at..self.at));
        }
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b']') => return Ok(list),
                Some(b',') => {
                    return Err(ArgumentError::new(
                        format!("an {} is missing before the comma", L::WHAT).replace("an port", "a port"),
                        self.at..self.at + 1,
                    ));
                }
                Some(_) => list.items.push(self.item(depth)?),
            }
            list.trailing_comma = false;
            self.blanks();
            match self.peek() {
                None | Some(b']') => return Ok(list),
                Some(b',') => {
                    self.at += 1;
                    list.trailing_comma = true;
                }
                Some(_) => {
                    let end = self.text.len().min(self.at + 1);
                    return Err(ArgumentError::new("a comma is missing", self.at..end));
                }
            }
        }
    }

    fn item<L: Leaf>(&mut self, depth: usize) -> Result<Expr<L>, ArgumentError> {
        let start = self.at;
        let mut negated = false;
        while self.peek() == Some(b'!') {
            negated = true;
            self.at += 1;
            self.blanks();
        }
        if self.peek() == Some(b'[') {
            let open = self.at;
            self.at += 1;
            let list = self.items(depth + 1)?;
            if self.peek() != Some(b']') {
                return Err(ArgumentError::new("this `[` is not closed", open..open + 1));
            }
            self.at += 1;
            if list.items.is_empty() {
                return Err(ArgumentError::new("the list is empty", open..self.at));
            }
            return Ok(Expr { negated, kind: ExprKind::List(list), span: Span::of(start, self.at) });
        }
        let from = self.at;
        while self.peek().is_some_and(|b| !matches!(b, b',' | b'[' | b']')) {
            self.at += 1;
        }
        let raw = self.text.get(from..self.at).unwrap_or_default().trim_ascii_end();
        let end = from + raw.len();
        let error = |message: String| ArgumentError::new(message, start..end.max(start + 1));
        let word = core::str::from_utf8(raw).map_err(|_| error("this is not a string".into()))?;
        let kind = if let Some(name) = word.strip_prefix('$') {
            if name.is_empty()
                || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            {
                return Err(error(format!("`{word}` is not a variable name")));
            }
            ExprKind::Variable(name.into())
        } else if word.eq_ignore_ascii_case("any") {
            ExprKind::Any
        } else if word.is_empty() {
            let article = if L::WHAT == "address" { "an" } else { "a" };
            return Err(error(format!("{article} {} is missing", L::WHAT)));
        } else {
            ExprKind::Leaf(L::parse(word).map_err(error)?)
        };
        Ok(Expr { negated, kind, span: Span::of(start, end) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a(text: &str) -> Result<String, (usize, usize)> {
        parse_expr::<AddressRange>(text.as_bytes()).map(|e| e.to_string()).map_err(|e| (e.start, e.end))
    }

    fn p(text: &str) -> Result<String, (usize, usize)> {
        parse_expr::<PortRange>(text.as_bytes()).map(|e| e.to_string()).map_err(|e| (e.start, e.end))
    }

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("any", "any"),
            ("ANY", "any"),
            ("!$HOME_NET", "!$HOME_NET"),
            ("[10.0.0.0/8, !10.1.0.0/16]", "[10.0.0.0/8,!10.1.0.0/16]"),
            ("1.2.3.4/255.255.0.0", "1.2.0.0/16"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("1.2.3.4/32", "1.2.3.4"),
            ("10.0.0.1-10.0.0.7", "10.0.0.1-10.0.0.7"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("2001::1-2001::4", "2001::1-2001::4"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("[1.1.1.1,]", "[1.1.1.1,]"),
            ("!!1.1.1.1", "!1.1.1.1"),
            ("10.0.0.0/8,192.168.0.0/16", "[10.0.0.0/8,192.168.0.0/16]"),
            ("[[$A,![$B]],::1]", "[[$A,![$B]],::1]"),
        ] {
            assert_eq!(a(text).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn addresses_that_are_refused() {
        for (text, at) in [
            ("", (0, 0)),
            ("[]", (0, 2)),
            ("[1.1.1.1,,2.2.2.2]", (9, 10)),
            ("[,1.1.1.1]", (1, 2)),
            ("[1.1.1.1", (0, 1)),
            ("1.1.1.1]", (7, 8)),
            ("1.2.3", (0, 5)),
            ("1.2.3.4/33", (0, 10)),
            ("1.2.3.4/", (0, 8)),
            ("1.2.3.4/255.0.255.0", (0, 19)),
            ("1.2.3.4/-1", (0, 10)),
            ("::/129", (0, 6)),
            ("10.0.0.7-10.0.0.1", (0, 17)),
            ("1.2.3.4-::1", (0, 11)),
            ("$", (0, 1)),
            ("[a]b", (1, 2)),
            ("[1.1.1.1]2", (9, 10)),
            ("!", (0, 1)),
            ("01.2.3.4", (0, 8)),
        ] {
            assert_eq!(a(text), Err(at), "{text}");
        }
        assert!(a(&"[".repeat(10_000)).is_err());
        assert!(a(&format!("{}::1{}", "[".repeat(64), "]".repeat(64))).is_ok());
        assert!(a(&format!("{}::1{}", "[".repeat(65), "]".repeat(65))).is_err());
    }

    #[test]
    fn ports() {
        for (text, shown) in [
            ("80", "80"),
            ("80:", "80:65535"),
            (":1024", "0:1024"),
            ("1024:65535", "1024:65535"),
            ("![80,81, 1024: ]", "![80,81,1024:65535]"),
            ("[1:80,![2,4]]", "[1:80,![2,4]]"),
            ("$HTTP_PORTS", "$HTTP_PORTS"),
            (":", "0:65535"),
            ("0", "0"),
        ] {
            assert_eq!(p(text).as_deref(), Ok(shown), "{text}");
        }
        for text in
            ["65536", "80:79", "80:!90", "http", "-1", "80-90", "[80", "80]", "", "[80,,81]", "[]", "1:2:3"]
        {
            assert!(p(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_expr::<AddressRange>(&text);
            let _ = parse_expr::<PortRange>(&text);
        }

        #[test]
        fn near_expressions_and_back(text in r"[\[\]!,$ANY0-9.:/ -]{0,24}") {
            if let Ok(e) = parse_expr::<AddressRange>(text.as_bytes()) {
                prop_assert_eq!(&parse_expr::<AddressRange>(e.to_string().as_bytes()).unwrap(), &e);
            }
            if let Ok(e) = parse_expr::<PortRange>(text.as_bytes()) {
                prop_assert_eq!(&parse_expr::<PortRange>(e.to_string().as_bytes()).unwrap(), &e);
            }
        }
    }
}
