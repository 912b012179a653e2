// SPDX-License-Identifier: Apache-2.0
//! Address and port groups, and the resolution of expressions with them to a set of addresses or ports.
//!
//! The arithmetic is Suricata 8's, which differs from plain set algebra in three ways on which rule writers
//! depend, knowingly or not:
//! - a list and the unnegated lists and variables in it are one bag: `[$A,!$B]` removes B from all;
//! - the families are independent: `!10.0.0.0/8` is all other IPv4 addresses and *no* IPv6 address;
//! - in port lists a negation inside a negated list counts only for the last item.
//!
//! An expression that leaves nothing, or negates everything, is an error. A caller has one [`RuleVariables`]
//! for each tenant.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thiserror::Error;

use crate::argument::ArgumentError;
use crate::expr::{AddressExpr, AddressRange, Expr, ExprKind, MAX_DEPTH, PortExpr, PortRange, parse_expr};
use crate::set::{AddressSet, PortSet, Ranges};
use crate::source::Span;
use crate::suggest::suggest;

/// Limit of the ranges of one expression during resolution; variables that name each other twice at every
/// level would otherwise grow without limit.
pub const MAX_RANGES: usize = 1 << 20;

/// The reason why an expression does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveErrorKind {
    /// A variable is not defined.
    #[error("the {what} variable ${name} is not defined")]
    UnknownVariable {
        /// Address or port.
        what: &'static str,
        /// Name of the variable, without the dollar sign.
        name: Arc<str>,
        /// A defined variable with a similar name.
        similar: Option<Arc<str>>,
    },
    /// A variable's value names the variable itself, possibly by way of others.
    #[error("the variables refer to each other in a circle: {0}")]
    Cycle(String),
    /// Lists and variables nest too deep.
    #[error("lists and variables nest deeper than {MAX_DEPTH}")]
    TooDeep,
    /// More ranges than one expression may have.
    #[error("the expression has more than {MAX_RANGES} ranges")]
    TooLarge,
    /// Everything is negated, as by `!any` or by negating a group that is `any`.
    #[error("all {0} are negated (completely negated): nothing can match")]
    CompletelyNegated(&'static str),
    /// The negated parts remove all others.
    #[error("the negated {0} exclude all others: nothing can match")]
    Empty(&'static str),
}

/// The failed resolution of an expression: reason and place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct ResolveError {
    /// The reason.
    #[source]
    pub kind: ResolveErrorKind,
    /// The part of the expression, counted from its start; for an error inside a variable, the place that
    /// names the variable.
    pub span: Span,
}

/// The address and port groups of a configuration. Values are expressions themselves.
#[derive(Clone, Debug, Default)]
pub struct RuleVariables {
    addresses: BTreeMap<Arc<str>, AddressExpr>,
    ports: BTreeMap<Arc<str>, PortExpr>,
}

impl RuleVariables {
    /// No groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines or redefines an address group.
    ///
    /// # Errors
    /// The value is no address expression; an empty one is usually a `!` that YAML took for a tag because the
    /// value has no quotes.
    pub fn set_address(&mut self, name: &str, value: &str) -> Result<(), ArgumentError> {
        self.addresses.insert(name.into(), parse_expr(value.trim().as_bytes())?);
        Ok(())
    }

    /// Defines or redefines a port group.
    ///
    /// # Errors
    /// As [`RuleVariables::set_address`].
    pub fn set_port(&mut self, name: &str, value: &str) -> Result<(), ArgumentError> {
        self.ports.insert(name.into(), parse_expr(value.trim().as_bytes())?);
        Ok(())
    }

    /// The address groups, by name.
    pub fn addresses(&self) -> impl Iterator<Item = (&Arc<str>, &AddressExpr)> {
        self.addresses.iter()
    }

    /// The port groups, by name.
    pub fn ports(&self) -> impl Iterator<Item = (&Arc<str>, &PortExpr)> {
        self.ports.iter()
    }

    /// Groups that cannot be used in any rule: cycles, undefined names, empty results. (A rule that uses none
    /// of them loads nevertheless, as in Suricata.)
    #[must_use]
    pub fn check(&self) -> Vec<(Arc<str>, ResolveError)> {
        let mut out = self.wrong_addresses();
        out.extend(self.wrong_ports());
        out
    }

    /// The address groups among those of [`RuleVariables::check`].
    #[must_use]
    pub fn wrong_addresses(&self) -> Vec<(Arc<str>, ResolveError)> {
        let wrong = |(name, expr): (&Arc<str>, _)| Some((Arc::clone(name), self.address_set(expr).err()?));
        self.addresses.iter().filter_map(wrong).collect()
    }

