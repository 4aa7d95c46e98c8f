"""Shim: the supervisor process of one process kernel, which outlives the agent, writes the log and
records the exit.

Run by the process runtime as ``python -I -S process_shim.pyc``. It reads its arguments and the
kernel's environment from descriptor 4 (``shim_start.py``). The arguments are STATE_DIR LOG_DIR
LOG_MAX_BYTES LOG_KEEP GRACE_S LEASE_S CONTACT LEASE_FILE SANDBOX NETWORK PORTS PROGRAM [ARG ...].
It writes one status line to descriptor 3: ``started PID START``, ``exec ERRNO``, ``sandbox ERROR``,
``state ERRNO``, ``port PORT ERRNO`` or ``busy``.

It takes the place of systemd-run, supervisord or tini (decision 3). It uses little of the standard
library, because every import delays the start of every kernel (decision 15).

* It is a child subreaper, so no process of the kernel can escape it. When the main program exits,
  all other processes are killed before the exit is recorded.
* With SANDBOX (``sandbox.py``; "" for none), the main program is a child of process 1 in a new pid
  namespace, which is a fork of the shim. All of the kernel's processes end with process 1, and
  process 1 ends with the shim.
* With NETWORK, the main program runs in that network namespace, and the shim takes the PORTS on the
  node (``21000,21001``) at which it is published, so that no other program can listen there while
  the kernel runs.
* It forwards SIGTERM to the main program, and kills everything after the grace period (from the
  file ``grace`` in STATE_DIR, otherwise GRACE_S). Each further SIGTERM reads the grace period
  again, which shortens a stop.
* With LEASE_S, it stops the program, as after SIGTERM, when that many seconds have passed since the
  node's last contact with a manager. This is CONTACT, or a later contact in LEASE_FILE, both in
  seconds since boot.
* It writes ``pids`` and ``exit`` in STATE_DIR by atomic rename, without fsync, because the
  processes do not survive a crash of the machine either, which the boot id in ``pids`` reveals. It
  reserves the space for both before it starts the program, and does not start it otherwise, so that
  an exit is recorded even if the disk has filled up since.
"""

from __future__ import annotations

# The C module is imported directly, because importing ``signal`` takes 5 ms.
import _signal as signal  # type: ignore[import-not-found]
import errno
import fcntl
import marshal
import os
import select
import sys
import time

if __name__ == "__main__":
    # These modules are beside this program in the state directory, because Moorage's packages take
    # too long to import.
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    import process_system as system  # type: ignore[import-not-found]
    from process_init import Init  # type: ignore[import-not-found]
    from process_log import Log  # type: ignore[import-not-found]
    from process_sandbox import Sandbox  # type: ignore[import-not-found]

    del sys.path[0]
else:
    from moorage.agent.runtimes.process import shim_system as system
    from moorage.agent.runtimes.process.sandbox import Sandbox
    from moorage.agent.runtimes.process.shim_init import Init
    from moorage.agent.state.log_writer import Log

STATUS_FD = 3
ORDER_FD = 4
LEASE_POLL_S = 30
_held_ports: list[object] = []
SHIM_VAR = "MOORAGE_SHIM"


