"""``moorage qos``: qualities of service, with priority, limits, preemption and a price factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output, parse
from moorage.cli.app import list_command, noun
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput
from moorage.common.model.qos import QosOptions
from moorage.common.model.slots import format_slots, parse_slots
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.common.views.resources import QosView
    from moorage.sdk import Client

qos = noun("qos", help="Qualities of service: priority, limits, preemption and price of sessions.")

Name = Annotated[str, typer.Argument(help="A QoS.", autocompletion=names_of("qos"))]


@list_command(qos)
def list_qos(cli: Cli) -> None:
    """List the qualities of service that your projects may use."""
    _print(cli, cli.run(lambda client: client.qos.list()))


@command(qos)
def describe(cli: Cli, name: Name) -> None:
    """Show one QoS and all its options."""
    view = cli.run(lambda client: client.qos.get(name))
    if cli.output is not Output.TABLE and not cli.wide:
        _print(cli, [view], single=True)
        return

    options = view.model_dump(mode="json", include=set(QosOptions.model_fields))
    output.print_facts(
        cli.out, [("qos", view.name), *((f, parse.shown(v)) for f, v in options.items())]
    )


@command(qos, "set")
def set_qos(
    cli: Cli,
    name: Name,
    options: Annotated[
        list[str] | None,
        typer.Argument(help="OPTION=VALUE; `none` unsets it. `qos describe` lists the options."),
    ] = None,
) -> None:
    """Create a QoS, or change options of one; other options stay. For administrators.

    Limits on placed sessions take effect at once. Priority, preemption, price factor and time limit
    apply to sessions that are submitted from then on.

    \b
    Examples:
      moorage qos set debug priority=50 max_time_s=1800 max_running_per_user=1
      moorage qos set debug max_per_session.cuda.device=1 max_total.cuda.device=8
      moorage qos set low priority=1 preemptible=true price_factor=0.5
      moorage qos set debug projects=vision,speech max_running=none
    """
    if not options:
        raise InvalidInput("no option was given", next_step="see `moorage qos set --help`")

    async def work(client: Client) -> QosView:
        before = QosOptions()
        version = None
        try:
            found = await client.qos.get(name)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            version = found.version
            before = QosOptions.model_validate(
                found.model_dump(include=set(QosOptions.model_fields))
            )

        changed = parse.options(options, QosOptions, before.model_dump(mode="json"))
        return await client.qos.set(name, QosOptions.model_validate(changed), version=version)

    _print(cli, [cli.run(work)], single=True)


@command(qos)
def delete(cli: Cli, name: Name) -> None:
    """Delete a QoS. Refused while live sessions use it. For administrators."""
    _print(cli, [cli.run(lambda client: client.qos.delete(name))], single=True)


def _print(cli: Cli, found: list[QosView], *, single: bool = False) -> None:
    if cli.json:
        cli.print_json(found[0] if single else {"qos": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    elif not found:
        cli.note("there is no QoS; an administrator creates one with `moorage qos set`")
    else:
        columns = ("NAME", "PRIORITY", "PREEMPTIBLE", "PRICE", "TIME", "LIMITS", "PROJECTS")
        output.print_table(cli.out, columns, [_row(view) for view in found])


def _row(view: QosView) -> tuple[str, ...]:
    preemptible = {None: "-", True: "yes", False: "no"}[view.preemptible]
    return (
        view.name,
        "-" if view.priority is None else str(view.priority),
        preemptible,
        f"x{view.price_factor:g}",
        "-" if view.max_time_s is None else format_duration(view.max_time_s),
        limits_text(view) or "-",
        "all" if view.projects is None else ",".join(view.projects) or "none",
    )


def limits_text(view: QosView) -> str:
    """The limits on sessions in one line, such as ``1 running per user; cuda.device=1 each``."""
    parts = []
    if view.max_per_session:
        parts.append(f"{format_slots(parse_slots(view.max_per_session))} each")
    if view.max_running_per_user is not None:
        parts.append(f"{view.max_running_per_user} running per user")
    if view.max_per_user:
        parts.append(f"{format_slots(parse_slots(view.max_per_user))} per user")

    if view.max_running is not None:
        parts.append(f"{view.max_running} running")
    if view.max_total:
        parts.append(f"{format_slots(parse_slots(view.max_total))} in total")

    return "; ".join(parts)
