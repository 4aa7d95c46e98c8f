"""``moorage cp``: files and directories between here and a session, as tar over a command in it."""

from __future__ import annotations

import asyncio
import io
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from moorage.cli import archive, terminal
from moorage.cli.app import app
from moorage.cli.archive import Copied
from moorage.cli.context import Cli, verb
from moorage.cli.failures import INTERRUPTED
from moorage.cli.render import printable
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import Channel, ExecSpec
from moorage.common.model.errors import Conflict, InvalidInput, MoorageError, NotFound
from moorage.sdk import Client, RunningCommand

_MISSING, _NO_PROGRAM = 3, (126, 127)
# As tars say it: the last write that found some room is told as a short one.
_FULL = ("No space left on device", "Wrote only", "Disk quota exceeded")
_WORDS_MAX, _BUFFER = 2000, 256 * 1024
# $1: where to; $2: what it is called here; $3: ours alone. What it has begun it takes away, whatever ends it:
# a signal ends tar, and tar's failure the rest. An `exit` in its trap could come before the other trap's
# first word; and the shell's own remark that tar was ended finds nobody who reads it.
_TAKE = """
set -eu
target=$1 name=$2
case $target in -*) target=./$target;; esac
if [ -d "$target" ]; then into=$target; else
  case $target in */) echo "there is no directory $target" >&2; exit 3;; esac
  name=${target##*/}
  case $target in */*) into=${target%/*};; *) into=.;; esac
  [ -n "$into" ] || into=/
  [ -d "$into" ] || { echo "there is no directory $into" >&2; exit 3; }
fi
part=$into/.moorage-cp-$3
trap 'rm -rf "$part"' EXIT
trap : HUP INT PIPE TERM
mkdir "$part"
tar -xf - -C "$part"
if [ -d "$into/$name" ]; then
  [ -d "$part/it" ] || { echo "$into/$name is a directory" >&2; exit 1; }
  cp -R -p "$part/it/." "$into/$name/"
else
  mv -f "$part/it" "$into/$name"
fi
"""
_GIVE = """
set -eu
path=$1
case $path in -*) path=./$path;; esac
[ -e "$path" ] || [ -L "$path" ] || { echo "there is no $path" >&2; exit 3; }
[ ! -L "$path" ] || path=$(readlink -f "$path")
case $path in */*) cd "${path%/*}/";; esac
tar -cf - "./${path##*/}"
"""


class CopyFailed(MoorageError):
    """It was not copied."""

    code = "copy-failed"


@verb(app)
def cp(
    cli: Cli,
    source: Annotated[str, typer.Argument(help="A path here, or SESSION:PATH.")],
    target: Annotated[str, typer.Argument(help="The other one.")],
) -> None:
    """Copy a file or a directory into a session that runs, or out of one. It is there whole or not at all.

    A path is local when it has no colon, or begins with / or a dot. The session needs sh and tar.

    \b
    Examples:
      moorage cp train.py dev:
      moorage cp ./data dev:/workspace
      moorage cp dev:results/model.bin .
    """
    there, here = remote(source), remote(target)
    if (there is None) == (here is None):
        raise InvalidInput(
            "one of the two must be in a session, and the other here",
            next_step="write the one in a session as SESSION:PATH; a path here may begin with ./",
        )
    try:
        if here is not None:
            sent = _existing(Path(source))
            copied = _run(cli, lambda client, tell: _send(cli, client, sent, here, tell), source)
        else:
            assert there is not None
            path, top = _named(there[1])
            wanted, place = (there[0], path), _place(Path(target), top)
            copied = _run(cli, lambda client, tell: _fetch(client, wanted, place, top, tell), source)
    except (KeyboardInterrupt, asyncio.CancelledError):
        cli.say("moorage: nothing was copied")
        raise typer.Exit(INTERRUPTED) from None
    for line in copied.left_out:
        cli.say(printable(f"moorage: left out: {line}", one_line=True))
    if cli.json:
        cli.print_json({"files": copied.files, "bytes": copied.size, "left_out": copied.left_out})


def remote(text: str) -> tuple[str, str] | None:
    """Session and path, None for a path here. The first colon parts them: a name with one goes by its id."""
    session, colon, path = text.partition(":")
    return None if not colon or not session or text[0] in "./~" else (session, path)


Tell = Callable[[int], None]


def _run(cli: Cli, work: Callable[[Client, Tell], Coroutine[Any, Any, Copied]], name: str) -> Copied:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=cli.err, transient=True, disable=not cli.err.is_terminal) as shown:
        bar = shown.add_task(printable(name, one_line=True), total=None)

        def tell(size: int) -> None:
            if size < 0:
                shown.update(bar, total=-size)
            else:
                shown.advance(bar, size)

        return cli.run(lambda client: work(client, tell))


class _Sink(io.RawIOBase):
    """For tar's thread: what is written goes to the session, and waits until it is taken."""

    def __init__(self, command: RunningCommand, ended: asyncio.Event) -> None:
        self._command, self._ended, self._loop = command, ended, asyncio.get_running_loop()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._ended.is_set():
            raise BrokenPipeError("the session takes no more")
        asyncio.run_coroutine_threadsafe(self._command.send(bytes(data)), self._loop).result()
        return len(data)


