"""Shim: supervisor process of one process kernel. Outlives the agent, writes the log, records the exit.

Run by the process runtime as ``python -I -S process_shim.pyc STATE_DIR LOG_DIR LOG_MAX_BYTES LOG_KEEP GRACE_S
LEASE_S CONTACT LEASE_FILE PROGRAM [ARG ...]``, in the environment of the kernel. It writes one status line to
descriptor 3: ``started PID START``, ``exec ERRNO`` or ``busy``. With ``--prestarted`` alone it reads its
arguments and environment from descriptor 4 (``prestarted_shim.py``), and exits if none arrive.

It takes the place of systemd-run, supervisord or tini (decision 3). It uses little of the standard library,
because every import delays the start of every kernel (decision 15).

* It is a child subreaper, so no process of the kernel can escape it. When the main program exits, all other
  processes are killed before the exit is recorded.
* It forwards SIGTERM to the main program, and kills everything after the grace period (the file ``grace`` in
  STATE_DIR, else GRACE_S). Each further SIGTERM reads the grace period again, which shortens a stop.
* With LEASE_S it ends the program, as after SIGTERM, when so many seconds have passed since the last contact
  of the node with a manager: CONTACT, or a later one in LEASE_FILE, both in seconds since boot.
* It writes ``pids`` and ``exit`` in STATE_DIR by atomic rename, without fsync: after a crash of the machine
  the processes have ended too, and the boot id in ``pids`` reveals that.
"""

from __future__ import annotations

# The C modules directly: importing ``ctypes`` and ``signal`` takes 4 ms and 5 ms.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import select
import sys
import time

STATUS_FD, LEASE_POLL_S = 3, 30
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
SHIM_VAR, ENV_PADDING, ORDER_END = "MOORAGE_SHIM", "MOORAGE_ENV_PADDING", "end of order"
_prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]


def _prctl_set(option: int, value: int | bytes) -> None:
    """prctl(2). It fails only for unknown options, and Linux has supported these since 3.4."""
    _ctypes.call_function(_prctl, (option, value, 0, 0, 0))


def _replace(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, text.encode())
    os.close(fd)
    os.replace(temporary, path)


def exec_program(argv: list[str], env: dict[str, str]) -> None:
    """Like ``os.execvpe``, which first imports ``warnings`` and takes 0.8 ms longer."""
    name, first_error = argv[0], None
    if "/" in name:
        os.execve(name, argv, env)
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, name), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            first_error = first_error or error
    raise first_error or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _read(path: str) -> str:
    """Content of a file, "" if unreadable. Without ``open``, which takes several times as long."""
    pieces = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        while piece := os.read(fd, 65_536):
            pieces.append(piece)
    except OSError:
        pass  # a file of /proc whose process has exited
    os.close(fd)
    return os.fsdecode(b"".join(pieces))


def _number(path: str, default: float) -> float:
    try:
        return float(_read(path) or default)
    except ValueError:
        return default


def _ignored_signals() -> list[int]:
    """The signals that a program would inherit as ignored. Exec itself resets those with a handler."""
    candidates = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    return [number for number in candidates if signal.getsignal(number) == signal.SIG_IGN]


def _start_time(pid: int) -> int:
    # Field 22. The program name before it may contain spaces and brackets: count from the last bracket.
    return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])


