"""Starts Postgres on loopback, keeps it up, stops it; the data outlive us, the server does not."""

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

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.errors import StartupError
from moorage.manager.postgres.binaries import PLACES, User, find, make_places, reaches, server_user

log = structlog.get_logger("moorage.postgres")

_LAUNCH = Path(__file__).with_name("launch.py")
_LOG_LIMIT_BYTES = 8 * 1024 * 1024
# A server that cannot finish its checkpoint in time recovers at the next start: no harm in the harder signal.
_STOP_S, _START_S = 20.0, 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "50",
    "jit": "off",  # compiling costs more than any of our statements
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
# The server was told to start where something has not ended yet: it is worth another try.
_NOT_YET = ("pre-existing shared memory block", "lock file", "Address already in use", "Only one usage of")


class EmbeddedPostgres:
    """``async with EmbeddedPostgres(home / "postgres", clock=clock) as pg: ... pg.dsn``

    Listens on 127.0.0.1 with a password; never as root (as user postgres or nobody when we are root). Its
    data survive restarts; the server itself ends with us, even on kill -9, and is started again on the same
    port when it ends by itself. ``data_dir`` keeps password, port, log and the data; where the server's
    user cannot reach it the data go below ``places`` and ``data_dir/place`` says where.

    ``port`` None: a free one, kept for the next start. ``extra``: server settings on top of ours.
    The thread that enters must live as long as the server: the kernel ends the server with that thread.
    Raises ``StartupError`` with the server's last words.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        port: int | None = None,
        clock: Clock,
        extra: Mapping[str, str] | None = None,
        places: Path = PLACES,
    ) -> None:
        self.port = port or 0
        self._fixed_port = port is not None
        self._state, self._bin_dir, self._places, self._clock = data_dir.resolve(), bin_dir, places, clock
        self._settings = _SETTINGS | dict(extra or {})
        self._log_path = self._state / "postgres.log"
        self._log_start = 0
        self._lock: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://moorage:{self._password}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        """Process id of the server; None while there is none."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def __aenter__(self) -> EmbeddedPostgres:
        try:
            self._prepare()
            began = self._clock.monotonic()
            self._binaries = await asyncio.to_thread(
                find, self._bin_dir, self._user, major=self._data_major(), places=self._places
            )
            fresh = self._data_major() is None
            if fresh:
                await self._init()
            await self._start()
            took = round(self._clock.monotonic() - began, 2)
            log.info(
                "postgres is up", port=self.port, version=self._binaries.major, fresh=fresh, seconds=took
            )
        except BaseException:
            await self._close()
            raise
        self._keeper = spawn("postgres.keeper", self._keep())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    # The place

    def _prepare(self) -> None:
        self._state.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(
                f"another Moorage uses the database in {self._state}",
                next_step="stop that one, or choose another state directory (MOORAGE_HOME)",
            ) from None
        self._user = server_user()
        self._data = self._choose_data(self._user)
        shutil.rmtree(self._half_made, ignore_errors=True)
        self._password = _kept_secret(self._state / "password", self._clock)
        if not self._fixed_port:
            self.port = _kept_port(self._state / "port")
        if self._log_path.exists() and self._log_path.stat().st_size > _LOG_LIMIT_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))

    def _choose_data(self, user: User | None) -> Path:
        pointer = self._state / "place"
        if pointer.exists():
            place = Path(pointer.read_text().strip())
            if not place.is_dir():
                raise StartupError(
                    f"the database of {self._state} was in {place}, which is gone",
                    next_step=f"bring it back, or remove {self._state} to begin with an empty one",
                )
            return place / "data"
        if (self._state / "data").exists() or reaches(user, self._state):
            return self._state / "data"
        make_places(self._places)
        place = self._places / f"data-{self._clock.new_id()}"
        place.mkdir(mode=0o711)
        place.chmod(0o711)
        (place / "belongs-to").write_text(f"{self._state}\n")
        pointer.write_text(f"{place}\n")
        return place / "data"

    @property
    def _half_made(self) -> Path:
        return self._data.with_name("data.new")

    def _data_major(self) -> int | None:
        version = self._data / "PG_VERSION"
        return int(version.read_text()) if version.exists() else None

    # Start and stop

    async def _init(self) -> None:
        """Make the data beside their place and move them in at the end: nothing half-made is ever used."""
        self._half_made.mkdir(mode=0o700)
        password = self._half_made.with_name("password.init")
        _write_private(password, self._password)
        if self._user:
            for path in (self._half_made, password):
                os.chown(path, self._user.uid, self._user.gid)
        try:
            # Not synced file by file: one sync at the end does the same in a fraction of the time.
            self._process = await self._launch(
                "initdb", "-D", str(self._half_made), "-U", "moorage", "--auth=scram-sha-256",
                f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
            )  # fmt: skip
            if await self._process.wait() != 0:
                raise StartupError(f"initdb failed:\n{self._last_words()}", next_step=self._see_log())
        finally:
            password.unlink()
        if self._settings.get("fsync") != "off":
            await asyncio.to_thread(os.sync)
        self._half_made.rename(self._data)

    async def _start(self) -> None:
        """Until the server is ready. Raises ``StartupError`` when it will not be."""
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    if await self._try_start():
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            await self._stop_server()
            raise StartupError(
                f"Postgres was not ready within {_START_S:.0f} s:\n{self._last_words()}",
                next_step=self._see_log(),
            ) from None

    async def _try_start(self) -> bool:
        await self._vacate()
        if not self.port or not (self._fixed_port or self._keeper or _port_is_free(self.port)):
            self.port = _free_port()
        settings = self._settings | {"port": str(self.port)}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = await self._launch("postgres", "-D", str(self._data), *flags)
        while self._process.returncode is None:
            if self._says_ready():
                (self._state / "port").write_text(f"{self.port}\n")
                return True
            await asyncio.sleep(0.02)
        words = self._last_words()
        taken = "Address already in use" in words
        if taken and self._fixed_port and not self._keeper:
            raise StartupError(f"port {self.port} for Postgres is taken", next_step="choose another one")
        if taken and not self._keeper:
            self.port = 0
        if not any(hint in words for hint in _NOT_YET):
            raise StartupError(f"Postgres did not start:\n{words}", next_step=self._see_log())
        return False

    async def _launch(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        user = self._user
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        out = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # A bare environment (ours holds secrets), and a session of its own: Ctrl-C is for us, not for it.
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()),
                str(user.uid if user else -1), str(user.gid if user else -1),
                str(self._binaries.bin_dir / program), *arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                cwd="/", env=kept | {"LC_ALL": "C"}, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(out)

    def _says_ready(self) -> bool:
        # The eighth line of postmaster.pid is the server's own word for its state (what pg_ctl reads).
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        ours = self._process is not None and lines[:1] == [str(self._process.pid)]
        return ours and len(lines) >= 8 and lines[7].strip() == "ready"

    async def _vacate(self) -> None:
        """Wait until no process of an earlier server lives in the data.

        A server whose manager was killed is on its way out; backends whose postmaster was killed notice
        within moments. Only then is a left-over postmaster.pid removed: its process id may by now be that
        of somebody else, and Postgres would refuse to start because of it.
        """
        pid_file = self._data / "postmaster.pid"
        if not pid_file.exists():
            return
        looks = 0
        while living := _living_in(self._data):
            looks += 1
            if looks % 50 == 10:  # the first second is theirs; then they are told, every five seconds
                for pid in living:
                    _signal(pid, signal.SIGINT if looks < 100 else signal.SIGQUIT)
            await asyncio.sleep(0.1)
        pid_file.unlink(missing_ok=True)

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            log.error("postgres ended by itself", code=code, port=self.port, last_words=self._last_words())
            began, up = self._clock.monotonic(), False
            while not up:
                try:
                    await self._start()
                    up = True
                except (StartupError, OSError) as error:
                    log.error("postgres does not come back", error=str(error))
                    await asyncio.sleep(1)
            log.info("postgres is back", port=self.port, seconds=round(self._clock.monotonic() - began, 2))

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
                log.warning("postgres does not stop", signal=number.name, seconds=_STOP_S)

    async def _close(self) -> None:
        await cancel_and_wait(self._keeper)
        self._keeper = None
        await self._stop_server()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # What it said

    def _last_words(self) -> str:
        """The last lines that the newest process wrote."""
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as file:
            file.seek(max(self._log_start, self._log_path.stat().st_size - 4096))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-8:])

    def _see_log(self) -> str:
        return f"the whole log is {self._log_path}"


def _living_in(directory: Path) -> list[int]:
    """Processes whose working directory is ``directory``: every process of a Postgres, and no zombie."""
    wanted = str(directory)
    living = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd") == wanted:
                    living.append(int(entry.name))
            except OSError:  # gone meanwhile, or somebody else's
                continue
    return living


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _kept_secret(path: Path, clock: Clock) -> str:
    if not path.exists():
        half = path.with_suffix(".new")
        _write_private(half, clock.secret())
        half.rename(path)
    return path.read_text()


def _kept_port(path: Path) -> int:
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