    /// The port groups among those of [`RuleVariables::check`].
    #[must_use]
    pub fn wrong_ports(&self) -> Vec<(Arc<str>, ResolveError)> {
        let wrong = |(name, expr): (&Arc<str>, _)| Some((Arc::clone(name), self.port_set(expr).err()?));
        self.ports.iter().filter_map(wrong).collect()
    }

    /// Resolves an address expression.
    ///
    /// # Errors
    /// See [`ResolveErrorKind`].
    pub fn address_set(&self, expr: &AddressExpr) -> Result<AddressSet, ResolveError> {
        let mut parts = AddressParts::default();
        let mut walk = VariableWalk::new(&self.addresses, "address");
        collect_addresses(&mut walk, expr, &mut parts, expr.span, 0)?;
        parts.merge(expr.span)
    }

    /// Resolves a port expression.
    ///
    /// # Errors
    /// See [`ResolveErrorKind`].
    pub fn port_set(&self, expr: &PortExpr) -> Result<PortSet, ResolveError> {
        let mut parts = PortParts::default();
        let mut walk = VariableWalk::new(&self.ports, "port");
        collect_ports(
            &mut walk,
            expr,
            &mut parts,
            PortItemContext { negate: false, last: true, depth: 0 },
            expr.span,
        )?;
        parts.merge(expr.span)
    }

    /// A resolver with a cache: a rule set has tens of thousands of expressions, few of them different.
    #[must_use]
    pub fn resolver(&self) -> Resolver<'_> {
        Resolver { variables: self, addresses: HashMap::new(), ports: HashMap::new() }
    }
}

/// Resolves expressions and caches the results, which equal expressions share.
#[derive(Debug)]
pub struct Resolver<'a> {
    variables: &'a RuleVariables,
    addresses: HashMap<AddressExpr, Result<Arc<AddressSet>, ResolveErrorKind>>,
    ports: HashMap<PortExpr, Result<Arc<PortSet>, ResolveErrorKind>>,
}

impl Resolver<'_> {
    /// As [`RuleVariables::address_set`].
    ///
    /// # Errors
    /// See [`ResolveErrorKind`]. The place is exact only for the first of equal expressions, and the
    /// whole expression for the others.
    pub fn address_set(&mut self, expr: &AddressExpr) -> Result<Arc<AddressSet>, ResolveError> {
        if let Some(known) = self.addresses.get(expr) {
            return known.clone().map_err(|kind| ResolveError { kind, span: expr.span });
        }
        let found = self.variables.address_set(expr).map(Arc::new);
        self.addresses.insert(expr.clone(), found.clone().map_err(|e| e.kind));
        found
    }

    /// As [`RuleVariables::port_set`].
    ///
    /// # Errors
    /// As [`Resolver::address_set`].
    pub fn port_set(&mut self, expr: &PortExpr) -> Result<Arc<PortSet>, ResolveError> {
        if let Some(known) = self.ports.get(expr) {
            return known.clone().map_err(|kind| ResolveError { kind, span: expr.span });
        }
        let found = self.variables.port_set(expr).map(Arc::new);
        self.ports.insert(expr.clone(), found.clone().map_err(|e| e.kind));
        found
    }
}

/// A walk through an expression and the variables it names.
struct VariableWalk<'a, L> {
    groups: &'a BTreeMap<Arc<str>, Expr<L>>,
    what: &'static str,
    /// The variables on the present path, outermost first.
    inside: Vec<&'a Arc<str>>,
    left: usize,
}

impl<'a, L> VariableWalk<'a, L> {
    fn new(groups: &'a BTreeMap<Arc<str>, Expr<L>>, what: &'static str) -> Self {
        Self { groups, what, inside: Vec::new(), left: MAX_RANGES }
    }

