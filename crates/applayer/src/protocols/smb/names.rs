// SPDX-License-Identifier: Apache-2.0
//! Names in records: commands, statuses ([MS-ERREF] section 2.3.1), dialects, functions of IOCTL ([MS-FSCC]
//! section 2.3, [MS-SMB2] section 2.2.31).

use std::borrow::Cow;
use std::sync::OnceLock;

/// Names of NT statuses: eight hexadecimal digits, a blank, the name; in ascending order.
const STATUSES: &str = include_str!("ntstatus.txt");

/// The name of an NT status, or its number.
pub(super) fn nt_status(status: u32) -> Cow<'static, str> {
    static TABLE: OnceLock<Vec<(u32, &'static str)>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let entry = |line: &'static str| {
            let (number, name) = line.split_once(' ')?;
            Some((u32::from_str_radix(number, 16).ok()?, name))
        };
        STATUSES.lines().filter_map(entry).collect()
    });
    let found = table.binary_search_by_key(&status, |entry| entry.0).ok().and_then(|index| table.get(index));
    found.map_or_else(|| Cow::Owned(status.to_string()), |entry| Cow::Borrowed(entry.1))
}

/// Names of codes of the class of DOS.
const DOS_ERRORS: &[(u16, &str)] = &[
    (0, "DOS_SUCCESS"),
    (1, "DOS_BAD_FUNC"),
    (2, "DOS_BAD_FILE"),
    (3, "DOS_BAD_PATH"),
    (4, "DOS_TOO_MANY_OPEN_FILES"),
    (5, "DOS_ACCESS_DENIED"),
];

/// Names of codes of the class of the server.
const SERVER_ERRORS: &[(u16, &str)] =
    &[(1, "SRV_ERROR"), (2, "SRV_BADPW"), (3, "SRV_BADTYPE"), (4, "SRV_ACCESS"), (91, "SRV_BADUID")];

/// The name of an older error code.
pub(super) fn dos_error(class: u8, code: u16) -> Cow<'static, str> {
    let names = match class {
        1 => DOS_ERRORS,
        2 => SERVER_ERRORS,
        _ => return Cow::Owned(format!("UNKNOWN_{class:02x}_{code:04x}")),
    };
    let found = names.iter().find(|entry| entry.0 == code);
    found.map_or_else(|| Cow::Owned(code.to_string()), |entry| Cow::Borrowed(entry.1))
}

/// Commands of SMB1 ([MS-CIFS] section 2.2.2.1).
const COMMANDS_1: &[(u8, &str)] = &[
    (0x00, "CREATE_DIRECTORY"),
    (0x01, "DELETE_DIRECTORY"),
    (0x02, "OPEN"),
    (0x03, "CREATE"),
    (0x04, "CLOSE"),
    (0x05, "FLUSH"),
    (0x06, "DELETE"),
    (0x07, "RENAME"),
    (0x08, "QUERY_INFORMATION"),
    (0x09, "SET_INFORMATION"),
    (0x0a, "READ"),
    (0x0b, "WRITE"),
    (0x0c, "LOCK_BYTE_RANGE"),
    (0x0d, "UNLOCK_BYTE_RANGE"),
    (0x0e, "CREATE_TEMPORARY"),
    (0x0f, "CREATE_NEW"),
    (0x10, "CHECK_DIRECTORY"),
    (0x11, "PROCESS_EXIT"),
    (0x12, "SEEK"),
    (0x13, "LOCK_AND_READ"),
    (0x14, "WRITE_AND_UNLOCK"),
    (0x24, "LOCKING_ANDX"),
    (0x25, "TRANS"),
    (0x2b, "ECHO"),
    (0x2c, "WRITE_AND_CLOSE"),
    (0x2d, "OPEN_ANDX"),
    (0x2e, "READ_ANDX"),
    (0x2f, "WRITE_ANDX"),
    (0x32, "TRANS2"),
    (0x33, "TRANS2_SECONDARY"),
    (0x34, "FIND_CLOSE2"),
    (0x71, "TREE_DISCONNECT"),
    (0x72, "NEGOTIATE_PROTOCOL"),
    (0x73, "SESSION_SETUP_ANDX"),
    (0x74, "LOGOFF_ANDX"),
    (0x75, "TREE_CONNECT_ANDX"),
    (0x80, "QUERY_INFO_DISK"),
    (0xa0, "NT_TRANS"),
    (0xa1, "NT_TRANS_SECONDARY"),
    (0xa2, "NT_CREATE_ANDX"),
    (0xa4, "NT_CANCEL"),
];

