"""The Python client: the management API, typed, and a small reader for the OpenAI API and
the bytes of an app."""

from moorage.sdk.chat import Message, chat
from moorage.sdk.client import Client
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.execution import RunningCommand
from moorage.sdk.tunnel import carry

__all__ = ["ApiError", "Client", "Message", "RunningCommand", "Unreachable", "carry", "chat"]
