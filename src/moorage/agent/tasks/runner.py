"""Task runner: the main program of a kernel with a task list. Runs the command once for each task
that its agent gives it, several at a time, and records each start and end in a journal.

Run as ``python -I -S -c SOURCE OPTIONS COMMAND [ARG ...]``: its text is an argument, because the
image of a container has neither Moorage nor a place for it. It needs Python 3.9 and imports only
the standard library.

OPTIONS is JSON: ``folder``, ``workers``, ``timeout_s`` and ``grace_s``. The agent appends to the
file ``queue`` in the folder, and the runner to ``journal``; both are lines of JSON, and an
incomplete last line is not read. Nothing else connects the two, so either can be killed and
replaced at any moment.

* queue: ``[seq, number, attempt, line]`` for a task, ``{"done": D, "of": N}`` for the progress of
  the whole list, ``{"end": text, "success": bool}`` when no task is left.
* journal: ``{"boot": id}`` first, then ``["S", number, attempt, unix time]`` before a task starts,
  and ``["E", number, attempt, exit code, seconds, output, detail]`` after it has ended.

The journal is not synced to the disk: if the node loses power, its boot id changes, and the agent
no longer trusts what the journal does not say.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any

TAIL_BYTES = 4096
LINE_BYTES = 4096
POLL_MS = 50
PROGRESS_S = 0.5
FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Child:
    """A running task. ``pid``: also its process group."""

    def __init__(self, number: int, attempt: int, pid: int, pipe: int) -> None:
        self.number = number
        self.attempt = attempt
        self.pid = pid
        self.pipe = pipe
        self.started = _now()
        self.tail = b""
        self.line = b""
        self.killed_at = 0.0  # when it is killed, once it is timed_out
        self.timed_out = False
        self.stopped = False


class TaskRunner:
    def __init__(self, options: dict[str, Any], command: list[str]) -> None:
        self.folder = options["folder"]
        self.workers = options["workers"]
        self.timeout_s = options["timeout_s"]
        self.grace_s = options["grace_s"]
        self.command = command
        self.takes_line = any("{}" in word for word in command)
        self.env = dict(os.environ)
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.running: dict[int, Child] = {}  # by pid
        self.pipes: dict[int, Child] = {}  # by descriptor
        self.waiting: list[list[Any]] = []  # the next task last
        self.partial = b""
        self.end: dict[str, Any] | None = None
        self.done = 0
        self.of = 0
        self.progress_at = 0.0
        self.shown = -1
        self.stopping = False
        self.poll = select.poll()
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poll.register(self.wake_r, select.POLLIN)

    # -- files --

    def open(self) -> None:
        os.umask(0)
        os.makedirs(self.folder, exist_ok=True)  # the agent may have another uid
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.queue = os.open(os.path.join(self.folder, "queue"), flags, 0o666)
        self.journal = os.open(os.path.join(self.folder, "journal"), flags, 0o666)
        os.umask(0o022)
        if os.fstat(self.journal).st_size:
            sys.exit("moorage: this kernel has already worked on its tasks")

        self.read_at = 0
        with open("/proc/sys/kernel/random/boot_id") as file:
            self.record({"boot": file.read().strip()})

    def record(self, value: Any) -> None:
        data = json.dumps(value).encode() + b"\n"
        while data:
            data = data[os.write(self.journal, data) :]

    def read_queue(self) -> None:
        while True:
            data = os.pread(self.queue, 1 << 20, self.read_at)
            if not data:
                return
            self.read_at += len(data)
            *lines, self.partial = (self.partial + data).split(b"\n")
            for line in lines:
                try:
                    value = json.loads(line)
                except ValueError:
                    continue  # an agent was killed while it wrote this

                if isinstance(value, list):
                    self.waiting.insert(0, value)
                elif "end" in value:
                    self.end = value
                elif "of" in value:
                    self.done = max(self.done, value["done"])
                    self.of = value["of"]

    def report_progress(self, now: float, last: bool = False) -> None:
        path = self.env.get("MOORAGE_PROGRESS")
        if not path or not self.of or (not last and now - self.progress_at < PROGRESS_S):
            return

        done = min(self.done, self.of)
        if done == self.shown:
            return

        self.progress_at = now
        self.shown = done
        try:
            with open(path, "a") as file:
                file.write(json.dumps({"step": done, "of": self.of, "message": "tasks"}) + "\n")
        except OSError:
            pass  # a full disk must not stop the tasks

    # -- tasks --

    def start(self, number: int, attempt: int, line: str) -> None:
        words = [word.replace("{#}", str(number)).replace("{}", line) for word in self.command]
        if not self.takes_line:
            words.append(line)
        env = dict(self.env, MOORAGE_TASK=str(number), MOORAGE_TASK_ATTEMPT=str(attempt))
        self.record(["S", number, attempt, round(time.clock_gettime(time.CLOCK_REALTIME), 3)])
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, True)
        actions = [
            (os.POSIX_SPAWN_DUP2, self.null, 0),
            (os.POSIX_SPAWN_DUP2, write, 1),
            (os.POSIX_SPAWN_DUP2, write, 2),
        ]
        reset = [signal.SIGPIPE, signal.SIGXFSZ]  # which Python ignores
        try:
            pid = os.posix_spawnp(
                words[0], words, env, file_actions=actions, setpgroup=0, setsigdef=reset
            )
        except (OSError, ValueError) as error:
            os.close(read)
            missing = isinstance(error, FileNotFoundError)
            text = f"cannot run {words[0][:200]!r}: {getattr(error, 'strerror', error)}"
            self.show(number, text.encode())
            self.record(["E", number, attempt, 127 if missing else 126, 0, text, ""])
            self.done += 1
            return
        finally:
            os.close(write)

        task = Child(number, attempt, pid, read)
        self.running[pid] = task
        self.pipes[read] = task
        self.poll.register(read, select.POLLIN)

    def show(self, number: int, line: bytes) -> None:
        data = b"[%d] %s\n" % (number, line)
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            pass  # nobody reads the log

    def copy(self, task: Child) -> bool:
        """Copy the available output of a task to the log. Returns False at its end."""
        while True:
            try:
                data = os.read(task.pipe, 65536)
            except BlockingIOError:
                return True

            if not data:
                return False

            task.tail = (task.tail + data)[-TAIL_BYTES:]
            *lines, rest = (task.line + data).split(b"\n")
            for line in lines:
                self.show(task.number, line)
            while len(rest) > LINE_BYTES:
                self.show(task.number, rest[:LINE_BYTES])
                rest = rest[LINE_BYTES:]
            task.line = rest

    def close_pipe(self, task: Child) -> None:
        if task.pipe >= 0:
            self.poll.unregister(task.pipe)
            del self.pipes[task.pipe]
            os.close(task.pipe)
            task.pipe = -1

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return

            task = self.running.pop(pid, None)
            if task is None:
                continue  # an orphan, if this is process 1

            if task.pipe >= 0:
                self.copy(task)
            self.close_pipe(task)
            if task.line:
                self.show(task.number, task.line)

            signaled = os.WIFSIGNALED(status)
            code = -os.WTERMSIG(status) if signaled else os.WEXITSTATUS(status)
            detail = ""
            if task.timed_out:
                detail = "timeout"
            elif self.stopping and code:
                detail = "stopped"
            took = round(_now() - task.started, 3)
            output = task.tail.decode("utf-8", "replace").replace("\0", "")
            self.record(["E", task.number, task.attempt, code, took, output, detail])
            self.done += 1
            if task.timed_out or self.stopping:
                self.signal(task, signal.SIGKILL)  # what it has started

    def signal(self, task: Child, number: int) -> None:
        try:
            os.killpg(task.pid, number)
        except OSError:
            pass

    def check_timeouts(self, now: float) -> float:
        """Stop tasks whose time is over. Returns the seconds until the next one."""
        if not self.timeout_s:
            return 3600.0
        left = 3600.0
        for task in self.running.values():
            if task.timed_out and now >= task.killed_at:
                self.signal(task, signal.SIGKILL)
            elif not task.timed_out and now >= task.started + self.timeout_s:
                task.timed_out = True
                task.killed_at = now + self.grace_s
                self.signal(task, signal.SIGTERM)

            until = task.killed_at if task.timed_out else task.started + self.timeout_s
            left = min(left, max(until - now, 0.01))
        return left

    # -- the loop --

    def on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGTERM:
            self.stopping = True
        elif number != signal.SIGCHLD:
            for task in list(self.running.values()):
                self.signal(task, number)

    def stop_running(self) -> None:
        for task in self.running.values():
            if not task.stopped:
                task.stopped = True
                self.signal(task, signal.SIGTERM)

    def handle_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, *FORWARDED):
            signal.signal(number, self.on_signal)

    def run(self) -> int:
        """Work until the list ends. Returns the exit code."""
        self.open()
        self.handle_signals()
        while True:
            self.reap()
            self.read_queue()
            while self.waiting and len(self.running) < self.workers and not self.stopping:
                _, number, attempt, line = self.waiting.pop()
                self.start(number, attempt, line)

            now = _now()
            self.report_progress(now)
            if self.stopping:
                self.stop_running()
            if self.stopping and not self.running:
                return 128 + signal.SIGTERM
            if self.end is not None and not self.running and not self.waiting:
                self.report_progress(now, last=True)
                print("moorage: " + self.end["end"], flush=True)
                return 0 if self.end["success"] else 1

            wait_s = self.check_timeouts(now)
            hungry = not self.waiting and len(self.running) < self.workers
            timeout_ms = min(POLL_MS if hungry else 1000, int(wait_s * 1000) + 1)
            for descriptor, _ in self.poll.poll(timeout_ms):
                if descriptor == self.wake_r:
                    os.read(self.wake_r, 4096)
                elif descriptor in self.pipes and not self.copy(self.pipes[descriptor]):
                    self.close_pipe(self.pipes[descriptor])


if __name__ == "__main__":
    sys.exit(TaskRunner(json.loads(sys.argv[1]), sys.argv[2:]).run())
