"""``moorage describe``: everything about one session or endpoint."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.app import app
from moorage.cli.array_elements import find_pipeline
from moorage.cli.commands.extend import idle_facts
from moorage.cli.commands.rollout import rollout_facts
from moorage.cli.commands.top import usage_line
from moorage.cli.completion import workload_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.load_lines import current_load
from moorage.cli.lookup import find
from moorage.cli.output import (
    current_kernel,
    format_age,
    labels_cell,
    load_cells,
    print_facts,
    print_heading,
    print_table,
    printable,
    progress_text,
    step_label,
)
from moorage.cli.start_times import start_text
from moorage.cli.summary import (
    current_activity,
    explain_failure,
    is_degraded,
    next_steps,
    shown_status,
    silence,
    silent_agents,
)
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import NotFound
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.slots import format_slots
from moorage.common.model.status import LIVE, SessionType, Status
from moorage.common.views.endpoints import EndpointView, ScalingDecision
from moorage.common.views.pipelines import PipelineView
from moorage.common.views.resources import HistoryEntry, SessionView
from moorage.sdk import ApiError

_DECISIONS = 10

if TYPE_CHECKING:
    from rich.console import Console

    from moorage.common.model.spec import EndpointSpec, Workload
    from moorage.common.views.idle import IdleView
    from moorage.common.views.load import EndpointLoad
    from moorage.common.views.resource_usage import SessionStats
    from moorage.sdk import Client


@command(app)
def describe(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="An endpoint, a session's name or id, an array or another pipeline, or an element "
            "of an array, like sweep[3].",
            autocompletion=workload_names,
        ),
    ],
) -> None:
    """Show an endpoint or session in full: state, history, why it waits or failed, last log lines.

    Of an array or another pipeline, show its steps.

    \b
    Examples:
      moorage describe tiny
      moorage describe batch-1a2b3c4d -o json
      moorage describe 'sweep[3]'
    """

    async def work(client: Client) -> Any:
        try:
            found = await find(client, name)
        except NotFound:
            if (pipeline := await find_pipeline(client, name)) is None:
                raise
            return (await client.pipelines.get(pipeline.id),) + (None,) * 5

        if isinstance(found, EndpointView):
            refs = [replica.session_id for replica in found.sessions]
        else:
            refs = [found.id]

        idle = await _idle(client, found)
        histories, stats, decisions, load = await asyncio.gather(
            asyncio.gather(*(client.sessions.history(ref) for ref in refs)),
            asyncio.gather(*(client.sessions.stats(ref) for ref in refs)),
            _decisions(client, found),
            _load(client, found),
        )
        by_ref = dict(zip(refs, histories, strict=True)), dict(zip(refs, stats, strict=True))
        return found, *by_ref, decisions, idle, load

    found, histories, stats, decisions, idle, load = cli.run(work)
    if isinstance(found, PipelineView):
        from moorage.cli.commands.pipelines import print_pipeline

        print_pipeline(cli, found)
    elif cli.output is Output.NAME:
        print(found.name)
    elif isinstance(found, EndpointView):
        if cli.json:
            shown = {
                "endpoint": found,
                "histories": histories,
                "stats": stats,
                "decisions": decisions,
            }
            cli.print_json(shown | ({"load": load} if load is not None else {}))
        else:
            print_endpoint(
                cli.out,
                found,
                histories=histories,
                stats=stats,
                now=cli.clock.now(),
                decisions=decisions,
                load=load,
            )
    elif cli.json:
        shown = {"session": found, "history": histories[found.id], "stats": stats[found.id]}
        cli.print_json(shown | ({"idle": idle} if idle is not None else {}))
    else:
        print_session(
            cli.out,
            found,
            history=histories[found.id],
            stats=stats[found.id],
            now=cli.clock.now(),
            idle=idle,
        )


async def _idle(client: Client, found: Any) -> IdleView | None:
    """The idle state of a running interactive session; None if the manager is from an earlier
    release."""
    if not isinstance(found, SessionView) or found.status is not Status.RUNNING:
        return None
    if found.type is not SessionType.INTERACTIVE:
        return None

    try:
        return await client.sessions.idle(found.id)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def _load(client: Client, found: Any) -> EndpointLoad | None:
    """The load of an endpoint in the last hour; None if the manager is from an earlier
    release."""
    if not isinstance(found, EndpointView):
        return None

    try:
        return await client.endpoints.load(found.name)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def _decisions(client: Client, found: Any) -> list[ScalingDecision]:
    """Scaling decisions of an endpoint that scales automatically, if the caller may read them."""
    scaled = (
        isinstance(found, EndpointView)
        and found.spec is not None
        and found.spec.autoscale is not None
    )
    try:
        return await client.endpoints.scaling_decisions(found.name) if scaled else []
    except ApiError as error:
        if error.status == 403:
            return []
        raise


def _origin(view: SessionView) -> list[tuple[str, str]]:
    """The template and pipeline from which the session was created, and those of its fields that
    the manager does not know."""
    place = view.pipeline
    found = [("template", view.template or "")]
    found.append(("not known", view.needs_newer_manager))

    if place is not None:
        run = f", run {place.run}" if place.run > 1 else ""
        found.append(
            (
                "pipeline",
                f"{step_label(place)}{run}; `moorage pipelines describe {place.id}` shows it",
            )
        )

    return found


def print_session(
    out: Console,
    view: SessionView,
    history: Sequence[HistoryEntry],
    stats: SessionStats | None,
    *,
    now: datetime,
    idle: IdleView | None = None,
) -> None:
    facts = [
        ("session", view.name),
        ("id", view.id),
        ("type", str(view.type)),
        ("status", f"{shown_status(view)} for {format_age(now, view.status_since)}"),
        *_suspension(view, now),
        *_activity(view, now),
        *_reloads(view, now),
        ("deadline", f"{format_age(view.deadline_at, now)} left" if view.deadline_at else ""),
        *idle_facts(idle),
        ("endpoint", view.endpoint or ""),
        ("group", f"{view.resource_group}, priority {view.priority}, attempt {view.attempt}"),
        ("qos", view.spec.qos or ""),
        ("shares the run of", view.adopted_from or ""),
        *_origin(view),
        ("labels", labels_cell(view.user_labels)),
        ("retries", f"{view.requeues} of {view.spec.retries}" if view.spec.retries else ""),
        ("owner", f"{view.user}, project {view.project}" if view.project else ""),
        ("slots", format_slots(view.slots)),
        *_cluster(view),
        ("after", ", ".join(f"{d.session} ({d.on})" for d in view.spec.depends_on)),
        ("starts at", f"{view.spec.starts_at:%Y-%m-%d %H:%M:%S %Z}" if view.spec.starts_at else ""),
        *_workload(view.spec),
        *_silence(view, now),
        *(_degraded(view) if is_degraded(view) else _reason(view.reason, view.detail)),
        *_usage(stats),
    ]
    print_facts(out, facts)
    if view.hold is not None and view.status is Status.PENDING:
        hold = view.hold
        tried = f"tried {hold.attempts} times, last {format_age(now, hold.at)} ago"
        if hold.reason is Reason.BACKOFF and view.not_before is not None:
            tried = f"{format_age(view.not_before, now)} left"

        print_facts(
            out,
            [
                ("waits for", hold.text if view.held else f"{hold.text} ({tried})"),
                ("next step", _release(view) or REASONS[hold.reason].next_step),
            ],
        )
        print_facts(out, [("", refusal) for refusal in hold.refusals])

    if view.kernels:
        print_heading(out, "kernels")
        rows = []
        for k in view.kernels:
            devices = " ".join(d.device_id for d in k.devices if d.device_id)
            code = "" if k.exit_code is None else str(k.exit_code)
            address = f"{k.host}:{k.port}" if k.port else ""
            row = (
                k.hostname,
                str(k.attempt),
                f"{k.status} (agent silent)" if k.silent_since else str(k.status),
                k.agent_id or "",
                address,
                devices,
                code,
            )
            rows.append((*row, str(k.reason)))

        columns = ("KERNEL", "ATTEMPT", "STATUS", "AGENT", "ADDRESS", "DEVICES", "EXIT", "REASON")
        print_table(out, columns, rows)

    _history(out, history)
    kernel = current_kernel(view)
    _log(out, kernel.log_tail if kernel else "", f"moorage logs {view.name}")
    if steps := next_steps(view):
        print_heading(out, "next steps")
        print_facts(out, steps)


def _suspension(view: SessionView, now: datetime) -> list[tuple[str, str]]:
    if (suspended := view.suspended) is None:
        return []

    text = f"by {suspended.by} for {format_age(now, suspended.since)}; it keeps its resources"
    return [("suspended", text), ("next step", f"`moorage resume {view.name}`")]


def _release(view: SessionView) -> str:
    return f"`moorage update {view.name} --release`" if view.held is not None else ""


def _activity(view: SessionView, now: datetime) -> list[tuple[str, str]]:
    kernel = current_kernel(view)
    activity = ("activity", current_activity(view))
    if kernel is None or (progress := kernel.progress) is None:
        return [activity]
    text = progress_text(progress)
    age = format_age(now, progress.at)
    return [activity, ("progress", f"{text} ({age} ago)" if text else ""), ("", progress.problem)]


def _reloads(view: SessionView, now: datetime) -> list[tuple[str, str]]:
    """How the session's program is reloaded, and the last reload of each kernel in the attempt."""
    how = view.spec.reload
    if how is None:
        return []

    way = (
        f"SIG{how.signal}"
        if how.signal
        else f"POST {how.http}" + (f" at {how.port}" if how.port else "")
    )
    if how.acknowledge == "progress":
        way += ", acknowledged by its progress"

    asked = [k for k in view.kernels if k.attempt == view.attempt and k.reload is not None]
    facts = [("reload by", way)]
    for kernel in asked:
        reload = kernel.reload
        assert reload is not None
        at = (
            reload.requested_at
            if reload.state == "requested" or reload.ended_at is None
            else reload.ended_at
        )
        where = f"{kernel.hostname}: " if view.spec.size > 1 else ""
        why = (
            f": {reload.detail}"
            if reload.detail and reload.state in ("failed", "timed-out")
            else ""
        )
        facts.append(("reload", f"{where}{reload.state} {format_age(now, at)} ago{why}"))

    return facts