def _oom_kills() -> int:
    """The number of OOM kills so far in this process's control group."""
    for line in system.read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            events = system.read(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        elif not controllers:
            events = system.read(f"/sys/fs/cgroup{path}/memory.events")
        else:
            continue

        for event in events.splitlines():
            if event.startswith("oom_kill "):
                return int(event.split()[1])

    return 0


class Shim:
    """The shim. ``child``: the ancestor of all other processes, with which the kernel ends: the
    main program, or process 1 (``init``) of its ``sandbox``."""

    def __init__(
        self,
        state: str,
        grace_s: float,
        lease: tuple[float, float, str],
        sandbox: str,
        *,
        network: str,
    ) -> None:
        self.state = state
        self.grace_s = grace_s
        self.sandbox = sandbox
        self.network = network
        self.init: Init | None = None
        self.lease_s, self.contact, self.lease_file = lease
        self.main = 0
        self.child = 0
        self.main_pidfd = -1
        self.status: int | None = None  # the main program's status from waitpid
        self.terminate = False
        self.expired = False
        self.stopping = False
        self.killed = False
        self.lease_expired = False
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.log_r, self.log_w = os.pipe2(os.O_CLOEXEC)

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "terminate", True))
        signal.signal(signal.SIGALRM, lambda *_: setattr(self, "expired", True))
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def start(self, argv: list[str], env: dict[str, str], log: tuple[str, int, int]) -> str:
        """Start the main program. Returns "", or the status line for a failure. ``log``: the
        arguments for ``Log``."""
        failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
        if self.sandbox:
            self.init = Init(
                self.sandbox,
                self.network,
                state=self.state,
                argv=argv,
                env=env,
                log_w=self.log_w,
            )
            self.child = self.init.pid
        else:
            shim_pid = os.getpid()
            reset = system.ignored_signals()
            self.main = os.fork()
            self.child = self.main
            if self.child == 0:
                self._exec_child(argv, env, failed_w=failed_w, parent=shim_pid, reset=reset)

        # The rest of the setup runs while the child is executing the program.
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
        if self.init is not None:
            return self._started(self.init.read_report())

        return f"exec {int(failure)}" if failure else ""

    def _started(self, report: str) -> str:
        pid, _, failure = report.partition(" ")
        if not pid.isdigit():
            return report or "sandbox its process 1 was killed"
        self.main = int(pid)
        try:
            self.main_pidfd = os.pidfd_open(self.main)
        except OSError:
            pass  # it has already exited
        return f"exec {failure}" if failure.isdigit() else failure

    def _exec_child(
        self, argv: list[str], env: dict[str, str], failed_w: int, parent: int, *, reset: list[int]
    ) -> None:
        code = 0
        try:
            os.setsid()
            system.prctl_set(system.PR_SET_PDEATHSIG, 9)
            if os.getppid() != parent:
                os._exit(127)  # the shim died before PDEATHSIG was set

            os.dup2(self.log_w, 1)
            os.dup2(self.log_w, 2)
            os.chdir(f"{self.state}/work")
            signal.set_wakeup_fd(-1)
            for number in reset:
                signal.signal(number, signal.SIG_DFL)

            system.exec_program(argv, env)
        except OSError as error:
            code = error.errno or 22
        except ValueError:
            code = 22

        os.write(failed_w, b"%d" % code)
        os._exit(127)

    def copy_output(self) -> None:
        """Copy the available output into the log, without waiting for more."""
        piece = min(
            65_536, self.log.max_bytes
        )  # a single write must not exceed the size of a log file
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
        """Reap all exited children. Returns False if no child is left."""
        while True:
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if exited is None:
                    return True
                if exited.si_pid == self.child:
                    # This is done before it is reaped, while its process group id cannot be reused.
                    self.kill_group()

                _, status = os.waitpid(exited.si_pid, 0)
            except ChildProcessError:
                return False

            if exited.si_pid == self.child:
                self.status = status if self.init is None else self.init.main_status()

    def kill_group(self) -> None:
        try:
            if self.init is not None:
                os.kill(self.child, 9)
            else:
                os.killpg(self.child, 9)
        except OSError:
            pass

    def kill_children(self) -> None:
        """Send SIGKILL to every child. Orphans are reparented to this process, so repeated calls
        kill the whole tree."""
        own_pid = str(os.getpid())
        for name in os.listdir("/proc"):
            if name.isdigit() and system.read(f"/proc/{name}/stat").rpartition(")")[2].split()[
                1:2
            ] == [own_pid]:
                try:
                    os.kill(int(name), 9)  # the child is unreaped, so its pid is not reused
                except OSError:
                    pass

    def on_terminate(self) -> None:
        self.terminate = False
        if not self.stopping:
            self.stopping = True
            try:
                if self.init is not None:
                    signal.pidfd_send_signal(self.main_pidfd, signal.SIGTERM)
                else:
                    os.kill(self.main, signal.SIGTERM)
            except OSError:
                pass

        grace = system.number_in(f"{self.state}/grace", self.grace_s)
        # This is repeated, because a signal between the flag check and the poll would be lost.
        signal.setitimer(signal.ITIMER_REAL, max(grace, 0.0001), 0.1)

    def check_lease(self) -> int | None:
        """Stop the program if its lease has expired. Returns the milliseconds until the next
        check."""
        if not self.lease_s or self.stopping:
            return None

        left = self.contact + self.lease_s - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            newest = system.number_in(self.lease_file, self.contact)
            self.contact, left = newest, left + newest - self.contact
        if left <= 0:
            self.lease_expired = True
            self.terminate = True

        # The poll does not count suspended time, so check again soon.
        return max(0, int(min(left, LEASE_POLL_S) * 1000) + 1)

    def watch(self) -> None:
        """Supervise until the main program has exited and none of the kernel's other processes is
        left."""
        while self.status is None:
            self.wait_for_event(self.check_lease())
            self.reap()
            if self.status is None and self.terminate:
                self.on_terminate()

            if self.status is None and self.expired:
                self.expired = False
                self.killed = True
                self.kill_group()
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
        if self.sandbox:
            # Linux may have killed a process other than the main program, which then fails in its
            # own way.
            oom = code != 0 and not self.killed and Sandbox.decode(self.sandbox).oom_kills() > 0
        else:
            oom = number == 9 and not self.killed and _oom_kills() > self.oom_before

        text = f'{{"code": {code}, "oom": {int(oom)}, "forced": {int(self.killed)}, "exec": 0, '
        text += f'"lease": {int(self.lease_expired)}}}'
        system.replace(f"{self.state}/exit", text)


