"""The record of a node's devices and driver facts, which outlives the agent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import structlog

from moorage.agent.devices.labels import DriverFacts
from moorage.common.link.messages import SlotOffer

log = structlog.get_logger("moorage.agent.devices")

GPUS_FILE = "gpus.json"
"""The record of NVIDIA GPUs, in the state directory of an agent."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Known:
    """Recorded devices. ``same_boot``: the node has not rebooted since they were recorded."""

    offers: tuple[SlotOffer, ...] = ()
    facts: DriverFacts = field(default_factory=DriverFacts)
    same_boot: bool = True


class KnownDevices:
    """The record in ``file``, which is written once its directory exists. Its methods never raise:
    if the record cannot be read or written, the agent merely forgets failed devices."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._saved: Known | None = None

    def load(self) -> Known:
        """Load the record. It is empty if there is no file."""
        try:
            record = json.loads(self._file.read_text())
            offers = tuple(SlotOffer(**offer) for offer in record["devices"])
            return Known(offers, DriverFacts(**record["facts"]), record["boot"] == _boot_id())
        except FileNotFoundError:
            return Known()
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning(
                "the record of the devices cannot be read", file=str(self._file), error=repr(error)
            )
            return Known()

    def save(self, offers: Iterable[SlotOffer], facts: DriverFacts) -> None:
        """Record devices, healthy or not."""
        now = Known(
            tuple(replace(offer, healthy=True, unhealthy_reason="") for offer in offers), facts
        )
        if now == self._saved or not self._file.parent.is_dir():
            return

        record = {
            "boot": _boot_id(),
            "devices": [asdict(offer) for offer in now.offers],
            "facts": asdict(facts),
        }
        temporary = self._file.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(record))
            os.replace(temporary, self._file)
        except OSError as error:
            log.warning(
                "the record of the devices cannot be written",
                file=str(self._file),
                error=str(error),
            )
            return

        self._saved = now


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
