"""Logging setup: one line per event on stderr, as text or JSON.

Records of the standard library's loggers (asyncio, gRPC, aiohttp, asyncpg) take the same form.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import structlog

from moorage.common.telemetry.log_context import LOG_SUBJECT

# Component that a line comes from: the process's own, or the one within ``moorage up``.
Component: TypeAlias = Literal["manager", "agent", "proxy", "up", "cli"]
_OWN_NAMES: Final = ("agent", "manager", "proxy")


class _NamedLogger(structlog.PrintLogger):
    """Logger that writes to stderr. ``name``: the logging module, such as
    ``moorage.agent.kernel.task``."""

    def __init__(self, name: str = "moorage") -> None:
        super().__init__(sys.stderr)
        self.name = name


def _has_colors() -> bool:
    """Whether the terminal shows colors and the user has not set NO_COLOR
    (https://no-color.org)."""
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stderr.isatty() and not unwanted


def setup(
    fmt: Literal["text", "json"] = "text", level: str = "info", component: Component = "cli"
) -> None:
    """Configure structlog and the standard library's loggers. Call once per process.

    ``component``: the kind of process, which every JSON line includes.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    last: structlog.types.Processor
    if fmt == "json":
        last = structlog.processors.JSONRenderer()
        shared += [
            _add_subject,
            partial(_add_source, component),
            structlog.processors.format_exc_info,
        ]
    else:
        # Plain tracebacks: the pretty ones print local variables, and those hold secrets.
        plain = structlog.dev.plain_traceback
        last = structlog.dev.ConsoleRenderer(colors=_has_colors(), exception_formatter=plain)

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
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[remove_meta, last]
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)
    logging.captureWarnings(True)


def _add_source(
    process: Component, logger: Any, method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    record = event.get("_record")
    name = event["logger"] = record.name if record is not None else logger.name
    event["component"] = component_of(name, process)
    return event


def _add_subject(
    logger: Any, method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Add the fields that describe the task's subject. The line's own fields take precedence."""
    if (subject := LOG_SUBJECT.get()) is not None:
        for name, value in subject.log_fields().items():
            if value:
                event.setdefault(name, value)
    return event


def component_of(name: str, process: Component) -> str:
    """Component that the logger ``name`` belongs to; `moorage up` runs all components in one
    process."""
    package, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    return part if package == "moorage" and part in _OWN_NAMES else process
