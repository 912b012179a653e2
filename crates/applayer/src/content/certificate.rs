// SPDX-License-Identifier: Apache-2.0
//! Certificates that the sides of a transaction show, and whether they are stored.

use bartizan_base::{Direction, PerDirection};

/// The certificates of one side, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates<'a> {
    /// Of the side's own certificate, `C=US, O=Example, CN=host`.
    pub subject: &'a str,
    /// Of the side's own certificate.
    pub issuer: &'a str,
    /// SHA-1 of the side's own certificate, `0a:ff:...`
    pub fingerprint: &'a str,
    /// All of them in DER, the side's own first.
    pub chain: Vec<&'a [u8]>,
}

/// Whether the certificates of a side are stored: once in a transaction at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storing {
    /// No rule has asked.
    #[default]
    No,
    /// A rule has asked (`tls.store`); they may still be to come.
    Asked,
    /// They were handed on.
    Done,
}

impl Storing {
    /// A rule asks. `true`: none had asked before.
    pub fn ask(&mut self) -> bool {
        let new = *self == Storing::No;
        if new {
            *self = Storing::Asked;
        }
        new
    }
}

/// Reads certificates out of a transaction.
pub trait ShownCertificates {
    /// Those of a side, once they are there.
    fn shown_by(&self, side: Direction) -> Option<Certificates<'_>>;
}

/// A view of the certificates of a transaction.
#[derive(Clone, Copy)]
pub struct CertificateView<'a> {
    /// Whether those of a side are stored.
    pub storing: PerDirection<Storing>,
    shown: &'a dyn ShownCertificates,
}

impl<'a> CertificateView<'a> {
    /// Makes one.
    pub const fn new(storing: PerDirection<Storing>, shown: &'a dyn ShownCertificates) -> Self {
        CertificateView { storing, shown }
    }

    /// Those of a side that are to be stored now: asked for, there, and not stored yet.
    #[must_use]
    pub fn due(&self, side: Direction) -> Option<Certificates<'a>> {
        if self.storing[side] == Storing::Asked { self.shown.shown_by(side) } else { None }
    }
}
