"""What people type, as specs: resources, environment, model names, paths. Only looks at paths, else pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from moorage.common.model.errors import InvalidInput

# What a workload gets that names only some of its resources.
BASE_RESOURCES = {"cpu": "1", "mem": "1GiB"}


def pairs(given: Sequence[str], option: str, example: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a dict. Raises ``InvalidInput`` naming the option and the text."""
    parsed: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{option} {text!r} is not NAME=VALUE", next_step=f"write it like {example}")
        parsed[name] = value
    return parsed


def resources(given: Sequence[str], gpus: int | None) -> dict[str, str | int | float] | None:
    """Slots as asked for, over the base; None when nothing was asked for."""
    asked = pairs(given, "--resources", "cpu=2 or mem=4GiB")
    if gpus is not None:
        asked["cuda.device"] = str(gpus)
    return {**BASE_RESOURCES, **asked} if asked else None


_SPANS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def moment(text: str, now: datetime) -> datetime:
    """``30d``, ``12h`` or ``5m`` from now, or a time with its zone. Raises ``InvalidInput``."""
    span = re.fullmatch(r"(\d{1,4})([mhd])", text)
    if span:
        return now + int(span[1]) * _SPANS[span[2]]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput(
            f"{text!r} is not a time", next_step="write it like 30d, 12h, 5m or 2030-01-01T00:00:00Z"
        )
    return at


_ENDS = ("success", "any", "failure")


def dependency(text: str) -> dict[str, str]:
    """``NAME``, or ``NAME:any`` and the like; a name may have colons of its own."""
    name, colon, end = text.rpartition(":")
    return {"session": name, "on": end} if colon and end in _ENDS else {"session": text}


# Options of several words, and of words that belong together.
_LISTS, _SETS = frozenset({"session_types", "slot_priority"}), frozenset({"exclusive"})
# What "none" means where that is not "no bound" or "no limit".
_NONE: Mapping[str, Any] = {"weights": {}, "slot_priority": [], "exclusive": [], "replicas": "none"}


def options(given: Sequence[str], model: type[BaseModel], old: Mapping[str, Any]) -> dict[str, Any]:
    """``OPTION=VALUE`` texts over ``old``: ``none`` for nothing, commas between words (``exclusive=a+b,c``),
    a dot into an option that has its own (``preemption.how=end``; ``preemption=on`` for all as they are).

    Raises ``InvalidInput`` naming the option and what is allowed; the values are for ``model`` to check.
    """
    changed = {name: dict(value) if isinstance(value, dict) else value for name, value in old.items()}
    for name, text in pairs(given, "OPTION=VALUE", "hol=backfill").items():
        first, dot, rest = name.partition(".")
        if first not in model.model_fields:
            raise InvalidInput(
                f"there is no option {first!r}",
                next_step=f"allowed is {', '.join(sorted(model.model_fields))}",
            )
        if dot:
            inner = {key: kept for key, kept in (changed.get(first) or {}).items() if key != rest}
            changed[first] = inner if text == "none" else inner | {rest: text}
        elif text == "none":
            changed[first] = _NONE.get(first)
        elif first in _LISTS:
            changed[first] = text.split(",")
        elif first in _SETS:
            changed[first] = [part.split("+") for part in text.split(",")]
        else:
            changed[first] = {} if text == "on" else text
    return changed


def guess_engine(model: str) -> str:
    return "llamacpp" if model.lower().endswith(".gguf") else "vllm"


def locate_model(model: str) -> str:
    """A local path made absolute, a hub id as it is."""
    path = Path(model).expanduser()
    looks_local = model.startswith((".", "~", "/")) or model.lower().endswith(".gguf") or path.exists()
    return str(path.resolve()) if looks_local else model


def guess_name(model: str) -> str:
    """The model's base name as an endpoint's name. Raises ``InvalidInput`` when nothing is left of it."""
    base = re.sub(r"\.gguf$", "", model.rstrip("/").rsplit("/", 1)[-1], flags=re.IGNORECASE)
    name = re.sub(r"[^A-Za-z0-9._:-]+", "-", base)[:128].strip("._:-")
    if not name:
        raise InvalidInput(f"no name can be made of {model!r}", next_step="give one with --name")
    return name
