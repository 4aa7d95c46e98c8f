"""One part: ``python -m tests.gpu.kit.part NAME FOLDER``."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import signal
import sys
import traceback
from pathlib import Path

from tests.gpu.kit import driver_parts, engine_part, platform_parts
from tests.gpu.kit.report import NotRun, Report

FUNCTIONS = {**driver_parts.PARTS, **platform_parts.PARTS, **engine_part.PARTS}


def main(name: str, folder: Path) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    report = Report(folder / "report.json")
    part = FUNCTIONS[name]
    try:
        if inspect.iscoroutinefunction(part):
            asyncio.run(part(report, folder))
        else:
            part(report, folder)
    except NotRun as reason:
        report.end("not run", str(reason))
    except BaseException as error:
        traceback.print_exc()
        report.end("failed", f"{type(error).__name__}: {error}"[:2000])
        raise
    else:
        report.end("passed")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
