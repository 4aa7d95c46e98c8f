"""User labels of sessions and endpoints, and selectors over them, by Kubernetes' rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

MAX_LABELS = 32
NAME_LENGTH = VALUE_LENGTH = 63
PREFIX_LENGTH = 253
SELECTOR_LENGTH = 4096
MAX_REQUIREMENTS = 32
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_SHOWN = 40
# One requirement of a selector: `k in (a,b)`, `k=v`, `!k` or `k`. Keys and values are checked
# afterwards.
_SET = re.compile(r"\s*([^\s,()=!]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s,()=!]+)\s*(==|=|!=)\s*([^\s,()=!]*)\s*")
_BARE = re.compile(r"\s*(!?)\s*([^\s,()=!]+)\s*")


def find_key_problem(key: str) -> str | None:
    """Explain why ``key`` is not a valid label key; None if it is."""
    prefix, slash, name = key.rpartition("/")
    if len(name) > NAME_LENGTH:
        return (
            f"label key {_shown(key)} has a name of {len(name)} characters; {NAME_LENGTH} are "
            "allowed"
        )

    if not _NAME.fullmatch(name):
        return (
            f"label key {_shown(key)} is not valid: letters, digits and . _ - are allowed, with a "
            "letter or "
            "digit at both ends, after an optional prefix like example.com/"
        )

    if len(prefix) > PREFIX_LENGTH:
        return (
            f"label key {_shown(key)} has a prefix of {len(prefix)} characters; {PREFIX_LENGTH} "
            "are allowed"
        )

    if slash and not _PREFIX.fullmatch(prefix):
        return f"label key {_shown(key)} has a prefix that is not a DNS name such as example.com"

    return None


def find_value_problem(key: str, value: str) -> str | None:
    """Explain why ``value`` is not a valid value for label ``key``; None if it is."""
    if len(value) > VALUE_LENGTH:
        return (
            f"the value of label {_shown(key)} has {len(value)} characters; {VALUE_LENGTH} are "
            "allowed"
        )

    if value and not _NAME.fullmatch(value):
        return (
            f"the value of label {_shown(key)} is {_shown(value)}: letters, digits and . _ - are "
            "allowed, "
            "with a letter or digit at both ends"
        )

    return None


def _check(labels: dict[str, str]) -> dict[str, str]:
    _check_changes(dict(labels))
    return labels


def _check_changes(labels: dict[str, str | None]) -> dict[str, str | None]:
    if len(labels) > MAX_LABELS:
        raise ValueError(f"there are {len(labels)} labels; {MAX_LABELS} are allowed")
    for key, value in labels.items():
        problem = find_key_problem(key) or (
            find_value_problem(key, value) if value is not None else None
        )
        if problem is not None:
            raise ValueError(problem)
    return labels


UserLabels = Annotated[
    dict[str, str],
    AfterValidator(_check),
    Field(
        description=(
            "Labels by which sessions and endpoints can be selected, as in Kubernetes: {'team': "
            "'vision'}. They do not affect placement."
        )
    ),
]
LabelChanges = Annotated[
    dict[str, str | None],
    AfterValidator(_check_changes),
    Field(description="Labels to set. null removes a label; all others remain."),
]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label. ``in`` and ``notin`` compare with ``values``. As in Kubernetes,
    ``notin`` also matches if the label is absent."""

    key: str
    operator: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.operator == "exists":
            return self.key in labels
        if self.operator == "absent":
            return self.key not in labels
        return (labels.get(self.key) in self.values) is (self.operator == "in")


Selector = tuple[Requirement, ...]


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether all requirements match."""
    return all(requirement.holds(labels) for requirement in selector)


def parse_selector(text: str) -> Selector:
    """Parse ``k=v,k2!=v,k3 in (a,b),k4 notin (a),k5,!k6``. Raises ``ValueError``."""
    if len(text) > SELECTOR_LENGTH:
        raise ValueError(f"the selector has {len(text)} characters; {SELECTOR_LENGTH} are allowed")

    found: list[Requirement] = []
    at = 0
    while at < len(text) or not found:
        match = _SET.match(text, at) or _EQUAL.match(text, at) or _BARE.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            rest = _shown(text[at:])
            raise ValueError(
                f"the selector has {rest}; write it as in team=vision,tier!=test,stage in (a,b)"
            )

        found.append(_requirement(match))
        at = match.end() + 1
        if at == len(text):
            raise ValueError("the selector ends with a comma; remove it")

    if len(found) > MAX_REQUIREMENTS:
        raise ValueError(
            f"the selector has {len(found)} requirements; {MAX_REQUIREMENTS} are allowed"
        )

    return tuple(found)


def _requirement(match: re.Match[str]) -> Requirement:
    if match.re is _BARE:
        negated, key = match.groups()
        requirement = Requirement(key, "absent" if negated else "exists")
    elif match.re is _SET:
        key, operator, values = match.groups()
        given = frozenset(value.strip() for value in values.split(","))
        requirement = Requirement(key, "in" if operator == "in" else "notin", given)
    else:
        key, operator, value = match.groups()
        requirement = Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))

    problems = [
        find_key_problem(key),
        *(find_value_problem(key, value) for value in requirement.values),
    ]
    if problem := next(filter(None, problems), None):
        raise ValueError(problem)

    return requirement


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
