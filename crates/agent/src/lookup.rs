// SPDX-License-Identifier: Apache-2.0
//! One lookup on a flow's first packet: its policy, its service level and, for each function with rules on headers, the
//! first of its rules that matches.
//!
//! Each of these is a rule set of one classifier. A function's set has the rules of all policies, those of the first policy
//! first. So that a policy's rules are met by no other policy's flows, each is cut to what its policy selects; only those
//! of the last policy need not be, because nothing stands behind them. What is found counts if it is a rule of the flow's
//! own policy; another's can be found only where none of its own matches.
//!
//! Rules that cutting would multiply too much, or that one structure cannot hold, stand alone: each policy has a classifier of its
//! own for them, which is asked when the policy is known.

use crate::named::NamedClassifier;
use bartizan_base::{Fid, FunctionId};
use bartizan_classify::{
    Entry, Header, HeaderNames, HeaderRule, InsertError, Layered, List, Match, SETS_MAX, Segments,
};
use bartizan_stages::chain::Matches;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Header rules that stand together in one lookup unless [`crate::Agent::set_together_max`] says otherwise.
pub const TOGETHER_MAX: usize = 1 << 17;
/// Pairs of rules and their policy's selectors that are compared at most, so that building takes no minutes.
const PAIRS_MAX: usize = 1 << 24;
/// Bytes that the classifier of a generation may take.
const TOGETHER_BYTES: usize = 256 << 20;
/// Bytes that the classifier of one policy's rules may take, and rules up to which it gets fewer: there may be thousands.
const ALONE_BYTES: usize = 64 << 20;
const FEW_RULES: usize = 1024;
const FEW_BYTES: usize = 512 << 10;
/// Sets before those of functions: policies and service levels.
const OWN_SETS: usize = 2;

/// The rules of a function for the flows of a policy, or of all that have the function: then there are no others.
#[derive(Debug)]
pub(crate) struct PolicyRules {
    pub(crate) function: FunctionId,
    /// What explanations call one of them.
    pub(crate) called: &'static str,
    /// The policies, in the order in which they are tried.
    pub(crate) policies: Vec<usize>,
    /// Number and what it matches; the lowest number that matches is found.
    pub(crate) rules: Vec<(u32, HeaderRule)>,
}

/// Where the rules of a function for a policy are found.
#[derive(Clone, Debug)]
enum Place {
    /// In a set, by these numbers from the first on.
    Together { set: usize, first: u32, count: u32 },
    /// In a classifier of their own.
    Alone(Arc<NamedClassifier>),
}

/// Where a policy's rules are found, by function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<[(FunctionId, Place)]>);

/// See the module.
#[derive(Debug)]
pub(crate) struct Lookup {
    classifier: Arc<NamedClassifier>,
    places: BTreeMap<usize, Places>,
    alone: Alone,
}

/// Classifiers of single policies, by a hash of their rules.
type Alone = HashMap<u64, Arc<NamedClassifier>>;

/// What the lookup of the next generation may have of this one's.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptLookup {
    classifier: Option<Arc<NamedClassifier>>,
    alone: Alone,
}

impl KeptLookup {
    /// The tables that all policies are found by.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Arc<Layered>> {
        self.classifier.iter().flat_map(|classifier| classifier.layers())
    }
}

/// What was found of a header.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) policy: Option<Match>,
    pub(crate) level: Option<Match>,
    results: [Option<Match>; SETS_MAX as usize],
}

impl Lookup {
    /// Builds it. `selectors`: which headers a policy is about, by its number. `before`: what is kept of the generation before, of which it shares what has not changed.
    ///
    /// # Errors
    /// The classifier cannot be built.
    pub(crate) fn new(
        policies: Vec<Entry>,
        levels: Vec<Entry>,
        selectors: &[Vec<HeaderRule>],
        mut rules: Vec<PolicyRules>,
        together_max: usize,
        before: &KeptLookup,
    ) -> Result<Self, InsertError> {
        let build = |sets: &[Vec<Entry>]| {
            let lists = sets.iter().map(|set| List::from(set.as_slice())).collect();
            NamedClassifier::new(before.classifier.as_deref(), lists, TOGETHER_BYTES)
        };
        rules.sort_by_key(|r| (r.function, r.policies.first().copied()));
        let mut sets = vec![policies, levels];
        let own: usize = sets.iter().map(Vec::len).sum();
        if let Some(Together { places, sets: more }) =
            together(&rules, selectors, together_max.saturating_sub(own))
        {
            sets.extend(more);
            let classifier = build(&sets)?;
            if classifier.fits || rules.is_empty() {
                let classifier = Arc::new(classifier);
                return Ok(Lookup { classifier, places, alone: Alone::default() });
            }
            sets.truncate(OWN_SETS);
        }
        let classifier = Arc::new(build(&sets)?);
        let (mut places, mut alone) = (BTreeMap::new(), Alone::default());
        for PolicyRules { function, policies, mut rules, .. } in rules {
            rules.sort_by_key(|(number, _)| *number);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&rules);
            let entry = |(number, rule)| Entry { fid: Fid(number), priority: number, rule };
            let entries: List = rules.into_iter().map(entry).collect();
            let own = before.alone.get(&hash).filter(|known| known.is_of(&entries)).cloned();
            let own = match own {
                Some(own) => own,
                None => {
                    let bytes = if entries.len() <= FEW_RULES { FEW_BYTES } else { ALONE_BYTES };
                    Arc::new(NamedClassifier::new(None, vec![entries], bytes)?)
                }
            };
            alone.insert(hash, Arc::clone(&own));
            add(&mut places, &policies, function, Place::Alone(own));
        }
        Ok(Lookup { classifier, places, alone })
    }

    /// What the next generation may have of it.
    pub(crate) fn kept(&self) -> KeptLookup {
        KeptLookup { classifier: Some(Arc::clone(&self.classifier)), alone: self.alone.clone() }
    }

    /// Where a policy's rules are found.
    pub(crate) fn places(&self, policy: usize) -> Places {
        self.places.get(&policy).cloned().unwrap_or_default()
    }

    /// The lookup of a header whose addresses have these names.
    pub(crate) fn find(&self, header: &Header, names: &HeaderNames) -> Found {
        let mut results = [None; SETS_MAX as usize];
        self.classifier.lookup(header, names, &mut results);
        let [policy, level, ..] = results;
        Found { policy, level, results }
    }
}

