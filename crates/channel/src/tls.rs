// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3 with certificates on both sides. Sessions are never resumed: each handshake checks validity and
//! revocation anew.

use crate::ChannelError;
use crate::certificate::{CONTROLLER_NAME, chain, facts, fingerprint, private_key};
use crate::identity::DeviceIdentity;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// The TLS settings of a controller.
pub type ServerTls = ServerConfig;

/// Gives seconds since 1970, at each handshake.
pub type HandshakeClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Whether the certificate with this serial number is revoked.
pub type RevocationCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

struct TlsTimeProvider(HandshakeClock);

impl fmt::Debug for TlsTimeProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

impl TimeProvider for TlsTimeProvider {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs((self.0)())))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn wrong(what: &str) -> impl Fn(String) -> ChannelError + '_ {
    move |error| ChannelError::Certificate(format!("{what}: {error}"))
}

fn roots(pem: &str) -> Result<Arc<RootCertStore>, ChannelError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots
            .add(certificate)
            .map_err(|error| wrong("the certificate of an authority cannot be used")(error.to_string()))?;
    }
    Ok(Arc::new(roots))
}

/// Checks that certificate and key (PEM) belong together.
pub(crate) fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, ChannelError> {
    CertifiedKey::from_der(chain(certificate)?, private_key(key)?, &provider())
        .map_err(|error| wrong("certificate and key do not belong together")(error.to_string()))
}

/// The TLS settings of a controller: devices present certificates of one of the authorities that are not
/// revoked. Clients without a certificate are admitted for enrolment; [`crate::wire::Wire::peer`]
/// distinguishes them.
///
/// # Errors
/// Certificate, key or authorities cannot be used.
pub fn server(
    clock: HandshakeClock,
    certificate: &str,
    key: &str,
    authorities: &str,
    revoked: RevocationCheck,
) -> Result<Arc<ServerConfig>, ChannelError> {
    let inner = WebPkiClientVerifier::builder_with_provider(roots(authorities)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong("cannot set up the check of devices' certificates")(error.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(TlsTimeProvider(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong("TLS 1.3")(error.to_string()))?
        .with_client_cert_verifier(Arc::new(DeviceVerifier { inner, revoked }))
        .with_single_cert(chain(certificate)?, private_key(key)?)
        .map_err(|error| wrong("the controller's certificate")(error.to_string()))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The TLS settings of an agent with a certificate.
///
/// # Errors
/// Certificate, key or authorities cannot be used.
pub fn client(clock: HandshakeClock, identity: &DeviceIdentity) -> Result<Arc<ClientConfig>, ChannelError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(&identity.authorities)?, provider())
        .build()
        .map_err(|error| {
            wrong("cannot set up the check of the controller's certificate")(error.to_string())
        })?;
    let mut config = client_builder(clock, verifier)?
        .with_client_auth_cert(chain(&identity.certificate)?, private_key(&identity.key)?)
        .map_err(|error| wrong("the device's certificate")(error.to_string()))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The TLS settings of an agent without a certificate: they accept only the controller whose certificate the
/// token pins.
///
/// # Errors
/// TLS cannot be set up.
pub fn enrolling(clock: HandshakeClock, pin: [u8; 32]) -> Result<Arc<ClientConfig>, ChannelError> {
    let mut config =
        client_builder(clock, Arc::new(Pinned { pin, provider: provider() }))?.with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn client_builder(
    clock: HandshakeClock,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, ChannelError> {
    Ok(ClientConfig::builder_with_details(provider(), Arc::new(TlsTimeProvider(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong("TLS 1.3")(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

/// The server name that agents expect.
///
/// # Errors
/// Never: the name is valid.
pub fn controller_name() -> Result<ServerName<'static>, ChannelError> {
    ServerName::try_from(CONTROLLER_NAME).map_err(|error| wrong("the controller's name")(error.to_string()))
}

/// Verifies devices' certificates: by webpki, and against the revocations.
struct DeviceVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    revoked: RevocationCheck,
}

impl fmt::Debug for DeviceVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Devices")
    }
}

impl ClientCertVerifier for DeviceVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let facts = facts(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if (self.revoked)(&facts.serial) {
            return Err(CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Accepts one certificate only. The handshake's signature proves that the peer has its key.
#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if fingerprint(end_entity) == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
