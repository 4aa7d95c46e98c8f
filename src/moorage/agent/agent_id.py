"""The agent's id, taken from its settings."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def agent_id(settings: AgentSettings) -> str:
    """The agent's id. Raises ``ConfigError``."""
    given = settings.id or socket.gethostname()
    if not _ID.fullmatch(given):
        raise ConfigError(
            f"agent.id = {given!r} is not a valid agent name",
            next_step="use 1 to 128 letters, digits, dots, - and _, the first a letter or digit",
        )
    return given