def _endpoint_spec(spec: EndpointSpec) -> list[tuple[str, str]]:
    return [
        ("group", f"{', else '.join(spec.groups)}, priority {spec.priority}"),
        ("slots", ", ".join(f"{slot}={amount}" for slot, amount in spec.resources.items())),
        ("scaling", _scaling(spec)),
        ("adapters", ", ".join(f"{adapter.name} ({adapter.source})" for adapter in spec.adapters)),
        ("falls back to", ", ".join(fallback.shown for fallback in spec.routing.fallbacks)),
        *_workload(spec),
    ]


def _scaling(spec: EndpointSpec) -> str:
    if spec.autoscale is None:
        return ""
    given = spec.autoscale.model_dump(exclude={"min", "max"}, exclude_none=True)
    rules = ", ".join(f"{name} {value:g}" for name, value in given.items())
    return f"{spec.autoscale.min} to {spec.autoscale.max} replicas; {rules}"


def print_endpoint(
    out: Console,
    view: EndpointView,
    histories: Mapping[str, Sequence[HistoryEntry]],
    stats: Mapping[str, SessionStats],
    *,
    now: datetime,
    decisions: Sequence[ScalingDecision] = (),
    load: EndpointLoad | None = None,
) -> None:
    failures = f"{view.failures} in a row" if view.failures else ""
    facts = [
        ("endpoint", view.name),
        ("status", f"{view.status} ({view.ready} of {view.replicas} replicas ready)"),
        ("load", current_load(load)),
        ("id", view.id),
        ("created", f"{format_age(now, view.created_at)} ago"),
        ("project", view.project),
        ("shared with", ", ".join(view.shared_with)),
        ("not known", view.needs_newer_manager),
        ("labels", labels_cell(view.user_labels)),
        *(_endpoint_spec(view.spec) if view.spec is not None else ()),
        *(rollout_facts(view.rollout) if view.rollout is not None else ()),
        ("failures", failures),
        ("next retry in", format_age(view.retry_at, now) if view.retry_at else ""),
        ("next replica in", format_age(view.expected_at, now) if view.expected_at else ""),
        ("late successor", late_text(view, now)),
        *((f"starts in {time.resource_group}", start_text(time)) for time in view.start_times),
        *_reason(view.reason, view.detail),
    ]
    print_facts(out, facts)

    if decisions:
        print_heading(out, "scaling decisions")
        shown = [_decision_row(decision, now) for decision in decisions[:_DECISIONS]]
        print_table(out, ("AGO", "REPLICAS", "RULE", "WHY", "LOAD"), shown)

    if not view.sessions:
        return

    newest = max(view.sessions, key=lambda replica: replica.session_id)
    print_heading(out, "replicas")
    rows = []
    for r in view.sessions:
        uses = "; ".join(text for _, text in _usage(stats.get(r.session_id)))
        since = format_age(now, r.status_since)
        state = f"{r.status} ({r.state})" if r.state else str(r.status)
        row = (r.name, str(r.revision), state, r.agent_id or "", since, *load_cells(r), uses)
        rows.append((*row, str(r.reason), r.unhealthy or r.detail))

    columns = (
        "NAME",
        "REVISION",
        "STATUS",
        "AGENT",
        "SINCE",
        "RUN",
        "WAIT",
        "KV",
        "USES",
        "REASON",
        "DETAIL",
    )
    print_table(out, columns, rows)
    _history(out, histories.get(newest.session_id, []), f"history of {newest.name}")
    _log(out, newest.log_tail, f"moorage logs {view.name}")


