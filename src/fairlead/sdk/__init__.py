"""The Python client: the management API, typed, and a small reader for the OpenAI API."""

from fairlead.sdk.chat import Message, chat
from fairlead.sdk.client import Client
from fairlead.sdk.errors import ApiError, Unreachable
from fairlead.sdk.execution import RunningCommand

__all__ = ["ApiError", "Client", "Message", "RunningCommand", "Unreachable", "chat"]
