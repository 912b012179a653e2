// SPDX-License-Identifier: Apache-2.0
//! Header rules of a file, either ClassBench rules or the policies of a policy file, and lookups of headers
//! in them ([`lookups`]).

pub mod lookups;

use crate::error::Failure;
use crate::generation::{
    BuildOptions, Builder, PolicySelectors, find_link, find_tenant, is_policy, reported, unnamed_link,
};
use crate::input;
use crate::log::Report;
use bartizan_base::{Fid, LinkId, TenantId};
use bartizan_classify::generate::{GenerateError, RuleSetStatistics};
use bartizan_classify::trace::{Draw, draw_seeded};
use bartizan_classify::{Header, HeaderRule, Net, RankedRule, classbench};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Rules, with the tenant and the link of the looked-up headers.
pub struct HeaderRuleSet {
    /// Number of rules, or policies.
    pub count: usize,
    /// Entries of a classifier; the priority is the number of the rule or policy.
    pub entries: Vec<RankedRule>,
    /// The rules that headers are drawn from. For a ClassBench file these are its rules.
    pub rules: Vec<HeaderRule>,
    tenant: TenantId,
    link: LinkId,
}

impl HeaderRuleSet {
    /// Reads a file. `tenant`, `link`: those of all headers of a trace; only policies use them.
    ///
    /// # Errors
    /// The file cannot be read or used, or does not have a name.
    pub fn read(
        path: &Path,
        tenant: Option<&str>,
        link: Option<&str>,
        report: Report,
    ) -> Result<Self, Failure> {
        if is_policy(path) {
            return Self::policies(path, tenant, link, report);
        }
        if let Some(option) = tenant.map(|_| "--tenant").or(link.map(|_| "--link")) {
            return Err(Failure::usage(format!(
                "{option} applies to policy files (`.yaml`, `.yml`) only: the rules of {} have no tenants and no links; remove it",
                path.display()
            )));
        }
        Self::classbench(path)
    }

    fn classbench(path: &Path) -> Result<Self, Failure> {
        let text = text(path)?;
        let rules = classbench::rules(&text).map_err(|error| {
            let is_other = !text.trim_start().starts_with('@');
            let hint = if is_other { "; the name of a policy file ends in .yaml or .yml" } else { "" };
            Failure::input(format!("{}: {error}{hint}", path.display()))
        })?;
        let entry = |(number, rule): (u32, &HeaderRule)| RankedRule {
            fid: Fid(number),
            priority: number,
            rule: *rule,
        };
        Ok(HeaderRuleSet {
            count: rules.len(),
            entries: (0..).zip(&rules).map(entry).collect(),
            rules,
            tenant: TenantId(0),
            link: LinkId(0),
        })
    }

    fn policies(
        path: &Path,
        tenant: Option<&str>,
        link: Option<&str>,
        report: Report,
    ) -> Result<Self, Failure> {
        // No rule is compiled.
        let cache = Some(PathBuf::from("none"));
        let options =
            BuildOptions { policy: Some(path.to_owned()), cache, report, ..BuildOptions::default() };
        let mut builder = Builder::for_captures(&options, Path::new(""))?;
        let PolicySelectors { count, entries, tenants, links } =
            reported(&mut builder, |builder| builder.policy_entries(path))?;
        let tenant = match tenant {
            Some(name) => find_tenant(&path.display().to_string(), &tenants, name)?,
            None => TenantId(0),
        };
        let link = match link {
            Some(name) => find_link(&links, name)?,
            None => unnamed_link(&links),
        };
        let asked = |rule: &&HeaderRule| {
            rule.tenant.is_none_or(|t| t == tenant) && rule.link.is_none_or(|l| l == link)
        };
        let default = HeaderRule::default();
        let rules = entries.iter().map(|entry| &entry.rule).filter(asked).chain([&default]);
        let rules = rules.flat_map(of_both_versions).collect();
        Ok(HeaderRuleSet { count, entries, rules, tenant, link })
    }

    /// The headers of a trace, with the tenant and the link.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn trace(&self, path: &Path) -> Result<Vec<Header>, Failure> {
        let headers = classbench::trace(&text(path)?)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        Ok(self.placed(headers))
    }

    /// Headers drawn from the rules; for policies, from those that the tenant's flows on the link can meet,
    /// the default included.
    pub fn draw(&self, how: Draw, count: usize, seed: u64) -> Vec<Header> {
        self.placed(draw_seeded(&self.rules, how, count, seed))
    }

    /// A rule set of `count` rules in ClassBench's form, drawn from the statistics of these. `version`: `4`
    /// or `6`; by default that of these rules.
    ///
    /// # Errors
    /// The rules have no statistics to draw from.
    pub fn generate(&self, count: usize, version: Option<&str>, seed: u64) -> Result<String, GenerateError> {
        let rules = &self.rules;
        let statistics = RuleSetStatistics::measure(rules)?;
        let v6 = version.map_or(statistics.is_v6(), |version| version == "6");
        // Rules of the version itself are better statistics than widened ones.
        let statistics = if v6 {
            RuleSetStatistics::measure_version(rules, true).unwrap_or(statistics)
        } else {
            statistics
        };
        Ok(classbench::write(&statistics.draw(count, v6, seed)?))
    }

    fn placed(&self, mut headers: Vec<Header>) -> Vec<Header> {
        for header in &mut headers {
            (header.tenant, header.link) = (self.tenant, self.link);
        }
        headers
    }
}

/// A rule for any address, as one rule per version; unsplit, it would yield IPv4 headers alone.
fn of_both_versions(rule: &HeaderRule) -> Vec<HeaderRule> {
    if rule.source.is_some() || rule.destination.is_some() {
        return vec![*rule];
    }
    let any = |address: IpAddr| HeaderRule { source: Some(Net { address, length: 0 }), ..*rule };
    vec![any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into())]
}

fn text(path: &Path) -> Result<String, Failure> {
    let bytes = input::read_text(path, "rules or headers")?;
    String::from_utf8(bytes).map_err(|_| Failure::input(format!("{}: the file is not text", path.display())))
}
