//! A certificate authority that only the world's box is told to trust.

use crate::error::Error;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::sync::Arc;

/// An authority made for one world.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority with a new key.
    ///
    /// # Errors
    /// No key or certificate could be made.
    pub fn new() -> Result<Authority, Error> {
        let key = KeyPair::generate().map_err(|cause| failed("make a key", cause))?;
        let mut params = CertificateParams::new(Vec::new()).map_err(|cause| failed("describe the authority", cause))?;
        params.distinguished_name.push(DnType::CommonName, "closed world test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(|cause| failed("sign the authority", cause))?;
        Ok(Authority { pem: certificate.pem(), issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate; [`World::trust`](crate::World::trust) takes it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names (or addresses) and its key, both as PEM: for a server that is a program of its own.
    ///
    /// # Errors
    /// No key or certificate could be made.
    pub fn pem_pair(&self, names: &[&str]) -> Result<(String, String), Error> {
        let (certificate, key) = self.certificate(names)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn certificate(&self, names: &[&str]) -> Result<(Certificate, KeyPair), Error> {
        let key = KeyPair::generate().map_err(|cause| failed("make a key", cause))?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(|cause| failed("describe a certificate", cause))?;
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|cause| failed("sign a certificate", cause))?;
        Ok((certificate, key))
    }

    /// A server's settings with a certificate for these names (or addresses).
    pub(crate) fn server(&self, names: &[&str]) -> Result<Arc<ServerConfig>, Error> {
        let (certificate, key) = self.certificate(names)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)
            })
            .map_err(|cause| failed("set TLS up", cause))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn failed(doing: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Call { doing: doing.to_owned(), cause: io::Error::other(cause) }
}
