"""Sessions as site jobs: whether a session fits on a node, and its specification completed with the
group's request to the site. Pure."""

from __future__ import annotations

from pydantic import ValidationError

from moorage.common.model.errors import Conflict, Infeasible, InvalidInput, MoorageError
from moorage.common.model.hpc_options import HpcOptions, SiteJob
from moorage.common.model.runtimes import traits_of
from moorage.common.model.slots import JOBS, format_amount, parse_amount, parse_size, parse_slots
from moorage.common.model.spec import SessionSpec, Workload

_SMALLER = "request less, or use another resource group; `moorage groups describe` shows the nodes"


def find_problem(spec: Workload, group: str, site: HpcOptions | None) -> MoorageError | None:
    """The error for a workload that resource group ``group`` cannot run as a job. ``site``: None
    for a group of another kind."""
    if isinstance(spec, SessionSpec) and spec.job is not None:
        return InvalidInput("`job` is set by the resource group", field="job", next_step="omit it")
    if site is None:
        return None

    if isinstance(spec, SessionSpec) and spec.size > 1:
        return Conflict(
            f"cluster.size = {spec.size} in resource_group {group!r}: a job of its site runs one "
            "kernel",
            next_step="omit `cluster`, or use another resource group",
        )

    if isinstance(spec, SessionSpec) and spec.ports and not traits_of(site.runtime).service_ports:
        return Conflict(
            f"ports in resource_group {group!r}: its runtime {site.runtime!r} reaches only one "
            "port of a job, for text requests to a model with GET and POST; it has no service "
            "ports",
            next_step="omit `ports`, or use another resource group",
        )

    if isinstance(spec, SessionSpec) and spec.tasks is not None:
        return Conflict(
            f"tasks in resource_group {group!r}: its runtime {site.runtime!r} runs one program for "
            "each job",
            next_step="omit `tasks`, or use another resource group",
        )

    if wrong := _impossible_there(spec, site):
        return Conflict(
            f"resource_group {group!r} has a site: {wrong}",
            next_step="omit it, or use another resource group",
        )

    walltime_s = spec.walltime_s if isinstance(spec, SessionSpec) else None
    if walltime_s is not None and walltime_s > site.walltime_s:
        return Conflict(
            f"walltime_s = {walltime_s:g} is above {site.walltime_s:g}, the walltime of "
            f"resource_group {group!r}",
            next_step=f"set walltime_s to {site.walltime_s:g} or less",
        )

    return _exceeds_node(spec, group, site)


def _impossible_there(spec: Workload, site: HpcOptions) -> str:
    """Explain which part of ``spec`` the site's runtime does not support; empty if none.

    The specification was validated for the runtime that it names, but it will run on the site's."""
    if isinstance(spec, SessionSpec):
        stored: Workload = as_job(spec, site)
    else:
        stored = spec.model_copy(update={"runtime": site.runtime, "image": None})

    try:
        type(spec).model_validate(stored.model_dump(mode="json"))
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")

    return ""


def _exceeds_node(spec: Workload, group: str, site: HpcOptions) -> MoorageError | None:
    asked = parse_slots(spec.resources)
    if JOBS in asked:
        return InvalidInput(
            "resources.jobs cannot be requested: a session is one job",
            field="resources.jobs",
            next_step="omit it",
        )

    if shares := next((slot for slot in asked if slot.endswith(".shares")), None):
        return Infeasible(
            f"{shares} in resource_group {group!r}: its site allocates whole devices",
            next_step=f"request {shares.removesuffix('.shares')}.device",
        )

    devices = sum(amount for slot, amount in asked.items() if slot.endswith(".device"))
    memory = None if site.node_memory is None else parse_size(site.node_memory)
    limits = (
        ("cpu", asked.get("cpu", 0), site.node_cores and parse_amount("cpu", site.node_cores)),
        ("mem", asked.get("mem", 0), memory),
        ("gpu.device", devices, site.node_gpus),
    )
    for slot, amount, limit in limits:
        if limit is not None and amount > limit:
            name = slot.removesuffix(".device")
            return Infeasible(
                f"{name} = {format_amount(slot, amount)} is more than a node of resource_group "
                f"{group!r} has"
                f"{f' ({site.node_type})' if site.node_type else ''}: {format_amount(slot, limit)}",
                next_step=_SMALLER,
            )

    return None


def as_job(spec: SessionSpec, site: HpcOptions | None) -> SessionSpec:
    """``spec`` as it is stored, with its site's runtime and the request for its job."""
    if site is None:
        return spec

    job = SiteJob(**{name: getattr(site, name) for name in SiteJob.model_fields})
    return spec.model_copy(
        update={
            "runtime": site.runtime,
            "image": None,
            "job": job,
            "walltime_s": spec.walltime_s or site.walltime_s,
            "queue_timeout_s": spec.queue_timeout_s or site.queue_timeout_s,
        }
    )