/// What a lookup meets, for `explain`.
pub(crate) struct Met {
    pub(crate) segments: Segments,
    /// Fids of the policies and numbers of the service levels that match.
    pub(crate) policies: Vec<u32>,
    pub(crate) levels: Vec<u32>,
    /// For each function of the policy its rules that match.
    pub(crate) rules: Vec<(FunctionId, Vec<u32>)>,
}

impl Lookup {
    /// What the lookup of a header meets for a policy that has its rules in `places`.
    pub(crate) fn explain(&self, header: &Header, names: &HeaderNames, places: &Places) -> Met {
        let mut segments = Segments::new(header);
        let mut matching = |sets: Vec<Vec<Entry>>| -> Vec<Vec<u32>> {
            sets.iter().flatten().for_each(|entry| segments.cut(&entry.rule));
            let of = |set: &Vec<Entry>| {
                let mut fids: Vec<u32> =
                    set.iter().filter(|e| e.rule.matches_named(header, names)).map(|e| e.fid.0).collect();
                // A rule may stand there several times.
                fids.dedup();
                fids
            };
            sets.iter().map(of).collect()
        };
        let sets = matching(self.classifier.all_entries());
        let set = |set: usize| sets.get(set).cloned().unwrap_or_default();
        let rules = places.0.iter().map(|(function, place)| match place {
            Place::Together { set: number, first, count } => {
                let own = set(*number).into_iter().filter_map(|n| n.checked_sub(*first));
                (*function, own.filter(|rule| rule < count).collect())
            }
            Place::Alone(classifier) => {
                (*function, matching(classifier.all_entries()).into_iter().flatten().collect())
            }
        });
        let rules = rules.collect();
        Met { policies: set(0), levels: set(1), rules, segments }
    }
}

impl Found {
    /// What was found among the rules of a policy, into `matches`.
    pub(crate) fn matches(
        &self,
        places: &Places,
        (header, names): (&Header, &HeaderNames),
        matches: &mut Matches,
    ) {
        matches.clear();
        for (function, place) in places.0.iter() {
            let rule = match place {
                Place::Together { set, first, count } => {
                    let found = self.results.get(*set).copied().flatten();
                    found.and_then(|m| m.fid.0.checked_sub(*first)).filter(|rule| rule < count)
                }
                Place::Alone(classifier) => {
                    let mut result = [None];
                    classifier.lookup(header, names, &mut result);
                    let [found] = result;
                    found.map(|m| m.fid.0)
                }
            };
            matches.extend(rule.map(|rule| (*function, rule)));
        }
    }
}

fn add(places: &mut BTreeMap<usize, Places>, policies: &[usize], function: FunctionId, place: Place) {
    for policy in policies {
        let Places(known) = places.entry(*policy).or_default();
        *known = known.iter().cloned().chain([(function, place.clone())]).collect();
    }
}

/// Sets of functions, and where each policy's rules are found there.
struct Together {
    places: BTreeMap<usize, Places>,
    sets: Vec<Vec<Entry>>,
}

/// Puts each function's rules of all policies into a set. `None`: there are more functions than sets, or more than `most`
/// rules.
fn together(rules: &[PolicyRules], selectors: &[Vec<HeaderRule>], most: usize) -> Option<Together> {
    let mut places = BTreeMap::new();
    let mut sets: Vec<Vec<Entry>> = Vec::new();
    let mut left = most;
    for of_function in rules.chunk_by(|a, b| a.function == b.function) {
        let set = OWN_SETS + sets.len();
        if set >= usize::from(SETS_MAX) {
            return None;
        }
        let mut entries = Vec::new();
        let mut first = 0u32;
        for (index, PolicyRules { function, policies, rules, .. }) in of_function.iter().enumerate() {
            let whole = [HeaderRule::default()];
            let is_last = index + 1 == of_function.len();
            let own = policies.first().and_then(|policy| selectors.get(*policy));
            let selectors = if is_last { whole.as_slice() } else { own? };
            if rules.len().saturating_mul(selectors.len()) > PAIRS_MAX {
                return None;
            }
            for (number, rule) in rules {
                let number = first.checked_add(*number)?;
                // An address may have both names, and a rule can ask for one of each side: by itself it is looked up exactly.
                if selectors.iter().any(|selector| selector.asks_other_names(rule)) {
                    return None;
                }
                for rule in selectors.iter().filter_map(|selector| selector.and(rule)) {
                    left = left.checked_sub(1)?;
                    entries.push(Entry { fid: Fid(number), priority: number, rule });
                }
            }
            let count = rules.iter().map(|(number, _)| *number + 1).max().unwrap_or(0);
            add(&mut places, policies, *function, Place::Together { set, first, count });
            first = first.checked_add(count)?;
        }
        sets.push(entries);
    }
    Some(Together { places, sets })
}
