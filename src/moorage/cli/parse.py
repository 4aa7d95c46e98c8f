"""Parsers for arguments: resources, environment, dependencies, group options, models, paths."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from moorage.common.model.durations import parse_duration
from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import parse_size
from moorage.common.model.unique_keys import unique_object

if TYPE_CHECKING:
    from pydantic import BaseModel

    from moorage.common.model.templates import Parameter

# Defaults for a workload that specifies only some of its resources.
BASE_RESOURCES = {"cpu": "1", "mem": "1GiB"}


def pairs(given: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts into a dict. Raises ``InvalidInput``, which names the option and
    the text."""
    parsed: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(
                f"{option} {text!r} is not NAME=VALUE", next_step=f"write it like {example}"
            )

        parsed[name] = value

    return parsed


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without a byte order mark. Only line feeds and carriage returns
    before them end a line; ``str.splitlines`` would also divide values at U+2028 or a form feed.
    Raises ``OSError`` or ``UnicodeDecodeError``."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return [line.removesuffix("\n").removesuffix("\r") for line in file]


def environment(given: Sequence[str] | None, files: Sequence[str] | None) -> dict[str, str] | None:
    """Variables from ``--env-file`` and ``--env``, which takes precedence; None if neither was
    given.

    Lines have Docker's format: NAME=VALUE up to the end of the line, # before comments, and NAME
    alone to copy the variable from this environment, if it is set. Raises ``InvalidInput``, which
    names the file and the line.
    """
    if not given and not files:
        return None

    found: dict[str, str] = {}
    for file in files or ():
        try:
            lines = read_lines(Path(file).expanduser())
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise InvalidInput(
                f"--env-file {file!r} cannot be read: {why}",
                next_step="name a file of NAME=VALUE lines",
            ) from None

        for number, line in enumerate(lines, 1):
            name, equals, value = line.lstrip().partition("=")
            if not line.strip() or line.lstrip().startswith("#"):
                continue

            if not name.strip() or any(letter.isspace() for letter in name):
                raise InvalidInput(
                    f"--env-file {file!r}, line {number}: {line!r} is not NAME=VALUE",
                    next_step="write it like SEED=1; # begins a comment",
                )

            if equals:
                found[name] = value
            elif name in os.environ:
                found[name] = os.environ[name]

    return found | pairs(given or (), "--env", "SEED=1")


def limit(text: str, option: str) -> int | None:
    """A number, or None for ``none``. Raises ``InvalidInput``, which names the option and the
    text."""
    if text != "none" and not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            f"{option}={text!r} is not a number", next_step="write a number, or `none`"
        )
    return None if text == "none" else int(text)


def size_limit(text: str, option: str) -> int | None:
    """A size in bytes, or None for ``none``. Raises ``InvalidInput``, which names the option and
    the text."""
    if text == "none":
        return None

    try:
        return parse_size(text)
    except InvalidInput as error:
        raise InvalidInput(
            f"{option}={text!r}: {error}", next_step="write a size such as 20MiB, or `none`"
        ) from None


def duration_limit(text: str, option: str) -> float | None:
    """A duration in seconds, or None for ``none``. Raises ``InvalidInput``, which names the option
    and the text."""
    if text == "none":
        return None

    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInput(
            f"{option}={text!r}: {error}", next_step="write a duration such as 8h, or `none`"
        ) from None


def secret_env(given: Sequence[str] | None) -> dict[str, str] | None:
    """Parse ``VARIABLE=SECRET`` texts into a dict; None if none were given."""
    return pairs(given, "--secret", "HF_TOKEN=hf-token") if given else None


# Options that stand for one slot.
SHORT = {"--gpus": "cuda.device", "--cpus": "cpu", "--memory": "mem"}


def resources(
    given: Sequence[str],
    short: Mapping[str, str | int | None],
    base: Mapping[str, str] = BASE_RESOURCES,
) -> dict[str, str | int | float] | None:
    """Requested slots, which override ``base``; None if none were given. ``short``: the values of
    the options in ``SHORT``. Raises ``InvalidInput`` for a slot that is given twice."""
    requested = pairs(given, "--resources", "cpu=2 or mem=4GiB")
    for option, amount in short.items():
        slot = SHORT[option]
        if amount is None:
            continue

        if slot in requested:
            raise InvalidInput(
                f"{option} {amount} and --resources {slot}={requested[slot]} exclude each other",
                next_step="leave out one",
            )
        requested[slot] = str(amount)

    return {**base, **requested} if requested else None


