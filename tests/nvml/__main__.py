"""An NVIDIA vendor in its own process, which can load a library that the tests cannot.

It reads one call per line from stdin, as JSON: the name of a method of ``NvidiaVendor`` and, for
methods that take devices, the devices with their parents. It writes one line with the result.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import structlog

from moorage.agent.devices.known import KnownDevices
from moorage.agent.devices.nvidia import NvidiaVendor


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    record = Path(sys.argv[1])
    limit_s = float(sys.argv[2])
    vendor = NvidiaVendor(KnownDevices(record), limit_s=limit_s)
    for line in sys.stdin:
        name, *devices = json.loads(line)
        found = getattr(vendor, name)
        print(
            json.dumps(found(*devices) if callable(found) else found, default=dataclasses.asdict),
            flush=True,
        )


if __name__ == "__main__":
    main()
