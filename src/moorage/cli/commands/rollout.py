"""``moorage rollout``: revisions of an endpoint, and rolling updates between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import noun
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.exit_codes import FAILURE
from moorage.cli.output import format_age, print_facts, print_table, printable
from moorage.cli.session_options import Timeout
from moorage.cli.summary import explain_failure
from moorage.cli.wait import until_rolled_out

if TYPE_CHECKING:
    from moorage.common.views.endpoints import RolloutView
    from moorage.sdk import Client

rollout = noun(
    "rollout", help="Revisions of an endpoint: the state of a rolling update, history, undo."
)

Name = Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)]


@command(rollout)
def status(
    cli: Cli,
    name: Name,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the rollout has ended.")
    ] = False,
    timeout: Timeout = None,
) -> None:
    """Show the progress of a rollout. The exit code is 1 after a rollback.

    \b
    Examples:
      moorage rollout status tiny
      moorage rollout status tiny --wait --timeout 10m
    """

    async def work(client: Client) -> RolloutView:
        if not wait:
            return await client.rollouts.get(name)
        return await until_rolled_out(client, name, clock=cli.clock, timeout_s=timeout)

    view = cli.run(work)
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.state)
    else:
        print_facts(cli.out, rollout_facts(view))

    if view.state == "failed":
        raise typer.Exit(FAILURE)


@command(rollout)
def history(cli: Cli, name: Name) -> None:
    """List the revisions of an endpoint, newest first.

    \b
    Examples:
      moorage rollout history tiny
      moorage rollout history tiny -o json | jq '.revisions[0].spec.args'
    """
    found = cli.run(lambda client: client.rollouts.history(name))
    if cli.json:
        cli.print_json({"revisions": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.revision)
    else:
        now = cli.clock.now()
        rows = []
        for view in found:
            why = explain_failure(view.reason, view.detail)[0] if view.reason else ""
            model = str(view.spec.get("model") or " ".join(view.spec.get("command") or []))
            state = "current" if view.current else view.state
            row = (
                str(view.revision),
                state,
                format_age(now, view.created_at),
                view.created_by,
                model,
                why,
            )
            rows.append(tuple(map(printable, row)))

        print_table(cli.out, ("REVISION", "STATE", "AGE", "BY", "MODEL", "WHY"), rows)


@command(rollout)
def undo(
    cli: Cli,
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(min=1, help="Revision to return to. Default: the one that was served before."),
    ] = None,
) -> None:
    """Return an endpoint to an earlier revision, which rolls out like any other.

    \b
    Examples:
      moorage rollout undo tiny
      moorage rollout undo tiny --to 3
    """
    view = cli.run(lambda client: client.rollouts.undo(name, to))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(
            f"{view.name} returns to revision {view.revision}; `moorage rollout status "
            f"{view.name}` shows the progress"
        )


@command(rollout)
def promote(cli: Cli, name: Name) -> None:
    """Promote the canary of an endpoint to its stable revision. `moorage rollout undo` removes the
    canary instead.

    \b
    Examples:
      moorage endpoints set tiny model=/models/tiny-v2.gguf rollout.canary=10
      moorage rollout promote tiny
    """
    view = cli.run(lambda client: client.rollouts.promote(name))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(
            f"revision {view.revision} replaces the others; `moorage rollout status {view.name}` "
            "shows the progress"
        )


@command(rollout)
def canary(
    cli: Cli,
    name: Name,
    percent: Annotated[int, typer.Argument(min=1, max=99, help="Percentage of the requests.")],
) -> None:
    """Set the share of requests that go to an endpoint's canary, now and in later revisions.

    \b
    Examples:
      moorage rollout canary tiny 50
    """
    from moorage.common.views.endpoints import EndpointPatch

    patch = EndpointPatch(rollout={"canary": percent})
    view = cli.run(lambda client: client.endpoints.update(name, patch))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    elif view.rollout is not None and view.rollout.canary:
        print(f"revision {view.revision} gets {percent} % of the requests for {view.name}")
    else:
        print(
            f"the next revision of {view.name} gets {percent} % of the requests until it is "
            "promoted"
        )


def rollout_facts(view: RolloutView) -> list[tuple[str, str]]:
    """A rollout's names and values for ``print_facts``."""
    counts = f"{view.updated} replicas have it, {view.ready} ready; {view.old} have another one"
    state = f"canary, {view.canary} % of the requests" if view.canary else view.state
    facts = [("rollout", state), ("revision", f"{view.revision} of {view.newest}: {counts}")]
    if view.reason:
        text, step = explain_failure(view.reason, view.detail)
        facts += [
            ("rolled back", f"revision {view.rolled_back or view.newest}: {text}"),
            ("next step", step),
        ]

    return facts
