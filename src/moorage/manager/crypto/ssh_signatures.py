"""Signatures made with SSH keys, either of messages by ``ssh-keygen -Y sign`` or of logins. SHA-1
is not accepted."""

from __future__ import annotations

import base64
import binascii
import hashlib

from moorage.common.model.public_keys import read_strings

_BEGIN = "-----BEGIN SSH SIGNATURE-----"
_END = "-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_VERSION = (1).to_bytes(4)
_USERAUTH_REQUEST = b"\x32"
_RSA = {b"rsa-sha2-256": "SHA256", b"rsa-sha2-512": "SHA512"}
_CURVES = {
    b"nistp256": ("SECP256R1", "SHA256"),
    b"nistp384": ("SECP384R1", "SHA384"),
    b"nistp521": ("SECP521R1", "SHA512"),
}


def signer_of(armored: str, message: bytes, namespace: str) -> bytes | None:
    """Return the public key with which ``ssh-keygen -Y sign -n namespace`` signed ``message``, or
    None if it signed another text.

    Raises ``ValueError`` with the reason if it is not a signature."""
    text = "".join(armored.split("\n")).strip().replace("\r", "")
    if not (text.startswith(_BEGIN) and text.endswith(_END)):
        raise ValueError(f"it does not begin with {_BEGIN} and end with {_END}")

    try:
        blob = base64.b64decode(text[len(_BEGIN) : -len(_END)], validate=True)
        if not blob.startswith(_MAGIC + _VERSION):
            raise ValueError("it is not a signature of version 1")

        key, given_namespace, reserved, hashed_with, signature = read_strings(
            blob[len(_MAGIC + _VERSION) :]
        )
    except (binascii.Error, ValueError):
        raise ValueError("it is damaged") from None

    if given_namespace != namespace.encode():
        raise ValueError(
            f"its namespace is not {namespace!r} (`ssh-keygen -Y sign -n {namespace}`)"
        )

    if hashed_with not in (b"sha256", b"sha512"):
        raise ValueError("its hash is neither sha256 nor sha512")

    digest = hashlib.new(hashed_with.decode(), message).digest()
    signed = _MAGIC + b"".join(map(_string, (given_namespace, reserved, hashed_with, digest)))
    return key if verify(key, signature, signed) else None


def proves_login(login: str, key: bytes, signed: bytes, signature: bytes) -> bool:
    """Whether ``signature`` comes from an SSH client that logs in as ``login`` with ``key`` (RFC
    4252, 7).

    ``signed`` is the signed data, which starts with the connection's identifier."""
    try:
        session, _ = _first_string(signed)
        algorithm, _ = _first_string(signature)
    except ValueError:
        return False

    parts = (login.encode(), b"ssh-connection", b"publickey")
    request = (
        _USERAUTH_REQUEST
        + b"".join(map(_string, parts))
        + b"\x01"
        + _string(algorithm)
        + _string(key)
    )
    return (
        len(session) >= 20
        and signed == _string(session) + request
        and verify(key, signature, signed)
    )


def verify(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the ``signature`` of ``data`` was made with the private key that belongs to ``key``,
    all in SSH's encoding."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        kind, *fields = read_strings(key)
        algorithm, rest = _first_string(signature)
        value, rest = _first_string(rest)
        if kind.startswith(b"sk-"):
            if len(rest) != 5:  # flags and a counter
                return False

            application = fields.pop()
            data = hashlib.sha256(application).digest() + rest + hashlib.sha256(data).digest()
        elif rest:
            return False

        if kind == b"ssh-rsa":
            _check_rsa(fields, algorithm, value, data)
        elif algorithm != kind:
            return False
        elif kind in (b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com"):
            _check_ed25519(fields, value, data)
        else:
            _check_ecdsa(fields, value, data)
    except (ValueError, KeyError, InvalidSignature, UnsupportedAlgorithm):
        return False

    return True


def _check_ed25519(fields: list[bytes], value: bytes, data: bytes) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    (point,) = fields
    Ed25519PublicKey.from_public_bytes(point).verify(value, data)


def _check_ecdsa(fields: list[bytes], value: bytes, data: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    name, point = fields
    curve, hashed_with = _CURVES[name]
    r, s = (int.from_bytes(part) for part in read_strings(value))
    found = ec.EllipticCurvePublicKey.from_encoded_point(getattr(ec, curve)(), point)
    found.verify(encode_dss_signature(r, s), data, ec.ECDSA(getattr(hashes, hashed_with)()))


def _check_rsa(fields: list[bytes], algorithm: bytes, value: bytes, data: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    exponent, modulus = (int.from_bytes(part) for part in fields)
    hashed_with = getattr(hashes, _RSA[algorithm])()
    RSAPublicNumbers(exponent, modulus).public_key().verify(value, data, PKCS1v15(), hashed_with)


def _first_string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string, and the rest. Raises ``ValueError``."""
    end = 4 + int.from_bytes(data[:4])
    if len(data) < max(4, end):
        raise ValueError("it is truncated")
    return data[4:end], data[end:]


def _string(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value
