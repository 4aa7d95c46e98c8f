"""Merging and substitution of session templates. Pure.

Merge order: template, then the defaults of the resource group, then the caller. Objects are merged
deeply, lists and values are replaced, and null removes a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from moorage.common.model.errors import InvalidInput
from moorage.common.model.spec import SessionSpec
from moorage.common.model.templates import KernelRole, Parameter, TemplateSpec

MAX_BASES = 8
_DEPTH = 32
# Fields of a specification that affect neither what runs nor where.
_NAMES = frozenset({"name", "user_labels"})
# Fields of a specification whose values are text.
_TEXTS = frozenset({"command", "args", "env", "labels"})
_BRACES = re.compile(r"\{\{\{\{|\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}|\{\{")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` overridden by the fields of ``over``."""
    merged = dict(base)
    for name, value in over.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value

    return merged


def based_on(base: TemplateSpec, given: TemplateSpec) -> TemplateSpec:
    """``given``, completed with the fields of ``base``. Raises ``InvalidInput``."""
    shown = given.model_dump(mode="json", exclude_unset=True)
    under = base.model_dump(mode="json", exclude_unset=True, exclude={"base"})
    try:
        return TemplateSpec.model_validate(merge(under, shown))
    except ValidationError as error:
        raise _invalid("the template with its base", error) from None


def check(template: TemplateSpec) -> None:
    """Raise ``InvalidInput`` for a template from which no session could be created: unknown fields
    or parameters and, if all parameters have defaults, wrong values."""
    _check_depth({"spec": template.spec})
    unknown = sorted(template.spec.keys() - SessionSpec.model_fields.keys())
    if unknown:
        raise InvalidInput(
            f"spec.{unknown[0]} is not a field of a session's specification",
            field=f"spec.{unknown[0]}",
            next_step="/openapi.json lists them, as SessionSpec",
        )

    if (
        template.roles is not None
        and "cluster" in template.spec
        and "size" in template.spec["cluster"]
    ):
        raise InvalidInput(
            "`spec.cluster.size` and `roles` both set the number of kernels",
            field="spec.cluster.size",
            next_step="remove `spec.cluster.size`",
        )

    defaults = {name: parameter.default for name, parameter in template.parameters.items()}
    samples = {name: "" if value is None else value for name, value in defaults.items()}
    fields = _fields(template, samples)
    if None not in defaults.values():
        validated(fields)


def session_fields(template: TemplateSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a session's specification, as the template sets them. Raises ``InvalidInput``."""
    return _fields(template, _values(template.parameters, parameters))


def validated_merge(
    fields: Mapping[str, Any], defaults: Mapping[str, Any], overrides: Mapping[str, Any]
) -> SessionSpec:
    """The specification with these ``fields``, the ``defaults`` of the resource group and the
    caller's ``overrides``. Raises ``InvalidInput``."""
    _check_depth(overrides)
    return validated(merge(merge(fields, defaults), overrides))


def recorded_priority(
    template: TemplateSpec, defaults: Mapping[str, Any], overrides: Mapping[str, Any]
) -> int:
    """The priority set by a template and its resource group's ``defaults``, for callers that may
    not request it themselves; 0 means none.

    It is granted for the template's session, not for one with another program, so any ``overrides``
    other than names void it."""
    recorded = merge(template.spec, defaults).get("priority")
    chosen = template.spec.get("resource_group", "")
    if overrides.keys() - _NAMES or not isinstance(recorded, int) or "{{" in str(chosen):
        return 0

    return recorded


def validated(fields: Mapping[str, Any]) -> SessionSpec:
    """The specification with these ``fields``. Raises an ``InvalidInput`` that names the wrong
    field."""
    try:
        return SessionSpec.model_validate(fields)
    except ValidationError as error:
        raise _invalid("the session of this template", error) from None


def _invalid(what: str, error: ValidationError) -> InvalidInput:
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "the whole"
    message = first["msg"].removeprefix("Value error, ")
    return InvalidInput(
        f"{what} is invalid: {field}: {message}",
        field=".".join(map(str, first["loc"])),
        next_step="correct the template or the overrides",
    )


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > _DEPTH:
        raise InvalidInput(
            f"the template is nested more than {_DEPTH} levels deep",
            field="spec",
            next_step="make it flatter",
        )
    for below in (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    ):
        _check_depth(below, depth + 1)


def _values(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(given.keys() - declared.keys()):
        allowed = ", ".join(declared) or "none"
        raise InvalidInput(
            f"the template has no parameter {unknown[0]!r}: it has {allowed}",
            field=f"parameters.{unknown[0]}",
            next_step="put fields of the specification into `overrides`",
        )

    values = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.default)
        if value is None:
            raise InvalidInput(
                f"parameter {name!r} is missing",
                field=f"parameters.{name}",
                next_step=f"pass it with --set {name}=VALUE",
            )

        if wrong := parameter.find_problem(value):
            raise InvalidInput(
                f"parameter {name!r} {wrong}",
                field=f"parameters.{name}",
                next_step="`moorage templates describe` shows all",
            )

        values[name] = value

    return values


def _fields(template: TemplateSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = _substituted(template.spec, values)
    if template.roles is not None:
        fields = merge(fields, _role(template.roles.main, values))
        sub = template.roles.sub
        if sub is not None:
            count = _substituted(sub.count, values)
            if not isinstance(count, int) or count < 0:
                raise InvalidInput(
                    f"`roles.sub.count` is {count!r}",
                    field="roles.sub.count",
                    next_step="set a number of kernels, 0 or more",
                )

            cluster = {"size": 1 + count, "sub": _role(sub, values)}
            fields = (
                merge(fields, {"cluster": cluster}) if count else merge(fields, {"cluster": None})
            )

    fields.setdefault("type", "batch")
    return fields


def _role(role: KernelRole, values: Mapping[str, Any]) -> dict[str, Any]:
    given = role.model_dump(exclude={"count"}, exclude_unset=True)
    made: dict[str, Any] = _substituted(given, values)
    return made


def _substituted(value: Any, values: Mapping[str, Any], *, text_only: bool = False) -> Any:
    """``value`` with the parameters in its strings replaced with their values.

    A string that consists of a single parameter keeps the parameter's type, unless ``text_only`` is
    set. Raises ``InvalidInput``."""
    if isinstance(value, Mapping):
        return {
            name: _substituted(below, values, text_only=text_only or name in _TEXTS)
            for name, below in value.items()
        }

    if isinstance(value, list):
        return [_substituted(below, values, text_only=text_only) for below in value]
    if not isinstance(value, str) or "{{" not in value:
        return value

    whole = _BRACES.fullmatch(value)
    if whole is not None and whole[1] in values and not text_only:
        return values[whole[1]]

    def text(found: re.Match[str]) -> str:
        if found[0] == "{{{{":
            return "{{"
        if found[1] not in values:
            raise InvalidInput(
                f"{value!r} contains {found[0]!r}, which is not a parameter of the template",
                field="parameters",
                next_step="declare it under `parameters`; write {{{{ for two braces",
            )
        given = values[found[1]]
        return str(given).lower() if isinstance(given, bool) else str(given)

    return _BRACES.sub(text, value)
