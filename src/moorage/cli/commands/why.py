"""``moorage why``: explains why a session waits."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.completion import workload_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.lookup import find
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import NotFound
from moorage.common.model.status import Status
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from rich.console import Console

    from moorage.common.views.pending import PendingExplanation, WhyView
    from moorage.sdk import Client


@command(app)
def why(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="A session's name or id, or an endpoint.", autocompletion=workload_names
        ),
    ],
) -> None:
    """Explain why a session waits: its conditions, what agents lack, its place in the queue.

    For an endpoint, explain why its newest replica waits.

    \b
    Examples:
      moorage why train
      moorage why train -o json | jq .expected_start
    """
    view = cli.run(lambda client: _explain(cli, client, name))
    if cli.json:
        cli.print_json(view)
        return
    if cli.output is Output.NAME:
        print(view.name)
        return

    since = output.format_age(cli.clock.now(), view.since)
    output.print_facts(cli.out, [("session", view.name), ("status", f"{view.status} for {since}")])
    print_explanation(cli.out, view, cli.clock.now(), is_pending=view.status is Status.PENDING)


async def _explain(cli: Cli, client: Client, name: str) -> WhyView:
    try:
        return await client.sessions.why(name)
    except ApiError as error:
        if error.status != 404:
            raise

    found = await find(client, name)
    from moorage.common.views.endpoints import EndpointView

    if not isinstance(found, EndpointView):
        return await client.sessions.why(found.id)

    waiting = [session for session in found.sessions if session.status is Status.PENDING]
    shown = waiting or ([] if found.status == "not_loaded" else found.sessions)
    newest = max(shown, key=lambda session: session.session_id, default=None)
    if newest is None:
        asleep = found.status == "not_loaded"
        raise NotFound(
            f"{found.name} is asleep"
            if asleep
            else f"{found.name} has no replica yet: it is {found.status}",
            next_step=f"a request or `moorage scale {found.name} 1` wakes it"
            if asleep
            else f"`moorage describe {found.name}` shows its state",
        )

    cli.note(f"{newest.name}, a replica of {found.name}")
    return await client.sessions.why(newest.session_id)


def print_explanation(
    out: Console, view: PendingExplanation, now: datetime, *, is_pending: bool = True
) -> None:
    """Print why a session waits or would wait. ``is_pending``: the planner has evaluated it."""
    output.print_facts(out, [("why" if is_pending else "", view.text)])
    output.print_facts(
        out, [("met" if c.met else "NOT MET", f"{c.kind}: {c.text}") for c in view.conditions]
    )
    output.print_facts(out, [("agents", line) for line in view.refusals])
    output.print_facts(out, [("fenced", line) for line in view.fenced])

    queue = (
        f"position {view.position} of {view.waiting} waiting for capacity" if view.position else ""
    )
    starts = view.expected_start
    at = f"{starts:%Y-%m-%d %H:%M:%S} UTC" if starts is not None else ""
    remaining = (
        f" (in {output.format_age(starts, now)})" if starts is not None and starts > now else ""
    )
    facts = [
        ("queue", queue),
        ("waits for", ", ".join(view.blockers)),
        ("expected", f"{at}{remaining}"),
        ("basis", view.basis),
        ("accuracy", _accuracy(view)),
    ]
    output.print_facts(out, facts)


def _accuracy(view: PendingExplanation) -> str:
    past = view.calibration
    if view.expected_start is None or past is None:
        return ""
    half, most = (format_duration(seconds) for seconds in (past.error_p50_s, past.error_p90_s))
    return (
        f"of {past.starts} such estimates, half were off by at most {half}, nine in ten by at most "
        f"{most}"
    )
