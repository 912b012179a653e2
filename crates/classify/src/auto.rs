// SPDX-License-Identifier: Apache-2.0
//! The choice of the structure for a rule set and a memory budget.
//!
//! By measurement (docs/design/0006-classification.md): a linear search is fastest, and smallest, up to
//! about a dozen rules; beyond, the compiled tables of [`Live`] were faster than every other structure here
//! at every size, take updates, and stay within their budget on any rule set: rules that fit no table are
//! searched linearly. Where these are many (rules with a port of its own each), the bit vectors of
//! [`BitVector`] are faster, as far as they fit the budget. Tables take a megabyte at least: with a smaller
//! budget, for users with thousands of sets, bit vectors are chosen, too.

use crate::bitvector::BitVector;
use crate::classifier::{Classifier, InsertError, Linear, Match, RankedRule};
use crate::header::Header;
use crate::layered::Layered;
use crate::list::List;
use crate::live::Live;
use std::sync::Arc;

/// The most rules for which a linear search is chosen.
pub const LINEAR_MAX: usize = 12;

/// The most linearly searched rules with which tables are kept: about the cost of a lookup in bit vectors.
pub(crate) const REST_MAX: usize = 64;

/// Bytes that the smallest tables take. With a smaller budget none are built, unless nothing else fits it.
const TABLES_MIN: usize = 1 << 20;

/// A filled structure, and the reason for its choice.
#[derive(Debug)]
pub struct Auto {
    /// The structure.
    pub classifier: Box<dyn Classifier>,
    /// The reason for this choice, for people.
    pub why: String,
    /// Whether the structure stays within the budget without searching many rules linearly.
    pub fits: bool,
}

impl Auto {
    /// Chooses a structure for rule sets, and fills it; its tables take about `budget` bytes at most.
    ///
    /// # Errors
    /// There are more sets than [`crate::SETS_MAX`].
    pub fn new(sets: &[Vec<RankedRule>], budget: usize) -> Result<Self, InsertError> {
        let rules: usize = sets.iter().map(Vec::len).sum();
        if rules <= LINEAR_MAX {
            let count = u8::try_from(sets.len()).unwrap_or(u8::MAX);
            let mut linear = Linear::new(count);
            for (set, entries) in sets.iter().enumerate() {
                linear.insert(set as u8, entries)?;
            }
            let why = format!("linear search: {rules} rules, and up to {LINEAR_MAX} nothing is faster");
            return Ok(Auto { classifier: Box::new(linear), why, fits: true });
        }
        if budget < TABLES_MIN
            && let Some(bits) = bit_vectors(sets, budget)
        {
            let bytes = bits.memory();
            let why = format!("bit vectors: {rules} rules, {bytes} bytes of {budget}; tables take more");
            return Ok(Auto { classifier: Box::new(bits), why, fits: true });
        }
        let live = Auto::live(sets, budget)?;
        let (rest, summary) = (live.rest(), live.summary().join("\n  "));
        if rest > REST_MAX
            && let Some(bits) = bit_vectors(sets, budget)
        {
            let bytes = bits.memory();
            let why = format!(
                "bit vectors: {rules} rules, {bytes} bytes of {budget}; tables would leave {rest} rules to a linear search"
            );
            return Ok(Auto { classifier: Box::new(bits), why, fits: true });
        }
        let left = match rest {
            0 => "all rules are in tables".to_owned(),
            _ => format!(
                "{rest} rules are searched linearly, because tables for them would go beyond the budget or pay nothing"
            ),
        };
        let why = format!(
            "tables split by prefix length: {rules} rules, {} bytes of {budget}; {left}\n  {summary}",
            live.memory()
        );
        Ok(Auto { classifier: Box::new(live), why, fits: rest <= REST_MAX })
    }

    /// As [`Auto::new`], for the next generation of rule sets: its structure shares the tables of `before`,
    /// the one made for the generation before, as far as possible.
    ///
    /// # Errors
    /// As [`Auto::new`].
    pub fn after(before: Option<&Chosen>, lists: Vec<List>, budget: usize) -> Result<Chosen, InsertError> {
        let lists: Vec<List> = lists.into_iter().map(List::in_order).collect();
        let rules: usize = lists.iter().map(|list| list.len()).sum();
        if rules <= LINEAR_MAX || budget < TABLES_MIN {
            return Auto::whole(&lists, budget);
        }
        let layered = match before {
            Some(Chosen { structure: Structure::Layered(before), .. }) => before.after(lists, budget)?,
            _ => Layered::new(lists, budget)?,
        };
        let fits = layered.rest() <= REST_MAX;
        Ok(Chosen { structure: Structure::Layered(Arc::new(layered)), fits })
    }

    /// A structure that shares no tables.
    fn whole(lists: &[List], budget: usize) -> Result<Chosen, InsertError> {
        let sets: Vec<Vec<RankedRule>> = lists.iter().map(List::to_vec).collect();
        let Auto { classifier, fits, .. } = Auto::new(&sets, budget)?;
        Ok(Chosen { structure: Structure::Whole(Arc::from(classifier)), fits })
    }

    /// The structure for large and changing sets, in its fastest form.
    ///
    /// # Errors
    /// As [`Auto::new`].
    pub fn live(sets: &[Vec<RankedRule>], budget: usize) -> Result<Live, InsertError> {
        let mut live = Live::new(u8::try_from(sets.len()).unwrap_or(u8::MAX), budget);
        for (set, entries) in sets.iter().enumerate() {
            live.insert(set as u8, entries)?;
        }
        let rebuild = live.begin(true);
        live.finish(rebuild.run());
        Ok(live)
    }
}

/// The structure for rule sets of one generation; the next generation's may share its tables.
#[derive(Clone, Debug)]
pub struct Chosen {
    structure: Structure,
    /// Whether it keeps to the budget without searching many rules linearly.
    pub fits: bool,
}

#[derive(Clone, Debug)]
enum Structure {
    Layered(Arc<Layered>),
    Whole(Arc<dyn Classifier>),
}

impl Chosen {
    /// Looks a header up, as [`Classifier::lookup`].
    pub fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        match &self.structure {
            Structure::Layered(layered) => layered.lookup(header, results),
            Structure::Whole(classifier) => classifier.lookup(header, results),
        }
    }

    /// Copies all entries, each set in its order.
    #[must_use]
    pub fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        match &self.structure {
            Structure::Layered(layered) => layered.lists().iter().map(List::to_vec).collect(),
            Structure::Whole(classifier) => classifier.all_entries(),
        }
    }

    /// The tables of the rule set, if other sets may share them.
    #[must_use]
    pub fn layered(&self) -> Option<&Arc<Layered>> {
        match &self.structure {
            Structure::Layered(layered) => Some(layered),
            Structure::Whole(_) => None,
        }
    }
}

/// Bit vectors of the sets, if they fit the budget.
fn bit_vectors(sets: &[Vec<RankedRule>], budget: usize) -> Option<BitVector> {
    let mut bits = BitVector::new(u8::try_from(sets.len()).ok()?, budget);
    for (set, entries) in sets.iter().enumerate() {
        bits.insert(u8::try_from(set).ok()?, entries).ok()?;
    }
    Some(bits)
}
