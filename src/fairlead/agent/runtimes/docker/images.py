"""The images of this node's engine: which are here, which are pulled, and by whom they were."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import structlog

from fairlead.agent.runtimes.base import CreateFailed, Tell
from fairlead.agent.runtimes.docker.engine import Engine, Missing, Refused
from fairlead.agent.runtimes.docker.housekeeping import Pulled
from fairlead.agent.runtimes.docker.rules import Rules, meaning
from fairlead.common.reasons import Reason

log = structlog.get_logger("fairlead.agent.docker")


class Images:
    def __init__(self, engine: Engine, rules: Rules, pulled: Pulled) -> None:
        self._engine, self._rules, self._pulled = engine, rules, pulled
        self._here: set[str] = set()
        self._pulling: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: dict[str, set[Tell]] = defaultdict(set)

    async def have(self, image: str, tell: Tell) -> None:
        """Pull it as the node's policy says; all who want it meanwhile are told how far it is. Raises
        ``CreateFailed``, and what the engine raises."""
        self._pulled.note(image)
        if image in self._here and self._rules.pull != "always":
            return  # if it was removed meanwhile, the engine says so when a container is to be made of it
        listening = self._told[image]
        listening.add(tell)
        try:
            async with self._pulling[image]:
                await self._have(image)
        finally:
            listening.discard(tell)

    def forget(self, image: str) -> None:
        """It turned out not to be here any more."""
        self._here.discard(image)

    async def _have(self, image: str) -> None:
        try:
            if self._rules.pull != "always":
                await self._engine.call(lambda api: api.inspect_image(image))
                self._here.add(image)
                return
        except Missing:
            if self._rules.pull == "never":
                raise CreateFailed(
                    f"image {image!r} is not on this node, and agent.docker_pull = never",
                    reason=Reason.IMAGE_MISSING,
                    clean=True,
                    next_step="pull it there",
                ) from None
        log.info("pulling an image", image=image)
        try:
            await self._engine.pull(image, lambda text: self._tell(image, text))
        except Refused as error:
            reason, next_step = meaning(str(error))
            if reason is not Reason.DISK_FULL:
                reason = Reason.IMAGE_MISSING
                next_step = "check its name, its registry, and `docker login` of the agent's user"
            raise CreateFailed(
                f"image {image!r} could not be pulled: {error}",
                reason=reason,
                clean=True,
                next_step=next_step,
            ) from None
        found = await self._engine.call(lambda api: api.inspect_image(image))
        self._pulled.note(image, str(found["Id"]))
        self._here.add(image)

    def _tell(self, image: str, text: str) -> None:
        for tell in tuple(self._told[image]):
            tell(text)
