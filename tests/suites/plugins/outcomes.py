"""Plugin of pytest that writes the outcome of each case as a JSON line to ``SUITE_OUTCOMES``, and
that refuses connections to other hosts than this one. It needs only the standard library."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

_LOCAL = ("127.0.0.1", "localhost", "::1", None)
_connect = socket.socket.connect
_lookup = socket.getaddrinfo


def _connect_locally(self: socket.socket, address: Any) -> None:
    if self.family != socket.AF_UNIX and address[0] not in _LOCAL:
        raise ConnectionRefusedError(f"{address[0]} is another host")
    _connect(self, address)


def _look_up_locally(host: Any, *arguments: Any, **options: Any) -> Any:
    if host not in _LOCAL:
        raise socket.gaierror(f"{host} is another host")
    return _lookup(host, *arguments, **options)


def pytest_configure() -> None:
    socket.socket.connect = _connect_locally  # type: ignore[method-assign]
    socket.getaddrinfo = _look_up_locally


class _Written:
    """Outcomes by case: that of its call, or of the setup that failed."""

    def __init__(self) -> None:
        self.file = open(os.environ["SUITE_OUTCOMES"], "a", encoding="utf-8")  # noqa: SIM115

    def add(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            text = "" if report.passed else str(report.longrepr)[-3000:]
            line: dict[str, object] = {
                "case": report.nodeid,
                "outcome": report.outcome,
                "text": text,
            }
            line["seconds"] = round(report.duration, 1)
            print(json.dumps(line), file=self.file, flush=True)


_written = _Written()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _written.add(report)
