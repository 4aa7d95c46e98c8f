"""Load whose clients know both proxies, and its requests that failed although they could have been
answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moorage.common.model.errors import MoorageError
from moorage.sdk import chat
from tests.faults.excuses import InjectedFault
from tests.faults.load import Load

from .installation import AGENTS, PROXIES

CLIENTS_PER_PROXY = 3
SILENCE_S = 20.0
"""The longest silence in a stream, and the longest wait for its first piece at one proxy."""


@dataclass(frozen=True)
class FailedRequest:
    """``cut_by``: the proxy that answered it in part, or "" if none answered."""

    began: datetime
    ended: datetime
    cut_by: str
    errors: tuple[str, ...]


def had_living_way(request: FailedRequest, injected: Iterable[InjectedFault]) -> bool:
    """Whether a proxy and a replica stayed up throughout. A stream keeps those with which it
    started. A killed agent leaves its replicas running, and a proxy lets its streams finish before
    it is upgraded."""
    hit = {
        each.fault.component
        for each in injected
        if each.overlaps(request.began, request.ended)
        and (each.fault.kind == "partition" or each.fault.component not in AGENTS)
        and not (request.cut_by and each.fault.kind == "upgrade")
    }
    if request.cut_by:
        return request.cut_by not in hit and not hit & set(AGENTS)

    return not (set(PROXIES) <= hit or set(AGENTS) <= hit)


@dataclass
class Traffic(Load):
    """``failed``: the streamed requests that neither proxy answered completely."""

    failed: list[FailedRequest] = field(default_factory=list)

    async def _chat(self, url: str) -> None:
        first = self.cluster.openai_urls.index(url)
        await asyncio.gather(*(self._ask_repeatedly(first) for _ in range(CLIENTS_PER_PROXY)))

    async def _ask_repeatedly(self, first: int) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self.stop_at:
            began = datetime.now(UTC)
            errors = list[str]()
            cut_by = ""
            for number in (first, 1 - first):
                pieces: list[str] = []
                error = await self._ask(self.cluster.openai_urls[number], pieces)
                if not error:
                    break

                errors.append(f"{PROXIES[number]}: {error}")
                if pieces:
                    cut_by = PROXIES[number]
                    break

            if error == "WRONG":
                self.chats["WRONG"] += 1
            elif error:
                self.chats["failed"] += 1
                self.failed.append(FailedRequest(began, datetime.now(UTC), cut_by, tuple(errors)))
                await asyncio.sleep(0.2)
            else:
                self.chats["complete"] += 1

    async def _ask(self, url: str, pieces: list[str]) -> str:
        """Why the answer is not complete, or "" if it is."""
        message: Any = [{"role": "user", "content": "go on"}]
        try:
            async with asyncio.timeout(SILENCE_S):
                async for piece in chat(url, self.cluster.key, "chat", message, max_tokens=20):
                    pieces.append(piece)
        except (MoorageError, OSError, TimeoutError) as error:
            return f"{type(error).__name__} {error}"
        return "" if "".join(pieces).split() == [str(n) for n in range(20)] else "WRONG"