    fn enter(&mut self, name: &Arc<str>, span: Span) -> Result<&'a Expr<L>, ResolveError> {
        let Some((name, value)) = self.groups.get_key_value(name) else {
            let similar = suggest(name, self.groups.keys().map(|k| &**k)).map(Into::into);
            let kind = ResolveErrorKind::UnknownVariable { what: self.what, name: Arc::clone(name), similar };
            return Err(ResolveError { kind, span });
        };
        if let Some(from) = self.inside.iter().position(|n| *n == name) {
            let circle = self.inside.iter().skip(from).chain([&name]).map(|n| format!("${n}"));
            let kind = ResolveErrorKind::Cycle(circle.collect::<Vec<_>>().join(" -> "));
            return Err(ResolveError { kind, span });
        }
        self.inside.push(name);
        Ok(value)
    }

    fn leave(&mut self) {
        self.inside.pop();
    }

    /// The place to report for an item: inside of a variable, the place that names the variable.
    fn place(&self, item: &Expr<L>, outer: Span) -> Span {
        if self.inside.is_empty() { item.span } else { outer }
    }

    fn count(&mut self, depth: usize, span: Span) -> Result<(), ResolveError> {
        if depth > MAX_DEPTH {
            return Err(ResolveError { kind: ResolveErrorKind::TooDeep, span });
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return Err(ResolveError { kind: ResolveErrorKind::TooLarge, span }),
        }
        Ok(())
    }
}

/// Addresses so far: included and excluded ones.
#[derive(Default)]
struct AddressParts {
    wanted: Vec<AddressRange>,
    wanted_any: bool,
    refused: Vec<AddressRange>,
    refused_any: bool,
    refused_sets: Vec<AddressSet>,
}

impl AddressParts {
    fn merge(self, span: Span) -> Result<AddressSet, ResolveError> {
        let error = |kind| ResolveError { kind, span };
        let wanted = set_of(&self.wanted, self.wanted_any);
        let mut refused = set_of(&self.refused, self.refused_any);
        for set in &self.refused_sets {
            refused = refused.union(set);
        }
        // Suricata checks IPv4 alone here; a negation of all IPv6 is handled by the check below.
        if refused.v4.is_all() {
            return Err(error(ResolveErrorKind::CompletelyNegated("addresses")));
        }
        let merged =
            AddressSet { v4: subtract(&wanted.v4, &refused.v4), v6: subtract(&wanted.v6, &refused.v6) };
        if merged.is_empty() { Err(error(ResolveErrorKind::Empty("addresses"))) } else { Ok(merged) }
    }
}

/// `wanted` without `refused`; if only the latter has ranges, all other values are wanted.
fn subtract<T: crate::set::Bound>(wanted: &Ranges<T>, refused: &Ranges<T>) -> Ranges<T> {
    if wanted.is_empty() && !refused.is_empty() { refused.complement() } else { wanted.minus(refused) }
}

fn set_of(ranges: &[AddressRange], any: bool) -> AddressSet {
    if any {
        return AddressSet::all();
    }
    let v4 = ranges.iter().filter_map(|r| match r {
        AddressRange::V4(a, b) => Some((u32::from(*a), u32::from(*b))),
        AddressRange::V6(..) => None,
    });
    let v6 = ranges.iter().filter_map(|r| match r {
        AddressRange::V6(a, b) => Some((u128::from(*a), u128::from(*b))),
        AddressRange::V4(..) => None,
    });
    AddressSet { v4: Ranges::new(v4.collect()), v6: Ranges::new(v6.collect()) }
}

fn collect_addresses(
    walk: &mut VariableWalk<'_, AddressRange>,
    item: &AddressExpr,
    parts: &mut AddressParts,
    outer: Span,
    depth: usize,
) -> Result<(), ResolveError> {
    let span = walk.place(item, outer);
    walk.count(depth, span)?;
    match (&item.kind, item.negated) {
        (ExprKind::Any, false) => parts.wanted_any = true,
        (ExprKind::Any, true) => parts.refused_any = true,
        (ExprKind::Leaf(range), false) => parts.wanted.push(*range),
        (ExprKind::Leaf(range), true) => parts.refused.push(*range),
        (ExprKind::List(list), false) => {
            for inner in &list.items {
                collect_addresses(walk, inner, parts, span, depth + 1)?;
            }
        }
        (ExprKind::List(list), true) => {
            let mut inside = AddressParts::default();
            for inner in &list.items {
                collect_addresses(walk, inner, &mut inside, span, depth + 1)?;
            }
            parts.refused_sets.push(inside.merge(span)?);
        }
        (ExprKind::Variable(name), negated) => {
            let value = walk.enter(name, span)?;
            if negated {
                let mut inside = AddressParts::default();
                collect_addresses(walk, value, &mut inside, span, depth + 1)?;
                parts.refused_sets.push(inside.merge(span)?);
            } else {
                collect_addresses(walk, value, parts, span, depth + 1)?;
            }
            walk.leave();
        }
    }
    Ok(())
}

#[derive(Default)]
struct PortParts {
    wanted: Vec<(u16, u16)>,
    refused: Vec<(u16, u16)>,
}

