"""A join token for a moment, then a key and a certificate of one's own: what needs cryptography.

A join token is the seed of an Ed25519 key and the fingerprint of the manager's CA. The secret never leaves
the node that joins: the request is signed with it, and the manager keeps only the public key. The answer is
believed if the certificate in it comes from the CA of that fingerprint and is for our own key, so the first
contact is safe over any connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from moorage.common.link.identity import Identity
from moorage.common.model.errors import ConfigError, InvalidInput
from moorage.common.views.peers import JoinReply, JoinRequest, PeerKind

_PREFIX = "mgj-"
_PURPOSE = b"moorage-join-1"


@dataclass(frozen=True, slots=True)
class JoinToken:
    seed: bytes
    fingerprint: bytes  # SHA-256 of the CA's certificate

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ``InvalidInput`` for what is no join token."""
        body = text.strip().removeprefix(_PREFIX)
        try:
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if not text.strip().startswith(_PREFIX) or len(raw) != 64:
            raise InvalidInput(
                f"this is not a join token: it begins with {_PREFIX} and has 90 characters",
                next_step="copy it again, whole; `moorage join-token create` makes one",
            )
        return cls(raw[:32], raw[32:])

    @property
    def text(self) -> str:
        return _PREFIX + base64.urlsafe_b64encode(self.seed + self.fingerprint).decode().rstrip("=")

    @property
    def verifier(self) -> str:
        """The public key in hex: all that the manager keeps."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes(*raw).hex()

    def request(self, kind: PeerKind, name: str, csr: str) -> JoinRequest:
        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_signed(kind, name, csr)).hex()
        return JoinRequest(kind=kind, name=name, csr=csr, verifier=self.verifier, signature=signature)


def is_signed(request: JoinRequest) -> bool:
    """Whether whoever asks holds the token."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(request.verifier))
    try:
        key.verify(bytes.fromhex(request.signature), _signed(request.kind, request.name, request.csr))
    except InvalidSignature:
        return False
    return True


def _signed(kind: str, name: str, csr: str) -> bytes:
    return b"\0".join((_PURPOSE, kind.encode(), name.encode(), csr.encode()))


def new_key(name: str) -> tuple[str, str]:
    """A key of our own and a request for a certificate, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, *plain)
    return pem.decode(), csr.public_bytes(serialization.Encoding.PEM).decode()


def fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())


def pin_of(authority: str) -> bytes:
    """The fingerprint of a CA's certificate in PEM."""
    return fingerprint(x509.load_pem_x509_certificate(authority.encode()))


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """By which a public key is known: hex SHA-256 of its DER form."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(*form)).hexdigest()


def peer_uri(kind: str, name: str, peer_id: str) -> str:
    """How a peer's certificate names it."""
    return f"moorage:{kind}:{name}:{peer_id}"


def accept(reply: JoinReply, *, key: str, pinned: bytes, link: str, now: datetime) -> Identity:
    """The identity that an answer to our request gives us. Raises ``ConfigError`` if it is not from the
    manager of the token, not for our key, or of no use by this node's clock."""
    certificate = check(reply, key, pinned)
    identity = Identity(
        id=reply.id,
        kind=reply.kind,
        name=reply.name,
        resource_group=reply.resource_group,
        link=link,
        key=key,
        certificate=reply.certificate,
        authority=reply.authority,
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
    )
    if identity.what_is_wrong(now):
        behind = (reply.now - now).total_seconds()
        raise ConfigError(
            f"this node's clock is {abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} that of the "
            "manager: its certificate cannot be used",
            next_step="set it (timedatectl set-ntp true), and join again with the same token",
        )
    return identity


def check(reply: JoinReply, key: str, pinned: bytes) -> x509.Certificate:
    """The certificate, from the pinned CA, for this key and this name; else raises ``ConfigError``."""
    try:
        authority = x509.load_pem_x509_certificate(reply.authority.encode())
        certificate = x509.load_pem_x509_certificate(reply.certificate.encode())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        ours = serialization.load_pem_private_key(key.encode(), None).public_key()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        raise _stranger(f"its certificates are not in order: {error}") from error
    if fingerprint(authority) != pinned:
        raise _stranger("its CA has another fingerprint than this token says")
    if certificate.public_key() != ours or uris != [peer_uri(reply.kind, reply.name, reply.id)]:
        raise _stranger("the certificate that it sent is for somebody else")
    return certificate


def _stranger(why: str) -> ConfigError:
    return ConfigError(
        f"what answers is not the manager that made this join token: {why}",
        next_step="check the address; something on the way may answer in its place",
    )
