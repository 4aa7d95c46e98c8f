"""``moorage cp``: copies files and directories to and from a session, as a tar stream through a
command in it."""

from __future__ import annotations

import asyncio
import io
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from moorage.cli import terminal
from moorage.cli.app import app
from moorage.cli.completion import session_paths
from moorage.cli.context import Cli, command
from moorage.cli.copy_streams import STREAM, input_file, output_file
from moorage.cli.exit_codes import INTERRUPTED
from moorage.cli.output import printable
from moorage.common import archive
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.archive import ArchiveLimits, CopyStats
from moorage.common.copy_scripts import (
    MISSING,
    NO_PROGRAM,
    RECEIVE_SCRIPT,
    SEND_SCRIPT,
    is_disk_full,
)
from moorage.common.model.commands import Channel, CopySpec, ExecSpec
from moorage.common.model.errors import Conflict, InvalidInput, MoorageError, NotFound
from moorage.common.model.slots import parse_size

if TYPE_CHECKING:
    from moorage.sdk import Client
    from moorage.sdk.execution import RunningCommand

_STDERR_MAX = 2000
_BUFFER = 256 * 1024


Source = Annotated[
    str,
    typer.Argument(
        help="The source: a local path, SESSION:PATH, or - for stdin.", autocompletion=session_paths
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        help="The target: SESSION:PATH, a local path, or - for stdout.",
        autocompletion=session_paths,
    ),
]


class CopyFailed(MoorageError):
    """A copy failed; the target is unchanged."""

    code = "copy-failed"


@command(app)
def cp(
    cli: Cli,
    source: Source,
    target: Target,
    max_size: Annotated[
        str | None,
        typer.Option(
            help="Limit of a copy out of a session, such as 20GiB. Default: 95 % of the free disk."
        ),
    ] = None,
) -> None:
    """Copy a file or directory into or out of a running session, completely or not at all.

    A path is local if it has no colon, or starts with / or a dot. The session needs sh and tar,
    unless it is a job of a site, where paths are relative to the job's directory. Links below the
    target are replaced, never followed; links that lead out of the copy are skipped.

    \b
    Examples:
      moorage cp train.py dev:
      moorage cp ./data dev:/workspace
      moorage cp dev:results/model.bin .
      moorage cp dev:results.json - | jq .loss
    """
    remote_source = remote_path(source)
    remote_target = remote_path(target)
    if (remote_source is None) == (remote_target is None):
        raise InvalidInput(
            "one path must be in a session, and the other one local",
            next_step="write SESSION:PATH for the one in a session; a local path may start with ./",
        )

    if max_size is not None and remote_target is not None:
        raise InvalidInput("--max-size limits copies out of a session", next_step="leave it out")

    try:
        if remote_target is not None:
            with (
                input_file() if source == STREAM else nullcontext(_existing(Path(source))) as local
            ):
                copied = _run(
                    cli,
                    lambda client, report: _send(
                        cli, client, source=local, target=remote_target, report=report
                    ),
                    source,
                )
        else:
            assert remote_source is not None
            path, top = _remote_name(remote_source[1])
            remote = remote_source[0], path
            with output_file(source) if target == STREAM else _file_target(target, top) as local:
                limits = ArchiveLimits(parse_size(max_size) if max_size else _free_bytes(local))
                copied = _run(
                    cli,
                    lambda client, report: _fetch(
                        client, remote, target=local, top=top, report=report, limits=limits
                    ),
                    source,
                )
    except (KeyboardInterrupt, asyncio.CancelledError):
        cli.note("moorage: nothing was copied")
        raise typer.Exit(INTERRUPTED) from None

    for line in copied.skipped:
        cli.note(printable(f"moorage: skipped: {line}", one_line=True))

    for line in copied.notes:
        cli.note(printable(f"moorage: note: {line}", one_line=True))

    if cli.json and target != STREAM:
        cli.print_json({"files": copied.files, "bytes": copied.size, "skipped": copied.skipped})


def remote_path(text: str) -> tuple[str, str] | None:
    """The session and path; None for a local path. The first colon separates them, so a session
    whose name contains a colon must be given by its id."""
    session, colon, path = text.partition(":")
    return None if not colon or not session or text[0] in "./~" else (session, path)


