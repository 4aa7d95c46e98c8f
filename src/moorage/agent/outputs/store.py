"""Output files on this node.

STATE/outputs/<session id>/<output>/ has the read-only directory ``files``, and ``about`` with the
SHA-256 of its tar stream and its size. It appears atomically once it is complete. Incomplete
outputs are in STATE/outputs/.partial, which the agent empties when it next starts.

The directory belongs to the agent, not to the kernel that filled it: every file is copied, no link
is followed, and a link that leads out of the output is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

from moorage.agent.runtimes.batch import copying
from moorage.common import archive
from moorage.common.model.errors import InvalidInput, MoorageError, NotFound
from moorage.common.model.ids import SessionId

_OWN = 0o700
_HEADER_BYTES = 4096
_CHUNK = 65536
_PARTIAL = ".partial"


class OutputDamaged(MoorageError):
    """The received output differs from the one on the other node."""

    code = "output-damaged"


class NodeOutputs:
    """The outputs on this node. ``state``: the agent's state directory. ``max_bytes``: the limit
    for all outputs of a step together. All methods block."""

    def __init__(self, state: Path, max_bytes: int) -> None:
        self._root = state / "outputs"
        self._max_bytes = max_bytes

    def clean(self) -> None:
        """Remove outputs that an earlier run of the agent did not complete."""
        _remove(self._root / _PARTIAL)

    def files(self, session_id: SessionId, output: str) -> Path:
        """The directory with an output's files, if the output is here. Raises ``NotFound`` for an
        invalid name."""
        return self._folder(session_id, output) / "files"

    def has(self, session_id: SessionId, output: str) -> bool:
        return self._folder(session_id, output).is_dir()

    def sessions(self) -> list[SessionId]:
        """The sessions with outputs here. Raises ``OSError``."""
        if not self._root.is_dir():
            return []
        return [SessionId(name) for name in sorted(os.listdir(self._root)) if name != _PARTIAL]

    def keep(self, session_id: SessionId, work: Path, outputs: Sequence[str]) -> None:
        """Copy ``outputs`` from the working directory of an ended kernel. Existing outputs are
        kept. Raises ``MoorageError`` and ``OSError``, in which case no new output is kept."""
        left = self._max_bytes
        with self._partial() as partial:
            for number, output in enumerate(outputs):
                if self.has(session_id, output):
                    continue

                copied = partial / str(number)
                left -= self._copy(work, output, copied, left)
                _seal(copied)
                self._complete(copied, session_id, output)

    def send(self, session_id: SessionId, output: str, sink: IO[bytes]) -> None:
        """Write an output in the format that ``receive`` reads. Raises ``NotFound`` and
        ``OSError``."""
        folder = self._folder(session_id, output)
        if not folder.is_dir():
            raise NotFound(f"output {output!r} of session {session_id} is not on this node")
        sink.write((folder / "about").read_bytes())
        copying.pack(folder / "files", "", sink)

    def receive(
        self, session_id: SessionId, output: str, source: IO[bytes], is_complete: Callable[[], bool]
    ) -> None:
        """Read an output that another node sends. Raises ``OutputDamaged`` if it differs from that
        node's output, another ``MoorageError``, or ``OSError``."""
        about = json.loads(source.readline(_HEADER_BYTES) or b"{}")
        hashed = _Hashed(source)
        with self._partial() as partial:
            copied = partial / "files"
            limits = archive.ArchiveLimits(self._max_bytes)
            try:
                archive.unpack(
                    cast(IO[bytes], hashed), copied, top=".", report=lambda _: None, limits=limits
                )
            except archive.UnsafeArchive:
                if is_complete():
                    raise

            while hashed.read(_CHUNK):
                pass  # the padding of the tar stream

            if not is_complete():
                raise OutputDamaged(f"output {output!r} was cut off")

            if hashed.sha256.hexdigest() != about.get("sha256"):
                raise OutputDamaged(
                    f"the checksum of output {output!r} differs from that on the node that sent it"
                )

            _seal(copied)
            self._complete(copied, session_id, output, about)

    def remove(self, session_id: SessionId) -> None:
        """Raises ``OSError``."""
        _remove(self._folder(session_id, "x").parent)

    def _folder(self, session_id: SessionId, output: str) -> Path:
        if not session_id or not session_id.replace("-", "").isalnum():
            raise NotFound(f"{session_id!r} is not the id of a session")
        return self._root / session_id / quote(output, safe="")

    def _copy(self, work: Path, output: str, into: Path, left: int) -> int:
        """Copy an output and return the total size of its files in bytes."""
        reading, writing = os.pipe()

        def pack() -> None:
            with open(writing, "wb") as sink:
                copying.pack(work, output, sink)

        with open(reading, "rb") as source, ThreadPoolExecutor(1) as thread:
            packing = thread.submit(pack)
            try:
                stats = archive.unpack(
                    source, into, top="", report=lambda _: None, limits=archive.ArchiveLimits(left)
                )
                while source.read(_CHUNK):
                    pass
            except archive.UnsafeArchive as error:
                source.close()  # ends the thread
                cause = packing.exception()
                if cause is not None and not isinstance(cause, BrokenPipeError):
                    raise _named(output, cause) from None

                raise InvalidInput(_too_large(output, self._max_bytes, error)) from None

            if (cause := packing.exception()) is not None:
                raise _named(output, cause)

        if stats.skipped:
            raise InvalidInput(f"output {output!r}: {stats.skipped[0]}, which is not part of it")
        if not stat.S_ISDIR(os.lstat(into).st_mode):
            raise InvalidInput(f"output {output!r} is not a directory")

        return stats.size

    def _complete(
        self,
        copied: Path,
        session_id: SessionId,
        output: str,
        about: dict[str, object] | None = None,
    ) -> None:
        """Move sealed files into place."""
        target = self._folder(session_id, output)
        whole = copied.with_name(f"{copied.name}.whole")
        whole.mkdir(mode=_OWN)
        copied.chmod(_OWN)  # moving a directory changes its parent entry, so it must be writable
        copied.rename(whole / "files")
        (whole / "files").chmod(0o555)

        if about is None:
            sink = _Measured()
            copying.pack(whole / "files", "", cast(IO[bytes], sink))
            about = {"sha256": sink.sha256.hexdigest(), "size": archive.size_of(whole / "files")}

        (whole / "about").write_text(json.dumps(about) + "\n")
        target.parent.mkdir(parents=True, exist_ok=True, mode=_OWN)
        with suppress(FileExistsError):
            whole.rename(target)
            return

        _remove(whole)

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        parent = self._root / _PARTIAL
        parent.mkdir(parents=True, exist_ok=True, mode=_OWN)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            _remove(folder)


class _Hashed:
    """A stream that is hashed while it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self.sha256.update(piece)
        return piece


class _Measured:
    """A sink that only hashes."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def _seal(folder: Path) -> None:
    """Make files readable by all users and writable by none. Links stay unchanged."""
    for parent, directories, files in os.walk(folder, topdown=False):
        for name in (*directories, *files):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, (mode & 0o555) | (0o555 if stat.S_ISDIR(mode) else 0o444))
    folder.chmod(0o555)


def _remove(folder: Path) -> None:
    """Remove a tree, including read-only directories."""
    for parent, directories, _ in os.walk(folder):
        for name in directories:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, _OWN)
    with suppress(FileNotFoundError):
        folder.chmod(_OWN)
        shutil.rmtree(folder)


def _named(output: str, cause: BaseException) -> BaseException:
    if isinstance(cause, NotFound):
        return InvalidInput(f"output {output!r} is missing: {cause.message}")
    if isinstance(cause, MoorageError):
        return InvalidInput(f"output {output!r}: {cause.message}")
    return cause


def _too_large(output: str, limit: int, error: MoorageError) -> str:
    allowed = f"agent.output_max_bytes = {limit} limits all outputs of a step together"
    return f"output {output!r} cannot be kept: {error.message}; {allowed}"
