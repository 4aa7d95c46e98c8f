"""Python client: typed calls to the management API, and chat over the OpenAI API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.common.model.spec import SessionSpec
    from moorage.common.model.spec_fields import Resources
    from moorage.common.model.status import SessionType, Status
    from moorage.sdk.chat_completions import Message, chat
    from moorage.sdk.client import Client, SyncClient
    from moorage.sdk.errors import ApiError, Unreachable

__all__ = [
    "ApiError",
    "Client",
    "Message",
    "Resources",
    "SessionSpec",
    "SessionType",
    "Status",
    "SyncClient",
    "Unreachable",
    "chat",
]

_MODULES = {
    "ApiError": "moorage.sdk.errors",
    "Client": "moorage.sdk.client",
    "Message": "moorage.sdk.chat_completions",
    "Resources": "moorage.common.model.spec_fields",
    "SessionSpec": "moorage.common.model.spec",
    "SessionType": "moorage.common.model.status",
    "Status": "moorage.common.model.status",
    "SyncClient": "moorage.sdk.client",
    "Unreachable": "moorage.sdk.errors",
    "chat": "moorage.sdk.chat_completions",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that the command line starts without unused
    modules."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value
