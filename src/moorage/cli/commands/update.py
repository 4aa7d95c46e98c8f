"""``moorage update``: changes a session that waits or runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.commands.label import label_change
from moorage.cli.completion import group_names, session_names
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput
from moorage.common.views.resources import SessionPatch

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView


@command(app)
def update(
    cli: Cli,
    session: Annotated[
        str, typer.Argument(help="A session's name or id.", autocompletion=session_names)
    ],
    priority: Annotated[
        int | None,
        typer.Option(min=0, max=100, help="New priority, while it is pending; higher goes first."),
    ] = None,
    time_limit: Annotated[
        float | None,
        duration_option(
            "New time limit of a batch or interactive session. Once it has started, only "
            "administrators extend it.",
            min_s=1.0,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="New resource group, while it is pending.", autocompletion=group_names),
    ] = None,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", help="KEY=VALUE sets a label, KEY- removes it; repeatable."),
    ] = None,
    hold: Annotated[
        bool | None,
        typer.Option("--hold/--release", help="Hold a pending session, or let it start again."),
    ] = None,
    if_revision: Annotated[
        int | None,
        typer.Option(help="Change it only if it still has this revision, as in `-o json`."),
    ] = None,
) -> None:
    """Change a session that waits or runs. All changes are made, or none of them.

    A held session does not start, and no session waits for it. Its owner can release it, unless an
    administrator holds it. The program of a running session is not told about a new time limit:
    MOORAGE_END_TIME stays as it was.

    \b
    Examples:
      moorage update train --priority 20
      moorage update train --time-limit 2h --label stage=test
      moorage update train --hold
      moorage update train --release
    """
    asked = {
        "priority": priority,
        "time_limit_s": time_limit,
        "resource_group": group,
        "name": name,
        "user_labels": dict(map(label_change, labels)) if labels else None,
        "held": hold,
    }
    # Fields that are not given are not sent, so that an older manager accepts the others.
    patch = SessionPatch.model_validate({k: v for k, v in asked.items() if v is not None})
    if not patch.model_fields_set:
        raise InvalidInput(
            "there is nothing to change",
            next_step="give --priority, --time-limit, --group, --name, --label, --hold or "
            "--release",
        )

    view = cli.run(lambda client: client.sessions.update(session, patch, revision=if_revision))
    for warning in view.warnings:
        cli.note(f"moorage: {warning}")

    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(f"{view.name}: {', '.join(_facts(view, patch))}")


def _facts(view: SessionView, patch: SessionPatch) -> Sequence[str]:
    """The values that were asked for, as they are now."""
    limits = [view.spec.timeout_s, view.spec.max_lifetime_s]
    limit_s = min((limit for limit in limits if limit is not None), default=0.0)

    facts = {
        "priority": f"priority {view.priority}",
        "time_limit_s": f"time limit {format_duration(limit_s)}",
        "resource_group": f"group {view.resource_group}",
        "name": f"name {view.name}",
        "user_labels": "labels changed",
        "held": "released" if view.held is None else f"held by {view.held.by}",
    }
    return [text for field, text in facts.items() if field in patch.model_fields_set]
