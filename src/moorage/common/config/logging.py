"""Logging setup: one line per event on stderr, as text or JSON."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


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
        shared.append(structlog.processors.format_exc_info)
    else:
        # Plain tracebacks: the pretty ones print local variables, and those hold secrets.
        plain = structlog.dev.plain_traceback
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=sys.stderr, level=max(threshold, logging.WARNING), force=True)
