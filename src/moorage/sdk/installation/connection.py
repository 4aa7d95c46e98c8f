"""Addresses and API key, from options, the environment, the context, saved files or defaults."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.common.model.errors import ConfigError
from moorage.sdk.installation.contexts import Context
from moorage.sdk.installation.saved_files import (
    DEFAULT_URL,
    current_context,
    read_connection,
    read_contexts,
    read_text,
    state_directory,
)

DEFAULT_OPENAI_URL = "http://127.0.0.1:8800/v1"


@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses and the key that a command uses. ``url``: the address to connect to.
    ``http_url``: the same manager's address for other programs. The two differ for a manager on
    this host without TLS, which can prove its identity only through its Unix socket.

    ``key_in_shell``: an expression for shell commands that yields the key without showing it.
    ``ca_file``: the authority to trust in addition to the system's, or None.
    """

    url: str
    http_url: str
    openai_url: str
    key: str
    key_in_shell: str
    ca_file: str | None = None


def _context(env: Mapping[str, str], url: str | None) -> Context | None:
    """The context in use. None if the local one is in use, or if the given address differs from the
    context's, so that its key must not be sent there."""
    home = state_directory(env)
    context = read_contexts(home).find(current_context(env))
    given = url or env.get("MOORAGE_URL")
    if context is None or not given or given.rstrip("/") == context.url.rstrip("/"):
        return context

    from moorage.sdk.installation.local_manager import own_socket

    socket = own_socket(home, given)
    return context if socket is not None and socket == own_socket(home, context.url) else None


def find_connection(
    env: Mapping[str, str],
    *,
    url: str | None = None,
    key_file: str | None = None,
    openai_url: str | None = None,
    ca_file: str | None = None,
) -> Connection:
    """Take each value from the first source that has it. Raises ``ConfigError`` for a file that
    cannot be read. No option accepts the key itself, because every user of the machine could read
    it there.

    ``moorage up`` saves ``connection.json`` (``url``, ``socket``, ``openai_url``, ``ca_file``) and
    ``admin-key`` in the state directory.
    """
    home = state_directory(env)
    _check_url("--url", url)
    _check_url("MOORAGE_URL", None if url else env.get("MOORAGE_URL"))
    context = _context(env, url)
    saved = read_connection(home / "connection.json") if context is None else _saved(context)
    found = env.get("MOORAGE_API_KEY") or ""
    shown = "$MOORAGE_API_KEY"
    if key_file or not found:
        named = key_file or env.get("MOORAGE_API_KEY_FILE")
        source = "--key-file" if key_file else "MOORAGE_API_KEY_FILE"
        if not named and context is not None:
            named = context.key_file
            source = f"context {current_context(env)}"

        path = Path(named).expanduser() if named else home / "admin-key"
        text = read_text(path)
        if text is None and named:
            raise ConfigError(f"{source}: the file with the API key, {path}, does not exist")
        if text is not None:
            found = text
            shown = f"$(cat {shlex.quote(str(path))})"

    # `version` needs no key
    from moorage.sdk.installation.local_manager import http_url, proven_url, trusts_loopback

    given = url or env.get("MOORAGE_URL") or (context.url if context is not None else "")
    address = given or saved.get("url") or DEFAULT_URL
    return Connection(
        url=proven_url(address, home, is_explicit=bool(given), is_insecure=trusts_loopback(env)),
        http_url=http_url(address, home),
        openai_url=openai_url
        or env.get("MOORAGE_OPENAI_URL")
        or saved.get("openai_url")
        or DEFAULT_OPENAI_URL,
        key=found.strip(),
        key_in_shell=shown,
        ca_file=ca_file or env.get("MOORAGE_CA_FILE") or saved.get("ca_file") or None,
    )


def _saved(context: Context) -> dict[str, Any]:
    return {"url": context.url, "openai_url": context.openai_url, "ca_file": context.ca_file}


def _check_url(source: str, url: str | None) -> None:
    if url and not url.startswith(("http://", "https://", "unix:///")):
        raise ConfigError(
            f"{source}: {url!r} is not the address of a manager",
            next_step="write it like https://moorage.example.org or unix:///path/to.sock",
        )
