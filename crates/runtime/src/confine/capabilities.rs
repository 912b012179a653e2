// SPDX-License-Identifier: Apache-2.0
//! Capabilities of this thread, and its user. Source: capabilities(7), setresuid(2), PR_SET_KEEPCAPS of
//! prctl(2). The calls are the kernel's, which act on one thread: no other may exist yet.

use super::user::RunUser;
use rustix::io;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Changes the user, and keeps the permitted capabilities.
pub fn change_user(user: &RunUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)
}

/// Takes all capabilities but these out of the bounding set, where the thread may: root may, a unit has done
/// it already. No file can bring them back then.
pub fn bound(wanted: CapabilitySet) {
    for capability in (CapabilitySet::all() - wanted).iter() {
        // Refused without CAP_SETPCAP, and for capabilities that the kernel does not know. `no_new_privs`
        // bounds what files bring in any case.
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Drops all capabilities but these permanently. Returns those of them that the thread does not have.
pub fn keep(wanted: CapabilitySet) -> io::Result<CapabilitySet> {
    let kept = capabilities(None)?.permitted & wanted;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    Ok(wanted - kept)
}

/// The capabilities by name: `CAP_NET_RAW, CAP_NET_ADMIN`.
pub fn text(set: CapabilitySet) -> String {
    if set.is_empty() {
        return "no capability".to_owned();
    }
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_named_as_in_the_manual() {
        assert_eq!(text(CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN), "CAP_NET_ADMIN, CAP_NET_RAW");
        assert_eq!(text(CapabilitySet::empty()), "no capability");
    }

    #[test]
    fn what_is_given_up_is_gone_in_this_thread_alone() {
        let before = capabilities(None).unwrap();
        let thread = std::thread::spawn(|| {
            let missing = keep(CapabilitySet::NET_RAW).unwrap();
            (missing, capabilities(None).unwrap())
        });
        let (missing, after) = thread.join().unwrap();
        assert_eq!(after.permitted, before.permitted & CapabilitySet::NET_RAW);
        assert_eq!((after.effective, after.inheritable), (after.permitted, CapabilitySet::empty()));
        assert_eq!(missing.is_empty(), before.permitted.contains(CapabilitySet::NET_RAW));
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
