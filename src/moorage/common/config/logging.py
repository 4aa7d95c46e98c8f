"""Logging setup: one line per event on stderr, as text or JSON.

Records of the standard library's loggers (asyncio, gRPC, aiohttp, asyncpg) take the same form.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog


class _NamedLogger(structlog.PrintLogger):
    """Writes to stderr. ``name``: of the module that logs, such as ``moorage.agent.kernel.task``."""

    def __init__(self, name: str = "moorage") -> None:
        super().__init__(sys.stderr)
        self.name = name


def setup(fmt: Literal["text", "json"] = "text", level: str = "info") -> None:
    """Configure structlog and the standard library's loggers. Call once per process."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    last: structlog.types.Processor
    if fmt == "json":
        last = structlog.processors.JSONRenderer()
        shared += [_add_logger_name, structlog.processors.format_exc_info]
    else:
        # Plain tracebacks: the pretty ones print local variables, and those hold secrets.
        plain = structlog.dev.plain_traceback
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_NamedLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove_meta, last])
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)
    logging.captureWarnings(True)


def _add_logger_name(logger: Any, method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    record = event.get("_record")
    event["logger"] = record.name if record is not None else logger.name
    return event
