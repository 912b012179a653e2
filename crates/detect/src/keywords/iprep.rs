// SPDX-License-Identifier: Apache-2.0
//! `iprep`: the reputation of an address in a category. The lists are read by
//! [`crate::state::dataset::Reputation`].

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::state::dataset::{Reputation, ReputationError};
use bartizan_rules::UintMatch;
use std::net::IpAddr;
use std::sync::Arc;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "iprep",
    aliases: &[],
    summary: "The reputation of an address (src, dst, both, any) in a category: a comparison, `isset` or `isnotset`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "iprep:src|dst|both|any,CATEGORY,>|<|=|>=|<=|!=,N or iprep:SIDE,CATEGORY,isset|isnotset",
    example: r#"alert ip any any -> any any (msg:"iprep"; iprep:src,Bad,>,30; sid:1;)"#,
    note: "An address with a score of 0 is listed. Invalid lines of the lists are left out, with a warning.",
    parse: iprep,
}];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IprepSide {
    Any,
    Both,
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    IsSet,
    IsNotSet,
    Compare(UintMatch<u8>),
}

impl Test {
    fn holds(self, score: Option<u8>) -> bool {
        match self {
            Test::IsSet => score.is_some(),
            Test::IsNotSet => score.is_none(),
            Test::Compare(check) => score.is_some_and(|score| check.matches(score)),
        }
    }
}

struct OnReputation {
    reputation: Arc<Reputation>,
    category: u8,
    side: IprepSide,
    test: Test,
}

impl PacketCondition for OnReputation {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some((source, destination)) = scene.addresses() else { return false };
        let holds = |address: IpAddr| self.test.holds(self.reputation.score(address, self.category));
        match self.side {
            IprepSide::Any => holds(source) || holds(destination),
            IprepSide::Both => holds(source) && holds(destination),
            IprepSide::Source => holds(source),
            IprepSide::Destination => holds(destination),
        }
    }

    fn is_ip_only(&self) -> bool {
        true
    }
}

fn parse(argument: &[u8]) -> Result<(IprepSide, &str, Test), KeywordError> {
    let parts: Vec<&str> = text(argument)?.split(',').map(str::trim).collect();
    let expected = || {
        KeywordError::argument("side, category and comparison are expected")
            .help("write for example `any,BadHosts,>,30`")
    };
    let (side, category, test) = match parts.as_slice() {
        [side, category, "isset"] => (side, category, Test::IsSet),
        [side, category, "isnotset"] => (side, category, Test::IsNotSet),
        [side, category, operator @ (">" | "<" | "=" | ">=" | "<=" | "!=" | "!"), value] => {
            let test = match (*operator, value.parse()) {
                // Any listed address.
                (">=", Ok(0u8)) => Test::IsSet,
                _ => Test::Compare(UintMatch::<u8>::parse(format!("{operator}{value}").as_bytes())?),
            };
            (side, category, test)
        }
        _ => return Err(expected()),
    };
    let side = match *side {
        "any" => IprepSide::Any,
        "both" => IprepSide::Both,
        "src" => IprepSide::Source,
        "dst" => IprepSide::Destination,
        other => {
            return Err(
                KeywordError::argument(format!("unknown side `{other}`")).help("use any, both, src or dst")
            );
        }
    };
    Ok((side, category, test))
}

fn iprep(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (side, name, test) = parse(argument)?;
    let reputation =
        builder.environment.outside().reputation(builder.environment.settings).map_err(|error| {
            let code = match error {
                ReputationError::Unreadable { .. } => RefusalCode::MissingFile,
                ReputationError::NotConfigured => RefusalCode::BadContext,
            };
            KeywordError::new(code, error.to_string())
        })?;
    let category = reputation
        .category(name)
        .ok_or_else(|| KeywordError::argument(format!("the category file has no category `{name}`")))?;
    builder.packet.push(Box::new(OnReputation { reputation, category, side, test }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{LinkFrame, build_with, ipv4, ipv6, on_scene, refused, udp};
    use bartizan_base::SettingsMap;
    use std::path::Path;

    #[test]
    fn forms() {
        assert_eq!(
            parse(b"any, BadHosts, >, 1"),
            Ok((IprepSide::Any, "BadHosts", Test::Compare(UintMatch::Greater(1))))
        );
        assert_eq!(
            parse(b"dst,test,>,0"),
            Ok((IprepSide::Destination, "test", Test::Compare(UintMatch::Greater(0))))
        );
        assert_eq!(parse(b"both,x,isnotset"), Ok((IprepSide::Both, "x", Test::IsNotSet)));
        for argument in ["any,BadHosts,1", "all,x,>,1", "any,x,~,1", "any,x,>,300", "any"] {
            assert_eq!(parse(argument.as_bytes()).unwrap_err().code, RefusalCode::BadArgument, "{argument}");
        }
        assert_eq!(refused("iprep", "any,BadHosts,>,1"), Some(RefusalCode::BadContext));
    }

    #[test]
    fn scores_of_both_versions() {
        let folder = std::env::temp_dir().join(format!("bartizan-iprep-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("categories"),
            "1,BadHosts,Known bad hosts\n2,Zero,Listed with 0\n60,No,x\n",
        )
        .unwrap();
        let list = "192.0.2.0/24,1,20\nbad line\n2001:db8::1,1,20\n192.0.2.1,2,0\n2001:db8::1,2,0\n";
        std::fs::write(folder.join("list"), list).unwrap();
        let mut settings = SettingsMap::new();
        settings.set("reputation-categories-file", folder.join("categories").to_str().unwrap());
        settings.set("default-reputation-path", folder.to_str().unwrap());
        settings.set("reputation-files.0", "list");
        let holds = |argument: &str, packet: &LinkFrame| {
            let built = build_with(&settings, Path::new(""), "ip", &[("iprep", argument)]).unwrap();
            assert!(built.packet[0].is_ip_only());
            on_scene(packet, |scene| built.packet[0].matches(scene))
        };
        for packet in [ipv4(17, &udp(b"x")), ipv6(17, &udp(b"x"))] {
            for (argument, expected) in [
                ("any,BadHosts,>,19", true),
                ("src,BadHosts,=,20", true),
                ("src,BadHosts,<,20", false),
                ("dst,BadHosts,<,100", false),
                ("both,BadHosts,>,1", false),
                ("dst,BadHosts,isnotset", true),
                ("src,BadHosts,isset", true),
                ("src,Zero,=,0", true),
                ("src,Zero,<,5", true),
                ("src,Zero,>=,0", true),
                ("src,Zero,!=,0", false),
                ("src,Zero,isset", true),
                ("src,Zero,isnotset", false),
                ("dst,Zero,=,0", false),
                ("dst,Zero,>=,0", false),
                ("dst,Zero,isnotset", true),
                ("any,Zero,isset", true),
                ("both,Zero,isset", false),
            ] {
                assert_eq!(holds(argument, &packet), expected, "{argument}");
            }
        }
        let error = build_with(&settings, Path::new(""), "ip", &[("iprep", "any,Nothing,>,1")]).unwrap_err();
        assert_eq!(error.code, RefusalCode::BadArgument);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
