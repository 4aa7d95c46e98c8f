"""The CA of the links: it signs the certificates of agents, proxies and managers, and nothing else.

Its key is kept in Postgres, where all managers find the same one, sealed with a secret that is not there:
a copy of the database alone makes nobody a manager.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
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
_MANAGER_DAYS = 30
# Clocks differ: what is signed now is good for those that are so much behind, too.
_EARLY = timedelta(hours=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class EncryptedAuthority:
    """As it is kept: PEM, the key encrypted."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Asked:
    """What a signing request asks for: a key, and by which digest it is known."""

    key: ec.EllipticCurvePublicKey
    digest: str


class Authority:
    """Raises ``ConfigError`` when ``secret`` does not open it."""

    def __init__(self, sealed: EncryptedAuthority, secret: str) -> None:
        self.certificate = sealed.certificate
        self._loaded = x509.load_pem_x509_certificate(sealed.certificate.encode())
        try:
            key = serialization.load_pem_private_key(sealed.key.encode(), secret.encode())
        except ValueError as error:
            raise ConfigError(
                "the CA of the links in Postgres was sealed with another manager.ca_secret",
                next_step="give this manager that secret (every manager of one database needs the same; the "
                "first kept it as ca-secret in its state directory)",
            ) from error
        self._key = cast(ec.EllipticCurvePrivateKey, key)

    @staticmethod
    def make(secret: str, now: datetime) -> EncryptedAuthority:
        """A new one, sealed with ``secret``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Moorage links")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(name, name, key.public_key(), now, timedelta(days=365 * _AUTHORITY_YEARS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        seal = serialization.BestAvailableEncryption(secret.encode())
        kept = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, seal)
        return EncryptedAuthority(certificate.public_bytes(_PEM).decode(), kept.decode())

    @cached_property
    def fingerprint(self) -> bytes:
        return fingerprint(self._loaded)

    def sign_peer(
        self, asked: Asked, kind: str, name: str, peer_id: str, now: datetime, life: timedelta
    ) -> str:
        """A certificate, in PEM, by which that key is that peer's. Good for clients only."""
        uri = x509.UniformResourceIdentifier(peer_uri(kind, name, peer_id))
        return self._sign(asked.key, name, uri, ExtendedKeyUsageOID.CLIENT_AUTH, now, life)

    def new_manager(self, now: datetime) -> tuple[str, str, datetime]:
        """A key and a certificate for a manager, in PEM, and when to make another one."""
        key = ec.generate_private_key(ec.SECP256R1())
        life = timedelta(days=_MANAGER_DAYS)
        name = x509.DNSName(MANAGER_NAME)
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        certificate = self._sign(key.public_key(), "Moorage manager", name, usage, now, life)
        plain = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return plain.decode(), certificate, now + life / 2

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: str,
        name: x509.GeneralName,
        usage: ObjectIdentifier,
        now: datetime,
        life: timedelta,
    ) -> str:
        whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
        certificate = (
            _builder(whose, self._loaded.subject, key, now, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(_PEM).decode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + life)
    )


def read_csr(csr: str) -> Asked:
    """Only its key counts: names are given by us. Raises ``InvalidInput`` unless whoever asks holds it."""
    try:
        request = x509.load_pem_x509_csr(csr.encode())
        key, signed = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise InvalidInput(f"the signing request cannot be read: {error}") from error
    if (
        not isinstance(key, ec.EllipticCurvePublicKey)
        or not isinstance(key.curve, ec.SECP256R1)
        or not signed
    ):
        raise InvalidInput("the signing request must be for a P-256 key, and signed with it")
    return Asked(key, key_digest(key))