def _take_port(port: int) -> None:
    """Hold one of the node's ports on all its addresses, without listening, until this process
    ends."""
    # The C module is imported directly, and only here, because most kernels have no port.
    import _socket

    try:
        holder = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM)
        holder.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        address = "::"
    except OSError:
        holder = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        address = ""

    # An earlier program's lingering connections do not prevent this. Afterwards, the option is
    # removed, because other programs with the option could otherwise listen there.
    holder.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    holder.bind((address, port))
    holder.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 0)
    _held_ports.append(holder)


def _report(text: str) -> None:
    try:
        os.write(STATUS_FD, text.encode())
        os.close(STATUS_FD)
    except OSError:
        pass  # the agent has died, and the next agent reads the files


def _read_order() -> tuple[list[str], dict[str, str]]:
    """The arguments, and the program's environment."""
    pieces = []
    while piece := os.read(ORDER_FD, 65_536):
        pieces.append(piece)
    os.close(ORDER_FD)
    arguments, env = marshal.loads(b"".join(pieces))
    return arguments, env


def main() -> None:
    os.closerange(ORDER_FD + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(STATUS_FD, False)
    arguments, env = _read_order()
    state, logs, max_bytes, keep, grace, lease, contact, lease_file, *rest = arguments
    encoded, network, ports, *argv = rest
    lock = os.open(f"{state}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _report("busy\n")

    if os.path.exists(f"{state}/exit") or os.path.exists(f"{state}/pids"):
        return _report("busy\n")  # it was already started, and a kernel is never started twice

    try:
        for name in ("pids", "exit"):
            system.reserve(f"{state}/{name}")
    except OSError as error:
        return _report(f"state {error.errno or errno.EIO}\n")

    for port in filter(None, ports.split(",")):
        try:
            _take_port(int(port))
        except OSError as error:
            return _report(f"port {port} {error.errno or errno.EADDRINUSE}\n")

    system.prctl_set(system.PR_SET_NAME, b"moorage-shim")
    system.prctl_set(system.PR_SET_CHILD_SUBREAPER, 1)
    shim = Shim(
        state,
        float(grace),
        lease=(float(lease), float(contact), lease_file),
        sandbox=encoded,
        network=network,
    )
    shim.handle_signals()
    failure = shim.start(argv, env, (logs, int(max_bytes), int(keep)))
    if failure:
        number = failure.removeprefix("exec ")
        code = number if number.isdigit() else str(errno.EPERM)
        system.replace(f"{state}/exit", f'{{"code": 127, "oom": 0, "forced": 0, "exec": {code}}}')
        return _report(f"{failure}\n")

    boot = system.read("/proc/sys/kernel/random/boot_id").strip()
    started = system.start_time(shim.main)
    system.replace(
        f"{state}/pids",
        f"{os.getpid()} {system.start_time(os.getpid())} {shim.main} {started} {boot}\n",
    )
    _report(f"started {shim.main} {started}\n")
    shim.watch()
    shim.write_exit()

    return None


if __name__ == "__main__":
    main()
