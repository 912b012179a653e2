// SPDX-License-Identifier: Apache-2.0
//! Requests of matches to the program around the engine: files and transactions are marked, and the writers
//! of records and files read the marks. Source: Suricata 8's user guide, keywords `filestore`, `tls.store`
//! and `config`.

use bartizan_base::PerDirection;

/// A request of a rule when it matches.
///
/// One function carries requests out, by a `match` that names every variant: a new variant that is not
/// carried out does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `filestore`: files are stored.
    StoreFiles(StoreFiles),
    /// `tls.store`: the certificates of the side whose packet matched are stored.
    StoreCertificates,
    /// `config: logging disable`: no record of the transaction is written.
    DisableLogging,
}

/// The files that `filestore` stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFiles {
    /// Directions whose files are stored; `None`: the direction in which the rule matched.
    pub directions: Option<PerDirection<bool>>,
    /// Scope of the request.
    pub scope: StoreScope,
}

/// The scope of `filestore`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreScope {
    /// The files that the rule matched.
    #[default]
    File,
    /// All files of the transaction, later ones included.
    Transaction,
    /// All files of the flow from here on.
    Flow,
}
