"""The vendor in `__main__.py`, as called by tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from moorage.agent.devices.labels import DriverFacts, device_labels
from moorage.common.link.messages import SlotOffer
from tests.nvml.scripted import ScriptedNvml


class Vendor:
    """``limit_s``: after this many seconds without an answer, the driver is considered failed. Use
    it as a context manager."""

    def __init__(self, nvml: ScriptedNvml, limit_s: float = 30) -> None:
        self._nvml = nvml
        self._limit_s = limit_s
        self.start()

    def start(self) -> None:
        argv = [
            sys.executable,
            "-m",
            "tests.nvml",
            str(self._nvml.folder / "gpus.json"),
            str(self._limit_s),
        ]
        pipe = subprocess.PIPE
        env = os.environ | self._nvml.environment
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, text=True, env=env, cwd=root
        )

    def restart(self) -> None:
        """Like a restarted agent, which has nothing but its record."""
        self.close()
        self.start()

    def offers(self) -> list[SlotOffer]:
        return [SlotOffer(**offer) for offer in self._call("offers")]

    def reasons(self) -> dict[str, str]:
        """The reason why each offered device is unhealthy, or "", by device."""
        offers = self.offers()
        assert all(bool(offer.unhealthy_reason) is not offer.healthy for offer in offers)
        return documented({offer.device_id: offer.unhealthy_reason for offer in offers})

    def measure(self, *devices: str, parents: dict[str, str] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self._call("measure", dict.fromkeys(devices, "") | (parents or {}))
        return found

    def unhealthy(self, *devices: str, parents: dict[str, str] | None = None) -> dict[str, str]:
        return documented(self._call("unhealthy", dict.fromkeys(devices, "") | (parents or {})))

    def labels(self) -> dict[str, str]:
        """The labels that an agent with these GPUs has."""
        offers = self.offers()
        return device_labels(offers, DriverFacts(**self._call("facts")))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Vendor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, *call: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def documented(reasons: dict[str, str]) -> dict[str, str]:
    """The same, after checking that each is among the reasons in docs/devices.md."""
    page = (Path(__file__).parents[2] / "docs" / "devices.md").read_text()
    table = page[page.index("| reason | detected by |") :].partition("\n\n")[0]
    known = [line.split("|")[1].strip(" `").partition(" n`")[0] for line in table.splitlines()[2:]]
    for reason in filter(None, reasons.values()):
        assert any(words.removesuffix(" n") in reason for words in known), (
            f"docs/devices.md lacks: {reason}"
        )
    return reasons