/// Commands of SMB2 ([MS-SMB2] section 2.2.1.1), by their numbers, as Suricata names them.
const COMMANDS_2: &[&str] = &[
    "NEGOTIATE_PROTOCOL",
    "SESSION_SETUP",
    "SESSION_LOGOFF",
    "TREE_CONNECT",
    "TREE_DISCONNECT",
    "CREATE",
    "CLOSE",
    "FLUSH",
    "READ",
    "WRITE",
    "LOCK",
    "IOCTL",
    "CANCEL",
    "KEEPALIVE",
    "FIND",
    "CHANGE_NOTIFY",
    "GET_INFO",
    "SET_INFO",
    "OPLOCK_BREAK",
];

/// The name of a command of a version.
pub(super) fn command(version: u8, command: u16) -> String {
    let name = match version {
        1 => COMMANDS_1.iter().find(|entry| u16::from(entry.0) == command).map(|entry| entry.1),
        _ => COMMANDS_2.get(usize::from(command)).copied(),
    };
    name.map_or_else(|| command.to_string(), |name| format!("SMB{version}_COMMAND_{name}"))
}

/// The name of a dialect of SMB2 or SMB3.
pub(super) fn dialect(revision: u16) -> Cow<'static, str> {
    Cow::Borrowed(match revision {
        0x0202 => "2.02",
        0x0210 => "2.10",
        0x0222 => "2.22",
        0x0224 => "2.24",
        0x02ff => "2.??",
        0x0300 => "3.00",
        0x0302 => "3.02",
        0x0310 => "3.10",
        0x0311 => "3.11",
        other => return Cow::Owned(other.to_string()),
    })
}

/// Functions of IOCTL, in ascending order.
const FUNCTIONS: &[(u32, &str)] = &[
    (0x0006_0194, "DFS_GET_REFERRALS"),
    (0x0006_01b0, "DFS_GET_REFERRALS_EX"),
    (0x0009_0000, "REQUEST_OPLOCK_LEVEL_1"),
    (0x0009_0004, "REQUEST_OPLOCK_LEVEL_2"),
    (0x0009_0008, "REQUEST_BATCH_OPLOCK"),
    (0x0009_000c, "OPLOCK_BREAK_ACKNOWLEDGE"),
    (0x0009_0010, "OPBATCH_ACK_CLOSE_PENDING"),
    (0x0009_0014, "OPLOCK_BREAK_NOTIFY"),
    (0x0009_0018, "LOCK_VOLUME"),
    (0x0009_001c, "UNLOCK_VOLUME"),
    (0x0009_0020, "DISMOUNT_VOLUME"),
    (0x0009_0028, "IS_VOLUME_MOUNTED"),
    (0x0009_002c, "IS_PATHNAME_VALID"),
    (0x0009_0030, "MARK_VOLUME_DIRTY"),
    (0x0009_003b, "QUERY_RETRIEVAL_POINTERS"),
    (0x0009_003c, "GET_COMPRESSION"),
    (0x0009_004f, "MARK_AS_SYSTEM_HIVE"),
    (0x0009_0050, "OPLOCK_BREAK_ACK_NO_2"),
    (0x0009_0054, "INVALIDATE_VOLUMES"),
    (0x0009_0058, "QUERY_FAT_BPB"),
    (0x0009_005c, "REQUEST_FILTER_OPLOCK"),
    (0x0009_0060, "FILESYSTEM_GET_STATISTICS"),
    (0x0009_0064, "GET_NTFS_VOLUME_DATA"),
    (0x0009_0068, "GET_NTFS_FILE_RECORD"),
    (0x0009_006f, "GET_VOLUME_BITMAP"),
    (0x0009_0073, "GET_RETRIEVAL_POINTERS"),
    (0x0009_0074, "MOVE_FILE"),
    (0x0009_0078, "IS_VOLUME_DIRTY"),
    (0x0009_007c, "GET_HFS_INFORMATION"),
    (0x0009_0083, "ALLOW_EXTENDED_DASD_IO"),
    (0x0009_0087, "READ_PROPERTY_DATA"),
    (0x0009_008b, "WRITE_PROPERTY_DATA"),
    (0x0009_008f, "FIND_FILES_BY_SID"),
    (0x0009_0097, "DUMP_PROPERTY_DATA"),
    (0x0009_009c, "GET_OBJECT_ID"),
    (0x0009_00a4, "SET_REPARSE_POINT"),
    (0x0009_00a8, "GET_REPARSE_POINT"),
    (0x0009_00c0, "CREATE_OR_GET_OBJECT_ID"),
    (0x0009_00c4, "SET_SPARSE"),
    (0x0009_00d4, "SET_ENCRYPTION"),
    (0x0009_00db, "ENCRYPTION_FSCTL_IO"),
    (0x0009_00df, "WRITE_RAW_ENCRYPTED"),
    (0x0009_00e3, "READ_RAW_ENCRYPTED"),
    (0x0009_00f0, "EXTEND_VOLUME"),
    (0x0009_0244, "CSV_TUNNEL_REQUEST"),
    (0x0009_027c, "GET_INTEGRITY_INFORMATION"),
    (0x0009_0284, "QUERY_FILE_REGIONS"),
    (0x0009_02c8, "CSV_SYNC_TUNNEL_REQUEST"),
    (0x0009_0300, "QUERY_SHARED_VIRTUAL_DISK_SUPPORT"),
    (0x0009_0304, "SVHDX_SYNC_TUNNEL_REQUEST"),
    (0x0009_0308, "SVHDX_SET_INITIATOR_INFORMATION"),
    (0x0009_030c, "SET_EXTERNAL_BACKING"),
    (0x0009_0310, "GET_EXTERNAL_BACKING"),
    (0x0009_0314, "DELETE_EXTERNAL_BACKING"),
    (0x0009_0318, "ENUM_EXTERNAL_BACKING"),
    (0x0009_031f, "ENUM_OVERLAY"),
    (0x0009_0350, "STORAGE_QOS_CONTROL"),
    (0x0009_0364, "SVHDX_ASYNC_TUNNEL_REQUEST"),
    (0x0009_40b3, "ENUM_USN_DATA"),
    (0x0009_40b7, "SECURITY_ID_CHECK"),
    (0x0009_40bb, "READ_USN_JOURNAL"),
    (0x0009_40cf, "QUERY_ALLOCATED_RANGES"),
    (0x0009_40e7, "CREATE_USN_JOURNAL"),
    (0x0009_40eb, "READ_FILE_USN_DATA"),
    (0x0009_40ef, "WRITE_USN_CLOSE_RECORD"),
    (0x0009_4264, "OFFLOAD_READ"),
    (0x0009_8098, "SET_OBJECT_ID"),
    (0x0009_80a0, "DELETE_OBJECT_ID"),
    (0x0009_80a4, "SET_REPARSE_POINT"),
    (0x0009_80ac, "DELETE_REPARSE_POINT"),
    (0x0009_80bc, "SET_OBJECT_ID_EXTENDED"),
    (0x0009_80c8, "SET_ZERO_DATA"),
    (0x0009_80d0, "ENABLE_UPGRADE"),
    (0x0009_8208, "FILE_LEVEL_TRIM"),
    (0x0009_8268, "OFFLOAD_WRITE"),
    (0x0009_c040, "SET_COMPRESSION"),
    (0x0009_c280, "SET_INTEGRITY_INFORMATION"),
    (0x0011_0018, "PIPE_WAIT"),
    (0x0011_400c, "PIPE_PEEK"),
    (0x0011_c017, "PIPE_TRANSCEIVE"),
    (0x0014_0078, "SRV_REQUEST_RESUME_KEY"),
    (0x0014_01d4, "LMR_REQUEST_RESILIENCY"),
    (0x0014_01fc, "QUERY_NETWORK_INTERFACE_INFO"),
    (0x0014_0200, "VALIDATE_NEGOTIATE_INFO_224"),
    (0x0014_0204, "VALIDATE_NEGOTIATE_INFO"),
    (0x0014_4064, "SRV_ENUMERATE_SNAPSHOTS"),
    (0x0014_40f2, "SRV_COPYCHUNK"),
    (0x0014_41bb, "SRV_READ_HASH"),
    (0x0014_80f2, "SRV_COPYCHUNK_WRITE"),
];

