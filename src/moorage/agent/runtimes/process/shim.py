"""The supervisor of one process kernel: outlives the agent, holds the log, knows the exit code.

Run by the process runtime as ``python -I -S process_shim.pyc STATE_DIR LOG_DIR LOG_MAX_BYTES LOG_KEEP GRACE_S
PROGRAM [ARG ...]``, with the engine's environment as its own and file descriptor 3 as a pipe on which it says
once ``started PID START``, ``exec ERRNO`` or ``busy``. Standard library only, and little of it: every import
delays the start of every kernel. With ``--spare`` alone it is started ahead: it waits for its arguments and
environment on file descriptor 4 (``spare.py``), and ends where none come.

* It is a child subreaper, so nothing that the engine starts can escape it; when the main program ends,
  everything left of it is killed before the exit is made known.
* SIGTERM is passed on to the main program; after the grace (file ``grace`` in STATE_DIR, else GRACE_S), all
  is killed. A further SIGTERM reads the grace again: that is how a stop is hurried.
* ``pids`` and ``exit`` in STATE_DIR are written by atomic rename. They need no fsync: a crash of the machine
  takes the processes with it, and the boot id in ``pids`` says so.
"""

from __future__ import annotations

# The C modules themselves: what Python wraps around these two costs 4 ms and 5 ms at import.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import select
import sys

READY_FD = 3
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
SHIM_VAR, SPARE_ROOM, ORDER_END = "MOORAGE_SHIM", "MOORAGE_SPARE", "end of order"
_prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]


def _set(option: int, value: int | bytes) -> None:
    """prctl(2). It fails only for options that the kernel does not know, and it has known these since 3.4."""
    _ctypes.call_function(_prctl, (option, value, 0, 0, 0))


def _replace(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, text.encode())
    os.close(fd)
    os.replace(temporary, path)


def _exec(argv: list[str], env: dict[str, str]) -> None:
    """As ``os.execvpe``, which imports ``warnings`` before it looks along PATH: 0.8 ms of each start."""
    name, refused = argv[0], None
    if "/" in name:
        os.execve(name, argv, env)
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, name), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _read(path: str) -> str:
    """Not by ``open``, which takes several times as long, and a start waits for it."""
    pieces = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        while piece := os.read(fd, 65_536):
            pieces.append(piece)
    except OSError:
        pass  # the process that it told of has ended
    os.close(fd)
    return os.fsdecode(b"".join(pieces))


def _ignored() -> list[int]:
    """The signals that a program would inherit as ignored: what has a handler is reset by exec itself."""
    kept = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    return [number for number in kept if signal.getsignal(number) == signal.SIG_IGN]


def _start_time(pid: int) -> int:
    # Field 22 of stat; the program's name before it may contain anything, so count from its last bracket.
    return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])


