"""Program of a kernel in the runtime ``celery``: submits one task, and runs a worker for its queue.

    task_runner.py TASK ARGS KWARGS QUEUE ID      submit the task, and end with it
    task_runner.py --check                        print the brokers of the application as JSON

It needs Celery and the application (``MOORAGE_CELERY_APP``) but nothing from Moorage, because the
application may have its own environment.

The queue is only for this task, so the task runs once and in this worker, which has the kernel's
environment and devices. The task's state has two sources. The result back end has it for all
clients. The worker notes the task's start and end in files, which show the outcome even if the
broker and the back end are unavailable or the result was forgotten. The program never waits
indefinitely for a result: once the worker or the task has ended, the back end has a moment to
receive it.

The output contains the task's output, its result if any, and the cause of a failure. ``worker.log``
is the worker's log. The exit status is 0 for a success, the status of the process if the task exits
it, and 1 for a failure. If the task is stopped, the program ends by SIGTERM.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

_POLL_S = 0.1
_REVOKE_S = 0.5  # between two revokes, which workers keep only in memory
_RESULT_S = 5.0  # for the back end, once the worker reports that the task has ended
_RESTARTS = 5  # restarts of a worker that ends before its task starts
_NO_START = "no worker starts the task: see worker.log in the working directory"
_STARTED = ".celery-started"
_ENDED = ".celery-ended"
_EXIT = re.compile(r"exitcode (\d+)")
_FINAL = ("SUCCESS", "FAILURE", "REVOKED")
# The task's progress: the conventional keys for ``update_state``, and their names for
# ``MOORAGE_PROGRESS``.
_PROGRESS = {"current": "step", "total": "of", "fraction": "fraction", "message": "message"}


def load_app() -> Any:
    sys.path.insert(0, os.environ.get("MOORAGE_CELERY_WORKDIR") or os.getcwd())
    return importlib.import_module("celery.app.utils").find_app(os.environ["MOORAGE_CELERY_APP"])


def check() -> int:
    """Print the application's brokers and return the exit status."""
    try:
        app = load_app()
        if app.conf.result_backend is None:
            raise ValueError("the application has no result_backend")

        with app.connection_for_write() as connection:
            known = [connection.clone(hostname=url) for url in connection.alt if "://" in url] or [
                connection
            ]
            brokers = [
                (broker.hostname, broker.port or broker.transport.default_port) for broker in known
            ]
    except Exception as error:  # noqa: BLE001  an application may raise anything
        print("".join(traceback.format_exception_only(error)).strip(), file=sys.stderr)
        return 1

    print(json.dumps({"brokers": brokers}))
    return 0


def work(app: Any, queue: str, task_id: str) -> NoReturn:
    """Run as the worker, which notes the task's start and end in the working directory."""
    signals = importlib.import_module("celery.signals")
    app.conf.update(task_track_started=True, worker_redirect_stdouts=False)

    def started(**_: Any) -> None:
        _note(_STARTED, {"pid": os.getpid()})

    def ended(state: str = "", retval: Any = None, **_: Any) -> None:
        if state in _FINAL:
            _note(_ENDED, {"state": state, "result": retval})

    signals.task_prerun.connect(started, weak=False)
    signals.task_postrun.connect(ended, weak=False)
    warnings.simplefilter("ignore")  # for a worker that runs as root
    app.worker_main(
        [
            "--quiet",
            "worker",
            "--pool=prefork",
            "--concurrency=1",
            "--prefetch-multiplier=1",
            f"--queues={queue}",
            f"--hostname={task_id}@%h",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=INFO",
            "--logfile=worker.log",
        ]
    )
    sys.exit(0)


def _note(name: str, value: dict[str, Any]) -> None:
    partial = Path(f"{name}.{os.getpid()}")
    partial.write_text(json.dumps(value, default=repr))
    partial.rename(name)


