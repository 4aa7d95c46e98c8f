"""The Python client: the management API, typed, and a small reader for the OpenAI API and
the bytes of an app."""

from fairlead.sdk.chat import Message, chat
from fairlead.sdk.client import Client
from fairlead.sdk.errors import ApiError, Unreachable
from fairlead.sdk.execution import RunningCommand
from fairlead.sdk.tunnel import carry

__all__ = ["ApiError", "Client", "Message", "RunningCommand", "Unreachable", "carry", "chat"]
