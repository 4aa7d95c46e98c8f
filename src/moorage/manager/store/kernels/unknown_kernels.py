"""Kernels that agents run but the database does not know, for example after a backup was restored.

An agent that runs such kernels is not ready: it gets no new ones, because the unknown ones may use
any of its devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import structlog

from moorage.common.link.messages import Observation
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.status import ObservedState
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL

log = structlog.get_logger("moorage.store.reports")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDED = (ObservedState.EXITED, ObservedState.GONE)
_Rows = tuple[dict[str, str], ...]  # kernel_id and session_id of each


class UnknownKernels:
    """Looks up the kernels of full reports. Later reports can only remove kernels, because an agent
    starts none by itself."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection = connection
        self._known: dict[AgentId, _Rows] = {}

    def have_ended(self, update: AgentUpdate) -> bool:
        """Whether a delta report shows that unknown kernels of the agent have ended."""
        return not update.whole and len(self._left(update)) < len(
            self._known.get(update.agent_id, ())
        )

    async def of(self, updates: Sequence[AgentUpdate]) -> dict[AgentId, _Rows]:
        """The unknown kernels of each agent."""
        wanted = {u.agent_id: _live(u.observed.values()) for u in updates if u.whole}
        ids = [kernel_id for kernels in wanted.values() for kernel_id in kernels]
        rows = await self._connection.fetch(SQL["kernels_unknown"], ids) if ids else []
        unknown = {KernelId(row["id"]) for row in rows}
        found: dict[AgentId, _Rows] = {}
        for update in updates:
            if update.whole:
                listed = [k for k in wanted[update.agent_id].values() if k.kernel_id in unknown]
                left = tuple({"kernel_id": k.kernel_id, "session_id": k.session_id} for k in listed)
            else:
                left = self._left(update)

            found[update.agent_id] = left
            self._remember(update.agent_id, left)

        return found

    def _left(self, update: AgentUpdate) -> _Rows:
        ended = {k for k, seen in update.observed.items() if seen.state in _ENDED} | update.absent
        return tuple(
            row for row in self._known.get(update.agent_id, ()) if row["kernel_id"] not in ended
        )

    def _remember(self, agent_id: AgentId, left: _Rows) -> None:
        before = self._known.pop(agent_id, ())
        if not left:
            return

        self._known[agent_id] = left
        if left != before:
            log.warning(
                "an agent runs kernels that the database does not know, and gets no new kernels",
                agent=agent_id,
                kernels=[row["kernel_id"] for row in left],
                next_step="`moorage agents describe` lists them; manager.unknown_kernels decides "
                "whether they are kept",
            )


def _live(kernels: Iterable[Observation]) -> dict[KernelId, Observation]:
    """Kernels that may be running. A kernel outside its agent's checkpoint has no session: the
    agent stops it."""
    return {
        k.kernel_id: k for k in kernels if k.state not in _ENDED and _UUID.fullmatch(k.session_id)
    }
