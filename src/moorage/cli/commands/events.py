"""``moorage events``: a stream of events of sessions, agents, endpoints, groups and budgets."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from moorage.cli.app import app
from moorage.cli.context import Cli, command
from moorage.common.model.budget_units import format_budget_amount
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.sdk import Client

# Pause before the stream is reopened after the manager has ended it.
REOPEN_S = 1.0


@command(app)
def events(
    cli: Cli,
    kinds: Annotated[
        str,
        typer.Option(
            help=(
                "Only events of these kinds, separated by commas: session, agent, endpoint, group, "
                "budget. Default: all."
            )
        ),
    ] = "",
    about: Annotated[
        str | None, typer.Option(help="Only events of the session or endpoint with this id.")
    ] = None,
) -> None:
    """Stream events of the cluster until Ctrl-C.

    With -o json, each line is one object. An event contains the current state of a session, agent,
    endpoint or group, or reports that a budget limit was reached.

    \b
    Examples:
      moorage events
      moorage events --kinds budget
      moorage events --kinds session -o json | jq -r '[.name, .status] | @tsv'
    """
    from moorage.common.views.events import EventKind

    given = [kind.strip() for kind in kinds.split(",") if kind.strip()]
    if unknown := [kind for kind in given if kind not in get_args(EventKind)]:
        allowed = ", ".join(get_args(EventKind))
        raise InvalidInput(f"--kinds {unknown[0]!r} is unknown", next_step=f"use one of: {allowed}")

    chosen = [cast(EventKind, kind) for kind in given]

    async def work(client: Client) -> None:
        last = ""
        while True:
            async with aclosing(client.events.follow(*chosen, about=about, after=last)) as stream:
                try:
                    async for event in stream:
                        last = event.id or last
                        _show(cli, event.kind, json.loads(event.data))
                except OSError:
                    cli.note("the connection to the manager was lost; reconnecting")

            await asyncio.sleep(REOPEN_S)

    cli.run(work)


def _show(cli: Cli, kind: str, event: dict[str, Any]) -> None:
    if kind == "reset":
        cli.note("some events were lost")
    elif cli.json:
        print(json.dumps({"kind": kind} | event), flush=True)
    else:
        at = f"{cli.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        print("  ".join((at, f"{kind:8}", *event_facts(kind, event))), flush=True)


def event_facts(kind: str, event: dict[str, Any]) -> tuple[str, ...]:
    """The columns of an event after its time and kind. Pure."""
    if kind == "budget":
        unit = event["unit"]
        used, limit = (format_budget_amount(unit, event[name]) for name in ("used", "threshold"))
        text = (
            f"used {used} of {limit}, its {event['level']} limit of {unit} by the {event['period']}"
        )
        return f"{event['scope']} {event['name']}", text

    name = str(event.get("name") or event.get("id"))
    if kind == "endpoint":
        state = "deleted" if event["deleted"] else f"{event['replicas']} replicas"
        return name, state, f"revision {event['revision']}"
    if kind == "agent":
        return name, "forgotten" if event["gone"] else str(event["status"]), str(event["cordon"])

    facts = [name, event.get("status", ""), event.get("reason", "")]
    if place := event.get("pipeline"):
        index = "" if place["index"] is None else f"[{place['index']}]"
        facts.append(f"{place['name']}/{place['step']}{index}")

    return tuple(str(fact) for fact in facts if fact)