impl PortParts {
    fn merge(self, span: Span) -> Result<PortSet, ResolveError> {
        let (wanted, refused) = (Ranges::new(self.wanted), Ranges::new(self.refused));
        let error = |kind| ResolveError { kind, span };
        if refused.is_all() {
            return Err(error(ResolveErrorKind::CompletelyNegated("ports")));
        }
        let merged = subtract(&wanted, &refused);
        if merged.is_empty() { Err(error(ResolveErrorKind::Empty("ports"))) } else { Ok(merged) }
    }
}

/// The context of an item in a port expression.
#[derive(Clone, Copy)]
struct PortItemContext {
    /// A surrounding list is negated.
    negate: bool,
    /// No comma follows the item.
    last: bool,
    depth: usize,
}

fn collect_ports(
    walk: &mut VariableWalk<'_, PortRange>,
    item: &PortExpr,
    parts: &mut PortParts,
    at: PortItemContext,
    outer: Span,
) -> Result<(), ResolveError> {
    let span = walk.place(item, outer);
    walk.count(at.depth, span)?;
    let depth = at.depth + 1;
    match &item.kind {
        ExprKind::Any | ExprKind::Leaf(_) => {
            let range = match item.kind {
                ExprKind::Leaf(PortRange(low, high)) => (low, high),
                _ => (0, u16::MAX),
            };
            // Suricata's two branches: before a comma either negation counts; at the end two negations
            // cancel.
            let refused = if at.last { at.negate ^ item.negated } else { at.negate || item.negated };
            if refused { parts.refused.push(range) } else { parts.wanted.push(range) }
        }
        ExprKind::List(list) => {
            let count = list.items.len();
            for (i, inner) in list.items.iter().enumerate() {
                let last = i + 1 == count && !list.trailing_comma;
                let place = PortItemContext { negate: at.negate || item.negated, last, depth };
                collect_ports(walk, inner, parts, place, span)?;
            }
        }
        ExprKind::Variable(name) => {
            let value = walk.enter(name, span)?;
            let place = PortItemContext { negate: at.negate ^ item.negated, last: true, depth };
            collect_ports(walk, value, parts, place, span)?;
            walk.leave();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars() -> RuleVariables {
        let mut v = RuleVariables::new();
        for (name, value) in [
            ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
            ("EXTERNAL_NET", "!$HOME_NET"),
            ("HTTP_SERVERS", "$HOME_NET"),
            ("ALL", "any"),
            ("A", "[1.1.1.1,$B]"),
            ("B", "$C"),
            ("C", "!$A"),
            ("SIX", "2001:db8::/32"),
            ("BAD", "$NOWHERE"),
        ] {
            v.set_address(name, value).unwrap();
        }
        for (name, value) in
            [("HTTP_PORTS", "80"), ("SHELLCODE_PORTS", "!80"), ("SIP_PORTS", "[5060, 5061]"), ("P", "$P")]
        {
            v.set_port(name, value).unwrap();
        }
        v
    }

    fn a(text: &str) -> Result<String, ResolveErrorKind> {
        let expr = parse_expr(text.as_bytes()).unwrap();
        vars().address_set(&expr).map(|s| s.to_string()).map_err(|e| e.kind)
    }

    fn p(text: &str) -> Result<String, ResolveErrorKind> {
        let expr = parse_expr(text.as_bytes()).unwrap();
        vars().port_set(&expr).map(|s| s.to_string()).map_err(|e| e.kind)
    }

    #[test]
    fn addresses_come_to_sets() {
        for (text, set) in [
            ("[10.0.0.0/8,!10.1.0.0/16]", "[10.0.0.0-10.0.255.255,10.2.0.0-10.255.255.255]"),
            ("[10.0.0.0/24,[10.0.1.0/24,!10.0.0.128/25]]", "[10.0.0.0-10.0.0.127,10.0.1.0-10.0.1.255]"),
            ("!10.0.0.0/8", "[0.0.0.0-9.255.255.255,11.0.0.0-255.255.255.255]"),
            ("!::/1", "[8000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]"),
            ("![!10.0.0.1]", "[10.0.0.1]"),
            ("![10.0.0.0/8,!10.0.0.1]", "[0.0.0.0-9.255.255.255,10.0.0.1,11.0.0.0-255.255.255.255]"),
            (
                "[any,!$HOME_NET,!::/1]",
                "[0.0.0.0-9.255.255.255,11.0.0.0-172.15.255.255,172.32.0.0-192.167.255.255,192.169.0.0-255.255.255.255,8000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
            ),
            (
                "[$SIX,10.0.0.1,!2001:db8::/33]",
                "[10.0.0.1,2001:db8:8000::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]",
            ),
            (
                "!$EXTERNAL_NET",
                "[10.0.0.0-10.255.255.255,172.16.0.0-172.31.255.255,192.168.0.0-192.168.255.255]",
            ),
        ] {
            assert_eq!(a(text).as_deref(), Ok(set), "{text}");
        }
        assert!(vars().address_set(&Expr::any()).unwrap().is_all());
    }

    #[test]
    fn external_net_has_no_ipv6_when_home_net_has_none() {
        let set = vars().address_set(&parse_expr(b"$EXTERNAL_NET").unwrap()).unwrap();
        assert!(set.contains("8.8.8.8".parse().unwrap()));
        assert!(!set.contains("10.9.9.9".parse().unwrap()));
        assert!(!set.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn addresses_that_come_to_nothing() {
        use ResolveErrorKind as K;
        for text in ["!any", "!$ALL", "[10.0.0.1,!any]", "!0.0.0.0/0", "[!0.0.0.0/1,!128.0.0.0/1]", "![!any]"]
        {
            assert_eq!(a(text), Err(K::CompletelyNegated("addresses")), "{text}");
        }
        for text in ["[10.0.0.1,!10.0.0.0/8]", "!::/0", "[$EXTERNAL_NET,10.0.0.0/8]", "![10.0.0.1,!10.0.0.1]"]
        {
            assert_eq!(a(text), Err(K::Empty("addresses")), "{text}");
        }
        assert!(matches!(a("$A"), Err(K::Cycle(c)) if c == "$A -> $B -> $C -> $A"));
        let e = vars().address_set(&parse_expr(b"[1.1.1.1, $HOME_NTE]").unwrap()).unwrap_err();
        assert_eq!((e.span.start, e.span.end), (10, 19));
        assert!(matches!(e.kind, K::UnknownVariable { similar: Some(s), .. } if &*s == "HOME_NET"));
        let bad = vars().check();
        assert_eq!(bad.iter().map(|(n, _)| &**n).collect::<Vec<_>>(), ["A", "B", "BAD", "C", "P"]);
    }

    #[test]
    fn ports_come_to_sets() {
        for (text, set) in [
            ("[80:100,!99]", "[80:98,100]"),
            ("[1:80,![2,4]]", "[1,3,5:80]"),
            ("!80", "[0:79,81:65535]"),
            ("!$SIP_PORTS", "[0:5059,5062:65535]"),
            ("!$SHELLCODE_PORTS", "[80]"),
            ("[$HTTP_PORTS,$SIP_PORTS]", "[80,5060:5061]"),
            ("any", "[0:65535]"),
            ("[!80,!20,!21]", "[0:19,22:79,81:65535]"),
            // The odd corner: the last item's own negation cancels the list's; those of other items do not.
            ("![80,!81]", "[81]"),
            ("![!80,81,]", "[0:79,82:65535]"),
        ] {
            assert_eq!(p(text).as_deref(), Ok(set), "{text}");
        }
        use ResolveErrorKind as K;
        assert_eq!(p("!any"), Err(K::CompletelyNegated("ports")));
        assert_eq!(p("[!0:1023,!1024:]"), Err(K::CompletelyNegated("ports")));
        assert_eq!(p("[80,!80]"), Err(K::Empty("ports")));
        assert!(matches!(p("$P"), Err(K::Cycle(_))));
    }

    #[test]
    fn variables_that_double_at_each_level_end() {
        let mut v = RuleVariables::new();
        for i in 0..40 {
            v.set_address(&format!("V{i}"), &format!("[$V{},$V{}]", i + 1, i + 1)).unwrap();
        }
        v.set_address("V40", "10.0.0.1").unwrap();
        let e = v.address_set(&parse_expr(b"$V0").unwrap()).unwrap_err();
        assert!(matches!(e.kind, ResolveErrorKind::TooLarge | ResolveErrorKind::TooDeep), "{e}");
    }

    #[test]
    fn equal_expressions_share_a_set() {
        let v = vars();
        let mut r = v.resolver();
        let x = r.address_set(&parse_expr(b"[10.0.0.1, 10.0.0.2]").unwrap()).unwrap();
        let y = r.address_set(&parse_expr(b"[10.0.0.1,10.0.0.2]").unwrap()).unwrap();
        assert!(Arc::ptr_eq(&x, &y));
        assert!(r.port_set(&parse_expr(b"!any").unwrap()).is_err());
        assert!(r.port_set(&parse_expr(b"!any").unwrap()).is_err());
    }
}
