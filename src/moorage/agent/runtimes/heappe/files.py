"""Files in and out of a HEAppE job, as far as HEAppE's REST calls allow. Files that the job has
written can be copied out, each completely through HEAppE's memory. Single files can be copied into
the job's directory.

Paths are checked here. Only the site knows which files a job's links lead to.
"""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
from collections.abc import AsyncGenerator
from contextlib import suppress

from moorage.agent.runtimes.batch.copying import parts_of
from moorage.agent.runtimes.execution import STDOUT, Copy, ExecFailed
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.records import HeappeRecord
from moorage.common.archive import ROOT
from moorage.common.model.errors import InvalidInput, MoorageError, NotFound

# Our files in the job's directory, which contain its secrets or our records.
_OURS = frozenset({"launch.json", "progress.txt", "log.txt", "stdout.txt", "stderr.txt"})
_SECRET = frozenset({"launch.json", "progress.txt"})
# HEAppE passes names to a shell at the site.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PATH_MAX = 255
_FILES_MAX = 500
_FIRST = 4096
_PACK = "pack the files in the job, and copy the archive"
_LARGE = "HEAppE returns files of up to 48 MB; copy larger ones with the site's own tools"


def selected(listed: list[str], path: str) -> dict[str, str]:
    """The listed files at and below ``path``: for each, the entry in the copy and the listed name.
    Raises ``MoorageError``."""
    wanted = parts_of(path)
    found = dict[str, str]()

    # The task's directory, where the program runs and which has the progress file.
    folders = {name.removeprefix("/").partition("/")[0] for name in listed}
    ours = {folder for folder in folders if f"/{folder}/progress.txt" in listed}
    for name in listed:
        folder, *parts = name.removeprefix("/").split("/")
        if folder not in (ours or folders) or not parts or len(name) > _PATH_MAX or "\0" in name:
            continue

        if any(part in ("", ".", "..") for part in parts) or (
            len(parts) == 1 and parts[0] in _SECRET
        ):
            continue

        if tuple(parts[: len(wanted)]) == wanted:
            found["/".join((".", *wanted[-1:], *parts[len(wanted) :]))] = name

    if not found:
        raise NotFound(
            f"the job has written no {path}" if wanted else "the job has written no files yet",
            next_step="HEAppE lists files that have changed since the job started",
        )

    if len(found) > _FILES_MAX:
        raise InvalidInput(
            f"{path!r} has {len(found)} files; HEAppE returns them one by one, at most "
            f"{_FILES_MAX}",
            next_step=_PACK,
        )

    return found


async def send(
    client: HeappeClient, record: HeappeRecord, path: str
) -> AsyncGenerator[bytes, None]:
    """The tar stream of a copy out of the job. Raises ``MoorageError``."""
    parts_of(path)
    found = selected(await client.changed_files(record.job_id), path)
    made = set[str]()
    for entry, name in sorted(found.items()):
        above = entry.split("/")[:-1]
        for depth in range(len(above)):
            folder = "/".join(above[: depth + 1])
            if folder not in made and (folder != "." or not parts_of(path)):
                made.add(folder)
                yield _header(folder, tarfile.DIRTYPE)

        try:
            data = await client.download(record.job_id, name)
        except HeappeFailed as error:
            hint = _LARGE if error.problem is SiteFault.INTERNAL else error.next_step
            raise ExecFailed(
                f"{entry[2:]} was not copied: {error.message}", next_step=hint
            ) from None

        yield _header(entry, tarfile.REGTYPE, len(data)) + data + bytes(-len(data) % 512)

    yield bytes(1024)


def _header(entry: str, kind: bytes, size: int = 0) -> bytes:
    info = tarfile.TarInfo(entry)
    info.type = kind
    info.size = size
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def upload_name(copy: Copy) -> str:
    """The name of an uploaded file in the job's directory. Raises ``InvalidInput``."""
    parts = parts_of(copy.path)
    name = parts[-1] if parts else copy.name

    if len(parts) > 1 or (parts and copy.path.endswith("/")):
        raise InvalidInput(
            f"HEAppE can put files only into the directory of the job, not to {copy.path!r}",
            next_step="name no directory",
        )

    if not _NAME.fullmatch(name) or name in _OURS:
        raise InvalidInput(
            f"a file cannot be called {name!r} in the directory of the job",
            next_step="use letters, digits, '.', '_' and '-'; the job's own file names are "
            "reserved",
        )

    return name


class SiteDownload:
    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._pieces = pieces

    async def read(self) -> tuple[int, bytes] | None:
        async for piece in self._pieces:
            return STDOUT, piece
        return None

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def resize(self, rows: int, cols: int) -> None: ...

    async def wait(self) -> int:
        return 0

    def disconnect(self) -> None:
        """Do nothing. No call is running, because the calls from ``read`` end with their reader."""


class SiteUpload:
    """An upload, which collects one file and uploads it when it is complete."""

    def __init__(self, client: HeappeClient, record: HeappeRecord, copy: Copy) -> None:
        self._client = client
        self._record = record
        self._name = upload_name(copy)
        self._data = bytearray()
        self._ended = asyncio.Event()
        self._failure: MoorageError | None = None

    async def read(self) -> tuple[int, bytes] | None:
        await self._ended.wait()
        if self._failure is None:
            data = one_file(bytes(self._data))
            await self._client.upload(self._record.job_id, self._record.task_id, self._name, data)
        if self._failure is not None:
            raise self._failure
        return None

    async def write(self, data: bytes) -> None:
        begun = len(self._data) >= _FIRST
        if self._failure is not None:
            return

        self._data += data
        try:
            if len(self._data) > wire.UPLOAD.limit:
                raise _too_large()
            if not begun and len(self._data) >= _FIRST:
                check_first(bytes(self._data))
        except MoorageError as error:
            self._failure = error
            self._data.clear()
            self._ended.set()

    async def end_input(self) -> None:
        self._ended.set()

    async def resize(self, rows: int, cols: int) -> None: ...

    async def wait(self) -> int:
        return 0

    def disconnect(self) -> None:
        self._data.clear()


def one_file(data: bytes) -> bytes:
    """The only file in a tar archive. Raises ``MoorageError``."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            first = tar.next()
            _check(first)
            assert first is not None
            file = tar.extractfile(first)
            assert file is not None
            content = file.read()
            if len(content) != first.size or tar.next() is not None:
                raise ExecFailed("the copy is cut off, or has more than one file")

            return content
    except (tarfile.TarError, ValueError) as error:
        raise ExecFailed(f"the copy is not a tar stream: {error}") from None


def check_first(data: bytes) -> None:
    """Check the start of an archive for reasons to refuse it. Raises ``MoorageError``."""
    with (
        suppress(tarfile.TarError, ValueError),
        tarfile.open(fileobj=io.BytesIO(data), mode="r|") as tar,
    ):
        first = tar.next()
        if first is not None:
            _check(first)


def _check(entry: tarfile.TarInfo | None) -> None:
    if entry is None or entry.name != ROOT:
        raise ExecFailed("the copy has no file")
    if not entry.isreg():
        raise InvalidInput(
            "HEAppE accepts only single files, no directories",
            next_step="pack the directory, copy the archive, and unpack it in the job",
        )
    if entry.size > wire.UPLOAD.limit:
        raise _too_large()


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"HEAppE accepts files of up to {wire.UPLOAD.limit // 1_000_000} MB",
        next_step="copy larger files with the site's own tools",
    )