def _noted(name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(Path(name).read_text())
    except (OSError, ValueError):
        return None
    return found


def _is_alive() -> bool:
    """Whether the task's process is alive. A task is REVOKED immediately, but may take time to
    end."""
    started = _noted(_STARTED)
    try:
        os.kill(started["pid"] if started else 0, 0)
    except OSError:
        return False
    return started is not None


class Worker:
    """A fork of this process, which has already imported Celery and the application.

    The worker has its own process group, because a worker that is asked to stop waits for its task
    and ignores revokes.
    """

    def __init__(self, app: Any, queue: str, task_id: str) -> None:
        self.status: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                work(app, queue, task_id)
            finally:
                os._exit(1)

    def has_ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def end(self) -> None:
        """Kill the worker and its pool. Its only task has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self.status is None:
            os.waitpid(self._pid, 0)


class Runner:
    def __init__(self, name: str, args: str, kwargs: str, *, queue: str, task_id: str) -> None:
        self._name = name
        self._args = json.loads(args)
        self._kwargs = json.loads(kwargs)
        self._queue = queue
        self._id = task_id
        self._app = load_app()
        self._stopped = False
        self._revoked_at = 0.0
        self._progress: Any = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._on_stop)
        state = "REVOKED"
        result = None
        self._submit()

        if not self._stopped:
            worker = Worker(self._app, self._queue, self._id)
            try:
                for _ in range(_RESTARTS):
                    if (found := self._follow(worker)) is not None:
                        break

                    self._submit()  # the worker may have taken the task from the queue
                    worker = Worker(self._app, self._queue, self._id)

                state, result = found or ("FAILURE", _NO_START)
            finally:
                worker.end()

        self._delete_queue()
        return self._finish(state, result)

    def _on_stop(self, *_: object) -> None:
        self._stopped = True

    def _submit(self) -> None:
        """Submit the task until the queue has it. A doubtful submission is looked up rather than
        repeated blindly."""
        pause_s = 0.5
        while not self._stopped:
            try:
                # Separate connections are used because connections from Celery's pool would be
                # shared with the worker, which is a fork.
                with self._app.connection_for_write() as connection:
                    if not self._is_queued(connection):
                        self._app.send_task(
                            self._name,
                            self._args,
                            self._kwargs,
                            task_id=self._id,
                            queue=self._queue,
                            retry=False,
                            connection=connection,
                        )
            except Exception as error:  # noqa: BLE001  a transport may raise anything
                print(
                    f"the broker does not accept the task: {error!r}", file=sys.stderr, flush=True
                )
                time.sleep(pause_s)
                pause_s = min(10.0, pause_s * 2)
            else:
                break

    def _is_queued(self, connection: Any) -> bool:
        with connection.channel() as channel:
            try:
                return bool(channel.queue_declare(queue=self._queue, passive=True).message_count)
            except connection.channel_errors:
                return False  # the queue does not exist yet

    def _follow(self, worker: Worker) -> tuple[str, Any] | None:
        """Return the final state and the result. None if the worker ended before the task
        started."""
        ended_at = 0.0
        while True:
            state, result = self._seen()
            noted = _noted(_ENDED)
            if state in _FINAL and not (self._stopped and _is_alive()):
                # A worker that could not store a result immediately reports a failure of the task.
                if noted is not None and noted["state"] == "SUCCESS":
                    return "SUCCESS", noted["result"]
                return state, result

            lost = worker.has_ended()
            if lost and noted is None and _noted(_STARTED) is None and not self._stopped:
                time.sleep(1)
                return None

            if lost or noted is not None:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > _RESULT_S:
                    if noted is not None:  # the back end has lost it
                        return str(noted["state"]), noted["result"]

                    return (
                        "FAILURE",
                        f"the worker ended with status {worker.status}, and the task with it",
                    )

            if self._stopped:
                self._revoke()

            time.sleep(_POLL_S)

    def _seen(self) -> tuple[str, Any]:
        """The state in the result back end; empty if the back end does not answer. PENDING can also
        mean unknown."""
        try:
            meta = self._app.backend.get_task_meta(self._id, cache=False)
        except Exception:  # noqa: BLE001  a back end may raise anything
            return "", None

        state = str(meta["status"])
        result = meta.get("result")
        if state not in _FINAL and isinstance(result, dict) and result != self._progress:
            self._progress = result
            self._report(result)

        return state, result

    def _report(self, given: dict[str, Any]) -> None:
        line = {ours: given[theirs] for theirs, ours in _PROGRESS.items() if theirs in given}
        file = os.environ.get("MOORAGE_PROGRESS")
        if line and file:
            with contextlib.suppress(OSError, TypeError), open(file, "a") as lines:
                lines.write(json.dumps(line) + "\n")

    def _revoke(self) -> None:
        if time.monotonic() - self._revoked_at >= _REVOKE_S:
            self._revoked_at = time.monotonic()
            # The supervisor kills any remains after the grace period.
            with contextlib.suppress(Exception), self._app.connection_for_write() as connection:
                self._app.control.revoke(
                    self._id, terminate=True, signal="SIGTERM", connection=connection
                )

    def _delete_queue(self) -> None:
        with contextlib.suppress(Exception), self._app.connection_for_write() as connection:
            queue = self._app.amqp.queues.new_missing(self._queue)(connection.channel())
            queue.declare()  # a connection deletes only the bindings that it knows of
            queue.delete()

    def _finish(self, state: str, result: Any) -> int:
        """Print the result, delete it from the back end, and return the exit status."""
        with contextlib.suppress(Exception):
            self._app.AsyncResult(self._id).forget()

        if state == "SUCCESS":
            text = json.dumps(result, default=repr)
            Path("result.json").write_text(text + "\n")
            if result is not None:
                print(f"result: {text}", flush=True)

            return 0

        if self._stopped:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

        cause = repr(result) if isinstance(result, BaseException) else str(result)
        exited = _EXIT.search(cause)
        if exited is None:
            print(f"the task ended as {state}: {cause}", file=sys.stderr, flush=True)

        return int(exited[1]) or 1 if exited else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    name, args, kwargs, queue, task_id = sys.argv[1:]
    sys.exit(Runner(name, args, kwargs, queue=queue, task_id=task_id).run())
