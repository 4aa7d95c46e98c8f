"""Names of environment variables that hold secrets, and the mask that replaces their values in
responses."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"
# Whole words between underscores: HF_TOKEN and OPENAI_API_KEY, but not MAX_TOKENS or
# TOKENIZERS_PARALLELISM.
_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIALS?",
    "APIKEY",
    "(?:API|ACCESS|PRIVATE|SECRET|ENCRYPTION|SIGNING)_KEY",
)
_SECRET_NAME = re.compile(rf"(?:^|_)(?:{'|'.join(_WORDS)})(?:_|$)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable with this name usually holds a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """``env``, with ``MASK`` in place of the values of variables whose names suggest secrets."""
    return {name: MASK if is_secret_name(name) and value else value for name, value in env.items()}
