"""The disk on which the engine keeps its data: images that nobody needs go when it gets full, and when next
to nothing is left, nothing new starts there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.image_gc import Disk, Image, ImageGcRules, begins, enough, may_go
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.docker")
_REMOVE_S = 120.0


class DiskFull(RuntimeFailed):
    """There is less space than ``agent.docker_min_free`` where the engine keeps its data."""

    code = "disk-full"


class PulledImages:
    """Which images this agent pulled, and when each was last asked for: kept in ``path``, so that a restart
    neither forgets whose they are nor how old. All methods but ``note`` block."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._at: dict[str, float] = {}
        self._by_name: dict[str, float] = {}
        self._unwritten = False
        try:
            self._at = {str(key): float(at) for key, at in json.loads(path.read_text()).items()}
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, TypeError) as error:
            log.warning("cannot read which images were pulled: none of them is removed", error=repr(error))

    def note(self, name: str, image_id: str = "") -> None:
        """It was asked for now; with ``image_id``, it was pulled."""
        now = self._clock.now().timestamp()
        self._by_name[name] = now
        if image_id:
            self._at[image_id] = now
            self._unwritten = True

    def image(self, row: dict[str, Any]) -> Image:
        """From a row of the engine's list."""
        names = tuple(
            name for name in (*(row["RepoTags"] or ()), *(row["RepoDigests"] or ())) if "<none>" not in name
        )
        pulled_at = self._at.get(row["Id"])
        used_at = max(pulled_at or 0.0, *(self._by_name.get(name, 0.0) for name in names), 0.0)
        if pulled_at is not None and used_at > pulled_at:
            self._at[row["Id"]], self._unwritten = used_at, True
        return Image(row["Id"], names, int(row["Size"]), used_at, pulled_at is not None)

    def keep(self, there: set[str]) -> None:
        """Forget what the engine does not have any more; write down what is new. Raises ``OSError``."""
        if gone := self._at.keys() - there:
            self._at = {key: at for key, at in self._at.items() if key not in gone}
            self._unwritten = True
        if self._unwritten:
            fresh = self._path.with_name(f"{self._path.name}.tmp")
            fresh.write_text(json.dumps(self._at))
            fresh.replace(self._path)
            self._unwritten = False


def disk_of(folder: str) -> Disk:
    """Blocks. Raises ``OSError``."""
    found = os.statvfs(folder)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _remove(name: str, api: Any) -> None:
    api.remove_image(name)


class ImageGarbageCollector:
    """``look_at``: how full the disk of a directory is; may raise ``OSError``."""

    def __init__(
        self,
        engine: Engine,
        rules: ImageGcRules,
        pulled: PulledImages,
        clock: Clock,
        look_at: Callable[[str], Disk] = disk_of,
    ) -> None:
        self._engine, self._rules, self.pulled, self._clock = engine, rules, pulled, clock
        self._look_at, self._root = look_at, ""
        self._said = ""

    async def check(self) -> None:
        """Raises ``DiskFull``, and what the engine raises when it was not asked before."""
        disk = await self._disk()
        if disk is not None and disk.free < self._rules.min_free:
            raise DiskFull(
                f"{disk.free >> 20} MiB are left in {self._root}, and agent.docker_min_free there is "
                f"{self._rules.min_free >> 20} MiB",
                next_step="free space where that node's Docker keeps its data",
            )

    async def tidy(self) -> None:
        """Remove images while the disk is too full. Raises what the engine raises."""
        disk = await self._disk()
        rows = await self._engine.call(lambda api: api.images())
        images = [self.pulled.image(row) for row in rows]
        with suppress(OSError):  # a full disk is what this is about
            await asyncio.to_thread(self.pulled.keep, {image.id for image in images})
        if disk is None:
            return
        if not begins(disk, self._rules):
            self._said = ""
            return
        used = await self._engine.call(lambda api: [row["ImageID"] for row in api.containers(all=True)])
        candidates = may_go(images, frozenset(used), self._rules, self._clock.now().timestamp())
        if self._rules.mode == "dry-run":
            self._say(
                "the disk of Docker is full; these images would be removed (agent.docker_gc = dry-run)",
                images=[image.names[:1] or image.id for image in candidates],
                percent=round(disk.percent),
            )
            return
        for image in candidates:
            if enough(disk, self._rules):
                return
            await self._remove(image, disk)
            disk = await self._disk() or disk
        if not enough(disk, self._rules):
            self._say(
                "the disk of Docker is full, and there is no image left that may be removed",
                percent=round(disk.percent),
                next_step="free space there; agent.docker_gc_images = any lets images of others go too",
            )

    async def _remove(self, image: Image, disk: Disk) -> None:
        try:
            for name in image.names or (image.id,):
                await self._engine.call(partial(_remove, name), _REMOVE_S)
        except NoSuchObject:
            pass
        except RequestRefused as error:
            log.info("an image is not removed", image=image.names or image.id, why=str(error))
            return
        log.info(
            "removed an image: the disk of Docker is full",
            image=image.names or image.id,
            mib=image.size >> 20,
            percent=round(disk.percent),
        )

    async def _disk(self) -> Disk | None:
        """None where the agent cannot see the engine's data."""
        if not self._root:
            self._root = str((await self._engine.call(lambda api: api.info()))["DockerRootDir"])
        try:
            return await asyncio.to_thread(self._look_at, self._root)
        except OSError as error:
            self._say(
                "cannot see how full the disk of Docker is",
                folder=self._root,
                error=str(error),
                next_step="an agent in a container is given that folder, too (read-only): see deploy/compose",
            )
            return None

    def _say(self, text: str, **more: object) -> None:
        """Once, until something else is said or all is well."""
        if text != self._said:
            self._said = text
            log.warning(text, **more)
