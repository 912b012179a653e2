// SPDX-License-Identifier: Apache-2.0
//! One lookup on a flow's first packet finds its policy, its service level and, for each function with header
//! rules, the first matching rule.
//!
//! Each of these is a rule set of one classifier. A function's set holds the rules of all policies, those of
//! the first policy first. Each rule is cut to what its policy selects, so that flows of later policies do
//! not match it; rules of the last policy need no cut. A match counts if it is a rule of the flow's own
//! policy; a match of another policy occurs only where none of the own rules matches.
//!
//! Rules that cutting would multiply too much, or that do not fit one structure, stand alone: each policy has
//! a classifier of its own for them, which is searched once the policy is known.

use crate::kept;
use crate::named::NamedClassifier;
use bartizan_base::{Fid, FunctionId};
use bartizan_classify::list::{Numbers, Piece, Placed};
use bartizan_classify::{
    Header, HeaderNames, HeaderRule, InsertError, Layered, List, Match, RankedRule, SETS_MAX, Segments,
};
use bartizan_stages::chain::HeaderRuleMatches;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Most header rules that share one lookup; [`crate::Agent::set_together_max`] changes it.
pub const TOGETHER_MAX: usize = 1 << 17;
/// Most comparisons of rules with their policy's selectors, which bounds the time of a build.
const PAIRS_MAX: usize = 1 << 24;
/// Most bytes of a generation's classifier.
const TOGETHER_BYTES: usize = 256 << 20;
/// Most bytes of the classifier of one policy's rules. Small rule sets get less: there may be thousands.
const ALONE_BYTES: usize = 64 << 20;
const FEW_RULES: usize = 1024;
const FEW_BYTES: usize = 512 << 10;
/// Number of sets before those of functions: policies and service levels.
const OWN_SETS: usize = 2;

/// The rules of a function for the flows of one policy; or for those of all policies with the function, which
/// then have no others.
#[derive(Debug)]
pub(crate) struct PolicyRules {
    pub(crate) function: FunctionId,
    /// Name of one of the rules in explanations.
    pub(crate) called: &'static str,
    /// The policies, in the order in which they are tried.
    pub(crate) policies: Vec<usize>,
    /// Numbered rules; the lowest number that matches is found.
    pub(crate) rules: Arc<[(u32, HeaderRule)]>,
}

/// The place of a function's rules for a policy.
#[derive(Clone, Debug)]
pub(crate) enum RulePlace {
    /// In a shared set, with `count` numbers from `first` on.
    Together { set: usize, first: u32, count: u32 },
    /// In a classifier of their own.
    Alone(Arc<NamedClassifier>),
}

/// The places of a policy's rules, by function.
type RulePlaces = SmallVec<[(FunctionId, RulePlace); 2]>;

/// The lookup of a generation; see the module.
#[derive(Debug)]
pub(crate) struct Lookup {
    classifier: Arc<NamedClassifier>,
    /// Places by policy.
    places: Vec<RulePlaces>,
    alone: Alone,
    cuts: Cuts,
    unfit: Option<usize>,
}

/// The classifier of one policy's rules.
#[derive(Debug)]
struct OfPolicy {
    rules: Arc<[(u32, HeaderRule)]>,
    /// Hash of the rules, so that equal rules of other policies or of new ones share the classifier.
    hash: u64,
    classifier: Arc<NamedClassifier>,
}

/// Classifiers of single policies, in the order of functions and policies.
type Alone = Arc<Vec<Arc<OfPolicy>>>;

/// Rules of a policy, cut to what the policy selects.
#[derive(Debug)]
struct Cut {
    /// The headers that the policy selects; `None`: no policy follows, so nothing was cut.
    selected: Option<Arc<[HeaderRule]>>,
    rules: Arc<[(u32, HeaderRule)]>,
    cut: Arc<Piece>,
    /// The range of numbers that the rules occupy.
    count: u32,
}

/// Cut rules by function, in the order of the policies.
type Cuts = Arc<BTreeMap<FunctionId, Vec<Arc<Cut>>>>;

/// The parts of a lookup that the next generation may reuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptLookup {
    classifier: Option<Arc<NamedClassifier>>,
    alone: Alone,
    cuts: Cuts,
    /// The number of functions' rules for which one classifier did not fit.
    unfit: Option<usize>,
}