def _oom_kills() -> int:
    """Number of OOM kills in the control group of this process so far."""
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
            self.fd = -1  # a full or missing disk must not stop the kernel

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
    def __init__(self, state: str, grace_s: float, lease_s: float, contact: float, lease_file: str) -> None:
        self.state, self.grace_s = state, grace_s
        self.lease_s, self.contact, self.lease_file = lease_s, contact, lease_file
        self.main = 0
        self.status: int | None = None  # of the main program, as waitpid gives it
        self.terminate = self.expired = self.stopping = self.killed = self.lease_expired = False
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.log_r, self.log_w = os.pipe2(os.O_CLOEXEC)

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "terminate", True))
        signal.signal(signal.SIGALRM, lambda *_: setattr(self, "expired", True))
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def start(self, argv: list[str], env: dict[str, str], log: tuple[str, int, int]) -> int:
        """Start the main program. Returns 0 or the errno of the exec. ``log``: arguments of ``Log``."""
        failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
        shim_pid, reset = os.getpid(), _ignored_signals()
        self.main = os.fork()
        if self.main == 0:
            self._exec_child(argv, env, failed_w, shim_pid, reset)
        # The rest of the setup runs while the child executes the program.
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

    def _exec_child(
        self, argv: list[str], env: dict[str, str], failed_w: int, parent: int, reset: list[int]
    ) -> None:
        code = 0
        try:
            os.setsid()
            _prctl_set(PR_SET_PDEATHSIG, 9)
            if os.getppid() != parent:
                os._exit(127)  # the shim died before PDEATHSIG was set
            os.dup2(self.log_w, 1)
            os.dup2(self.log_w, 2)
            os.chdir(f"{self.state}/work")
            signal.set_wakeup_fd(-1)
            for number in reset:
                signal.signal(number, signal.SIG_DFL)
            exec_program(argv, env)
        except OSError as error:
            code = error.errno or 22
        except ValueError:
            code = 22
        os.write(failed_w, b"%d" % code)
        os._exit(127)

    def copy_output(self) -> None:
        """Copy the available output into the log, without waiting for more."""
        piece = min(65_536, self.log.max_bytes)  # one write must not exceed the size of a log file
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

    def wait_for_event(self, timeout_ms: int | None) -> None:
        for fd, _ in self.poll.poll(timeout_ms):
            if fd == self.log_r:
                self.copy_output()
            else:
                os.read(self.wake_r, 512)

    def reap(self) -> bool:
        """Reap all exited children. False: no child is left."""
        while True:
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if exited is None:
                    return True
                if exited.si_pid == self.main:
                    # Before it is reaped, while its process group id cannot be reused.
                    self.kill_group(9)
                _, status = os.waitpid(exited.si_pid, 0)
            except ChildProcessError:
                return False
            if exited.si_pid == self.main:
                self.status = status

    def kill_group(self, number: int) -> None:
        try:
            os.killpg(self.main, number)
        except OSError:
            pass

    def kill_children(self) -> None:
        """Send SIGKILL to every child. Orphans are reparented here: repeated calls kill the whole tree."""
        own_pid = str(os.getpid())
        for name in os.listdir("/proc"):
            if name.isdigit() and _read(f"/proc/{name}/stat").rpartition(")")[2].split()[1:2] == [own_pid]:
                try:
                    os.kill(int(name), 9)  # an unreaped child: its pid is not reused
                except OSError:
                    pass

    def on_terminate(self) -> None:
        self.terminate = False
        if not self.stopping:
            self.stopping = True
            try:
                os.kill(self.main, signal.SIGTERM)
            except OSError:
                pass
        grace = _number(f"{self.state}/grace", self.grace_s)
        # Repeated, because a signal that arrives between the check of the flag and the poll would be lost.
        signal.setitimer(signal.ITIMER_REAL, max(grace, 0.0001), 0.1)

    def check_lease(self) -> int | None:
        """End the program if its lease has run out. Returns the milliseconds until the next check."""
        if not self.lease_s or self.stopping:
            return None
        left = self.contact + self.lease_s - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            newest = _number(self.lease_file, self.contact)
            self.contact, left = newest, left + newest - self.contact
        if left <= 0:
            self.lease_expired = self.terminate = True
        # The poll does not count suspended time: look again before long.
        return max(0, int(min(left, LEASE_POLL_S) * 1000) + 1)

    def watch(self) -> None:
        """Supervise until the main program has exited and no other process of the kernel is left."""
        while self.status is None:
            self.wait_for_event(self.check_lease())
            self.reap()
            if self.status is None and self.terminate:
                self.on_terminate()
            if self.status is None and self.expired:
                self.expired, self.killed = False, True
                self.kill_group(9)
                self.kill_children()
        while self.reap():
            self.kill_children()
            self.wait_for_event(20)
        if self.log_r >= 0:
            self.copy_output()

    def write_exit(self) -> None:
        status = self.status or 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = -number if number else os.WEXITSTATUS(status)
        oom = number == 9 and not self.killed and _oom_kills() > self.oom_before
        text = f'{{"code": {code}, "oom": {int(oom)}, "forced": {int(self.killed)}, "exec": 0, '
        text += f'"lease": {int(self.lease_expired)}}}'
        _replace(f"{self.state}/exit", text)


