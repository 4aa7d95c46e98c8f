"""Join tokens and certificates: how a peer obtains its identity.

A join token holds the seed of an Ed25519 key and the fingerprint of the manager's CA. The seed
never leaves the joining node. It signs the request, and the manager stores only the public key. The
peer accepts a reply if its certificate was issued by the CA with that fingerprint, for the peer's
own key. The first contact is therefore safe over any connection.
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
    fingerprint: bytes  # SHA-256 of the CA certificate

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a join token. Raises ``InvalidInput``."""
        body = text.strip().removeprefix(_PREFIX)
        try:
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""

        if not text.strip().startswith(_PREFIX) or len(raw) != 64:
            raise InvalidInput(
                f"this is not a join token: a join token starts with {_PREFIX} and has 90 "
                "characters",
                next_step="copy it again completely; `moorage join-tokens create` creates one",
            )

        return cls(raw[:32], raw[32:])

    @property
    def text(self) -> str:
        return _PREFIX + base64.urlsafe_b64encode(self.seed + self.fingerprint).decode().rstrip("=")

    @property
    def verifier(self) -> str:
        """The public key in hex. The manager stores nothing else."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes(*raw).hex()

    def request(self, kind: PeerKind, name: str, csr: str) -> JoinRequest:
        signature = (
            Ed25519PrivateKey.from_private_bytes(self.seed).sign(_signed(kind, name, csr)).hex()
        )
        return JoinRequest(
            kind=kind, name=name, csr=csr, verifier=self.verifier, signature=signature
        )


def has_valid_signature(request: JoinRequest) -> bool:
    """Return whether the request is signed with the key of its join token."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(request.verifier))
    try:
        key.verify(
            bytes.fromhex(request.signature), _signed(request.kind, request.name, request.csr)
        )
    except InvalidSignature:
        return False
    return True


def _signed(kind: str, name: str, csr: str) -> bytes:
    return b"\0".join((_PURPOSE, kind.encode(), name.encode(), csr.encode()))


def new_key(name: str) -> tuple[str, str]:
    """Generate a private key and a certificate signing request, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, *plain)
    return pem.decode(), csr.public_bytes(serialization.Encoding.PEM).decode()


def fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())


def pem_fingerprint(authority: str) -> bytes:
    """Return the fingerprint of a CA certificate in PEM."""
    return fingerprint(x509.load_pem_x509_certificate(authority.encode()))


def issuer_first(authorities: list[str], certificate: str) -> list[str]:
    """Move the CA certificate that issued ``certificate`` to the front, all in PEM. If none of them
    issued it, the order is unchanged."""

    def has_issued(authority: str) -> bool:
        try:
            issued = x509.load_pem_x509_certificate(certificate.encode())
            issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    return sorted(authorities, key=has_issued, reverse=True)


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of the public key in DER, in hex."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(*form)).hexdigest()


def peer_uri(kind: str, name: str, peer_id: str) -> str:
    """Return the URI that names a peer in its certificate."""
    return f"moorage:{kind}:{name}:{peer_id}"


def accept(reply: JoinReply, *, key: str, pinned: bytes, link: str, now: datetime) -> Identity:
    """Verify a join reply and return the identity in it.

    Raises ``ConfigError`` if the reply is not from the token's manager, not for our key, or not
    valid by this node's clock.
    """
    certificate = verify_certificate(reply, key, pinned)
    identity = Identity(
        id=reply.id,
        kind=reply.kind,
        name=reply.name,
        resource_group=reply.resource_group,
        link=link,
        key=key,
        certificate=reply.certificate,
        authority="".join((reply.authority, *reply.other_authorities)),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
    )
    if identity.find_problem(now):
        behind = (reply.now - now).total_seconds()
        raise ConfigError(
            f"this node's clock is {abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} "
            "the manager's, so the certificate is not valid here",
            next_step="set the clock (timedatectl set-ntp true) and join again with the same token",
        )

    return identity


def verify_certificate(reply: JoinReply, key: str, pinned: bytes) -> x509.Certificate:
    """Return the certificate if the pinned CA issued it for this key and name. Raises
    ``ConfigError``."""
    try:
        authority = x509.load_pem_x509_certificate(reply.authority.encode())
        certificate = x509.load_pem_x509_certificate(reply.certificate.encode())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        ours = serialization.load_pem_private_key(key.encode(), None).public_key()
    except (
        ValueError,
        TypeError,
        InvalidSignature,
        UnsupportedAlgorithm,
        x509.ExtensionNotFound,
    ) as error:
        raise _untrusted(f"its certificates are invalid: {error}") from error

    if fingerprint(authority) != pinned:
        raise _untrusted("the fingerprint of its CA differs from that in the join token")
    if certificate.public_key() != ours or uris != [peer_uri(reply.kind, reply.name, reply.id)]:
        raise _untrusted("its certificate is for another peer")

    return certificate


def _untrusted(why: str) -> ConfigError:
    return ConfigError(
        f"the server is not the manager that issued this join token: {why}",
        next_step="check the address; another server may be answering in its place",
    )
