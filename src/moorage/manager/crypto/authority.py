"""Certificate authority of the links: signs the certificates of agents, proxies and managers.

All managers share the key, which is stored in Postgres and encrypted with a secret that is not
stored there. A copy of the database alone is therefore not enough to impersonate a manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from moorage.common.link.certificates import fingerprint, key_digest, peer_uri
from moorage.common.link.identity import MANAGER_NAME
from moorage.common.model.errors import ConfigError, InvalidInput

_AUTHORITY_YEARS = 20
_MANAGER_CERTIFICATE_DAYS = 30
# New certificates are backdated by this much, for peers whose clocks are behind.
_CLOCK_SKEW = timedelta(hours=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class EncryptedAuthority:
    """The authority as stored: PEM, with an encrypted key."""

    certificate: str
    key: str


@dataclass(frozen=True)
class SigningRequest:
    """The public key of a certificate signing request, and its digest."""

    key: ec.EllipticCurvePublicKey
    digest: str


class CertificateAuthority:
    """Raises ``ConfigError`` if ``secret`` does not decrypt the key."""

    def __init__(self, stored: EncryptedAuthority, secret: str) -> None:
        self.certificate = stored.certificate
        self._loaded = x509.load_pem_x509_certificate(stored.certificate.encode())
        try:
            key = serialization.load_pem_private_key(stored.key.encode(), secret.encode())
        except ValueError as error:
            raise ConfigError(
                "manager.ca_secret does not decrypt the certificate authority that is stored in "
                "Postgres",
                next_step="use the same secret in every manager of a database; the first manager "
                "stored it "
                "in the file ca-secret of its state directory",
            ) from error

        self._key = cast(ec.EllipticCurvePrivateKey, key)

    @staticmethod
    def create(secret: str, now: datetime) -> EncryptedAuthority:
        """Create a new authority, encrypted with ``secret``."""
        key = ec.generate_private_key(ec.SECP256R1())

        # A distinct name, because TLS finds a certificate's CA by its name, and two CAs are trusted
        # during a rotation.
        serial = x509.random_serial_number()
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"Moorage links {serial:x}"[:32])]
        )
        usage = x509.KeyUsage(
            False,
            False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(
                name,
                name,
                key=key.public_key(),
                now=now,
                lifetime=timedelta(days=365 * _AUTHORITY_YEARS),
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        encryption = serialization.BestAvailableEncryption(secret.encode())
        encrypted = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption)

        return EncryptedAuthority(certificate.public_bytes(_PEM).decode(), encrypted.decode())

    @cached_property
    def name(self) -> x509.Name:
        return self._loaded.subject

    @cached_property
    def fingerprint(self) -> bytes:
        return fingerprint(self._loaded)

    def sign_peer_certificate(
        self,
        request: SigningRequest,
        kind: str,
        name: str,
        peer_id: str,
        *,
        now: datetime,
        lifetime: timedelta,
    ) -> str:
        """Sign a client certificate in PEM that binds the requested key to a peer.

        Proxies may also act as servers, because agents that they cannot reach connect to them."""
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if kind == "proxy":
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)

        uri = x509.UniformResourceIdentifier(peer_uri(kind, name, peer_id))
        return self._sign(request.key, name, names=[uri], usage=usage, now=now, lifetime=lifetime)

    def issue_manager_certificate(self, now: datetime) -> tuple[str, str, datetime]:
        """Issue a manager's key and certificate, in PEM, with the time at which to renew them.

        A manager is a server to its peers, and a client of other managers."""
        key = ec.generate_private_key(ec.SECP256R1())
        lifetime = timedelta(days=_MANAGER_CERTIFICATE_DAYS)
        name = x509.DNSName(MANAGER_NAME)
        usage = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        certificate = self._sign(
            key.public_key(),
            "Moorage manager",
            names=[name],
            usage=usage,
            now=now,
            lifetime=lifetime,
        )
        plain = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

        return plain.decode(), certificate, now + lifetime / 2

    def issue_server_certificate(
        self, names: Sequence[str], now: datetime, lifetime: timedelta
    ) -> tuple[str, str]:
        """Issue the key and certificate, in PEM, of an HTTP server with these host names and IP
        addresses.

        No peer accepts it as a manager on the links, because managers have a distinct name.
        """
        if MANAGER_NAME in (name.lower().rstrip(".") for name in names):
            raise ConfigError(
                f"{MANAGER_NAME} is the name of managers on the links, not of a web server"
            )

        key = ec.generate_private_key(ec.SECP256R1())
        usage = (ExtendedKeyUsageOID.SERVER_AUTH,)
        alternatives = [_general_name(name) for name in names]
        certificate = self._sign(
            key.public_key(), "Moorage", names=alternatives, usage=usage, now=now, lifetime=lifetime
        )
        plain = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

        return plain.decode(), certificate

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: str,
        names: Sequence[x509.GeneralName],
        usage: Sequence[ObjectIdentifier],
        *,
        now: datetime,
        lifetime: timedelta,
    ) -> str:
        subject_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
        certificate = (
            _builder(subject_name, self._loaded.subject, key=key, now=now, lifetime=lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(_PEM).decode()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    *,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def read_csr(csr: str) -> SigningRequest:
    """Read the key of a signing request. Names in it are ignored, because the manager assigns them.

    Raises ``InvalidInput`` for an unreadable request, for one that is not signed with its own key,
    and for a key that is not P-256.
    """
    try:
        parsed = x509.load_pem_x509_csr(csr.encode())
        key = parsed.public_key()
        signed = parsed.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise InvalidInput(f"the certificate signing request cannot be parsed: {error}") from error

    if (
        not isinstance(key, ec.EllipticCurvePublicKey)
        or not isinstance(key.curve, ec.SECP256R1)
        or not signed
    ):
        raise InvalidInput(
            "the certificate signing request must contain a P-256 key and be signed with it"
        )

    return SigningRequest(key, key_digest(key))