def late_text(view: EndpointView, now: datetime) -> str:
    late = view.late_successor
    if late is None:
        return ""

    name = next(
        (session.name for session in view.sessions if session.session_id == late.session_id),
        late.session_id,
    )
    expected = (
        f"in {format_age(late.expected_at, now)}" if late.expected_at else "at an unknown time"
    )
    ends = f"the walltime of {name} ends in {format_age(late.ends_at, now)}"
    held = f", held by {late.reason}" if late.reason else ""

    return f"{ends}; the next replica{held} is expected {expected}"


def _decision_row(decision: ScalingDecision, now: datetime) -> tuple[str, ...]:
    load = " ".join(f"{name}={value:g}" for name, value in decision.inputs.items())
    change = f"{decision.from_replicas} to {decision.to_replicas}"
    return format_age(now, decision.at), change, decision.rule, decision.detail, load


def _usage(stats: SessionStats | None) -> list[tuple[str, str]]:
    """While the session is live, print one line per kernel of the newest attempt."""
    if stats is None or stats.status not in LIVE:
        return []

    newest = max((kernel.attempt for kernel in stats.kernels), default=0)
    measured = [k for k in stats.kernels if k.latest is not None and k.attempt == newest]
    several = len(measured) > 1
    return [
        ("uses", usage_line(kernel.latest) + (f" ({kernel.hostname})" if several else ""))
        for kernel in measured
        if kernel.latest is not None
    ]


