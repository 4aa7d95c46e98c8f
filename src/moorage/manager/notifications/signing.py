"""Signatures of webhooks, as Standard Webhooks defines them. Pure.

The signature is an HMAC-SHA256 over the id, the timestamp and the body, so a receiver detects a
changed body, another time and another id.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32


def make_secret(key: bytes) -> str:
    """The text of a secret: ``whsec_`` and the key in Base64."""
    return PREFIX + base64.b64encode(key).decode()


def headers(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a request. With several secrets, a signature by each, so that a receiver may
    have either. ``timestamp``: Unix time of the attempt."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    signatures = [
        "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()
        for secret in secrets
        if secret
    ]
    found = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    return found | ({"webhook-signature": " ".join(signatures)} if signatures else {})


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX))