def _oom_kills() -> int:
    """How many processes of our control group the kernel has killed for memory so far."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            events = _read(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        elif not controllers:
            events = _read(f"/sys/fs/cgroup{path}/memory.events")
        else:
            continue
        for event in events.splitlines():
            if event.startswith("oom_kill "):
                return int(event.split()[1])
    return 0


class Log:
    """Appends to ``kernel.log`` and renames it to ``kernel.log.1``, ``.2`` ... at ``max_bytes``."""

    def __init__(self, folder: str, max_bytes: int, keep: int) -> None:
        self.path, self.max_bytes, self.keep = f"{folder}/kernel.log", max_bytes, keep
        self.fd = self.size = -1
        self._open()

    def _open(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self.size = os.fstat(self.fd).st_size
        except OSError:
            self.fd = -1  # a full or vanished disk must not end the kernel

    def write(self, data: bytes) -> None:
        if self.fd < 0 or (self.size and self.size + len(data) > self.max_bytes):
            self._rotate()
        try:
            self.size += os.write(self.fd, data)
        except OSError:
            pass

    def _rotate(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            for number in range(self.keep - 1, -1, -1):
                try:
                    os.replace(f"{self.path}.{number}" if number else self.path, f"{self.path}.{number + 1}")
                except OSError:
                    pass
        self._open()


class Shim:
    def __init__(self, state: str, grace_s: float) -> None:
        self.state, self.grace_s = state, grace_s
        self.main = 0
        self.status: int | None = None  # of the main program, as waitpid gives it
        self.terminate = self.expired = self.asked = self.forced = False
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.log_r, self.log_w = os.pipe2(os.O_CLOEXEC)

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGALRM, self._on_alarm)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self.terminate = True

    def _on_alarm(self, *_: object) -> None:
        self.expired = True

    def start(self, argv: list[str], env: dict[str, str], log: tuple[str, int, int]) -> int:
        """0, or the errno with which the program could not be run. ``log``: the arguments of ``Log``."""
        failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
        me, reset = os.getpid(), _ignored()
        self.main = os.fork()
        if self.main == 0:
            self._become(argv, env, failed_w, me, reset)
        # What is needed from here on is made while the other process becomes the program.
        os.close(failed_w)
        os.close(self.log_w)
        self.oom_before = _oom_kills()
        self.log = Log(*log)
        os.set_blocking(self.log_r, False)
        self.poll = select.poll()
        self.poll.register(self.wake_r, select.POLLIN)
        self.poll.register(self.log_r, select.POLLIN)
        failure = os.read(failed_r, 16)
        os.close(failed_r)
        return int(failure or b"0")

    def _become(
        self, argv: list[str], env: dict[str, str], failed_w: int, parent: int, reset: list[int]
    ) -> None:
        code = 0
        try:
            os.setsid()
            _set(PR_SET_PDEATHSIG, 9)
            if os.getppid() != parent:
                os._exit(127)  # the shim died before the line above
            os.dup2(self.log_w, 1)
            os.dup2(self.log_w, 2)
            os.chdir(f"{self.state}/work")
            signal.set_wakeup_fd(-1)
            for number in reset:
                signal.signal(number, signal.SIG_DFL)
            _exec(argv, env)
        except OSError as error:
            code = error.errno or 22
        except ValueError:
            code = 22
        os.write(failed_w, b"%d" % code)
        os._exit(127)

    def pump(self) -> None:
        """Move what the engine has written into its log, without waiting for more."""
        piece = min(65_536, self.log.max_bytes)  # a log file is never larger than it may be
        while True:
            try:
                data = os.read(self.log_r, piece)
            except BlockingIOError:
                return
            if not data:
                self.poll.unregister(self.log_r)
                os.close(self.log_r)
                self.log_r = -1
                return
            self.log.write(data)
            if len(data) < piece:
                return

    def rest(self, timeout_ms: int | None) -> None:
        for fd, _ in self.poll.poll(timeout_ms):
            if fd == self.log_r:
                self.pump()
            else:
                try:
                    os.read(self.wake_r, 512)
                except BlockingIOError:
                    pass

    def reap(self) -> bool:
        """Take in every child that has ended. False: no child is left."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return True
                if ended.si_pid == self.main:
                    # Before it is reaped, so that its group's number cannot belong to anybody else.
                    self.kill_group(9)
                _, status = os.waitpid(ended.si_pid, 0)
            except ChildProcessError:
                return False
            if ended.si_pid == self.main:
                self.status = status

    def kill_group(self, number: int) -> None:
        try:
            os.killpg(self.main, number)
        except OSError:
            pass

    def kill_children(self) -> None:
        """SIGKILL for every child. Their children become ours in turn: repeated, this ends all of them."""
        me = str(os.getpid())
        for name in os.listdir("/proc"):
            if name.isdigit() and _read(f"/proc/{name}/stat").rpartition(")")[2].split()[1:2] == [me]:
                try:
                    os.kill(int(name), 9)  # our own child, not reaped yet: the number is still its own
                except OSError:
                    pass

    def on_terminate(self) -> None:
        self.terminate = False
        if not self.asked:
            self.asked = True
            try:
                os.kill(self.main, signal.SIGTERM)
            except OSError:
                pass
        grace = self.grace_s
        try:
            grace = float(_read(f"{self.state}/grace") or grace)
        except ValueError:
            pass
        # An interval, because one signal can be lost between two looks at it.
        signal.setitimer(signal.ITIMER_REAL, max(grace, 0.0001), 0.1)

    def watch(self) -> None:
        """Until the main program has ended and nothing of it is left."""
        while self.status is None:
            self.rest(None)
            self.reap()
            if self.status is None and self.terminate:
                self.on_terminate()
            if self.status is None and self.expired:
                self.expired, self.forced = False, True
                self.kill_group(9)
                self.kill_children()
        while self.reap():
            self.kill_children()
            self.rest(20)
        if self.log_r >= 0:
            self.pump()

    def write_exit(self) -> None:
        status = self.status or 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = -number if number else os.WEXITSTATUS(status)
        oom = number == 9 and not self.forced and _oom_kills() > self.oom_before
        text = f'{{"code": {code}, "oom": {int(oom)}, "forced": {int(self.forced)}, "exec": 0}}'
        _replace(f"{self.state}/exit", text)