_NO_NAMES = (
    "main1, sub1, … do not resolve outside a sandbox; MOORAGE_CLUSTER_ADDRESSES has the "
    "addresses, in the "
    "order of MOORAGE_CLUSTER_HOSTS"
)


def _cluster(view: SessionView) -> list[tuple[str, str]]:
    if (cluster := view.spec.cluster) is None:
        return []
    on_loss = "ends" if cluster.on_kernel_loss == "end" else "continues"
    text = f"{view.spec.size} kernels, {cluster.mode}; {on_loss} when a sub kernel is lost"
    return [("cluster", text), ("", "" if view.hostnames_resolve is not False else _NO_NAMES)]


def _workload(spec: Workload) -> list[tuple[str, str]]:
    return [
        ("engine", f"{spec.engine} on runtime {spec.runtime}"),
        ("image", spec.image or ""),
        ("model", spec.model or ""),
        ("command", shlex.join(spec.command)),
        ("args", shlex.join(spec.args)),
        ("env", " ".join(sorted(spec.env))),  # names only: values may be secrets
        ("arch", spec.arch or ""),
        ("labels", " ".join(f"{name}={value}" for name, value in sorted(spec.labels.items()))),
        ("only on", ", ".join(spec.agents)),
    ]


def _reason(reason: Reason, detail: str) -> list[tuple[str, str]]:
    if reason is Reason.NONE:
        return [("detail", detail)]
    text, step = explain_failure(reason, detail)
    return [("reason", text), ("next step", step)]


def _degraded(view: SessionView) -> list[tuple[str, str]]:
    return [("degraded", f"{view.detail}; the other kernels continue (on_kernel_loss: degrade)")]


def _silence(view: SessionView, now: datetime) -> list[tuple[str, str]]:
    agents = silent_agents(view, now) if view.status in LIVE else {}
    if not agents:
        return []

    step = "; ".join(f"check that node; `moorage agents describe {agent}`" for agent in agents)
    return [
        ("warning", f"{silence(view, now)}; its program may still run there"),
        ("next step", step),
    ]


def _history(out: Console, history: Sequence[HistoryEntry], title: str = "history") -> None:
    if not history:
        return

    print_heading(out, title)
    before = history[0].at
    rows = []
    for entry in history:
        step = (entry.at - before).total_seconds()
        before = entry.at
        moment = entry.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        move = (str(entry.to_status), entry.event, entry.actor, str(entry.reason), entry.detail)
        rows.append((moment, f"+{format_duration(step)}", *move))

    print_table(out, ("AT (UTC)", "AFTER", "STATUS", "EVENT", "BY", "REASON", "DETAIL"), rows)


def _log(out: Console, tail: str, full_log: str) -> None:
    if tail:
        print_heading(out, f"last lines of its log (`{full_log}`)")
        out.print(printable(tail).rstrip(), soft_wrap=True)
