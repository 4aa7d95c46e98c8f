"""What ``describe`` prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from moorage.cli.render import (
    agent_status,
    current_kernel,
    print_facts,
    print_table,
    printable,
    show_age,
    show_duration,
)
from moorage.cli.story import doing_now, next_steps, why_failed
from moorage.cli.verbs.top import use_facts
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.slots import WHOLE_DEVICE, format_amount, format_slots
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.status import LIVE, Status
from moorage.common.views.resources import AgentView, EndpointView, HistoryEntry, SessionView
from moorage.common.views.usage import AgentStats, DeviceStats, SessionStats


def print_session(
    out: Console,
    view: SessionView,
    history: Sequence[HistoryEntry],
    used: SessionStats | None,
    now: datetime,
) -> None:
    result = f" ({view.result})" if view.status is Status.TERMINATED else ""
    left = f"{show_age(view.deadline_at, now)} left" if view.deadline_at else ""
    facts = [
        ("session", view.name),
        ("id", view.id),
        ("type", str(view.type)),
        ("status", f"{view.status}{result} for {show_age(now, view.status_since)}"),
        ("doing", doing_now(view)),
        ("deadline", left),
        ("endpoint", view.endpoint or ""),
        ("group", f"{view.resource_group}, priority {view.priority}, attempt {view.attempt}"),
        ("retries", f"{view.requeues} of {view.spec.retries}" if view.spec.retries else ""),
        ("owner", f"{view.user}, project {view.project}" if view.project else ""),
        ("slots", format_slots(view.slots)),
        ("cluster", _cluster(view.spec)),
        ("after", ", ".join(f"{d.session} ({d.on})" for d in view.spec.depends_on)),
        ("starts at", f"{view.spec.starts_at:%Y-%m-%d %H:%M:%S %Z}" if view.spec.starts_at else ""),
        *_workload(view.spec),
        *_reason(view.reason, view.detail),
        *_used(used),
    ]
    print_facts(out, facts)
    if view.hold is not None and view.status is Status.PENDING:
        hold = view.hold
        tried = f"tried {hold.attempts} times, last {show_age(now, hold.at)} ago"
        if hold.reason is Reason.BACKOFF and view.not_before is not None:
            tried = f"{show_age(view.not_before, now)} left"
        print_facts(
            out, [("waits for", f"{hold.text} ({tried})"), ("next step", REASONS[hold.reason].next_step)]
        )
        print_facts(out, [("", refusal) for refusal in hold.refusals])
    if view.kernels:
        _heading(out, "kernels")
        rows = []
        for k in view.kernels:
            devices = " ".join(d.device_id for d in k.devices if d.device_id)
            code = "" if k.exit_code is None else str(k.exit_code)
            address = f"{k.host}:{k.port}" if k.port else ""
            row = (k.hostname, str(k.attempt), str(k.status), k.agent_id or "", address, devices, code)
            rows.append((*row, str(k.reason)))
        columns = ("KERNEL", "ATTEMPT", "STATUS", "AGENT", "ADDRESS", "DEVICES", "EXIT", "REASON")
        print_table(out, columns, rows)
    _story(out, history)
    kernel = current_kernel(view)
    _log(out, kernel.log_tail if kernel else "", f"moorage logs {view.name}")
    if steps := next_steps(view):
        _heading(out, "next steps")
        print_facts(out, steps)


def print_endpoint(
    out: Console,
    view: EndpointView,
    stories: Mapping[str, Sequence[HistoryEntry]],
    used: Mapping[str, SessionStats],
    now: datetime,
) -> None:
    failures = f"{view.failures} in a row" if view.failures else ""
    facts = [
        ("endpoint", view.name),
        ("status", f"{view.status} ({view.ready} of {view.replicas} replicas ready)"),
        ("id", view.id),
        ("created", f"{show_age(now, view.created_at)} ago"),
        ("group", f"{view.spec.resource_group}, priority {view.spec.priority}"),
        ("slots", ", ".join(f"{slot}={amount}" for slot, amount in view.spec.resources.items())),
        *_workload(view.spec),
        ("failures", failures),
        ("next try in", show_age(view.retry_at, now) if view.retry_at else ""),
        *_reason(view.reason, view.detail),
    ]
    print_facts(out, facts)
    if not view.sessions:
        return
    newest = max(view.sessions, key=lambda replica: replica.session_id)
    _heading(out, "replicas")
    rows = []
    for r in view.sessions:
        uses = "; ".join(text for _, text in _used(used.get(r.session_id)))
        since = show_age(now, r.status_since)
        rows.append((r.name, str(r.status), r.agent_id or "", since, uses, str(r.reason), r.detail))
    print_table(out, ("NAME", "STATUS", "AGENT", "SINCE", "USES", "REASON", "DETAIL"), rows)
    _story(out, stories.get(newest.session_id, []), f"story of {newest.name}")
    _log(out, newest.log_tail, f"moorage logs {view.name}")


def _cordoned(view: AgentView) -> str:
    if not view.cordon or view.cordoned_at is None:
        return ""
    stops = f"; what is left is stopped {view.stop_at:%Y-%m-%d %H:%M} UTC" if view.stop_at else ""
    return f"{view.cordoned_by}, since {view.cordoned_at:%Y-%m-%d %H:%M} UTC{stops}"


def print_agent(out: Console, view: AgentView, used: AgentStats, now: datetime) -> None:
    facts = [
        ("agent", view.id),
        ("status", agent_status(view)),
        ("by", _cordoned(view)),
        ("group", view.resource_group),
        ("address", view.address),
        ("version", f"{view.version} ({view.arch})"),
        (
            "connected",
            f"for {show_age(now, view.connected_since)}, heard {show_age(now, view.last_seen)} ago",
        ),
        ("runtimes", ", ".join(view.runtimes)),
        ("engines", ", ".join(view.engines)),
        ("labels", ", ".join(f"{name}={value}" for name, value in view.labels.items())),
        ("kernels", str(view.kernels) + (f" of at most {view.max_kernels}" if view.max_kernels else "")),
    ]
    if used.cpu is not None and used.memory is not None:
        facts.append(("uses", f"cpu {used.cpu / 1000:.2f}, mem {format_amount('mem', used.memory)}"))
    print_facts(out, facts)
    _heading(out, "offers")
    in_use = {d.device_id: d for d in used.devices}
    columns = ["SLOT", "DEVICE", "MODEL", "GIVEN", "BUSY", "MEMORY", "HEALTH"]
    placed = any(o.numa is not None or o.nvlink_domain or o.parent for o in view.offers)
    rows = []
    for o in view.offers:
        row = [o.slot, o.device_id, o.model, _part(o.slot, o.device_id, o.used, o.capacity)]
        row += [
            *_device_use(in_use.get(o.device_id), o.memory_bytes),
            "" if o.healthy else f"unhealthy: {o.unhealthy_reason}".rstrip(": "),
        ]
        if placed:
            row += ["" if o.numa is None else str(o.numa), o.nvlink_domain, o.parent]
        rows.append(row)
    print_table(out, columns + (["NUMA", "NVLINK", "SLICE OF"] if placed else []), rows)


def _device_use(used: DeviceStats | None, memory_bytes: int) -> tuple[str, str]:
    """How busy it is, and what of its memory is in use."""
    memory = format_amount("mem", memory_bytes) if memory_bytes else ""
    if used is None:
        return "", memory
    busy = "" if used.gpu is None else f"{used.gpu * 100 // WHOLE_DEVICE}%"
    return busy, memory if used.memory is None else f"{format_amount('mem', used.memory)}/{memory}"


def _used(stats: SessionStats | None) -> list[tuple[str, str]]:
    """Of the newest attempt, while it runs: a line for each kernel."""
    if stats is None or stats.status not in LIVE:
        return []
    newest = max((kernel.attempt for kernel in stats.kernels), default=0)
    told = [k for k in stats.kernels if k.latest is not None and k.attempt == newest]
    several = len(told) > 1
    return [
        (name, f"{text} ({kernel.hostname})" if several else text)
        for kernel in told
        if kernel.latest is not None
        for name, text in use_facts(kernel.latest)
    ]


def _part(slot: str, device_id: str, used: int, capacity: int) -> str:
    if device_id:
        return f"{100 * used // capacity if capacity else 0}%"
    return f"{format_amount(slot, used)}/{format_amount(slot, capacity)}"


def _cluster(spec: SessionSpec) -> str:
    if spec.cluster is None:
        return ""
    lost = "ends" if spec.cluster.on_kernel_loss == "end" else "goes on"
    return f"{spec.size} kernels, {spec.cluster.mode}; it {lost} when a sub is lost"


def _workload(spec: Workload) -> list[tuple[str, str]]:
    return [
        ("engine", f"{spec.engine} on runtime {spec.runtime}"),
        ("image", spec.image or ""),
        ("model", spec.model or ""),
        ("command", shlex.join(spec.command)),
        ("args", shlex.join(spec.args)),
        ("env", " ".join(sorted(spec.env))),  # names only: values are often secrets
        ("arch", spec.arch or ""),
        ("labels", " ".join(f"{name}={value}" for name, value in sorted(spec.labels.items()))),
        ("only on", ", ".join(spec.agents)),
    ]


def _reason(reason: Reason, detail: str) -> list[tuple[str, str]]:
    if reason is Reason.NONE:
        return [("detail", detail)]
    words, step = why_failed(reason, detail)
    return [("reason", words), ("next step", step)]


def _story(out: Console, history: Sequence[HistoryEntry], title: str = "story") -> None:
    if not history:
        return
    _heading(out, title)
    before = history[0].at
    rows = []
    for entry in history:
        step = (entry.at - before).total_seconds()
        before = entry.at
        moment = entry.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        move = (str(entry.to_status), entry.event, entry.actor, str(entry.reason), entry.detail)
        rows.append((moment, f"+{show_duration(step)}", *move))
    print_table(out, ("AT (UTC)", "AFTER", "STATUS", "EVENT", "BY", "REASON", "DETAIL"), rows)


def _log(out: Console, tail: str, more: str) -> None:
    if tail:
        _heading(out, f"last lines of its log (`{more}`)")
        out.print(Text(printable(tail).rstrip()), soft_wrap=True)


def _heading(out: Console, title: str) -> None:
    out.print()
    out.print(Text(printable(title, one_line=True), "bold"))
