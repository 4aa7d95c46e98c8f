"""Python client: typed calls of the management API, a chat over the OpenAI API, and tunnels to apps."""

from moorage.sdk.chat import Message, chat
from moorage.sdk.client import Client
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.execution import RunningCommand
from moorage.sdk.tunnel import forward_connection

__all__ = ["ApiError", "Client", "Message", "RunningCommand", "Unreachable", "chat", "forward_connection"]
