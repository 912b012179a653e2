// SPDX-License-Identifier: Apache-2.0
//! The order in which functions run, which is the order of their bits in paths.
//!
//! A path's functions run lowest bit first. Each request of a function to run before or after another becomes
//! an edge, and the functions are numbered in an order that satisfies all edges. Among functions that may
//! come next, the one registered first does, so that the numbers are reproducible.

use bartizan_base::FunctionId;
use bartizan_function::{ENTRY_BYTES_MAX, FunctionModel, FunctionSpec, LOOKUPS_MAX};

/// Most functions, as a path has that many bits.
pub const FUNCTIONS_MAX: usize = 32;

/// Why functions cannot be ordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Each of these must run before the next, the last before the first.
    #[error("the order of the functions {} is circular; change `runs_before` or `runs_after` of one", .0.join(", "))]
    Cycle(Vec<&'static str>),
    /// There are more functions than bits in a path.
    #[error("{0} functions are registered, and a path has room for {FUNCTIONS_MAX}; remove some")]
    TooMany(usize),
    /// A header half is too large for levels below the host.
    #[error(
        "the header half of function `{0}` has entries of more than {ENTRY_BYTES_MAX} bytes or more than {LOOKUPS_MAX} lookups; make its tables smaller, or declare none"
    )]
    HeaderHalf(&'static str),
    /// The first handles payloads and must run before the second, which handles headers.
    #[error(
        "function `{0}` inspects payloads and must run before `{1}`, which inspects headers, but header functions run first; change `runs_before` or `runs_after`"
    )]
    PayloadFirst(&'static str, &'static str),
    /// Two functions have the same name.
    #[error("two functions are called `{0}`; rename one")]
    SameName(&'static str),
}