impl KeptLookup {
    /// The tables that find all policies.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Arc<Layered>> {
        self.classifier.iter().flat_map(|classifier| classifier.layers())
    }
}

/// The matches of a header.
#[derive(Debug)]
pub(crate) struct HeaderMatches {
    pub(crate) policy: Option<Match>,
    pub(crate) level: Option<Match>,
    results: [Option<Match>; SETS_MAX as usize],
}

impl Lookup {
    /// Builds the lookup. `selectors`: the headers that each policy selects, by its number. `before`: the
    /// parts of the previous generation, which are shared where nothing has changed.
    ///
    /// # Errors
    /// The classifier cannot be built.
    pub(crate) fn new(
        policies: List,
        levels: List,
        selectors: &[&Arc<[HeaderRule]>],
        mut rules: Vec<PolicyRules>,
        together_max: usize,
        before: &KeptLookup,
    ) -> Result<Self, InsertError> {
        let build =
            |sets: &[List]| NamedClassifier::new(before.classifier.as_deref(), sets.to_vec(), TOGETHER_BYTES);
        rules.sort_by_key(|r| (r.function, r.policies.first().copied()));
        let mut sets = vec![policies, levels];
        let own: usize = sets.iter().map(List::len).sum();
        let owners = selectors.len().max(1);
        let most = together_max.saturating_sub(own);
        let count: usize = rules.iter().map(|of| of.rules.len()).sum();
        // Finding that shared tables do not fit takes longer than building separate ones: they are tried
        // again only with clearly fewer rules.
        let mut unfit = before.unfit.filter(|unfit| count >= unfit - unfit / 4);
        let together = match unfit {
            None => together(&rules, selectors, most, &before.cuts),
            Some(_) => None,
        };
        if let Some(Together { places, sets: more, cuts }) = together {
            sets.extend(more);
            let classifier = build(&sets)?;
            if classifier.fits || rules.is_empty() {
                let classifier = Arc::new(classifier);
                return Ok(Lookup { classifier, places, alone: Alone::default(), cuts, unfit: None });
            }
            sets.truncate(OWN_SETS);
            unfit = Some(count);
        }
        let classifier = Arc::new(build(&sets)?);
        let mut places = vec![RulePlaces::new(); owners];
        let alone = alone(&rules, &before.alone)?;
        for (PolicyRules { function, policies, .. }, own) in rules.iter().zip(&alone) {
            add(&mut places, policies, *function, &RulePlace::Alone(Arc::clone(&own.classifier)));
        }
        Ok(Lookup { classifier, places, alone: Arc::new(alone), cuts: Cuts::default(), unfit })
    }

    /// The parts that the next generation may reuse.
    pub(crate) fn kept(&self) -> KeptLookup {
        let (classifier, alone) = (Some(Arc::clone(&self.classifier)), Arc::clone(&self.alone));
        KeptLookup { classifier, alone, cuts: Arc::clone(&self.cuts), unfit: self.unfit }
    }

    /// The places of a policy's rules.
    pub(crate) fn places(&self, policy: usize) -> &[(FunctionId, RulePlace)] {
        self.places.get(policy).map(|places| places.as_slice()).unwrap_or_default()
    }

    /// Looks up a header whose addresses have these names.
    pub(crate) fn find(&self, header: &Header, names: &HeaderNames) -> HeaderMatches {
        let mut results = [None; SETS_MAX as usize];
        self.classifier.lookup(header, names, &mut results);
        let [policy, level, ..] = results;
        HeaderMatches { policy, level, results }
    }
}

/// The matches of a lookup, for `explain`.
pub(crate) struct Met {
    pub(crate) segments: Segments,
    /// Matching fids of policies, and matching numbers of service levels.
    pub(crate) policies: Vec<u32>,
    pub(crate) levels: Vec<u32>,
    /// Matching rules of each function of the policy.
    pub(crate) rules: Vec<(FunctionId, Vec<u32>)>,
}

