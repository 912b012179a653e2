// SPDX-License-Identifier: Apache-2.0
//! Observers of running functions: for a limited time, wrappers take the place of functions and see their
//! calls ([`Function::inner`]).
//!
//! An observed worker runs chains of its own, with wrappers in place of the observed functions. Packets need
//! no test for observers, which cost nothing while there are none.

use crate::chain::{
    Chains, Class, FlowClassifier, HeaderRuleMatches, LookupExplained, NameExplained, PolicyMap,
};
use crate::quotas::Quotas;
use bartizan_base::{Generation, LinkId, TenantId, Timestamp, WorkerId};
use bartizan_classify::Header;
use bartizan_function::Function;
use bartizan_packet::Decoded;
use std::sync::Arc;

/// The place of an observed function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedPlace {
    /// The generation that the function belongs to.
    pub generation: Generation,
    /// The worker that calls it.
    pub worker: WorkerId,
}

/// An observer of the functions of running workers.
pub trait FunctionObserver: Send + Sync {
    /// The wrapper that takes the place of a function on a worker. It gets the function's state and returns
    /// the function's decisions. `None`: this function is not observed.
    fn around(&self, function: &Arc<dyn Function>, place: ObservedPlace) -> Option<Arc<dyn Function>>;
}

/// The observers in force, innermost first.
#[derive(Clone, Default)]
pub struct Observers(Arc<[Arc<dyn FunctionObserver>]>);

impl Observers {
    /// These observers.
    #[must_use]
    pub fn new(observers: Vec<Arc<dyn FunctionObserver>>) -> Self {
        Observers(observers.into())
    }

    /// Whether no observer is in force.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The chains with these observers, for one worker. `None`: no function of the chains is observed.
    #[must_use]
    pub fn around(&self, chains: &Arc<Chains>, worker: WorkerId) -> Option<Arc<Chains>> {
        let place = ObservedPlace { generation: chains.generation, worker };
        let mut functions = chains.functions.clone();
        let mut observed = false;
        for function in &mut functions {
            for observer in self.0.iter() {
                if let Some(around) = observer.around(function, place) {
                    (*function, observed) = (around, true);
                }
            }
        }
        observed.then(|| Arc::new(with_functions(chains, functions, None)))
    }
}

impl core::fmt::Debug for Observers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Observers").field(&self.0.len()).finish()
    }
}

impl PartialEq for Observers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Observers {}

/// The observers of a worker, with the chains that it runs without them.
pub struct Observation {
    /// The observers.
    pub observers: Observers,
    /// The worker.
    pub worker: WorkerId,
    /// The running chains without observers, while they are observed.
    pub plain: Option<Arc<Chains>>,
}

/// Chains that differ from `chains` in their functions only. With a `tenant`, all packets belong to that
/// tenant.
#[must_use]
pub fn with_functions(
    chains: &Arc<Chains>,
    functions: Vec<Arc<dyn Function>>,
    tenant: Option<TenantId>,
) -> Chains {
    let classifier = Box::new(BorrowedClassifier { chains: Arc::clone(chains), tenant });
    let mut observed = Chains::new(chains.generation, functions, classifier);
    observed.early = chains.early.clone();
    observed.ports = Arc::clone(&chains.ports);
    observed
}

/// The classifier of other chains, with a fixed tenant if one is given.
struct BorrowedClassifier {
    chains: Arc<Chains>,
    tenant: Option<TenantId>,
}

impl FlowClassifier for BorrowedClassifier {
    fn classify(&self, header: &Header, now: Timestamp, matches: &mut HeaderRuleMatches) -> Class {
        self.chains.classifier.classify(header, now, matches)
    }

    fn tenant_of(&self, packet: &Decoded, link: LinkId) -> TenantId {
        self.tenant.unwrap_or_else(|| self.chains.classifier.tenant_of(packet, link))
    }

    fn selects_tenants_by_vlan(&self) -> bool {
        self.chains.classifier.selects_tenants_by_vlan()
    }

    fn selects_tenants_by_tunnel(&self) -> bool {
        self.chains.classifier.selects_tenants_by_tunnel()
    }

    fn explain(&self, header: &Header, now: Timestamp) -> Option<LookupExplained> {
        self.chains.classifier.explain(header, now)
    }

    fn names(&self, header: &Header, now: Timestamp) -> Vec<NameExplained> {
        self.chains.classifier.names(header, now)
    }

    fn quotas(&self) -> Quotas {
        self.chains.classifier.quotas()
    }

    fn policies(&self) -> Arc<PolicyMap> {
        self.chains.classifier.policies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::early::Early;
    use bartizan_base::{Fid, FunctionId};
    use bartizan_function::{FunctionModel, FunctionSpec};

    static SPEC: FunctionSpec = FunctionSpec {
        name: "one",
        summary: "",
        model: FunctionModel::Payload,
        runs_after: &[],
        runs_before: &[],
        header_half: None,
        host_slot: None,
        counters: &[],
    };

    /// A function, or a wrapper around one.
    struct One(Option<Arc<dyn Function>>);

    impl Function for One {
        fn spec(&self) -> &'static FunctionSpec {
            &SPEC
        }

        fn id(&self) -> FunctionId {
            FunctionId(3)
        }

        fn inner(&self) -> Option<&dyn Function> {
            self.0.as_deref()
        }
    }

    /// An observer on one worker, in one generation.
    struct Of(WorkerId, Generation);

    impl FunctionObserver for Of {
        fn around(&self, function: &Arc<dyn Function>, place: ObservedPlace) -> Option<Arc<dyn Function>> {
            let is_it = place.worker == self.0 && place.generation == self.1;
            is_it.then(|| Arc::new(One(Some(Arc::clone(function)))) as Arc<dyn Function>)
        }
    }

    fn depth(chains: &Chains) -> usize {
        let mut function = chains.function(FunctionId(3)).map(|function| &**function as &dyn Function);
        core::iter::from_fn(|| {
            function = function?.inner();
            function
        })
        .count()
    }

    #[test]
    fn observed_chains_are_the_same_but_for_the_function() {
        let mut chains = Chains::one(Generation(7), vec![Arc::new(One(None))]);
        chains.ports = Arc::new(["out".to_owned()]);
        chains.early = Some(Arc::new(Early::default()));
        let chains = Arc::new(chains);
        let (here, other) = (WorkerId(1), WorkerId(2));
        let of =
            |worker, generation| Arc::new(Of(worker, Generation(generation))) as Arc<dyn FunctionObserver>;
        let observers = Observers::new(vec![of(here, 7), of(other, 7), of(here, 8), of(here, 7)]);
        let observed = observers.around(&chains, here).unwrap();
        assert_eq!((depth(&chains), depth(&observed)), (0, 2));
        assert_eq!((observed.generation, &observed.ports), (chains.generation, &chains.ports));
        let early = [&observed, &chains].map(|chains| chains.early.as_ref().map(Arc::as_ptr));
        assert_eq!(early[0], early[1]);
        let any = core::net::IpAddr::from([0; 4]);
        let header = Header {
            source: any,
            destination: any,
            source_port: 0,
            destination_port: 0,
            protocol: 6,
            tenant: TenantId(0),
            link: LinkId(0),
        };
        let class = observed.classifier.classify(&header, Timestamp::ZERO, &mut HeaderRuleMatches::new());
        assert_eq!((class.fid, class.path.contains(FunctionId(3))), (Fid(0), true));
        assert!(observers.around(&chains, WorkerId(3)).is_none());
        assert!(Observers::default().is_empty() && Observers::default().around(&chains, here).is_none());
    }
}
