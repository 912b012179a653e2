// SPDX-License-Identifier: Apache-2.0
//! The user of a run, from the system's files. Source: passwd(5), group(5). Not done: users that only a
//! directory service knows.

use std::os::unix::fs::MetadataExt as _;

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUser {
    /// Name or number, as it was given.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The user's further groups.
    pub groups: Vec<u32>,
}

impl RunUser {
    /// Finds a user by name or number. `group`: another group than its own, by name or number.
    pub fn find(name: &str, group: Option<&str>) -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        Self::in_files(name, group, &read("/etc/passwd")?, &read("/etc/group")?)
    }

    fn in_files(name: &str, group: Option<&str>, passwd: &str, groups: &str) -> Result<Self, String> {
        let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let by_name = |fields: &[String]| fields.first().map(String::as_str) == Some(name);
        let by_number = |fields: &[String]| fields.get(2).map(String::as_str) == Some(name);
        let users: Vec<Vec<String>> = passwd.lines().map(fields).collect();
        let found =
            users.iter().find(|user| by_name(user)).or_else(|| users.iter().find(|user| by_number(user)));
        let number = |field: Option<&String>| field.and_then(|text| text.parse::<u32>().ok());
        let found = found.and_then(|user| Some((user.first()?, number(user.get(2))?, number(user.get(3))?)));
        let Some((login, uid, own)) = found else {
            return Err(format!(
                "there is no user `{name}` on this host; `adduser --system --group {name}` makes it"
            ));
        };
        let all: Vec<Vec<String>> = groups.lines().map(fields).collect();
        let gid = match group {
            None => own,
            Some(group) => all
                .iter()
                .find(|of| {
                    of.first().is_some_and(|own| own == group) || of.get(2).is_some_and(|own| own == group)
                })
                .and_then(|of| number(of.get(2)))
                .ok_or_else(|| {
                    format!("there is no group `{group}` on this host; `getent group` lists them")
                })?,
        };
        let has =
            |of: &&Vec<String>| of.get(3).is_some_and(|members| members.split(',').any(|one| one == login));
        let groups = all.iter().filter(has).filter_map(|of| number(of.get(2))).collect();
        Ok(RunUser { name: name.to_owned(), uid, gid, groups })
    }

    /// Whether the process runs as this user already.
    pub fn is_present(&self) -> bool {
        std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nbartizan:x:990:991::/:/bin/false\n7:x:8:9::/:\n";
    const GROUP: &str = "root:x:0:\nbartizan:x:991:\nadm:x:4:syslog,bartizan\npcap:x:70:other\n";

    #[test]
    fn a_user_is_found_with_its_groups() {
        let find = |name, group| RunUser::in_files(name, group, PASSWD, GROUP);
        let user = find("bartizan", None).unwrap();
        assert_eq!((user.uid, user.gid, user.groups), (990, 991, vec![4]));
        assert_eq!(find("990", Some("pcap")).unwrap().gid, 70);
        assert_eq!(find("7", None).unwrap().uid, 8, "a name goes before a number");
        assert!(find("nobody", None).unwrap_err().contains("no user `nobody`"));
        assert!(find("bartizan", Some("x")).unwrap_err().contains("no group `x`"));
    }
}
