// SPDX-License-Identifier: Apache-2.0
//! What a match asks of what stands around the engine: files and transactions are marked, whoever writes
//! records and files reads the marks. Source: Suricata 8's user guide, keywords `filestore`, `tls.store` and
//! `config`.

use bartizan_base::PerDirection;

/// Something that a rule asks for when it matches.
///
/// One function carries them out, by a `match` that names every variant: one that is added and not carried
/// out does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `filestore`: files are kept.
    StoreFiles(StoreFiles),
    /// `tls.store`: the certificates of the side whose packet matched are stored.
    StoreCertificates,
    /// `config: logging disable`: no record of the transaction is written.
    DisableLogging,
}

/// Which files `filestore` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFiles {
    /// Directions whose files are kept; `None`: that in which the rule matched.
    pub directions: Option<PerDirection<bool>>,
    /// How many of them.
    pub scope: StoreScope,
}

/// How far `filestore` reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreScope {
    /// The files that the rule matched.
    #[default]
    File,
    /// All files of the transaction, also those to come.
    Transaction,
    /// All files of the flow from here on.
    Flow,
}