/// The number of each function, in the order of `specs`.
///
/// # Errors
/// See [`OrderError`].
pub fn order(specs: &[&'static FunctionSpec]) -> Result<Vec<FunctionId>, OrderError> {
    if specs.len() > FUNCTIONS_MAX {
        return Err(OrderError::TooMany(specs.len()));
    }
    for (index, spec) in specs.iter().enumerate() {
        if specs.iter().skip(index + 1).any(|other| other.name == spec.name) {
            return Err(OrderError::SameName(spec.name));
        }
    }
    for (spec, half) in specs.iter().filter_map(|spec| Some((spec, spec.header_half?))) {
        if !half.fits() {
            return Err(OrderError::HeaderHalf(spec.name));
        }
    }
    let before = |a: &FunctionSpec, b: &FunctionSpec| {
        a.runs_before.contains(&b.name) || b.runs_after.contains(&a.name)
    };
    // Header functions always run before streams are read.
    for spec in specs.iter().filter(|spec| spec.model == FunctionModel::Payload) {
        let later = |other: &&&FunctionSpec| other.model != FunctionModel::Payload && before(spec, other);
        if let Some(other) = specs.iter().find(later) {
            return Err(OrderError::PayloadFirst(spec.name, other.name));
        }
    }
    let mut numbers: Vec<Option<FunctionId>> = vec![None; specs.len()];
    for number in 0..specs.len() {
        let now = numbers.clone();
        let open = |i: usize| now.get(i).is_some_and(Option::is_none);
        let is_next = |i: usize, spec: &FunctionSpec| {
            open(i) && !specs.iter().enumerate().any(|(j, other)| open(j) && j != i && before(other, spec))
        };
        let next = specs.iter().enumerate().find(|(i, spec)| is_next(*i, spec)).map(|(i, _)| i);
        match next.and_then(|i| numbers.get_mut(i)) {
            Some(slot) => *slot = u8::try_from(number).ok().map(FunctionId),
            None => {
                let left: Vec<_> =
                    specs.iter().enumerate().filter(|(i, _)| open(*i)).map(|(_, s)| *s).collect();
                return Err(OrderError::Cycle(circle(&left, before)));
            }
        }
    }
    Ok(numbers.into_iter().flatten().collect())
}

/// Finds a cycle among functions each of which has a predecessor.
fn circle(
    left: &[&'static FunctionSpec],
    before: impl Fn(&FunctionSpec, &FunctionSpec) -> bool,
) -> Vec<&'static str> {
    let mut way: Vec<&'static FunctionSpec> = left.first().copied().into_iter().collect();
    while let Some(last) = way.last().copied() {
        let Some(previous) = left.iter().copied().find(|s| s.name != last.name && before(s, last)) else {
            break;
        };
        if let Some(start) = way.iter().position(|s| s.name == previous.name) {
            let mut names: Vec<_> = way.iter().skip(start).map(|s| s.name).collect();
            names.reverse();
            return names;
        }
        way.push(previous);
    }
    left.iter().map(|s| s.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_function::HeaderHalf;

    fn spec(
        name: &'static str,
        after: &'static [&'static str],
        before: &'static [&'static str],
    ) -> &'static FunctionSpec {
        Box::leak(Box::new(FunctionSpec {
            name,
            summary: "",
            model: FunctionModel::StatelessHeaders,
            runs_after: after,
            runs_before: before,
            header_half: None,
            host_slot: None,
            counters: &[],
        }))
    }

    #[test]
    fn wishes_are_met_and_ties_go_to_the_first() {
        let ids = spec("ids", &["pfw", "sfw"], &[]);
        let x = spec("x", &[], &[]);
        let sfw = spec("sfw", &[], &["ids"]);
        let pfw = spec("pfw", &["missing"], &["sfw"]);
        let numbers = order(&[ids, x, sfw, pfw]).unwrap();
        assert_eq!(numbers.iter().map(|n| n.0).collect::<Vec<_>>(), [3, 0, 2, 1]);
    }

    #[test]
    fn header_halves_have_bounds() {
        let with = |entry_bytes, lookups| {
            let half = HeaderHalf { fields: &[], entry_bytes, lookups };
            let x = spec("x", &[], &[]);
            let x: &FunctionSpec = Box::leak(Box::new(FunctionSpec { header_half: Some(half), ..*x }));
            order(&[x])
        };
        assert_eq!(with(128, 2), Ok(vec![FunctionId(0)]));
        assert_eq!(with(129, 2), Err(OrderError::HeaderHalf("x")));
        assert_eq!(with(128, 3), Err(OrderError::HeaderHalf("x")));
    }

    #[test]
    fn no_payload_function_runs_before_a_header_function() {
        let payload = |name, after, before| -> &'static FunctionSpec {
            Box::leak(Box::new(FunctionSpec { model: FunctionModel::Payload, ..*spec(name, after, before) }))
        };
        let (x, y) = (spec("x", &[], &[]), spec("y", &["p"], &[]));
        let p = payload("p", &[], &["x"]);
        assert_eq!(order(&[x, p]), Err(OrderError::PayloadFirst("p", "x")));
        assert_eq!(order(&[payload("p", &[], &[]), y]), Err(OrderError::PayloadFirst("p", "y")));
        assert!(order(&[payload("p", &["x"], &["q"]), x, payload("q", &[], &[])]).is_ok());
    }

    #[test]
    fn circles_are_told() {
        let all = [
            spec("z", &[], &[]),
            spec("a", &[], &["b"]),
            spec("b", &[], &["c"]),
            spec("c", &[], &["a"]),
            spec("d", &["c"], &[]),
        ];
        assert_eq!(order(&all), Err(OrderError::Cycle(vec!["b", "c", "a"])));
        assert_eq!(order(&[spec("a", &[], &[]), spec("a", &[], &[])]), Err(OrderError::SameName("a")));
        let many: Vec<_> =
            (0..33).map(|n: u32| spec(Box::leak(n.to_string().into_boxed_str()), &[], &[])).collect();
        assert_eq!(order(&many), Err(OrderError::TooMany(33)));
    }
}
