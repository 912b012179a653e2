// SPDX-License-Identifier: Apache-2.0
//! Certificates that the sides of a transaction present, and whether they are stored.

use bartizan_base::{Direction, PerDirection};

/// The certificates of one side, in the form in which they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates<'a> {
    /// Subject of the side's own certificate, `C=US, O=Example, CN=host`.
    pub subject: &'a str,
    /// Issuer of the side's own certificate.
    pub issuer: &'a str,
    /// SHA-1 of the side's own certificate, `0a:ff:...`
    pub fingerprint: &'a str,
    /// All certificates in DER, the side's own first.
    pub chain: Vec<&'a [u8]>,
}

/// Progress of storing a side's certificates, which happens at most once in a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storing {
    /// No rule has requested it.
    #[default]
    No,
    /// A rule has requested it (`tls.store`); the certificates may be still to come.
    Asked,
    /// The certificates were passed to the store.
    Done,
}

impl Storing {
    /// Records a rule's request. `true`: it is the first one.
    pub fn request(&mut self) -> bool {
        let new = *self == Storing::No;
        if new {
            *self = Storing::Asked;
        }
        new
    }
}

/// Reads certificates out of a transaction.
pub trait ShownCertificates {
    /// The certificates of a side, once they are complete.
    fn certificates_of(&self, side: Direction) -> Option<Certificates<'_>>;
}

/// A view of the certificates of a transaction.
#[derive(Clone, Copy)]
pub struct CertificateView<'a> {
    /// Progress of storing, by side.
    pub storing: PerDirection<Storing>,
    certificates: &'a dyn ShownCertificates,
}

impl<'a> CertificateView<'a> {
    /// Makes a view.
    pub const fn new(storing: PerDirection<Storing>, shown: &'a dyn ShownCertificates) -> Self {
        CertificateView { storing, certificates: shown }
    }

    /// The certificates of a side that are due for storing: requested, complete, and not stored yet.
    #[must_use]
    pub fn due(&self, side: Direction) -> Option<Certificates<'a>> {
        if self.storing[side] == Storing::Asked { self.certificates.certificates_of(side) } else { None }
    }
}
