// SPDX-License-Identifier: Apache-2.0
//! The operating system that a host is assumed to run: `host-os-policy` of the settings.

use bartizan_base::SettingsMap;
use bartizan_flow::tcp::HostPolicy;
use bartizan_packet::defrag::OverlapPolicy;
use core::net::IpAddr;

/// A network and the overlap policies of its hosts' operating system.
#[derive(Clone, Debug)]
struct HostPolicyNetwork {
    address: IpAddr,
    bits: u8,
    stream: Option<HostPolicy>,
    fragments: Option<OverlapPolicy>,
}

/// Host policies by longest prefix.
#[derive(Clone, Debug, Default)]
pub struct HostPolicies {
    /// Longest prefixes first.
    networks: Vec<HostPolicyNetwork>,
}

impl HostPolicies {
    /// Reads `host-os-policy`: for each system a list of addresses and networks. Also returns the entries
    /// that cannot be parsed, for a warning.
    #[must_use]
    pub fn from_settings(settings: &SettingsMap) -> (Self, Vec<String>) {
        let mut networks = Vec::new();
        let mut unread = Vec::new();
        for system in settings.children("host-os-policy") {
            let key = format!("host-os-policy.{system}");
            let items: Vec<String> = match settings.get(&key) {
                Some(one) => one.trim_matches(['[', ']']).split(',').map(|s| s.trim().to_owned()).collect(),
                None => settings
                    .children(&key)
                    .filter_map(|i| settings.get(&format!("{key}.{i}")))
                    .map(str::to_owned)
                    .collect(),
            };
            for item in items {
                match parse(&item) {
                    Some((address, bits)) => networks.push(HostPolicyNetwork {
                        address,
                        bits,
                        stream: HostPolicy::from_name(system),
                        fragments: OverlapPolicy::from_os_name(system),
                    }),
                    None => unread.push(format!("{key}: {item}")),
                }
            }
        }
        networks.sort_by_key(|n| core::cmp::Reverse(n.bits));
        (HostPolicies { networks }, unread)
    }

    fn find(&self, address: IpAddr) -> Option<&HostPolicyNetwork> {
        self.networks.iter().find(|n| within(address, n.address, n.bits))
    }

    /// The policy by which a host treats overlapping segments.
    #[must_use]
    pub fn stream(&self, address: IpAddr) -> HostPolicy {
        self.find(address).and_then(|n| n.stream).unwrap_or_default()
    }

    /// The policy by which a host treats overlapping fragments.
    #[must_use]
    pub fn fragments(&self, address: IpAddr) -> OverlapPolicy {
        self.find(address).and_then(|n| n.fragments).unwrap_or_default()
    }
}

fn parse(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.trim().parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some((address, bits))
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32u32.saturating_sub(u32::from(bits));
            u32::from(a).checked_shr(shift).unwrap_or(0) == u32::from(n).checked_shr(shift).unwrap_or(0)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let shift = 128u32.saturating_sub(u32::from(bits));
            u128::from(a).checked_shr(shift).unwrap_or(0) == u128::from(n).checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts() {
        let mut settings = SettingsMap::new();
        settings.set("host-os-policy.windows.0", "0.0.0.0/0");
        settings.set("host-os-policy.linux.0", "10.0.0.0/8");
        settings.set("host-os-policy.linux.1", "fe80::/10");
        settings.set("host-os-policy.bsd", "[10.1.0.0/16, nonsense]");
        let (hosts, unread) = HostPolicies::from_settings(&settings);
        let get = |a: &str| hosts.stream(a.parse().unwrap());
        assert_eq!(get("1.2.3.4"), HostPolicy::Windows);
        assert_eq!(get("10.2.3.4"), HostPolicy::Linux);
        assert_eq!(get("10.1.3.4"), HostPolicy::Bsd);
        assert_eq!(get("fe80::1"), HostPolicy::Linux);
        assert_eq!(get("::1"), HostPolicy::Bsd);
        assert_eq!(unread, ["host-os-policy.bsd: nonsense"]);
    }
}
