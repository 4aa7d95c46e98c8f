"""Command shim: the supervisor process of one command in a process kernel (``moorage exec``,
decision 12).

Run by the process runtime as ``python -I -S command_shim.py SHIM_PID SHIM_START MAIN_PID MAIN_START
SANDBOX TTY DIRECTORY PROGRAM [ARG ...]``. Descriptors 0 to 2 are the command's input and outputs.
It writes one line ``exit STATUS`` (a waitpid status) to descriptor 3. Descriptor 4 is a pipe that
is closed when the client disconnects. Descriptor 6 holds the command's environment, which must not
be the environment of this process, because the dynamic linker would obey it. The program uses
little of the standard library, because every import delays every command.

* It is a child subreaper, so no process of the command can escape it. Background processes of the
  command live on until the supervisor of the kernel exits; then all of them are killed.
* With SANDBOX (``sandbox.py``; "" for none) the command joins the namespaces of the main program,
  and gets no right that the main program lacks. Its background processes are then reaped by process
  1 of the kernel.
* When the agent dies, pipe 4 is closed, which disconnects the client.
* It inherits a shared lock as descriptor 5. The removal of the kernel waits for that lock, and so
  for all processes of its commands.
"""

from __future__ import annotations

# The C modules are imported directly, because importing ``ctypes`` and ``signal`` takes 4 ms and 5
# ms.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import select
import sys
import termios

if __name__ != "__main__":
    from moorage.agent.runtimes.process.sandbox import (
        CLONE_NEWIPC,
        CLONE_NEWNET,
        CLONE_NEWNS,
        CLONE_NEWPID,
        Sandbox,
        join,
    )
elif sys.argv[5]:
    # This module is beside this program in the state directory. Only kernels in a sandbox pay for
    # the import.
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    from process_sandbox import (  # type: ignore[import-not-found,no-redef]
        CLONE_NEWIPC,
        CLONE_NEWNET,
        CLONE_NEWNS,
        CLONE_NEWPID,
        Sandbox,
        join,
    )

    del sys.path[0]

STATUS_FD = 3
CONTROL_FD = 4
LOCK_FD = 5
ENVIRON_FD = 6
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
DISCONNECT_GRACE_S = 10.0
EXEC_TIMEOUT_MS = 2_000
_prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]


def _prctl_set(option: int, value: int | bytes) -> None:
    """Call prctl(2). It fails only for unknown options, and Linux has supported these since 3.4."""
    _ctypes.call_function(_prctl, (option, value, 0, 0, 0))


def _stat_fields(pid: str) -> list[str]:
    """Fields of ``/proc/PID/stat`` after the program name: state, parent, ...; empty if the process
    has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _open_pidfd(pid: int, start: int) -> int:
    """A pidfd for exactly this process, readable once it has exited; -1 if it has already
    exited."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1

    fields = _stat_fields(str(pid))
    if not fields or fields[0] in "ZX" or int(fields[19]) != start:
        os.close(pidfd)
        return -1

    return pidfd


