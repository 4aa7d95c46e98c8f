"""Checks of clients: a client's program registers them and runs them at several addresses.

The programs run in environments of their own, so this module needs only the standard library. Each
program prints one JSON line for each check and address.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

# What an outcome shows of an error that the engine was asked for.
AS_ASKED = "as asked"


@dataclass(frozen=True)
class Place:
    """An address with the engine behind it. ``app``: the base address of the same engine as the
    app of a service port, with ``token`` as its access token."""

    name: str
    base: str
    key: str
    model: str
    app: str
    token: str

    @property
    def v1(self) -> str:
        return f"{self.base}/v1"

    @property
    def websocket(self) -> str:
        return self.base.replace("http", "ws", 1)


@dataclass(frozen=True)
class Check:
    client: str
    name: str
    call: Callable[[Place], Any]


class Checks:
    """The checks of one client, which is a package of PyPI."""

    def __init__(self, client: str, package: str = "") -> None:
        self._client = f"{client} {version(package or client)}"
        self.checks: list[Check] = []

    def __call__(self, call: Callable[[Place], Any]) -> Callable[[Place], Any]:
        name = call.__name__.removeprefix("_").replace("_", " ")
        self.checks.append(Check(self._client, name, call))
        return call


def outcome(check: Check, place: Place) -> Any:
    """The check's value, or its error with the status. The texts of errors may differ, because a
    proxy answers in its own words where it refuses a request itself."""
    try:
        value = check.call(place)
        return asyncio.run(value) if asyncio.iscoroutine(value) else value
    except Exception as error:  # noqa: BLE001  # the error is the outcome
        text = str(error)
        found = {"error": type(error).__name__, "status": getattr(error, "status_code", None)}
        return found | {"as asked": AS_ASKED in text, "text": text[:300]}


def run(*groups: Checks) -> None:
    """Runs the checks named by the second argument, or all, at the places of the first."""
    output = sys.stdout
    sys.stdout = sys.stderr  # for what clients print
    places = [Place(**each) for each in json.loads(sys.argv[1])]
    only = set(json.loads(sys.argv[2])) if len(sys.argv) > 2 else set()
    for check in [check for group in groups for check in group.checks]:
        if only and check.name not in only:
            continue
        for place in places:
            line = {
                "client": check.client,
                "check": check.name,
                "place": place.name,
                "outcome": outcome(check, place),
            }
            print(json.dumps(line, default=str), flush=True, file=output)