/// The name of a function of IOCTL, or its number.
pub(super) fn function(number: u32) -> String {
    let found = FUNCTIONS.binary_search_by_key(&number, |entry| entry.0).ok();
    let name = found.and_then(|index| FUNCTIONS.get(index));
    name.map_or_else(|| number.to_string(), |entry| format!("FSCTL_{}", entry.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_names() {
        assert_eq!(nt_status(0), "STATUS_SUCCESS");
        assert_eq!(nt_status(0xc000_0016), "STATUS_MORE_PROCESSING_REQUIRED");
        assert_eq!(nt_status(0xffff_fff0), "4294967280");
        assert_eq!(dos_error(1, 2), "DOS_BAD_FILE");
        assert_eq!(dos_error(2, 7), "7");
        assert_eq!(dos_error(3, 0x1f), "UNKNOWN_03_001f");
        assert_eq!(command(1, 0xa2), "SMB1_COMMAND_NT_CREATE_ANDX");
        assert_eq!((command(2, 18), command(2, 77)), ("SMB2_COMMAND_OPLOCK_BREAK".into(), "77".into()));
        assert_eq!(function(0x0011_c017), "FSCTL_PIPE_TRANSCEIVE");
        assert_eq!(function(7), "7");
        assert!(FUNCTIONS.is_sorted_by_key(|entry| entry.0));
        assert_eq!((dialect(0x311), dialect(1)), ("3.11".into(), "1".into()));
    }
}
