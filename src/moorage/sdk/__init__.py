"""Python client: typed calls of the management API, a chat over the OpenAI API, and tunnels to
apps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.sdk.chat_completions import Message, chat
    from moorage.sdk.client import Client
    from moorage.sdk.errors import ApiError, Unreachable
    from moorage.sdk.execution import RunningCommand
    from moorage.sdk.sync_client import SyncClient
    from moorage.sdk.sync_session import SyncSession
    from moorage.sdk.tunnel import forward_connection

__all__ = [
    "ApiError",
    "Client",
    "Message",
    "RunningCommand",
    "SyncClient",
    "SyncSession",
    "Unreachable",
    "chat",
    "forward_connection",
]

_MODULES = {
    "ApiError": "errors",
    "Client": "client",
    "Message": "chat_completions",
    "RunningCommand": "execution",
    "SyncClient": "sync_client",
    "SyncSession": "sync_session",
    "Unreachable": "errors",
    "chat": "chat_completions",
    "forward_connection": "tunnel",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the command line starts without what a command does not
    use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"moorage.sdk.{_MODULES[name]}"), name)
    return value