_CONDITIONS = ("success", "any", "failure")


def dependency(text: str) -> dict[str, str]:
    """A dependency from ``NAME[:success|any|failure]``. The name can contain colons."""
    name, colon, end = text.rpartition(":")
    return {"session": name, "on": end} if colon and end in _CONDITIONS else {"session": text}


# Options that contain a list, and options that contain a list of sets.
_LISTS = frozenset({"session_types", "slot_priority", "images", "mounts", "projects", "users"})
_SETS = frozenset({"exclusive"})
# The meaning of "none" for options for which it does not mean "unlimited".
_NONE: Mapping[str, Any] = {
    "weights": {},
    "slot_priority": [],
    "exclusive": [],
    "replicas": "none",
    "description": "",
    "price_factor": 1,
    "max_per_session": {},
    "max_per_user": {},
    "max_total": {},
}


def options(given: Sequence[str], model: type[BaseModel], old: Mapping[str, Any]) -> dict[str, Any]:
    """``old`` with ``OPTION=VALUE`` texts applied. ``model`` defines the options' names, and
    validates the values later.

    ``none`` unsets an option. Commas separate list items (``exclusive=a+b,c``). Dots reach into
    nested options (``preemption.how=end``, ``hpc.options.constraint=a100``); ``preemption=on`` sets
    a nested option with its defaults. A value that starts with [ or { is JSON. Raises
    ``InvalidInput``, which names the unknown option and the allowed ones.
    """
    changed = {
        name: dict(value) if isinstance(value, dict) else value for name, value in old.items()
    }
    for name, text in pairs(given, "OPTION=VALUE", "hol=backfill").items():
        first, dot, rest = name.partition(".")
        if first not in model.model_fields:
            raise InvalidInput(
                f"there is no option {first!r}",
                next_step=f"allowed are {', '.join(sorted(model.model_fields))}",
            )

        if dot:
            changed[first] = _put(
                changed.get(first) or {},
                _nested(model, first),
                name=rest,
                text=text,
                path=f"{first}.",
            )
        elif text == "none":
            changed[first] = _NONE.get(first)
        elif _is_json(text):
            changed[first] = _json(name, text)
        elif first in _LISTS:
            changed[first] = text.split(",")
        elif first in _SETS:
            changed[first] = [part.split("+") for part in text.split(",")]
        else:
            changed[first] = {} if text == "on" else text

    return changed


def shown(value: object) -> str:
    """An option in the form that ``options`` accepts."""
    if isinstance(value, dict):
        value = {
            path: inner
            for name, nested in value.items()
            for path, inner in (
                ((f"{name}.{key}", amount) for key, amount in nested.items())
                if isinstance(nested, dict) and nested
                else ((name, nested),)
            )
        }
        return " ".join(f"{name}={inner}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return (
            ",".join("+".join(part) if isinstance(part, list) else str(part) for part in value)
            or "none"
        )
    return "none" if value is None else str(value)


def _put(
    old: Mapping[str, Any], model: type[BaseModel] | None, name: str, text: str, *, path: str
) -> dict[str, Any]:
    """Set one option. ``model``: None for options whose names are arbitrary and can contain dots
    (``weights``, ``hpc.options``)."""
    first, dot, rest = name.partition(".") if model is not None else (name, "", "")
    if model is not None and first not in model.model_fields:
        raise InvalidInput(
            f"there is no option {path + first!r}",
            next_step=(
                f"allowed are {', '.join(path + field for field in sorted(model.model_fields))}"
            ),
        )

    kept = {key: value for key, value in old.items() if key != first}
    if dot and model is not None:
        return kept | {
            first: _put(
                old.get(first) or {},
                _nested(model, first),
                name=rest,
                text=text,
                path=f"{path}{first}.",
            )
        }

    if text == "none":
        return kept
    return kept | {first: _json(path + name, text) if _is_json(text) else text}


def _is_json(text: str) -> bool:
    return text.startswith(("[", "{"))


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_object)
    except ValueError as error:
        raise InvalidInput(
            f"{name}={text!r} is not valid JSON: {error}", next_step="quote it for the shell"
        ) from None


def _nested(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """The model of a field with nested fields."""
    from pydantic import BaseModel

    annotation = model.model_fields[field].annotation
    kinds = (annotation, *get_args(annotation))
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
    )


