"""Warnings about plain-text secrets in `env`, which anyone who can see the database or the program
can read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moorage.common.model.secret_names import MASK, is_secret_name
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.templates import TemplateSpec

_NAMED = 5
_MAX_NAME = 60


def warnings(envs: Iterable[object]) -> list[str]:
    """A single warning about all variables whose values look like secrets, if there are any.

    ``envs``: the values of `env` fields, which need not be valid."""
    names = sorted({name for env in envs if isinstance(env, Mapping) for name in _plain(env)})
    if not names:
        return []

    shown = ", ".join(names[:_NAMED])
    if more := len(names) - _NAMED:
        shown += f" and {more} more" if more > 0 else ""

    first = names[0]
    return [
        (
            f"`env` has values that look like secrets and are stored in plain text: {shown}; store "
            f"each with `moorage secrets set NAME`, and refer to it: `--secret {first}=NAME`, or in a "
            f'specification `"secret_env": {{"{first}": "NAME"}}`'
        )
    ]


def of_workload(spec: Workload) -> Iterator[object]:
    """The `env` fields of a workload."""
    yield spec.env
    if isinstance(spec, SessionSpec) and spec.cluster is not None and spec.cluster.sub is not None:
        yield spec.cluster.sub.env


def of_fields(fields: Mapping[str, Any]) -> Iterator[object]:
    """The `env` fields among the fields of a specification, as in a template or a resource
    group."""
    yield fields.get("env")
    cluster = fields.get("cluster")
    sub = cluster.get("sub") if isinstance(cluster, Mapping) else None
    if isinstance(sub, Mapping):
        yield sub.get("env")


def of_template(template: TemplateSpec) -> Iterator[object]:
    yield from of_fields(template.spec)
    if template.roles is not None:
        yield template.roles.main.env
        if template.roles.sub is not None:
            yield template.roles.sub.env


def _plain(env: Mapping[object, object]) -> Iterator[str]:
    for name, value in env.items():
        if (
            isinstance(name, str)
            and isinstance(value, str)
            and value not in ("", MASK)
            and is_secret_name(name)
        ):
            yield name[:_MAX_NAME]
