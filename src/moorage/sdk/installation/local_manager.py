"""Managers on this host, which prove their identity to the command line through their Unix
sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from moorage.common.local.paths import path_of_unix_url, plain_local_port, socket_path, unix_url
from moorage.common.model.errors import ConfigError, NotFound
from moorage.sdk.installation.contexts import write_contexts
from moorage.sdk.installation.saved_files import (
    DEFAULT_URL,
    current_context,
    read_connection,
    read_contexts,
    state_directory,
)

INSECURE_LOOPBACK = "MOORAGE_INSECURE_LOOPBACK"
_YES = frozenset({"1", "true", "yes", "on"})


def trusts_loopback(env: Mapping[str, str]) -> bool:
    """Whether the user allows sending the API key to whatever listens on loopback."""
    return env.get(INSECURE_LOOPBACK, "").lower() in _YES


def proven_url(url: str, home: Path, *, is_explicit: bool, is_insecure: bool) -> str:
    """The address at which the manager at ``url`` proves its identity: ``url`` itself or a Unix
    socket.

    ``is_explicit``: the user specified the address. ``is_insecure``: the user trusts whatever
    listens on loopback. Raises ``ConfigError`` for a plain address on this host whose manager is
    unknown.
    """
    socket = own_socket(home, url)
    if is_explicit and plain_local_port(url) is not None:
        if is_insecure:
            return url

        if socket is None or not _has_manager(home):
            raise ConfigError(
                f"the server at {url} cannot prove that it is a manager, because it has no TLS and "
                f"is not the manager of {home}; no API key is sent there",
                next_step="name its Unix socket (--url unix:///HOME/run/manager-PORT.sock), or use "
                "TLS; if you trust whatever listens there, such as your end of an SSH tunnel or of "
                f"`kubectl port-forward`, set {INSECURE_LOOPBACK}=1",
            )

    if socket is None or (is_insecure and not Path(socket).is_socket()):
        return url

    return unix_url(socket)


def _has_manager(home: Path) -> bool:
    """Whether a manager has run with this state directory. Otherwise, the manager on this host
    belongs to another user, even if it listens on the default port."""
    return bool(read_connection(home / "connection.json")) or (home / "run").is_dir()


def own_socket(home: Path, url: str) -> str | None:
    """The Unix socket in ``url``, or the socket of the manager with the state directory ``home`` if
    its REST API is at ``url`` without TLS. None if the manager at ``url`` is a different one, if it
    has TLS, or if a path precedes its routes. Raises ``ConfigError``."""
    if (path := path_of_unix_url(url)) is not None:
        return path

    saved = read_connection(home / "connection.json")
    local = saved.get("url") or DEFAULT_URL
    address = url.rstrip("/")
    named = saved.get("socket") if address.startswith("http://") else None
    if named and address == local.rstrip("/"):
        return str(named)

    port = plain_local_port(address)
    if port is None or urlsplit(address).path:
        return None
    if port == plain_local_port(local):
        return str(named or socket_path(home.absolute(), "manager", port))

    own = socket_path(home.absolute(), "manager", port)
    return str(own) if own.is_socket() else None


def http_url(url: str, home: Path) -> str:
    """``url``, or the address saved with it if it is a Unix socket in ``home``."""
    path = path_of_unix_url(url)
    if path is None:
        return url
    local = read_connection(home / "connection.json").get("url")
    return str(local) if local and own_socket(home, local) == path else url


def keep_socket(env: Mapping[str, str], used_url: str) -> None:
    """Write the Unix socket into the context in use if the context has the plain address of the
    same manager. That manager has accepted the context's key. The context would also work
    unchanged, so a write error is ignored."""
    home = state_directory(env)
    try:
        name = current_context(env)
        contexts = read_contexts(home)
        context = contexts.find(name)
        if context is None or plain_local_port(context.url) is None:
            return
        if own_socket(home, context.url) == path_of_unix_url(used_url):
            write_contexts(home, contexts.with_context(name, replace(context, url=used_url)))
    except (ConfigError, NotFound):
        return
