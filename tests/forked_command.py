"""``moorage`` processes for tests that run many commands, without repeating the imports.

One process has imported the commands, and is forked for each command line: that takes a tenth of
the CPU time of a start, which is mostly imports. The command is a separate process, with its own
standard streams, environment, signals and exit. ``test_cli_imports`` tests the imports of a start.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
PREPARED = (
    "aiohttp",
    "moorage.__main__",
    *(
        f"moorage.cli.commands.{name}"
        for name in ("chat", "exec", "logs", "port_forward", "ps", "reload")
    ),
    *(f"moorage.cli.commands.{name}" for name in ("run", "serve", "start", "stop")),
    "moorage.manager.store.schema.migrate",
    "moorage.sdk.client",
    "moorage.server.commands.daemons",
)
"""None of them may read the environment on import, because the command's environment is set
later."""


class ForkedCommand:
    """A command line of ``moorage`` as a process, with the methods of ``subprocess.Popen``.

    ``stdin``, ``stdout`` and ``stderr`` are descriptors, or ``subprocess.PIPE`` for the last two;
    the default is this process's streams. With ``terminal``, the command leads a session whose
    terminal is ``stdin``.
    """

    def __init__(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int = 0,
        stdout: int = 1,
        stderr: int = 2,
        terminal: bool = False,
    ) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._ending, theirs = socket.socketpair()
        self.stdout, out = _stream(stdout)
        self.stderr, err = _stream(stderr)
        request = {"args": self.args, "env": dict(env), "cwd": os.getcwd(), "terminal": terminal}
        with theirs:
            socket.send_fds(_server(), [b"+"], [theirs.fileno(), stdin, out, err])

        for stream, descriptor in ((self.stdout, out), (self.stderr, err)):
            if stream is not None:
                os.close(descriptor)

        self._ending.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._ending.makefile()
        self.pid = int(self._answers.readline())

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        try:
            self.send_signal(signal.SIGKILL)
        except ProcessLookupError:  # it has ended, and its exit code has not been read
            pass

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._ending.settimeout(timeout)
            try:
                self.returncode = int(self._answers.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._answers.close()
            self._ending.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The output that the command wrote to its pipes until it ended. Kills it on timeout."""
        with ThreadPoolExecutor(2) as pool:
            written = [pool.submit(_read_all, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except BaseException:
                self.kill()
                raise
        return written[0].result(), written[1].result()


def run_forked(
    args: Sequence[str], env: Mapping[str, str], timeout: float = 60, **streams: int
) -> subprocess.CompletedProcess[str]:
    """Run a command line to completion, as ``subprocess.run`` does with ``capture_output=True``."""
    command = ForkedCommand(
        args, env, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    )
    out, err = command.communicate(timeout)
    return subprocess.CompletedProcess(command.args, command.returncode or 0, out, err)


def _stream(wanted: int) -> tuple[IO[str] | None, int]:
    """Our end of a stream if we read it, and the descriptor for the command."""
    if wanted != subprocess.PIPE:
        return None, wanted
    read, write = os.pipe()
    return os.fdopen(read), write


def _read_all(stream: IO[str] | None) -> str:
    if stream is None:
        return ""
    with stream:
        return stream.read()


@cache
def _server() -> socket.socket:
    """The connection to the process that forks; that process ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-c", f"from tests.forked_command import serve; serve({number})"]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number])
    atexit.register(process.wait)
    atexit.register(ours.close)  # first, since they run backwards
    return ours


def _fork_for_each(requests: socket.socket) -> None:
    """Fork for each request; returns in a command's process, and exits when no client is left."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        _reap(os.WNOHANG)
        if not message:
            _reap(0)
            sys.exit()
        if os.fork() == 0:
            requests.close()
            return _start(socket.socket(fileno=descriptors[0]), descriptors[1:])

        for descriptor in descriptors:
            os.close(descriptor)


def _reap(options: int) -> None:
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        pass


def _start(asker: socket.socket, streams: Sequence[int]) -> None:
    """Fork once more, and return in the new process; the other one reports its pid and its exit."""
    with asker, asker.makefile() as lines:
        request = json.loads(lines.readline())
        pid = os.fork()
        if pid:
            for descriptor in streams:
                os.close(descriptor)

            asker.sendall(f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            asker.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)

    _become(request, streams)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Make this process look like a newly started command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)

    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)

    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the end
    sys.__stdin__ = sys.stdin
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.__stdout__ = sys.stdout
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stderr__ = sys.stderr
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["moorage", *request["args"]]


def serve(number: int) -> None:
    """Fork a process for each command requested on this socket, and run the command in it."""
    # Ctrl-C in the tests' terminal is for pytest; this process ends when pytest does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in PREPARED:
        import_module(module)

    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as requests:
        _fork_for_each(requests)

    from moorage.__main__ import main

    main()
