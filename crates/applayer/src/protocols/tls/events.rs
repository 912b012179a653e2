// SPDX-License-Identifier: Apache-2.0
//! Anomalies that the TLS parser reports. Names are those of Suricata 8 (EVE prints them in this form, rules
//! ignore their letter case).
//!
//! `HEARTBEAT_MESSAGE` and `INVALID_TLS_HEADER` are never raised (Suricata 8 does not raise them either).

use crate::event::EventCode;

macro_rules! events {
    ($($name:ident),+ $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum TlsEventOrder { $($name),+ }
        $(pub(in crate::protocols::tls) const $name: EventCode = TlsEventOrder::$name as EventCode;)+
        /// Names in the order of the codes.
        pub(in crate::protocols::tls) const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

#[allow(dead_code)]
mod codes {
    use super::EventCode;
    events! {
        INVALID_SSLV2_HEADER,
        INVALID_TLS_HEADER,
        INVALID_RECORD_VERSION,
        INVALID_RECORD_TYPE,
        INVALID_RECORD_LENGTH,
        INVALID_HANDSHAKE_MESSAGE,
        HEARTBEAT_MESSAGE,
        INVALID_HEARTBEAT_MESSAGE,
        OVERFLOW_HEARTBEAT_MESSAGE,
        DATALEAK_HEARTBEAT_MISMATCH,
        HANDSHAKE_INVALID_LENGTH,
        MULTIPLE_SNI_EXTENSIONS,
        INVALID_SNI_TYPE,
        INVALID_SNI_LENGTH,
        TOO_MANY_RECORDS_IN_PACKET,
        INVALID_ALERT_MESSAGE,
        INVALID_CERTIFICATE,
        CERTIFICATE_INVALID_LENGTH,
        CERTIFICATE_INVALID_VERSION,
        CERTIFICATE_INVALID_SERIAL,
        CERTIFICATE_INVALID_ALGORITHMIDENTIFIER,
        CERTIFICATE_INVALID_X509NAME,
        CERTIFICATE_INVALID_DATE,
        CERTIFICATE_INVALID_EXTENSIONS,
        CERTIFICATE_INVALID_DER,
        CERTIFICATE_INVALID_SUBJECT,
        CERTIFICATE_INVALID_ISSUER,
        CERTIFICATE_INVALID_VALIDITY,
        ERROR_MESSAGE_ENCOUNTERED,
        TOO_MANY_SUBJECT_ALTERNATIVE_NAMES,
        INVALID_SSL_RECORD,
    }
}

pub(in crate::protocols::tls) use codes::*;