impl Lookup {
    /// The matches of a header for a policy that has its rules in `places`.
    pub(crate) fn explain(
        &self,
        header: &Header,
        names: &HeaderNames,
        places: &[(FunctionId, RulePlace)],
    ) -> Met {
        let mut segments = Segments::new(header);
        let mut matching = |sets: Vec<Vec<RankedRule>>| -> Vec<Vec<u32>> {
            sets.iter().flatten().for_each(|entry| segments.cut(&entry.rule));
            let of = |set: &Vec<RankedRule>| {
                let mut fids: Vec<u32> =
                    set.iter().filter(|e| e.rule.matches_named(header, names)).map(|e| e.fid.0).collect();
                // A rule may occur several times.
                fids.dedup();
                fids
            };
            sets.iter().map(of).collect()
        };
        let sets = matching(self.classifier.all_entries());
        let set = |set: usize| sets.get(set).cloned().unwrap_or_default();
        let rules = places.iter().map(|(function, place)| match place {
            RulePlace::Together { set: number, first, count } => {
                let own = set(*number).into_iter().filter_map(|n| n.checked_sub(*first));
                (*function, own.filter(|rule| rule < count).collect())
            }
            RulePlace::Alone(classifier) => {
                (*function, matching(classifier.all_entries()).into_iter().flatten().collect())
            }
        });
        let rules = rules.collect();
        Met { policies: set(0), levels: set(1), rules, segments }
    }
}

