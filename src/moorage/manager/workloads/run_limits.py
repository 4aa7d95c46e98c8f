"""Time limits and largest requests of new sessions, by resource group, key and template. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from moorage.common.model.errors import RunLimitExceeded
from moorage.common.model.qos import QosOptions
from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.slots import format_amount, parse_slots
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.status import SessionType
from moorage.common.model.templates import TemplateSpec
from moorage.manager.scheduling.core.demand import in_request_units, in_shares

# The field that holds the time limit of a session of this type, and the fields that limit its time.
_FIELD = {SessionType.BATCH: "timeout_s", SessionType.INTERACTIVE: "max_lifetime_s"}
_TIMES = ("timeout_s", "max_lifetime_s", "walltime_s")


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits on one session. ``whose``: what sets them, like "key 'ci'". ``slots``: limits by slot,
    in base units, by the name of the limit."""

    whose: str
    max_time_s: float | None = None
    default_time_s: float | None = None
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def of_group(name: str, limits: GroupLimits, kind: SessionType) -> RunLimits:
    """The limits of a resource group on one session of this type. No session that requests more
    than a user may hold could ever start."""
    times: tuple[float | None, float | None] = None, None
    if kind is SessionType.BATCH:
        times = limits.max_batch_time_s, limits.default_batch_time_s
    elif kind is SessionType.INTERACTIVE:
        times = limits.max_interactive_time_s, limits.default_interactive_time_s

    found = {"max_per_session": limits.max_per_session, "max_per_user": limits.max_per_user}
    slots = {which: base_units(given) for which, given in found.items() if given}
    return RunLimits(f"resource_group {name!r}", *times, slots=slots)


def of_key(
    name: str, max_time_s: float | None, max_per_session: Mapping[str, str | int | float]
) -> RunLimits:
    return _narrowed(f"key {name!r}", max_time_s, max_per_session)


def of_qos(name: str, qos: QosOptions) -> RunLimits:
    """The limits of a QoS on one session. No session that requests more than a user, or all users
    together, may hold could ever start."""
    given = {
        "max_per_session": qos.max_per_session,
        "max_per_user": qos.max_per_user,
        "max_total": qos.max_total,
    }
    slots = {which: base_units(limits) for which, limits in given.items() if limits}
    return RunLimits(f"qos {name!r}", qos.max_time_s, slots=slots)


def of_template(ref: str, template: TemplateSpec) -> RunLimits:
    """The limits of a template. ``ref``: NAME@VERSION."""
    slots = template.max_per_session or {}
    return _narrowed(f"template {ref!r}", template.max_time_s, slots)


def _narrowed(
    whose: str, max_time_s: float | None, max_per_session: Mapping[str, str | int | float]
) -> RunLimits:
    slots = {"max_per_session": base_units(max_per_session)} if max_per_session else {}
    return RunLimits(whose, max_time_s, slots=slots)


def base_units(given: Mapping[str, str | int | float]) -> dict[str, int]:
    """Limits by slot in base units. Unlike in a request, 0 has a meaning: it allows nothing."""
    return dict.fromkeys(given, 0) | parse_slots(given)


def with_time_limit(spec: SessionSpec, limits: Iterable[RunLimits]) -> SessionSpec:
    """``spec`` with the default time limit if it specifies none: the first default, but at most the
    shortest of the longest time limits."""
    name = _FIELD.get(spec.type)
    if name is None or _asked_time(spec) is not None:
        return spec

    limits = tuple(limits)
    defaults = [each.default_time_s for each in limits if each.default_time_s is not None][:1]
    longest = [each.max_time_s for each in limits if each.max_time_s is not None]
    limit_s = min(defaults + longest, default=None)
    return spec if limit_s is None else spec.model_copy(update={name: limit_s})


def find_excess(spec: Workload, limits: Sequence[RunLimits]) -> RunLimitExceeded | None:
    """The error for the first limit that one session with this specification exceeds."""
    if isinstance(spec, SessionSpec) and spec.type is SessionType.SYSTEM:
        return None

    asked_time = _asked_time(spec) if isinstance(spec, SessionSpec) else None
    for each in limits:
        if (
            asked_time is not None
            and each.max_time_s is not None
            and asked_time[1] > each.max_time_s
        ):
            name, value = asked_time
            return _error(name, f"{value:g}", f"{each.max_time_s:g}", f"time limit of {each.whose}")

    requested = in_shares(_requested(spec))
    for each in limits:
        for which, limited in each.slots.items():
            for slot, limit in in_shares(limited).items():
                asked = requested.get(slot, 0)
                if asked > limit:
                    shown, (most, much) = in_request_units(slot, limit, asked)
                    allowed = format_amount(shown, most)
                    what = f"`{which}` of {each.whose}"
                    return _error(f"resources.{shown}", format_amount(shown, much), allowed, what)

    return None


def _asked_time(spec: SessionSpec) -> tuple[str, float] | None:
    """The time limit that a session asks for, and its field."""
    if spec.type not in _FIELD:
        return None

    given = [(name, getattr(spec, name)) for name in _TIMES]
    return min(
        ((name, value) for name, value in given if value is not None),
        key=itemgetter(1),
        default=None,
    )


def _requested(spec: Workload) -> dict[str, int]:
    """Slots of all kernels together, in base units."""
    total = parse_slots(spec.resources)
    if not isinstance(spec, SessionSpec) or spec.cluster is None:
        return total

    sub = spec.cluster.sub
    each = total if sub is None or sub.resources is None else parse_slots(sub.resources)
    return {
        slot: total.get(slot, 0) + each.get(slot, 0) * (spec.size - 1)
        for slot in total.keys() | each.keys()
    }


def _error(name: str, found: str, allowed: str, what: str) -> RunLimitExceeded:
    return RunLimitExceeded(
        f"{name} = {found} is above {allowed}, the {what}",
        next_step=f"set {name} to {allowed} or less",
        **{"in": "body"},
        field=name,
        found=found,
        allowed=allowed,
    )
