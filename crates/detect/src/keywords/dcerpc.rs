// SPDX-License-Identifier: Apache-2.0
//! Remote calls of DCERPC, whichever protocol carries them: interface and operation. The sticky buffer
//! (`dcerpc.stub_data`) comes from the tables of the protocols.

use super::number::{later, text};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::buffers::BufferRef;
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use crate::model::signature::TxCheck;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_applayer::rpc::{RpcCall, RpcUuid};
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "dcerpc.iface",
        aliases: &["dce_iface"],
        summary: "The call is to the interface with this UUID and version, which the server has accepted; `any_frag`: the request for the interface may be in any fragment.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dcerpc.iface:UUID[,[<|>|=|!]VERSION][,any_frag]",
        example: r#"alert dcerpc any any -> any any (msg:"dcerpc.iface"; dcerpc.iface:367abb81-9844-35f1-ad32-98f038001003; sid:1;)"#,
        note: "In SMB pipes any accepted interface of the connection matches, as in Suricata.",
        parse: interface,
    },
    Keyword {
        name: "dcerpc.opnum",
        aliases: &["dce_opnum"],
        summary: "The number of the called operation: numbers and ranges, one of which must match, or a comparison.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dcerpc.opnum:N[-M][,...] or [<|>|!]N",
        example: r#"alert dcerpc any any -> any any (msg:"dcerpc.opnum"; dcerpc.opnum:15,18-20; sid:1;)"#,
        note: "",
        parse: operation,
    },
];

/// The buffer that all protocols with remote calls have.
const STUB: &str = "dcerpc.stub_data";

/// A condition on a remote call.
struct OnCall<F> {
    holds: F,
    complete: Vec<(ProtocolId, PerDirection<u8>)>,
}

impl<F: Fn(&RpcCall<'_>) -> bool + Send + Sync> TxCondition for OnCall<F> {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        if tx.rpc().is_some_and(|call| (self.holds)(&call)) {
            return Answer::Yes;
        }
        let protocol = scene.facts.flow.and_then(|flow| flow.app.current());
        let complete = protocol.and_then(|p| self.complete.iter().find(|(id, _)| *id == p));
        match complete {
            Some((_, complete)) => later(tx, direction, *complete, scene),
            None => Answer::NotYet,
        }
    }
}

/// Adds a condition on calls to a rule about protocols that carry them.
fn on_call(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    holds: impl Fn(&RpcCall<'_>) -> bool + Send + Sync + 'static,
) -> Result<(), KeywordError> {
    let carriers = carriers(builder, keyword)?;
    builder.narrow_app(&carriers, keyword)?;
    let protocols = builder.protocol.app.clone();
    let complete = protocols.iter().filter_map(|id| Some((*id, protocols::spec(*id)?.complete))).collect();
    let directions = PerDirection::new(true, true);
    let condition = Box::new(OnCall { holds, complete });
    builder.tx.push(TxCheck { protocols, directions, state: None, condition });
    Ok(())
}

/// The protocols that carry remote calls.
pub(crate) fn carriers(
    builder: &SignatureBuilder<'_>,
    keyword: &str,
) -> Result<Vec<ProtocolId>, KeywordError> {
    let buffers = builder.environment.buffers;
    let Some(BufferRef::Tx(index)) = buffers.find(STUB) else {
        return Err(KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            format!("`{keyword}`: no protocol parser of this build decodes remote calls"),
        ));
    };
    Ok(buffers.tx(index).map(|b| b.providers.iter().map(|(p, _)| *p).collect()).unwrap_or_default())
}

fn interface(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut parts = text(argument)?.split(',').map(str::trim);
    let uuid = parts.next().unwrap_or_default();
    let uuid: RpcUuid = uuid.parse().map_err(|()| {
        KeywordError::argument(format!("`{uuid}` is not a UUID"))
            .help("write it as 367abb81-9844-35f1-ad32-98f038001003")
    })?;
    let (mut version, mut any_fragment) = (None, false);
    for (index, part) in parts.enumerate() {
        if any_fragment || index > 1 || version.is_some() && part != "any_frag" {
            return Err(KeywordError::argument(format!("`{part}` is one value too many"))
                .help("after the UUID come a version and `any_frag`, each of them optional"));
        }
        if part == "any_frag" {
            any_fragment = true;
        } else {
            // Suricata's older form writes `=` before a number.
            let number = part.strip_prefix('=').unwrap_or(part);
            version = Some(UintMatch::<u16>::parse(number.as_bytes())?);
        }
    }
    on_call(builder, "dcerpc.iface", move |call| {
        call.is_to(uuid, any_fragment, |number| version.as_ref().is_none_or(|check| check.matches(number)))
    })
}

/// Operations that a rule accepts.
enum Operations {
    /// Numbers, and ranges with both their ends.
    Listed(Vec<core::ops::RangeInclusive<u32>>),
    /// A comparison.
    Compared(UintMatch<u16>),
}

impl Operations {
    fn read(argument: &[u8]) -> Result<Self, KeywordError> {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let range = |part: &str| match part.split_once('-') {
            Some((from, to)) => Some(number(from)?..=number(to)?).filter(|range| !range.is_empty()),
            None => number(part).map(|number| number..=number),
        };
        match text(argument)?.split(',').map(range).collect() {
            Some(listed) => Ok(Operations::Listed(listed)),
            None => Ok(Operations::Compared(UintMatch::parse(argument)?)),
        }
    }

    fn accept(&self, opnum: u16) -> bool {
        match self {
            Operations::Listed(ranges) => ranges.iter().any(|range| range.contains(&u32::from(opnum))),
            Operations::Compared(check) => check.matches(opnum),
        }
    }
}

fn operation(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let operations = Operations::read(argument)?;
    on_call(builder, "dcerpc.opnum", move |call| call.opnum.is_some_and(|opnum| operations.accept(opnum)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{build, refused_in};

    const UUID: &str = "367abb81-9844-35f1-ad32-98f038001003";

    #[test]
    fn forms_of_interfaces() {
        for argument in
            [UUID.to_owned(), format!("{UUID},any_frag"), format!("{UUID},>1"), format!("{UUID},=2,any_frag")]
        {
            assert!(build("smb", &[("dcerpc.iface", argument.as_str())]).is_ok(), "{argument}");
        }
        for argument in [
            "".to_owned(),
            "367abb81".to_owned(),
            format!("{UUID},x"),
            format!("{UUID},1,2"),
            format!("{UUID},any_frag,1"),
        ] {
            let refused = refused_in("smb", &[("dcerpc.iface", argument.as_str())]);
            assert_eq!(refused, Some(RefusalCode::BadArgument), "{argument}");
        }
        assert_eq!(refused_in("http", &[("dcerpc.iface", UUID)]), Some(RefusalCode::BadContext));
    }

    #[test]
    fn forms_of_operations() {
        let accepted = |argument: &str| {
            let operations = Operations::read(argument.as_bytes()).unwrap();
            (0..30u16).filter(|opnum| operations.accept(*opnum)).collect::<Vec<_>>()
        };
        assert_eq!(accepted("15"), [15]);
        assert_eq!(accepted("3,5-7, 12"), [3, 5, 6, 7, 12]);
        assert_eq!(accepted(">27"), [28, 29]);
        for argument in ["7-5", "x", "1,x", ""] {
            let refused = refused_in("smb", &[("dcerpc.opnum", argument)]);
            assert_eq!(refused, Some(RefusalCode::BadArgument), "{argument}");
        }
    }
}
