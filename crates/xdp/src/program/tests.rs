// SPDX-License-Identifier: Apache-2.0
//! The errors for the kernel's refusals to attach the program.

use super::*;

#[test]
fn what_a_driver_answers_is_told_apart() {
    let jumbo = XdpInterface { name: "lan".into(), mtu: 9000, ..XdpInterface::default() };
    let plain = XdpInterface { name: "lan".into(), mtu: 1500, ..XdpInterface::default() };
    let answer = |link, mode, code| not_attached(link, 0x7fff_fff0, mode, io::Error::from_raw_os_error(code));
    let error = answer(&jumbo, Mode::Native, libc::ERANGE);
    assert!(matches!(error, XdpError::MtuTooLarge { mtu: 9000, .. }), "{error}");
    assert!(error.to_string().contains("`ip link set dev lan mtu 1500`"), "{error}");
    assert!(matches!(answer(&jumbo, Mode::Native, libc::EINVAL), XdpError::MtuTooLarge { .. }));
    assert!(matches!(answer(&plain, Mode::Native, libc::EINVAL), XdpError::System { .. }));
    assert!(matches!(answer(&jumbo, Mode::Generic, libc::EINVAL), XdpError::System { .. }));
    assert!(matches!(answer(&plain, Mode::Native, libc::EOPNOTSUPP), XdpError::NoNativeMode { .. }));
    assert!(matches!(answer(&plain, Mode::Generic, libc::EOPNOTSUPP), XdpError::System { .. }));
    assert!(matches!(answer(&plain, Mode::Native, libc::EPERM), XdpError::NoPermission { .. }));
    for code in [libc::EBUSY, libc::EEXIST] {
        assert!(matches!(answer(&plain, Mode::Native, code), XdpError::HookTaken { id: 0, .. }));
    }
}