class _Source(io.RawIOBase):
    """For tar's thread: what the session sends."""

    def __init__(self, next_piece: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        self._next, self._loop, self._rest = next_piece, asyncio.get_running_loop(), b""
        self._waiting: Future[bytes] | None = None
        self._cut = False

    async def read_by(self, reader: Callable[[IO[bytes]], Copied]) -> Copied:
        """In a thread, which has ended when this has: what it left behind can be taken away."""
        file: Any = io.BufferedReader(self, _BUFFER)
        work = self._loop.run_in_executor(None, reader, file)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._cut = True
            if self._waiting is not None:
                self._waiting.cancel()
            await asyncio.wait([work], timeout=5)
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            if self._cut:
                raise BrokenPipeError("nobody waits for it any more")
            self._waiting = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            self._rest = self._waiting.result()
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _existing(source: Path) -> Path:
    if not source.exists():
        raise NotFound(f"there is no {source} here")
    return source.resolve()


def _named(path: str) -> tuple[str, str]:
    """What is asked for in a session, and how its tar calls it."""
    path = path.rstrip("/") or ("/" if path.startswith("/") else ".")
    top = path.rpartition("/")[2] or "."
    if top == "..":
        raise InvalidInput(f"{path!r} ends in two dots", next_step="name the directory")
    return path, top


def _place(target: Path, top: str) -> Path:
    """Where it goes here."""
    if target.is_dir():
        return target / top if top != "." else target
    if not target.absolute().parent.is_dir():
        raise NotFound(f"there is no directory {target.absolute().parent} here")
    return target


async def _send(cli: Cli, client: Client, source: Path, to: tuple[str, str], tell: Tell) -> Copied:
    tell(-await asyncio.to_thread(archive.size_of, source))
    session, path = to
    words = ["sh", "-c", _TAKE, "sh", path or ".", source.name or "root", cli.clock.new_id()]
    with terminal.signals_end(_me()):
        async with client.exec(session, ExecSpec(command=words, stdin=True)) as command:
            ended = asyncio.Event()
            hearing = spawn("cp.hear", _words_of(command, ended))
            try:
                sink: Any = _Sink(command, ended)
                copied = await asyncio.to_thread(archive.pack, source, sink, tell)
                await command.end_input()
                _check(command, await hearing, session)
            except BrokenPipeError:
                _check(command, await hearing, session)
                raise CopyFailed(f"session {session!r} took no more of it") from None
            except OSError as error:
                raise CopyFailed(f"it cannot be read here: {error}; nothing was copied") from None
            finally:
                await cancel_and_wait(hearing)
    return copied


async def _words_of(command: RunningCommand, ended: asyncio.Event) -> bytes:
    words = b""
    try:
        while (said := await command.read()) is not None:
            words = (words + said[1])[-_WORDS_MAX:]
    finally:
        ended.set()
    return words


async def _fetch(client: Client, source: tuple[str, str], place: Path, top: str, tell: Tell) -> Copied:
    session, path = source
    words = ["sh", "-c", _GIVE, "sh", path]
    with terminal.signals_end(_me()), _beside(place) as part:
        async with client.exec(session, ExecSpec(command=words)) as command:
            copied = await _receive(command, session, part, top, tell)
        try:
            await asyncio.to_thread(archive.settle, part, place)
        except OSError as error:
            raise CopyFailed(f"it cannot be put in its place here: {error}") from None
    return copied


async def _receive(command: RunningCommand, session: str, part: Path, top: str, tell: Tell) -> Copied:
    words = b""

    async def next_piece() -> bytes:
        nonlocal words
        while (said := await command.read()) is not None:
            if said[0] is Channel.STDOUT:
                return said[1]
            words = (words + said[1])[-_WORDS_MAX:]
        return b""

    failure: MoorageError | None = None
    copied = Copied()
    source = _Source(next_piece)
    try:
        copied = await source.read_by(
            lambda file: archive.unpack(file, part, "." if top == "." else "", tell)
        )
    except archive.UnsafeArchive as error:
        failure = error
    except OSError as error:
        failure = CopyFailed(f"it cannot be written here: {error}; nothing was copied")
    if failure is None or command.end is not None:
        while await next_piece():
            pass  # the padding of the tar
        _check(command, words, session)
    if failure is not None:
        raise failure
    return copied


def _check(command: RunningCommand, words: bytes, session: str) -> None:
    """Raises what a command that failed means."""
    end = command.end
    assert end is not None
    text = printable(words.decode(errors="replace"), one_line=True)
    if end.exit_code is None or end.code:
        raise CopyFailed(end.detail or "the connection broke off", next_step=end.next_step)
    if end.exit_code == _MISSING:
        raise NotFound(f"{text}, in session {session!r}")
    if end.exit_code in _NO_PROGRAM:
        raise Conflict(
            f"session {session!r} lacks what is needed to copy: {text}",
            next_step="cp needs sh and tar in it; images that have both are those made for work",
        )
    if end.exit_code != 0:
        full = any(words in text for words in _FULL)
        raise CopyFailed(
            f"session {session!r} could not do it: {text or end.exit_code}; nothing was copied",
            next_step="the disk there is full" if full else "",
        )


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A path next to where it belongs, on the same file system; nothing of it is left."""
    try:
        folder = tempfile.mkdtemp(prefix=".moorage-cp-", dir=place.absolute().parent)
    except OSError as error:
        raise CopyFailed(f"nothing can be written to {place.absolute().parent}: {error}") from None
    try:
        yield Path(folder) / "it"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