impl HeaderMatches {
    /// Writes the matches among a policy's rules to `matches`.
    pub(crate) fn matches(
        &self,
        places: &[(FunctionId, RulePlace)],
        header: &Header,
        names: &HeaderNames,
        matches: &mut HeaderRuleMatches,
    ) {
        matches.clear();
        for (function, place) in places {
            let rule = match place {
                RulePlace::Together { set, first, count } => {
                    let found = self.results.get(*set).copied().flatten();
                    found.and_then(|m| m.fid.0.checked_sub(*first)).filter(|rule| rule < count)
                }
                RulePlace::Alone(classifier) => {
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

fn add(places: &mut [RulePlaces], policies: &[usize], function: FunctionId, place: &RulePlace) {
    for policy in policies {
        if let Some(known) = places.get_mut(*policy) {
            known.push((function, place.clone()));
        }
    }
}

/// A classifier for the rules of each policy; reuses those of the previous generation with the same rules.
fn alone(rules: &[PolicyRules], before: &Alone) -> Result<Vec<Arc<OfPolicy>>, InsertError> {
    let known = kept::places(
        (before.as_slice(), |of: &Arc<OfPolicy>| Arc::as_ptr(&of.rules).addr()),
        (rules, |of: &PolicyRules| Arc::as_ptr(&of.rules).addr()),
    );
    let mut by_hash: HashMap<u64, Arc<OfPolicy>> = HashMap::new();
    if known.iter().any(Option::is_none) {
        by_hash.extend(before.iter().map(|of| (of.hash, Arc::clone(of))));
    }
    let mut all = Vec::with_capacity(rules.len());
    for (PolicyRules { rules, .. }, known) in rules.iter().zip(known) {
        if let Some(known) = known.and_then(|place| before.get(place)) {
            all.push(Arc::clone(known));
            continue;
        }
        let mut sorted = rules.to_vec();
        sorted.sort_by_key(|(number, _)| *number);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&sorted);
        let entry = |(number, rule)| RankedRule { fid: Fid(number), priority: number, rule };
        let entries: List = sorted.into_iter().map(entry).collect();
        let same = by_hash.get(&hash).filter(|known| known.classifier.is_of(&entries));
        let classifier = match same {
            Some(known) => Arc::clone(&known.classifier),
            None => {
                let bytes = if entries.len() <= FEW_RULES { FEW_BYTES } else { ALONE_BYTES };
                Arc::new(NamedClassifier::new(None, vec![entries], bytes)?)
            }
        };
        let own = Arc::new(OfPolicy { rules: Arc::clone(rules), hash, classifier });
        by_hash.insert(hash, Arc::clone(&own));
        all.push(own);
    }
    Ok(all)
}

/// Sets of functions, with the places of each policy's rules.
struct Together {
    places: Vec<RulePlaces>,
    sets: Vec<List>,
    cuts: Cuts,
}

/// Puts each function's rules of all policies into a set. `None`: more functions than sets, or more than
/// `most` rules.
fn together(
    rules: &[PolicyRules],
    selectors: &[&Arc<[HeaderRule]>],
    most: usize,
    before: &Cuts,
) -> Option<Together> {
    let mut places = vec![RulePlaces::new(); selectors.len().max(1)];
    let (mut sets, mut cuts) = (Vec::new(), BTreeMap::new());
    let mut left = most;
    for of_function in rules.chunk_by(|a, b| a.function == b.function) {
        let set = OWN_SETS + sets.len();
        if set >= usize::from(SETS_MAX) {
            return None;
        }
        let function = of_function.first()?.function;
        let known = before.get(&function).map(Vec::as_slice).unwrap_or_default();
        let own = cut(of_function, selectors, known, left)?;
        let listed: usize = own.iter().map(|cut| cut.cut.len()).sum();
        left = left.checked_sub(listed)?;
        let mut pieces = Vec::with_capacity(own.len());
        let mut first = 0u32;
        for (PolicyRules { policies, .. }, Cut { cut, count, .. }) in
            of_function.iter().zip(own.iter().map(Arc::as_ref))
        {
            let behind = first.checked_add(*count)?;
            pieces.push(Placed { piece: Arc::clone(cut), numbers: Numbers::From(first) });
            add(&mut places, policies, function, &RulePlace::Together { set, first, count: *count });
            first = behind;
        }
        sets.push(List::new(pieces));
        cuts.insert(function, own);
    }
    Some(Together { places, sets, cuts: Arc::new(cuts) })
}

/// Cuts the rules of a function to what their policies select; reuses cuts of the previous generation whose
/// input is unchanged. `None`: more than `most` rules, or a cut is impossible.
fn cut(
    of_function: &[PolicyRules],
    selectors: &[&Arc<[HeaderRule]>],
    before: &[Arc<Cut>],
    most: usize,
) -> Option<Vec<Arc<Cut>>> {
    let mut wanted = Vec::with_capacity(of_function.len());
    for (index, PolicyRules { policies, rules, .. }) in of_function.iter().enumerate() {
        let is_last = index + 1 == of_function.len();
        let own = policies.first().and_then(|policy| selectors.get(*policy).copied());
        wanted.push((if is_last { None } else { Some(own?) }, rules));
    }
    // Kept parts are alive, so that no other has the same address.
    let address = |selected: Option<&Arc<[HeaderRule]>>, rules: &Arc<[(u32, HeaderRule)]>| {
        (selected.map_or(0, |selected| Arc::as_ptr(selected).addr()), Arc::as_ptr(rules).addr())
    };
    let addresses: Vec<_> = wanted.iter().map(|(selected, rules)| address(*selected, rules)).collect();
    let known = kept::places(
        (before, |cut: &Arc<Cut>| address(cut.selected.as_ref(), &cut.rules)),
        (addresses.as_slice(), |address: &(usize, usize)| *address),
    );
    let mut left = most;
    let mut cuts = Vec::with_capacity(wanted.len());
    for ((selected, rules), known) in wanted.into_iter().zip(known) {
        let cut = match known.and_then(|place| before.get(place)) {
            Some(known) => Arc::clone(known),
            None => Arc::new(Cut::new(selected, rules, left)?),
        };
        left = left.checked_sub(cut.cut.len())?;
        cuts.push(cut);
    }
    Some(cuts)
}

impl Cut {
    /// `None`: more than `most` rules, or a cut is impossible.
    fn new(
        selected: Option<&Arc<[HeaderRule]>>,
        rules: &Arc<[(u32, HeaderRule)]>,
        most: usize,
    ) -> Option<Self> {
        let count = match rules.iter().map(|(number, _)| *number).max() {
            Some(largest) => largest.checked_add(1)?,
            None => 0,
        };
        let cut = match selected {
            None => Piece::new(rules.iter().copied()),
            Some(selectors) => {
                if rules.len().saturating_mul(selectors.len()) > PAIRS_MAX {
                    return None;
                }
                let mut cut = Vec::new();
                for (number, rule) in rules.iter() {
                    // An address may have both names, and a rule has one condition on names per side: only a
                    // lookup of the rule alone is exact.
                    if selectors.iter().any(|selector| selector.names_differ(rule)) {
                        return None;
                    }
                    cut.extend(selectors.iter().filter_map(|selector| Some((*number, selector.and(rule)?))));
                    if cut.len() > most {
                        return None;
                    }
                }
                Piece::new(cut)
            }
        };
        Some(Cut { selected: selected.cloned(), rules: Arc::clone(rules), cut: Arc::new(cut), count })
    }
}
