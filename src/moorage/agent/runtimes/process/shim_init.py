"""Process 1 of a sandbox, as a fork of the shim (decision 23).

It starts the main program, reaps orphans, and exits with the main program, which terminates every
other process of the kernel. It ends with its shim.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import select
import sys

if "moorage" in sys.modules:
    from moorage.agent.runtimes.process import shim_system as system
    from moorage.agent.runtimes.process.sandbox import CLONE_NEWPID, Sandbox, enter_network, unshare
else:
    import process_system as system  # type: ignore[import-not-found,no-redef]
    from process_sandbox import (  # type: ignore[import-not-found,no-redef]
        CLONE_NEWPID,
        Sandbox,
        enter_network,
        unshare,
    )


class Init:
    """A kernel's process 1, from the shim's point of view. ``encoded``: the sandbox. ``network``:
    the file of its network namespace. ``state``: the kernel's directory. ``argv`` and ``env``: the
    arguments and environment of the main program, whose output goes to ``log_w``. Raises
    ``OSError``."""

    def __init__(
        self,
        encoded: str,
        network: str,
        state: str,
        argv: list[str],
        *,
        env: dict[str, str],
        log_w: int,
    ) -> None:
        self._report_r, report_w = os.pipe2(os.O_CLOEXEC)
        self._status_r, status_w = os.pipe2(os.O_CLOEXEC)
        unshare(CLONE_NEWPID)
        self.pid = os.fork()
        if self.pid == 0:
            _Child(report_w, status_w, log_w).run(encoded, network, state=state, argv=argv, env=env)

        os.close(report_w)
        os.close(status_w)

    def read_report(self) -> str:
        """Wait for the start. The report is "PID", "PID ERRNO" if the exec failed, or "sandbox
        ERROR"."""
        report = b""
        while piece := os.read(self._report_r, 512):
            report += piece
        os.close(self._report_r)
        return report.decode()

    def main_status(self) -> int:
        """The main program's status from waitpid, once process 1 has ended, or SIGKILL if it did
        not report one."""
        os.set_blocking(self._status_r, False)
        try:
            return int(os.read(self._status_r, 16) or 9)
        except BlockingIOError:
            return 9


class _Child:
    """Process 1 itself. ``run`` never returns."""

    def __init__(self, report_w: int, status_w: int, log_w: int) -> None:
        self.report_w = report_w
        self.status_w = status_w
        self.log_w = log_w

    def run(
        self, encoded: str, network: str, state: str, argv: list[str], *, env: dict[str, str]
    ) -> None:
        try:
            self._run(encoded, network, state=state, argv=argv, env=env)
        except (OSError, ValueError) as error:
            os.write(self.report_w, f"sandbox {error}".encode())
        os._exit(127)

    def _run(
        self, encoded: str, network: str, state: str, argv: list[str], *, env: dict[str, str]
    ) -> None:
        system.prctl_set(system.PR_SET_NAME, b"moorage-init")
        reset = system.ignored_signals()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)  # process 1 ignores these signals

        system.clear_environ()
        self._close_all_but(0, 1, 2, self.report_w, self.status_w, self.log_w)
        self._die_with_shim()
        sandbox = Sandbox.decode(encoded)
        sandbox.join_groups()
        node_proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        enter_network(network)
        sandbox.mount()
        main = os.fork()
        if main == 0:
            self._exec(sandbox, state, argv=argv, env=env, node_proc=node_proc, reset=reset)

        sandbox.drop_privileges()
        self._die_with_shim()  # the change of the uid has reset it
        self._close_all_but(self.status_w)

        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == main:
                os.write(self.status_w, b"%d" % status)
                os._exit(0)

    def _die_with_shim(self) -> None:
        system.prctl_set(system.PR_SET_PDEATHSIG, 9)
        reader = select.poll()
        reader.register(self.log_w, 0)
        if reader.poll(0):
            os._exit(127)  # no one reads the log because the shim has died

    @staticmethod
    def _close_all_but(*kept: int) -> None:
        first = 0
        for fd in sorted(kept):
            if first < fd:  # an empty range from 0 would mean all numbers
                os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))

    def _exec(
        self,
        sandbox: Sandbox,
        state: str,
        argv: list[str],
        env: dict[str, str],
        *,
        node_proc: int,
        reset: list[int],
    ) -> None:
        code = 0
        try:
            # This process's pid outside, from where /proc was mounted.
            os.write(self.report_w, os.fsencode(os.readlink("self", dir_fd=node_proc)) + b" ")
            os.setsid()
            os.dup2(self.log_w, 1)
            os.dup2(self.log_w, 2)
            os.chdir(f"{state}/work")
            for number in reset:
                signal.signal(number, signal.SIG_DFL)

            sandbox.give_outputs()
            sandbox.drop_privileges()
            system.exec_program(argv, env)
        except OSError as error:
            code = error.errno or 22
        except ValueError:
            code = 22

        os.write(self.report_w, b"%d" % code)
        os._exit(127)
