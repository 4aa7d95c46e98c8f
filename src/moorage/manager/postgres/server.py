"""Embedded Postgres server on loopback: initialization, start, restart and stop.

The data outlives the manager; the server process does not. See
docs/decisions/0002-embedded-postgres.md.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Never

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.model.errors import StartupError
from moorage.manager.postgres.binaries import (
    FALLBACK_ROOT,
    User,
    can_reach,
    create_fallback_root,
    find_binaries,
    server_user,
    write_private,
)
from moorage.manager.postgres.roles import MANAGER, SUPERUSER, load_password, prepare_manager_role
from moorage.manager.postgres.running import embedded_dsn

log = structlog.get_logger("moorage.postgres")

_LAUNCH = Path(__file__).with_name("launch.py")
_LOG_LIMIT_BYTES = 8 * 1024 * 1024
# A server that cannot finish its checkpoint in time recovers at the next start, so a stronger
# signal does no harm.
_STOP_S = 20.0
_START_S = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "50",
    "jit": "off",  # compilation costs more than any of our statements
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
# Startup errors that occur while an earlier server has not yet ended. The start is then repeated.
_TRANSIENT_ERRORS = (
    "pre-existing shared memory block",
    "lock file",
    "Address already in use",
    "Only one usage of",
)


class EmbeddedPostgres:
    """``async with EmbeddedPostgres(home / "postgres", clock=clock) as pg: ... pg.dsn``

    Listens on 127.0.0.1 with a password, and never runs as root (as user postgres or nobody if this
    process is root). The server ends with this process, even on kill -9, and is restarted on the
    same port if it exits on its own. ``data_dir`` contains the password, port, log and data. If the
    server's user cannot reach it, the data is below ``fallback_root`` and ``data_dir/place``
    contains its path.

    If ``port`` is None, a free port is chosen and reused by the next start. ``extra``: server
    settings that override the defaults. The thread that enters must live as long as the server: the
    kernel stops the server with that thread. Raises ``StartupError`` with the last lines of the
    server's log.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        port: int | None = None,
        clock: Clock,
        extra: Mapping[str, str] | None = None,
        fallback_root: Path = FALLBACK_ROOT,
    ) -> None:
        self.port = port or 0
        self._fixed_port = port is not None
        self._state = data_dir.resolve()
        self._bin_dir = bin_dir
        self._fallback_root = fallback_root
        self._clock = clock
        self._settings = _SETTINGS | dict(extra or {})
        self._log_path = self._state / "postgres.log"
        self._log_start = 0
        self._lock: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._restart_task: SupervisedTask | None = None

    @property
    def dsn(self) -> str:
        """The superuser's DSN."""
        return embedded_dsn(SUPERUSER, self._password, self.port)

    @property
    def manager_dsn(self) -> str:
        """The database owner's DSN; the owner is not a superuser."""
        return embedded_dsn(MANAGER, self._manager_password, self.port)

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while there is no server."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def __aenter__(self) -> EmbeddedPostgres:
        try:
            self._prepare()
            started_at = self._clock.monotonic()
            self._binaries = await asyncio.to_thread(
                find_binaries,
                self._bin_dir,
                self._user,
                major=self._data_major(),
                fallback_root=self._fallback_root,
            )
            fresh = self._data_major() is None
            if fresh:
                await self._init()

            await self._start()
            await prepare_manager_role(self.dsn, self._manager_password)
            seconds = round(self._clock.monotonic() - started_at, 2)
            log.info(
                "postgres started",
                port=self.port,
                version=self._binaries.major,
                fresh=fresh,
                seconds=seconds,
            )
        except BaseException:
            await self._close()
            raise

        self._restart_task = SupervisedTask("postgres.restart", self._restart_on_exit)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    # -- state directory --

    def _prepare(self) -> None:
        self._state.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(
                f"another Moorage process uses the database in {self._state}",
                next_step="stop that process, or set MOORAGE_HOME to another state directory",
            ) from None

        self._user = server_user()
        self._data = self._choose_data_dir(self._user)
        shutil.rmtree(self._initdb_dir, ignore_errors=True)
        self._password = load_password(self._state / "password", self._clock)
        self._manager_password = load_password(self._state / "manager-password", self._clock)
        if not self._fixed_port:
            self.port = _load_port(self._state / "port")
        if self._log_path.exists() and self._log_path.stat().st_size > _LOG_LIMIT_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))

    def _choose_data_dir(self, user: User | None) -> Path:
        pointer = self._state / "place"
        if pointer.exists():
            place = Path(pointer.read_text().strip())
            if not place.is_absolute() or not place.is_dir():
                raise StartupError(
                    f"the database of {self._state} was in {place}, which no longer exists",
                    next_step=(
                        f"restore it, or remove {self._state} to start with an empty database"
                    ),
                )

            return place / "data"

        if (self._state / "data").exists() or can_reach(user, self._state):
            return self._state / "data"

        create_fallback_root(self._fallback_root)
        place = self._fallback_root / f"data-{self._clock.new_id()}"
        place.mkdir(mode=0o711)
        place.chmod(0o711)
        (place / "belongs-to").write_text(f"{self._state}\n")

        # Atomic, because with only part of the path, the next start would look elsewhere.
        partial = pointer.with_suffix(".new")
        partial.write_text(f"{place}\n")
        partial.rename(pointer)
        return place / "data"

    @property
    def _initdb_dir(self) -> Path:
        return self._data.with_name("data.new")

    def _data_major(self) -> int | None:
        version = self._data / "PG_VERSION"
        return int(version.read_text()) if version.exists() else None

    # -- start and stop --

    async def _init(self) -> None:
        """Initialize a directory next to the data directory and rename it at the end, so that an
        incomplete directory is never used."""
        self._initdb_dir.mkdir(mode=0o700)
        password = self._initdb_dir.with_name("password.init")
        write_private(password, self._password)
        if self._user:
            for path in (self._initdb_dir, password):
                os.chown(path, self._user.uid, self._user.gid)

        try:
            # One sync at the end replaces one per file and takes a fraction of the time.
            self._process = await self._launch(
                "initdb",
                "-D",
                str(self._initdb_dir),
                "-U",
                SUPERUSER,
                "--auth=scram-sha-256",
                f"--pwfile={password}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            )
            if await self._process.wait() != 0:
                raise StartupError(
                    f"initdb failed:\n{self._recent_log()}", next_step=self._log_hint()
                )
        finally:
            password.unlink()

        if self._settings.get("fsync") != "off":
            await asyncio.to_thread(os.sync)

        self._initdb_dir.rename(self._data)

    async def _start(self) -> None:
        """Return once the server is ready. Raises ``StartupError`` if it does not become ready."""
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    if await self._try_start():
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            await self._stop_server()
            raise StartupError(
                f"Postgres was not ready within {_START_S:.0f} s:\n{self._recent_log()}",
                next_step=self._log_hint(),
            ) from None

    async def _try_start(self) -> bool:
        await self._wait_until_unused()
        if not self.port or not (
            self._fixed_port or self._restart_task or _port_is_free(self.port)
        ):
            self.port = _free_port()

        settings = self._settings | {"port": str(self.port)}
        flags = [
            argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")
        ]
        self._process = await self._launch("postgres", "-D", str(self._data), *flags)
        while self._process.returncode is None:
            if self._is_ready():
                (self._state / "port").write_text(f"{self.port}\n")
                return True

            await asyncio.sleep(0.02)

        message = self._recent_log()
        taken = "Address already in use" in message
        if taken and self._fixed_port and not self._restart_task:
            raise StartupError(
                f"port {self.port} for Postgres is in use", next_step="choose another port"
            )

        if taken and not self._restart_task:
            self.port = 0
        if not any(text in message for text in _TRANSIENT_ERRORS):
            raise StartupError(f"Postgres did not start:\n{message}", next_step=self._log_hint())

        return False

    async def _launch(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        user = self._user
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        out = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        # The environment is minimal, because this process's environment contains secrets. The
        # session is separate, because Ctrl-C must reach this process first.
        environment = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
        }
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(_LAUNCH),
                str(os.getpid()),
                str(user.uid if user else -1),
                str(user.gid if user else -1),
                str(self._binaries.bin_dir / program),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env=environment | {"LC_ALL": "C"},
                start_new_session=True,
            )
        finally:
            os.close(out)

    def _is_ready(self) -> bool:
        # The eighth line of postmaster.pid contains the server's status; pg_ctl reads the same
        # line.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        is_own = self._process is not None and lines[:1] == [str(self._process.pid)]
        return is_own and len(lines) >= 8 and lines[7].strip() == "ready"

    async def _wait_until_unused(self) -> None:
        """Wait until no process of an earlier server uses the data directory.

        A server whose manager was killed is already shutting down; backends whose postmaster was
        killed notice within moments. Only then is a stale postmaster.pid removed. Its process id
        may by now belong to another process, and Postgres would then refuse to start.
        """
        pid_file = self._data / "postmaster.pid"
        if not pid_file.exists():
            return

        polls = 0
        while pids := _processes_in(self._data):
            polls += 1
            if polls % 50 == 10:  # the first signal after one second, then one every five seconds
                for pid in pids:
                    _signal(pid, signal.SIGINT if polls < 100 else signal.SIGQUIT)

            await asyncio.sleep(0.1)

        pid_file.unlink(missing_ok=True)

    async def _restart_on_exit(self) -> Never:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            log.error(
                "postgres exited unexpectedly",
                code=code,
                port=self.port,
                recent_log=self._recent_log(),
            )
            started_at = self._clock.monotonic()
            running = False
            while not running:
                try:
                    await self._start()
                    running = True
                except (StartupError, OSError) as error:
                    log.error("postgres could not be restarted", error=str(error))
                    await asyncio.sleep(1)

            log.info(
                "postgres restarted",
                port=self.port,
                seconds=round(self._clock.monotonic() - started_at, 2),
            )

    async def _stop_server(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return

        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            _signal(process.pid, number)
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
                return
            except TimeoutError:
                log.warning("postgres did not stop", signal=number.name, seconds=_STOP_S)

    async def _close(self) -> None:
        if self._restart_task is not None:
            await self._restart_task.close()
        self._restart_task = None
        await self._stop_server()
        if self._lock is not None:
            # also by name, because a forked process may also have the file open
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    # -- server log --

    def _recent_log(self) -> str:
        """The last lines of the newest process's log."""
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as file:
            file.seek(max(self._log_start, self._log_path.stat().st_size - 4096))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-8:])

    def _log_hint(self) -> str:
        return f"see the full log in {self._log_path}"


def _processes_in(directory: Path) -> list[int]:
    """Processes whose working directory is ``directory``. This includes every Postgres process of
    that data directory, but no zombies."""
    path = str(directory)
    pids = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd") == path:
                    pids.append(int(entry.name))
            except OSError:  # it has ended, or belongs to another user
                continue

    return pids


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _load_port(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _port_is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
