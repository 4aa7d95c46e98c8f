"""Short forms of JSON Schemas, because an agent reads those of all tools before a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_REFERENCE = "#/$defs/"
# The manager checks limits, and its refusals name them.
# Fields for people: a coding agent that starts a session follows it.
_OMITTED = frozenset({"notify"})
_KEPT = ("type", "enum", "format")


def short_parameter(schema: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """The schema of a path or query parameter, with the first sentence of its description."""
    short = _short(schema, {}, with_null=False)
    if fields := _sorts(short.get("enum", ())):
        short = {"type": "string", "pattern": f"^-?({'|'.join(fields)})$"}
    return short | {"description": text.partition(". ")[0].rstrip(".")} if text else short


def _sorts(choices: Sequence[Any]) -> list[str]:
    """The fields of a ``sort`` parameter, whose choices are each field with and without a leading
    "-"; none for other parameters."""
    fields = [text for text in choices if isinstance(text, str) and not text.startswith("-")]
    both = {*fields, *(f"-{field}" for field in fields)}
    return fields if fields and both == set(choices) else []


def short_body(
    body: Mapping[str, Any], definitions: Mapping[str, Any], *, with_null: bool
) -> dict[str, Any]:
    """The schema of a body: its fields and their types, without descriptions and inner fields.

    ``with_null``: null is a value of its own, which resets a field.
    """
    found = _resolved(body, definitions)
    fields = found.get("properties", {})
    short: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: _short(field, definitions, with_null=with_null)
            for name, field in fields.items()
            if name not in _OMITTED
        },
    }
    if required := found.get("required"):
        short["required"] = list(required)

    return short


def _short(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], *, with_null: bool
) -> dict[str, Any]:
    found = _resolved(schema, definitions)
    choices = found.get("anyOf", found.get("oneOf"))
    if choices is not None:
        return _short_choice(choices, definitions, with_null=with_null)

    return {key: value for key, value in found.items() if key in _KEPT}


def _short_choice(
    choices: list[Mapping[str, Any]], definitions: Mapping[str, Any], *, with_null: bool
) -> dict[str, Any]:
    shorts = [_short(choice, definitions, with_null=with_null) for choice in choices]
    others = [short for short in shorts if short.get("type") != "null"]
    is_optional = with_null and len(others) < len(shorts)
    if len(others) == 1 and not is_optional:
        return others[0]

    # An enum of one choice would exclude the values of the others.
    types = [kind for short in (shorts if is_optional else others) for kind in _types(short)]
    return {"type": list(dict.fromkeys(types))} if all(shorts) and types else {}


def _types(short: Mapping[str, Any]) -> list[str]:
    kind = short.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return definitions[reference.removeprefix(_REFERENCE)] if reference else schema
