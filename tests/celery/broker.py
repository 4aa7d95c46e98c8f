"""A private Redis, and an application whose broker it is."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import redis

from tests.addresses import free_port

APPLICATION = """
import os, signal, subprocess, sys, time
from celery import Celery, signals

app = Celery("conform", broker="{url}", backend="{url}")


@app.task
def conform(run_s, code, stubborn, output):
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + (0.1 if output == "busy" else 0)
    while time.monotonic() < end:
        pass
    os.write(1, (output or "").encode())
    time.sleep(3600 if run_s is None else run_s)
    if code:
        os._exit(code)


@app.task
def add(a, b=0):
    return a + b


@app.task
def devices():
    return [os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()]


@app.task(bind=True)
def steps(self, gate):
    for step in range(1, 4):
        self.update_state(state="PROGRESS", meta={{"current": step, "total": 3, "message": "layer"}})
        time.sleep(0.4)
    while not os.path.exists(gate):
        time.sleep(0.1)
    return "trained"


@app.task(bind=True, max_retries=2)
def flaky(self, marks):
    with open(marks, "a") as file:
        file.write("x")
    if len(open(marks).read()) < 3:
        raise self.retry(countdown=0.1)
    return "at last"


@app.task
def saves(path):
    def save(*_):
        time.sleep(2)
        with open(path, "w") as file:
            file.write("checkpoint")
        os._exit(0)

    signal.signal(signal.SIGTERM, save)
    os.write(1, b"on\\n")
    time.sleep(3600)


@signals.worker_init.connect
def end_at_once(**_):
    if os.environ.get("NO_WORKER"):
        os._exit(3)


@app.task
def wrong():
    raise ValueError("no such layer")
"""


class Broker:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "redis.out").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                    "--appendonly", "no", "--dir", str(self._folder),
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)

        raise AssertionError((self._folder / "redis.out").read_text())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True)

    def application(self) -> Path:
        """The directory that contains the application ``conform_tasks``."""
        folder = self._folder / "application"
        folder.mkdir(exist_ok=True)
        (folder / "conform_tasks.py").write_text(APPLICATION.format(url=self.url))
        return folder