def patch(given: Sequence[str]) -> dict[str, Any]:
    """A JSON merge patch from ``FIELD=VALUE`` texts. A dot reaches into a nested field
    (``autoscale.max=4``), ``none`` removes a field, and a value that starts with [ or { is JSON.
    Raises ``InvalidInput``."""
    made: dict[str, Any] = {}
    for name, text in pairs(given, "FIELD=VALUE", "autoscale.max=4").items():
        value: Any = None if text == "none" else text
        if _is_json(text):
            value = _json(name, text)

        (*path, last) = name.split(".", 1)
        inner = made
        for part in path:
            inner = inner.setdefault(part, {})

        inner[last] = value

    return made


def fallback(given: str) -> dict[str, str]:
    """A fallback from ``MODEL`` or ``MODEL,url=URL,secret=NAME``. Raises ``InvalidInput``."""
    model, *rest = given.split(",")
    fields = pairs(rest, "--fallback MODEL,", "url=https://api.example.com/v1") if rest else {}
    if unknown := fields.keys() - {"url", "secret"}:
        raise InvalidInput(
            f"--fallback {given!r} has the unknown field {sorted(unknown)[0]!r}",
            next_step="write MODEL, or MODEL,url=URL,secret=NAME",
        )
    return {"model": model, **fields}


def guess_engine(model: str) -> str:
    from moorage.common.hub.selection import is_gguf_id

    return "llamacpp" if model.lower().endswith(".gguf") or is_gguf_id(model) else "vllm"


def locate_model(model: str) -> str:
    """Make a local path absolute; a hub id stays unchanged."""
    path = Path(model).expanduser()
    looks_local = (
        model.startswith((".", "~", "/")) or model.lower().endswith(".gguf") or path.exists()
    )
    return str(path.resolve()) if looks_local else model


def guess_name(model: str) -> str:
    """A valid endpoint name derived from the model's base name. Raises ``InvalidInput`` if nothing
    valid remains."""
    from moorage.common.catalog.entries import endpoint_name

    name = endpoint_name(model)
    if not name:
        raise InvalidInput(
            f"no name can be derived from {model!r}", next_step="give one with --name"
        )

    return name


def parameter(name: str, text: str, declared: Parameter | None) -> str | bool | int | float:
    """Parse the value of a template parameter; the text stays unchanged if the template has no such
    parameter. Raises ``InvalidInput``."""
    kind = declared.type if declared is not None else "string"
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "integer":
            return int(text)

        return float(text) if kind == "number" else text
    except (KeyError, ValueError):
        raise InvalidInput(
            f"--set {name}={text}: parameter {name!r} must be a {kind}",
            next_step="`moorage templates describe` shows the parameters",
        ) from None


def checkpoint(text: str | None) -> dict[str, str] | None:
    """A checkpoint from ``USR1`` or ``USR1:60``: the signal, and the seconds between it and
    SIGTERM."""
    if text is None:
        return None
    signal, colon, grace_s = text.partition(":")
    return {"signal": signal} | ({"grace_s": grace_s} if colon else {})


def reload(text: str | None) -> dict[str, str] | None:
    """A reload method from ``HUP``, ``/-/reload`` or ``admin:/-/reload``, each with or without
    ``+progress``."""
    if text is None:
        return None

    way, plus, _ = text.partition("+progress")
    port, slash, path = way.partition("/")
    if port.removesuffix(":") and slash and not port.endswith(":"):
        raise InvalidInput(
            f"--reload {text!r} is not a valid reload method",
            next_step="give a signal, such as HUP, or a path: /-/reload, or admin:/-/reload for "
            "the service port admin",
        )

    how = {"http": f"/{path}"} | ({"port": port[:-1]} if port else {}) if slash else {"signal": way}
    return how | ({"acknowledge": "progress"} if plus else {})


def notify(texts: Sequence[str] | None) -> dict[str, list[str]] | None:
    """``EVENT,...[=TARGET]`` options as events by target. Raises ``InvalidInput``."""
    if texts is None:
        return None

    from moorage.common.model.subscriptions import DEFAULT_TARGET, parse_events

    found: dict[str, list[str]] = {}
    for text in texts:
        events, equals, target = text.partition("=")
        if equals and not target:
            raise InvalidInput(
                f"--notify {text!r} has no target", next_step="write it like --notify end,fail=NAME"
            )
        names = [str(event) for event in parse_events(events.split(","), "--notify")]
        found.setdefault(target or DEFAULT_TARGET, []).extend(names)

    return found