class Supervisor:
    """The supervisor. ``sandbox``: the sandbox of the kernel's main program, or None;
    ``kernel_main``: a pidfd for that program."""

    def __init__(self, kernel_pidfd: int, sandbox: Sandbox | None, kernel_main: int) -> None:
        self.kernel_pidfd = kernel_pidfd
        self.sandbox = sandbox
        self.kernel_main = kernel_main
        self.main = 0
        self.status: int | None = None  # the command's status from waitpid
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poll = select.poll()
        for fd in (kernel_pidfd, CONTROL_FD, self.wake_r):
            self.poll.register(fd, select.POLLIN)

        self.kill_now = False

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_w)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGALRM, self._on_alarm)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)

    def _on_alarm(self, *_: object) -> None:
        self.kill_now = True

    def start(self, argv: list[str], env: dict[str, str], directory: str, tty: bool) -> None:
        own_pid = os.getpid()
        exec_r, exec_w = os.pipe2(os.O_CLOEXEC)
        if self.sandbox is not None:
            join(self.kernel_main, CLONE_NEWPID)

        self.main = os.fork()
        if self.main == 0:
            self._exec_child(argv, env, directory=directory, tty=tty, parent=own_pid)

        os.close(exec_w)
        # Wait for the exec. Before the exec, a SIGHUP would find no process group, or a group that
        # ignores it.
        exec_poll = select.poll()
        exec_poll.register(exec_r)
        exec_poll.poll(EXEC_TIMEOUT_MS)
        os.close(exec_r)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)  # so that only the command holds its outputs open

        os.close(null)

    def _exec_child(
        self, argv: list[str], env: dict[str, str], directory: str, tty: bool, *, parent: int
    ) -> None:
        code = 127
        try:
            os.setsid()
            if tty:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if self.sandbox is not None:
                self._enter_sandbox(self.sandbox)

            _prctl_set(PR_SET_PDEATHSIG, 9)
            if os.getppid() not in (parent, 0):  # 0 if the parent is in another pid namespace
                os._exit(127)  # the supervisor died before PDEATHSIG was set

            os.chdir(directory)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
                try:
                    signal.signal(number, signal.SIG_DFL)
                except OSError:
                    pass

            os.execvpe(argv[0], argv, env)
        except (OSError, ValueError) as error:
            message = error.strerror if isinstance(error, OSError) else str(error)
            if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.ENOEXEC):
                code = 126

            os.write(2, f"moorage: cannot run {argv[0]!r} in the session: {message}\n".encode())

        os._exit(code)

    def _enter_sandbox(self, sandbox: Sandbox) -> None:
        sandbox.join_groups()
        join(self.kernel_main, CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)
        sandbox.give_outputs()
        sandbox.drop_privileges()

    def reap(self) -> bool:
        """Reap all exited children. Returns False if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False

            if not pid:
                return True

            if pid == self.main:
                self.status = status
                try:
                    os.write(STATUS_FD, b"exit %d\n" % status)
                except OSError:
                    pass  # the client has disconnected

                os.close(STATUS_FD)
                signal.setitimer(signal.ITIMER_REAL, 0)

    def kill_group(self, number: int) -> None:
        if self.status is not None:
            return  # the process group id may have been reused
        try:
            os.killpg(self.main, number)
        except OSError:
            pass

    def kill_children(self) -> None:
        """Send SIGKILL to every child. Their children are reparented to this process, so repeated
        calls kill the whole tree."""
        own_pid = str(os.getpid())
        for name in os.listdir("/proc"):
            if name.isdigit() and _stat_fields(name)[1:2] == [own_pid]:
                try:
                    os.kill(int(name), 9)  # the child is unreaped, so its pid is not reused
                except OSError:
                    pass

    def watch(self) -> None:
        """Supervise until none of the command's processes is left."""
        while self.reap():
            if self.kill_now:
                self.kill_now = False
                self.kill_group(9)

            for fd, _ in self.poll.poll(20 if self.kernel_pidfd < 0 else None):
                if fd == self.wake_r:
                    try:
                        os.read(fd, 512)
                    except BlockingIOError:
                        pass
                elif fd == CONTROL_FD:
                    self.poll.unregister(fd)
                    self.kill_group(signal.SIGHUP)
                    self.kill_group(signal.SIGCONT)
                    signal.setitimer(signal.ITIMER_REAL, DISCONNECT_GRACE_S, 0.1)
                else:
                    self.poll.unregister(fd)
                    self.kernel_pidfd = -1

            if self.kernel_pidfd < 0:
                self.kill_children()


def _read_environment() -> dict[str, str]:
    with open(ENVIRON_FD, "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def main() -> None:
    os.closerange(ENVIRON_FD + 1, os.sysconf("SC_OPEN_MAX"))
    for fd in (STATUS_FD, CONTROL_FD, LOCK_FD, ENVIRON_FD):
        os.set_inheritable(fd, False)

    pid, start, main_pid, main_start, encoded, tty, directory, *argv = sys.argv[1:]
    # The lock is already held. When a kernel is removed, its supervisor is terminated first, and
    # then the lock is taken.
    kernel_pidfd = _open_pidfd(int(pid), int(start))
    if kernel_pidfd < 0:
        return

    _prctl_set(PR_SET_NAME, b"moorage-exec")
    _prctl_set(PR_SET_CHILD_SUBREAPER, 1)
    sandbox = None
    kernel_main = -1
    if encoded:
        sandbox = Sandbox.decode(encoded)
        kernel_main = _open_pidfd(int(main_pid), int(main_start))
        if kernel_main < 0:
            return

    supervisor = Supervisor(kernel_pidfd, sandbox, kernel_main)
    supervisor.handle_signals()
    supervisor.start(argv, _read_environment(), directory, tty == "1")
    supervisor.watch()


if __name__ == "__main__":
    main()