def _say(text: str) -> None:
    try:
        os.write(READY_FD, text.encode())
        os.close(READY_FD)
    except OSError:
        pass  # the agent died meanwhile; its successor reads the files


def _await_order() -> tuple[list[str], dict[str, str]]:
    """What a spare is told: its marks, its arguments, the environment of its program; each with its end."""
    os.get_exec_path({})  # it imports what it needs at its first call, which would be between fork and exec
    pieces = []
    while piece := os.read(READY_FD + 1, 65_536):
        pieces.append(piece)
    os.close(READY_FD + 1)
    words = os.fsdecode(b"".join(pieces)).split("\0")
    if words.pop() != ORDER_END or len(words) != int(words[0]):
        os._exit(0)  # the agent has ended, or does not want it any more
    count = int(words[1]) + 2
    marks, (number, *rest) = words[2:count], words[count:]
    _show_marks(marks)
    arguments, env = rest[: int(number)], rest[int(number) :]
    log = os.open(f"{arguments[0]}/shim.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    return arguments, dict(word.split("=", 1) for word in env)


def _show_marks(marks: list[str]) -> None:
    """In /proc/PID/environ, which is the memory in which our environment was put when we were started."""
    start, end = (int(word) for word in _read("/proc/self/stat").rpartition(")")[2].split()[47:49])
    room = end - start
    text = os.fsencode("".join(f"{mark}\0" for mark in [*marks, f"{SHIM_VAR}=1"]))
    if len(text) > room:
        os._exit(1)
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    os.pwrite(memory, text.ljust(room, b"\0"), start)
    os.close(memory)


def main() -> None:
    spare = sys.argv[1:] == ["--spare"]
    os.closerange(READY_FD + 1 + spare, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(READY_FD, False)
    if spare:
        arguments, env = _await_order()
    else:
        arguments = sys.argv[1:]
        env = {name: value for name, value in os.environ.items() if name != SHIM_VAR}
    state, logs, max_bytes, keep, grace, *argv = arguments
    lock = os.open(f"{state}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _say("busy\n")
    if os.path.exists(f"{state}/exit") or os.path.exists(f"{state}/pids"):
        return _say("busy\n")  # it ran already: never twice
    _set(PR_SET_NAME, b"moorage-shim")
    _set(PR_SET_CHILD_SUBREAPER, 1)
    shim = Shim(state, float(grace))
    shim.handle_signals()
    failure = shim.start(argv, env, (logs, int(max_bytes), int(keep)))
    if failure:
        _replace(f"{state}/exit", f'{{"code": 127, "oom": 0, "forced": 0, "exec": {failure}}}')
        return _say(f"exec {failure}\n")
    boot = _read("/proc/sys/kernel/random/boot_id").strip()
    started = _start_time(shim.main)
    _replace(f"{state}/pids", f"{os.getpid()} {_start_time(os.getpid())} {shim.main} {started} {boot}\n")
    _say(f"started {shim.main} {started}\n")
    shim.watch()
    shim.write_exit()
    return None


if __name__ == "__main__":
    main()
