"""Record of the devices that a node offered, which outlives the agent."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path

import structlog

from moorage.common.link.messages import SlotOffer

log = structlog.get_logger("moorage.agent.devices")

GPUS_FILE = "gpus.json"
"""The record of NVIDIA GPUs, in the state directory of an agent."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class KnownDevices:
    """``file`` is written once its directory exists. A record that cannot be read or written costs only the
    memory of devices that fail: nothing raises."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._saved: tuple[SlotOffer, ...] | None = None

    def load(self) -> tuple[tuple[SlotOffer, ...], bool]:
        """The recorded devices, and whether the node has not been booted since."""
        try:
            record = json.loads(self._file.read_text())
            offers = tuple(SlotOffer(**offer) for offer in record["devices"])
            return offers, record["boot"] == _boot_id()
        except FileNotFoundError:
            return (), True
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("the record of the devices cannot be read", file=str(self._file), error=repr(error))
            return (), True

    def save(self, offers: Iterable[SlotOffer]) -> None:
        """Record devices, healthy or not."""
        now = tuple(dataclasses.replace(offer, healthy=True, unhealthy_reason="") for offer in offers)
        if now == self._saved or not self._file.parent.is_dir():
            return
        text = json.dumps({"boot": _boot_id(), "devices": [dataclasses.asdict(offer) for offer in now]})
        temporary = self._file.with_suffix(".tmp")
        try:
            temporary.write_text(text)
            os.replace(temporary, self._file)
        except OSError as error:
            log.warning("the record of the devices cannot be written", file=str(self._file), error=str(error))
            return
        self._saved = now


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