# Called with the number of bytes just copied. A negative number announces the total.
Report = Callable[[int], None]


def _run(
    cli: Cli, work: Callable[[Client, Report], Coroutine[Any, Any, CopyStats]], name: str
) -> CopyStats:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, console=cli.err, transient=True, disable=not cli.err.is_terminal
    ) as shown:
        bar = shown.add_task(printable(name, one_line=True), total=None)

        def report(size: int) -> None:
            if size < 0:
                shown.update(bar, total=-size)
            else:
                shown.advance(bar, size)

        return cli.run(lambda client: work(client, report))


class _Sink(io.RawIOBase):
    """A file for tar's thread. Writes go to the session and block until it accepts them."""

    def __init__(self, command: RunningCommand, ended: asyncio.Event) -> None:
        self._command = command
        self._ended = ended
        self._loop = asyncio.get_running_loop()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._ended.is_set():
            raise BrokenPipeError("the session accepts no more data")
        asyncio.run_coroutine_threadsafe(self._command.send(bytes(data)), self._loop).result()
        return len(data)


class _Source(io.RawIOBase):
    """A file for tar's thread, from which it reads the data sent by the session."""

    def __init__(self, next_piece: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        self._next = next_piece
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._waiting: Future[bytes] | None = None
        self._cancelled = False

    async def read_by(self, reader: Callable[[IO[bytes]], CopyStats]) -> CopyStats:
        """Run ``reader`` in a thread. Waits for the thread even if cancelled, so that its files can
        then be removed."""
        file: Any = io.BufferedReader(self, _BUFFER)
        work = self._loop.run_in_executor(None, reader, file)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._cancelled = True
            if self._waiting is not None:
                self._waiting.cancel()

            done, _ = await asyncio.wait([work], timeout=5)
            for ended in done:
                ended.exception()  # nothing else reads its result

            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            if self._cancelled:
                raise BrokenPipeError("the copy was cancelled")
            self._waiting = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            self._rest = self._waiting.result()
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _existing(source: Path) -> Path:
    if not source.exists():
        raise NotFound(f"there is no local path {source}")
    return source.resolve()


def _remote_name(path: str) -> tuple[str, str]:
    """The path in the session, and the name of its entry in the tar stream."""
    path = path.rstrip("/") or ("/" if path.startswith("/") else ".")
    top = path.rpartition("/")[2] or "."
    if top == "..":
        raise InvalidInput(f"{path!r} ends in two dots", next_step="name the directory itself")
    return path, top


def _local_target(target: Path, top: str) -> Path:
    """The target of a copy to this machine. Links in the user's path are followed, but if the last
    part of the result is a link, it is replaced."""
    if target.is_dir():
        return target.resolve() / top if top != "." else target.resolve()
    parent = target.absolute().parent
    if not parent.is_dir():
        raise NotFound(f"there is no local directory {parent}")
    return parent.resolve() / target.name


def _file_target(target: str, top: str) -> AbstractContextManager[Path]:
    return nullcontext(_local_target(Path(target), top))


def _free_bytes(target: Path) -> int:
    try:
        return shutil.disk_usage(target.parent).free * 95 // 100
    except OSError as error:
        raise CopyFailed(f"cannot write to {target.parent}: {error}") from None


async def _send(
    cli: Cli, client: Client, source: Path, target: tuple[str, str], *, report: Report
) -> CopyStats:
    report(-await asyncio.to_thread(archive.size_of, source))
    session, path = target
    script = [
        "sh",
        "-c",
        RECEIVE_SCRIPT,
        "sh",
        path or ".",
        source.name or "root",
        cli.clock.new_id(),
    ]
    with terminal.cancel_on_signals(_current_task()):
        files = CopySpec(direction="in", path=path or ".", name=source.name or "root")
        async with client.sessions.exec(
            session, ExecSpec(command=script, stdin=True, files=files)
        ) as command:
            ended = asyncio.Event()
            stderr = spawn("cp.stderr", _read_stderr(command, ended))
            try:
                sink: Any = _Sink(command, ended)
                copied = await asyncio.to_thread(archive.pack, source, sink, report)
                await command.end_input()
                _check(command, await stderr, session)
            except BrokenPipeError:
                _check(command, await stderr, session)
                raise CopyFailed(f"session {session!r} stopped reading") from None
            except OSError as error:
                raise CopyFailed(
                    f"the local source cannot be read: {error}; nothing was copied"
                ) from None
            finally:
                await cancel_and_wait(stderr)

    return copied


async def _read_stderr(command: RunningCommand, ended: asyncio.Event) -> bytes:
    """The end of the script's output, which is its error message."""
    stderr = b""
    try:
        while (output := await command.read()) is not None:
            stderr = (stderr + output[1])[-_STDERR_MAX:]
    finally:
        ended.set()
    return stderr


async def _fetch(
    client: Client,
    source: tuple[str, str],
    target: Path,
    top: str,
    *,
    report: Report,
    limits: ArchiveLimits,
) -> CopyStats:
    session, path = source
    script = ["sh", "-c", SEND_SCRIPT, "sh", path]
    with terminal.cancel_on_signals(_current_task()), _staging_path(target) as staged:
        files = CopySpec(direction="out", path=path)
        async with client.sessions.exec(session, ExecSpec(command=script, files=files)) as command:
            copied = await _receive(
                command,
                session,
                lambda file: archive.unpack(
                    file, staged, top="." if top == "." else "", report=report, limits=limits
                ),
            )

        try:
            await asyncio.to_thread(archive.install, staged, target)
        except OSError as error:
            raise CopyFailed(f"the copy cannot be moved to {target}: {error}") from None

    return copied


async def _receive(
    command: RunningCommand, session: str, unpack: Callable[[IO[bytes]], CopyStats]
) -> CopyStats:
    stderr = b""

    async def next_piece() -> bytes:
        nonlocal stderr
        while (output := await command.read()) is not None:
            if output[0] is Channel.STDOUT:
                return output[1]
            stderr = (stderr + output[1])[-_STDERR_MAX:]
        return b""

    failure: MoorageError | None = None
    copied = CopyStats()
    source = _Source(next_piece)
    try:
        copied = await source.read_by(unpack)
    except archive.UnsafeArchive as error:
        failure = error
    except OSError as error:
        failure = CopyFailed(f"the local target cannot be written: {error}; nothing was copied")

    if failure is None or command.end is not None:
        while await next_piece():
            pass  # the padding of the tar stream
        _check(command, stderr, session)

    if failure is not None:
        raise failure

    copied.notes = stderr.decode(errors="replace").splitlines()
    return copied


def _check(command: RunningCommand, stderr: bytes, session: str) -> None:
    """Raise the error indicated by the script's exit code and messages, if any."""
    end = command.end
    assert end is not None
    text = printable(stderr.decode(errors="replace"), one_line=True)
    if end.code == NotFound.code:
        raise NotFound(f"{end.detail}, in session {session!r}")
    if end.exit_code is None or end.code:
        raise CopyFailed(end.detail or "the connection was lost", next_step=end.next_step)
    if end.exit_code == MISSING:
        raise NotFound(f"{text}, in session {session!r}")

    if end.exit_code in NO_PROGRAM:
        raise Conflict(
            f"session {session!r} lacks a program that cp needs: {text}",
            next_step="cp needs sh and tar in the session; use an image that has both",
        )

    if end.exit_code != 0:
        raise CopyFailed(
            f"session {session!r} failed to copy: {text or end.exit_code}; nothing was copied",
            next_step="free some space: the session's disk is full" if is_disk_full(text) else "",
        )


@contextmanager
def _staging_path(target: Path) -> Iterator[Path]:
    """A path next to ``target`` on the same file system, removed on exit."""
    try:
        folder = tempfile.mkdtemp(prefix=".moorage-cp-", dir=target.absolute().parent)
    except OSError as error:
        raise CopyFailed(f"cannot write to {target.absolute().parent}: {error}") from None
    try:
        yield Path(folder) / archive.ROOT
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
