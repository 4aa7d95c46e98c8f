"""``moorage agents``: the agents of the nodes, their resources, and which agents take new work."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from moorage.cli import output, times
from moorage.cli.app import list_command, noun
from moorage.cli.completion import agent_ids, group_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.load_lines import NODE_COLUMNS, agent_rows, climate, current_devices
from moorage.cli.load_options import From, StepName, To, read_period
from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import WHOLE_DEVICE, format_amount
from moorage.common.model.status import AgentStatus

if TYPE_CHECKING:
    from rich.console import Console

    from moorage.common.views.load import LoadStep
    from moorage.common.views.resource_usage import AgentStats, DeviceStats
    from moorage.common.views.resources import AgentView
    from moorage.sdk import Client

AGENT_COLUMNS = ("ID", "STATUS", "GROUP", "CPU", "MEM", "DEVICES", "KERNELS", "SEEN", "MANAGER")
AGENT_WIDE = ("REACH", "ADDRESS", "VERSION", "ARCH", "RUNTIMES", "ENGINES")

agents = noun(
    "agents", help="Agents, the resources of their nodes, and whether they take new work."
)
AgentId = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help="An agent's id, as `agents list` shows it.", autocompletion=agent_ids
    ),
]


@list_command(agents)
def list_agents(cli: Cli) -> None:
    """List agents with the resources that each offers and uses.

    \b
    Examples:
      moorage agents
      moorage agents list -o wide
    """
    found = cli.run(lambda client: client.agents.list())
    now = cli.clock.now()
    if cli.json:
        cli.print_json({"agents": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.id)
    elif not found:
        cli.note("no agent has connected yet; `moorage agent` starts one")
    else:
        columns = AGENT_COLUMNS + (AGENT_WIDE if cli.wide else ())
        output.print_table(cli.out, columns, [agent_row(a, now, wide=cli.wide) for a in found])
        for group in sorted({view.resource_group for view in found if view.loss_held_since}):
            cli.note(
                f"too many agents of group {group} are silent at the same time, so none of them "
                "becomes LOST: check the network; `moorage agents forget` gives up an agent that "
                "does not return"
            )


@command(agents)
def describe(cli: Cli, agent_id: AgentId) -> None:
    """Show one agent in full: its state, its devices, and the sessions that use them.

    \b
    Examples:
      moorage agents describe node-7
    """

    async def work(client: Client) -> tuple[AgentView, AgentStats]:
        import asyncio

        return await asyncio.gather(client.agents.get(agent_id), client.agents.stats(agent_id))

    view, stats = cli.run(work)
    if cli.json:
        cli.print_json(view)
    else:
        print_agent(cli.out, view, stats, cli.clock.now())


@command(agents)
def cordon(cli: Cli, agent_id: AgentId) -> None:
    """Place nothing new on an agent; its kernels keep running. For administrators.

    \b
    Examples:
      moorage agents cordon node-7
    """
    _print_status(cli, cli.run(lambda client: client.agents.cordon(agent_id)))


@command(agents, "set")
def set_agent(
    cli: Cli,
    agent_id: AgentId,
    group: Annotated[
        str, typer.Option(help="The resource group to move it to.", autocompletion=group_names)
    ],
) -> None:
    """Move an agent to a resource group, overriding its configuration. For administrators.

    Its kernels keep running.

    \b
    Examples:
      moorage agents set node-7 --group training
    """
    _print_status(cli, cli.run(lambda client: client.agents.assign(agent_id, group)))


@command(agents)
def uncordon(cli: Cli, agent_id: AgentId) -> None:
    """Place new work on an agent again; also ends a drain. For administrators."""
    _print_status(cli, cli.run(lambda client: client.agents.uncordon(agent_id)))


@command(agents)
def drain(
    cli: Cli,
    agent_id: AgentId,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="When to stop or move the remaining sessions: a duration (2h) or "
            "2030-01-01T00:00:00Z."
        ),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop or move everything now.")] = False,
) -> None:
    """Empty an agent: place nothing new, and replace its replicas elsewhere. For administrators.

    A replica is stopped once its replacement is ready. Other sessions run until they end, or until
    --deadline. Then they are stopped, or requeued if they are batch sessions with `retries`.
    `moorage agents` shows how many kernels are left.

    \b
    Examples:
      moorage agents drain node-7
      moorage agents drain node-7 --deadline 2h
      moorage agents drain node-7 --stop
    """
    if stop and deadline is not None:
        raise InvalidInput(
            "--stop and --deadline contradict each other", next_step="give one of them"
        )

    stop_after_s = 0.0 if stop else None
    if deadline is not None:
        now = cli.clock.now()
        stop_after_s = max(0.0, (times.future(deadline, now, "--deadline") - now).total_seconds())

    from moorage.common.views.resources import Cordon

    request = Cordon(drain=True, stop_after_s=stop_after_s)
    _print_status(cli, cli.run(lambda client: client.agents.cordon(agent_id, request)))


@command(agents)
def history(cli: Cli, agent_id: AgentId) -> None:
    """Show the administrative history of an agent: changes and their actors. For administrators."""
    found = cli.run(lambda client: client.agents.history(agent_id))
    if cli.json:
        cli.print_json({"history": found})
    else:
        rows = [(f"{e.at:%Y-%m-%d %H:%M:%S}", e.event, e.actor, e.detail) for e in found]
        output.print_table(cli.out, ("AT", "EVENT", "BY", "DETAIL"), rows)


@command(agents, "load")
def show_load(
    cli: Cli,
    agent_id: AgentId,
    begin: From = "1h",
    end: To = None,
    step: StepName = None,
) -> None:
    """Show the load of an agent's node over time: CPU, memory, and its GPUs as a whole.

    Times are in UTC. A time without a sample has no line. JSON has the values of each GPU.

    \b
    Examples:
      moorage agents load node-7
      moorage agents load node-7 --from 7d -o json
    """
    since, until = read_period(cli.clock.now(), begin, end)
    found = cli.run(
        lambda client: client.agents.load(
            agent_id, since=since, until=until, step=cast("LoadStep | None", step)
        )
    )
    if cli.json:
        cli.print_json({"load": found})
    elif not found.at:
        cli.note("no samples were taken in this period")
    else:
        output.print_table(cli.out, NODE_COLUMNS, agent_rows(found))


@command(agents)
def forget(
    cli: Cli,
    agent_id: Annotated[
        str, typer.Argument(help="An agent that is SUSPECT or LOST.", autocompletion=agent_ids)
    ],
    destroyed: Annotated[
        bool,
        typer.Option("--destroyed", help="Its node is gone for good, or has been restarted since."),
    ] = False,
) -> None:
    """Remove an agent that does not return, and free its id immediately. For administrators.

    This is refused while the agent is ALIVE, and while its kernels may still run. With --destroyed
    you declare that the kernels have ended: their sessions end or start elsewhere, and their
    devices are released. If they still run, programs run twice.

    \b
    Examples:
      moorage agents forget node-7 --destroyed
    """
    forgotten = cli.run(lambda client: client.agents.forget(agent_id, destroyed=destroyed))
    if cli.json:
        cli.print_json(forgotten)
    else:
        if forgotten.ended_kernels or forgotten.released:
            slots = ", ".join(
                f"{format_amount(s, n)} {s}" for s, n in sorted(forgotten.released.items())
            )
            cli.note(
                f"released {slots or 'nothing'}; ended {forgotten.ended_kernels} kernels of "
                f"{len(forgotten.ended_sessions)} sessions"
            )

        print(forgotten.id)


def _print_status(cli: Cli, view: AgentView) -> None:
    if cli.json:
        cli.print_json(view)
        return
    kernels = f"; kernels left: {view.kernels}" if view.cordon == "drain" else ""
    print(view.id, flush=True)
    cli.note(f"{agent_status(view)}{kernels}")


def print_agent(out: Console, view: AgentView, stats: AgentStats, now: datetime) -> None:
    """Print the output of ``agents describe``: facts, then one line per offered slot or device."""
    connected = output.format_age(now, view.connected_since)
    seen = output.format_age(now, view.last_seen)
    facts = [
        ("agent", view.id),
        ("status", agent_status(view)),
        ("silent", _silence(view)),
        ("not ready", _not_ready(view)),
        ("cordoned by", _cordoned_by(view)),
        ("group", view.resource_group),
        ("address", view.address),
        ("reached by", reach_of(view)),
        *((f"proxy {proxy}", f"not dialed: {why}") for proxy, why in sorted(view.undialed.items())),
        ("version", f"{view.version} ({view.arch})"),
        ("connected", f"for {connected}, last report {seen} ago"),
        ("manager", manager_of(view)),
        ("runtimes", ", ".join(view.runtimes)),
        ("engines", ", ".join(view.engines)),
        ("labels", ", ".join(f"{name}={value}" for name, value in view.labels.items())),
        (
            "kernels",
            str(view.kernels) + (f" of at most {view.max_kernels}" if view.max_kernels else ""),
        ),
        *(
            (f"nodes of {site_node.name}", f"{site_node.used} of {site_node.total} in use")
            for site_node in view.site_nodes
        ),
    ]
    if stats.cpu is not None and stats.memory is not None:
        devices = current_devices(stats)
        uses = f"cpu {stats.cpu / 1000:.2f}, mem {format_amount('mem', stats.memory)}"
        facts.append(("uses", f"{uses}, {devices}" if devices else uses))

    output.print_facts(out, facts)
    if view.unknown_kernels:
        output.print_heading(out, "unknown kernels")
        unknown = [(k.kernel_id, k.session_id) for k in view.unknown_kernels]
        output.print_table(out, ("KERNEL", "SESSION"), unknown)

    if view.doubtful_jobs:
        output.print_heading(out, "doubtful jobs")
        doubtful = [
            (j.job_id or "unknown", j.name, f"{j.since:%Y-%m-%d %H:%M:%S}", j.why, j.tried)
            for j in view.doubtful_jobs
        ]
        output.print_table(out, ("JOB", "NAME", "SINCE", "WHY", "TRIED"), doubtful)

    output.print_heading(out, "offers")
    device_stats = {d.device_id: d for d in stats.devices}
    has_climate = any(any(climate(device)) for device in stats.devices)
    columns = ["SLOT", "DEVICE", "MODEL", "ALLOCATED", "BUSY", "MEMORY"]
    columns += ["TEMP", "POWER", "HEALTH"] if has_climate else ["HEALTH"]
    has_topology = any(o.numa is not None or o.nvlink_domain or o.parent for o in view.offers)
    rows = []
    for o in view.offers:
        row = [o.slot, o.device_id, o.model, _allocated(o.slot, o.device_id, o.used, o.capacity)]
        row += [
            *_device_usage(device_stats.get(o.device_id), o.memory_bytes),
            *(climate(device_stats.get(o.device_id)) if has_climate else ()),
            "" if o.healthy else f"unhealthy: {o.unhealthy_reason}".rstrip(": "),
        ]
        if has_topology:
            row += ["" if o.numa is None else str(o.numa), o.nvlink_domain, o.parent]

        rows.append(row)

    output.print_table(
        out, columns + (["NUMA", "NVLINK", "SLICE OF"] if has_topology else []), rows
    )


def _silence(view: AgentView) -> str:
    """What the silence of an agent means for its sessions, and what to do. Empty if it is alive."""
    check = "check the machine and its network"
    if view.loss_held_since is not None:
        return (
            "its kernels may still run; it does not become LOST while too many agents of its group "
            f"are silent; {check}"
        )

    if view.status is AgentStatus.SUSPECT:
        return (
            "it gets no new work, and its kernels may still run; if it does not report within "
            "manager.lost_grace_s, it becomes LOST, and its sessions end, wait or run again "
            f"elsewhere (on_lost_agent); {check}"
        )

    if view.status is AgentStatus.LOST:
        return (
            "its kernels may still run, and its devices are fenced until it returns; "
            f"{check}, or `moorage agents forget {view.id} --destroyed` if it never returns"
        )

    return ""


def _not_ready(view: AgentView) -> str:
    """Why the agent currently gets no new work."""
    reasons = [view.not_ready] if view.not_ready else []
    if view.restored_at is not None:
        reasons.append(
            f"no report since a backup was restored at {view.restored_at:%Y-%m-%d %H:%M} UTC"
        )

    if view.refuses_orders:
        reasons.append("it refuses its orders; see its log")
    if view.unknown_kernels:
        reasons.append("it runs kernels that the database does not know, listed below")

    return "; ".join(reasons)


def _cordoned_by(view: AgentView) -> str:
    if not view.cordon or view.cordoned_at is None:
        return ""
    stop = (
        f"; stops the remaining sessions at {view.stop_at:%Y-%m-%d %H:%M} UTC"
        if view.stop_at
        else ""
    )
    return f"{view.cordoned_by}, since {view.cordoned_at:%Y-%m-%d %H:%M} UTC{stop}"


def _allocated(slot: str, device_id: str, used: int, capacity: int) -> str:
    if device_id:
        return f"{100 * used // capacity if capacity else 0}%"
    return f"{format_amount(slot, used)}/{format_amount(slot, capacity)}"


def _device_usage(stats: DeviceStats | None, memory_bytes: int) -> tuple[str, str]:
    """Utilization of the device, and its memory in use."""
    memory = format_amount("mem", memory_bytes) if memory_bytes else ""
    if stats is None:
        return "", memory
    busy = "" if stats.gpu is None else f"{stats.gpu * 100 // WHOLE_DEVICE}%"
    return (
        busy,
        memory if stats.memory is None else f"{format_amount('mem', stats.memory)}/{memory}",
    )


def agent_status(view: AgentView) -> str:
    """The status and whether the agent takes new work, such as ``ALIVE cordoned`` or ``ALIVE
    not-ready``. ``SUSPECT held`` means that the agent is kept from becoming LOST, because too many
    agents in its group are silent."""
    closed = {"cordon": "cordoned", "drain": "draining"}.get(
        view.cordon, "leaving" if view.draining else ""
    )
    held = "held" if view.loss_held_since else ""
    return " ".join(filter(None, (view.status, closed, held, "" if view.ready else "not-ready")))


def manager_of(view: AgentView) -> str:
    """The manager that the agent is connected to; "none" if nothing can be placed on it."""
    return "none" if view.manager is None else view.manager


def reach_of(view: AgentView) -> str:
    """How proxies reach an agent's kernels, the reason for that choice, and the proxies that cannot
    reach its address."""
    parts: list[str] = [view.reach]
    if view.reach_reason:
        parts.append(view.reach_reason)
    if view.unreached_by:
        parts.append(f"no answer to {', '.join(view.unreached_by)}")

    return "; ".join(parts)


def agent_row(view: AgentView, now: datetime, *, wide: bool) -> list[str]:
    """Resources as used/offered. A device counts as used if any part of it is in use."""
    used: dict[str, list[int]] = {}
    for offer in view.offers:
        total = used.setdefault(offer.slot, [0, 0])
        device = bool(offer.device_id)
        total[0] += (1 if offer.used else 0) if device else offer.used
        total[1] += offer.capacity // WHOLE_DEVICE if device else offer.capacity

    shown = {
        s: f"{format_amount(s, u)}/{format_amount(s, total)}" for s, (u, total) in used.items()
    }
    status = agent_status(view)
    devices = " ".join(
        f"{slot}={text}" for slot, text in shown.items() if slot not in ("cpu", "mem")
    )
    row = [
        view.id,
        status,
        view.resource_group,
        shown.get("cpu", ""),
        shown.get("mem", ""),
        devices,
    ]
    row += [str(view.kernels), f"{output.format_age(now, view.last_seen)} ago", manager_of(view)]

    if wide:
        row += [
            view.reach,
            view.address,
            view.version,
            view.arch,
            ",".join(view.runtimes),
            ",".join(view.engines),
        ]

    return row