def _report(text: str) -> None:
    try:
        os.write(STATUS_FD, text.encode())
        os.close(STATUS_FD)
    except OSError:
        pass  # the agent has died; the next one reads the files


def _await_order() -> tuple[list[str], dict[str, str]]:
    """Read the order of a prestarted shim: identifying variables, arguments, environment of the program."""
    os.get_exec_path({})  # imports on first use, which must not happen between fork and exec
    pieces = []
    while piece := os.read(STATUS_FD + 1, 65_536):
        pieces.append(piece)
    os.close(STATUS_FD + 1)
    # Fields: count of all fields, count of variables, the variables, count of arguments, the arguments, the
    # environment, ORDER_END.
    fields = os.fsdecode(b"".join(pieces)).split("\0")
    if fields.pop() != ORDER_END or len(fields) != int(fields[0]):
        os._exit(0)  # the agent has exited or dismissed this shim
    end = int(fields[1]) + 2
    variables, (count, *rest) = fields[2:end], fields[end:]
    _overwrite_environ(variables)
    arguments, env = rest[: int(count)], rest[int(count) :]
    log = os.open(f"{arguments[0]}/shim.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    return arguments, dict(entry.split("=", 1) for entry in env)


def _overwrite_environ(variables: list[str]) -> None:
    """Replace the content of /proc/PID/environ, the memory that held the environment at the start."""
    start, end = (int(field) for field in _read("/proc/self/stat").rpartition(")")[2].split()[47:49])
    size = end - start
    text = os.fsencode("".join(f"{variable}\0" for variable in [*variables, f"{SHIM_VAR}=1"]))
    if len(text) > size:
        os._exit(1)
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    os.pwrite(memory, text.ljust(size, b"\0"), start)
    os.close(memory)


def main() -> None:
    prestarted = sys.argv[1:] == ["--prestarted"]
    os.closerange(STATUS_FD + 1 + prestarted, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(STATUS_FD, False)
    if prestarted:
        arguments, env = _await_order()
    else:
        arguments = sys.argv[1:]
        env = {name: value for name, value in os.environ.items() if name != SHIM_VAR}
    state, logs, max_bytes, keep, grace, lease, contact, lease_file, *argv = arguments
    lock = os.open(f"{state}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _report("busy\n")
    if os.path.exists(f"{state}/exit") or os.path.exists(f"{state}/pids"):
        return _report("busy\n")  # it was started before; a kernel is never started twice
    _prctl_set(PR_SET_NAME, b"moorage-shim")
    _prctl_set(PR_SET_CHILD_SUBREAPER, 1)
    shim = Shim(state, float(grace), float(lease), float(contact), lease_file)
    shim.handle_signals()
    failure = shim.start(argv, env, (logs, int(max_bytes), int(keep)))
    if failure:
        _replace(f"{state}/exit", f'{{"code": 127, "oom": 0, "forced": 0, "exec": {failure}}}')
        return _report(f"exec {failure}\n")
    boot = _read("/proc/sys/kernel/random/boot_id").strip()
    started = _start_time(shim.main)
    _replace(f"{state}/pids", f"{os.getpid()} {_start_time(os.getpid())} {shim.main} {started} {boot}\n")
    _report(f"started {shim.main} {started}\n")
    shim.watch()
    shim.write_exit()
    return None


if __name__ == "__main__":
    main()
