// SPDX-License-Identifier: Apache-2.0
//! A header function made of a test's closure.

use bartizan_base::{Decision, FunctionId};
use bartizan_function::{Function, FunctionKind, FunctionSpec, PacketContext, RuleSource, RulesError};
use std::sync::Arc;

type Act = dyn Fn(&mut PacketContext<'_>) + Send + Sync;

/// The kind of a function that runs `act` for each packet and passes it.
#[must_use]
pub fn header_function(
    spec: &'static FunctionSpec,
    act: impl Fn(&mut PacketContext<'_>) + Send + Sync + 'static,
) -> Arc<dyn FunctionKind> {
    Arc::new(Kind { spec, act: Arc::new(act) })
}

struct Kind {
    spec: &'static FunctionSpec,
    act: Arc<Act>,
}

impl FunctionKind for Kind {
    fn spec(&self) -> &'static FunctionSpec {
        self.spec
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        Ok(Box::new(Acting { id: source.id, spec: self.spec, act: Arc::clone(&self.act) }))
    }
}

struct Acting {
    id: FunctionId,
    spec: &'static FunctionSpec,
    act: Arc<Act>,
}

impl Function for Acting {
    fn spec(&self) -> &'static FunctionSpec {
        self.spec
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        (self.act)(context);
        Decision::CONTINUE
    }
}
