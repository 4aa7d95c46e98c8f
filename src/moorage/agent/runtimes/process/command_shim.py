"""The supervisor of one command that is run inside a process kernel (``moorage exec``).

Run by the process runtime as ``python -I -S command_shim.py SHIM_PID SHIM_START TTY DIRECTORY PROGRAM [ARG
...]``, with the kernel's environment as its own. The command's input and outputs are file descriptors 0 to 2;
on 3 it says once ``exit STATUS`` (as waitpid gives it); 4 is a pipe whose end means that the user has left.
Standard library only, and little of it: every import delays every command.

* It is a child subreaper: nothing that the command starts can escape it. What is left in the background lives
  on, and dies with the kernel: when the kernel's supervisor has ended, all of it is killed.
* It outlives the agent, but the user does not: the agent's death is the end of pipe 4.
* It holds, as descriptor 5, a lock that was taken before it was started: whoever removes the kernel can wait
  until nothing of this is left.
"""

from __future__ import annotations

# The C modules themselves: what Python wraps around these two costs 4 ms and 5 ms at import.
import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import sys
import termios

SAY_FD, CONTROL_FD, LOCK_FD = 3, 4, 5
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
DISCONNECT_GRACE_S = 10.0
BEGIN_MS = 2_000
_prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]


def _set(option: int, value: int | bytes) -> None:
    """prctl(2). It fails only for options that the kernel does not know, and it has known these since 3.4."""
    _ctypes.call_function(_prctl, (option, value, 0, 0, 0))


def _fields(pid: str) -> list[str]:
    """Of ``/proc/PID/stat`` after the program's name: state, parent, ...; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _pinned(pid: int, start: int) -> int:
    """A descriptor that is readable once this very process has ended; -1 if it has."""
    try:
        pin = os.pidfd_open(pid)
    except OSError:
        return -1
    fields = _fields(str(pid))
    if not fields or fields[0] in "ZX" or int(fields[19]) != start:
        os.close(pin)
        return -1
    return pin


class Supervisor:
    def __init__(self, pin: int) -> None:
        self.pin, self.main = pin, 0
        self.status: int | None = None  # of the command, as waitpid gives it
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poll = select.poll()
        for fd in (pin, CONTROL_FD, self.wake_r):
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

    def start(self, argv: list[str], directory: str, tty: bool) -> None:
        me = os.getpid()
        begun_r, begun_w = os.pipe2(os.O_CLOEXEC)
        self.main = os.fork()
        if self.main == 0:
            self._become(argv, directory, tty, me)
        os.close(begun_w)
        # Until it is the command: a hang-up before that would find no group, or one that ignores it.
        begun = select.poll()
        begun.register(begun_r)
        begun.poll(BEGIN_MS)
        os.close(begun_r)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)  # only the command's own hands keep its outputs open
        os.close(null)

    def _become(self, argv: list[str], directory: str, tty: bool, parent: int) -> None:
        code = 127
        try:
            os.setsid()
            if tty:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            _set(PR_SET_PDEATHSIG, 9)
            if os.getppid() != parent:
                os._exit(127)  # the supervisor died before the line above
            os.chdir(directory)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
                try:
                    signal.signal(number, signal.SIG_DFL)
                except OSError:
                    pass
            os.execvpe(argv[0], argv, os.environ)
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            if isinstance(error, PermissionError):
                code = 126
            os.write(2, f"moorage: cannot run {argv[0]!r} in the session: {words}\n".encode())
        os._exit(code)

    def reap(self) -> bool:
        """Take in every child that has ended. False: no child is left."""
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
                    os.write(SAY_FD, b"exit %d\n" % status)
                except OSError:
                    pass  # nobody is there to be told
                os.close(SAY_FD)
                signal.setitimer(signal.ITIMER_REAL, 0)

    def kill_group(self, number: int) -> None:
        if self.status is not None:
            return  # by now that number may be somebody else's
        try:
            os.killpg(self.main, number)
        except OSError:
            pass

    def kill_children(self) -> None:
        """SIGKILL for every child. Their children become ours in turn: repeated, this ends all of them."""
        me = str(os.getpid())
        for name in os.listdir("/proc"):
            if name.isdigit() and _fields(name)[1:2] == [me]:
                try:
                    os.kill(int(name), 9)  # our own child, not reaped yet: the number is still its own
                except OSError:
                    pass

    def watch(self) -> None:
        """Until nothing of the command is left."""
        while self.reap():
            if self.kill_now:
                self.kill_now = False
                self.kill_group(9)
            for fd, _ in self.poll.poll(20 if self.pin < 0 else None):
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
                    self.pin = -1
            if self.pin < 0:
                self.kill_children()


def main() -> None:
    os.closerange(LOCK_FD + 1, os.sysconf("SC_OPEN_MAX"))
    for fd in (SAY_FD, CONTROL_FD, LOCK_FD):
        os.set_inheritable(fd, False)
    pid, start, tty, directory, *argv = sys.argv[1:]
    # With the lock in hand: who removes the kernel has ended its supervisor before it asks for the lock.
    pin = _pinned(int(pid), int(start))
    if pin < 0:
        return
    _set(PR_SET_NAME, b"moorage-exec")
    _set(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = Supervisor(pin)
    supervisor.handle_signals()
    supervisor.start(argv, directory, tty == "1")
    supervisor.watch()


if __name__ == "__main__":
    main()
