"""``moorage notifications``: subscriptions to events, sent to webhooks and by mail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import group_names, names_of
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.output import printable
from moorage.common.model.errors import InvalidInput
from moorage.common.model.subscriptions import parse_events

if TYPE_CHECKING:
    from moorage.common.views.subscriptions import (
        DeliveryView,
        SubscriptionSecret,
        SubscriptionView,
    )
    from moorage.sdk import Client

# Longer than an attempt by mail.
_TEST_S = 45.0
_POLL_S = 0.2

notifications = noun(
    "notifications", help="Events such as ended sessions, sent to webhooks and by mail."
)

Name = Annotated[
    str,
    typer.Argument(
        help="Name or id of the subscription.", autocompletion=names_of("subscriptions")
    ),
]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        help=(
            "Events, repeated or with commas: begin, end, fail, time-limit, waiting, all (of "
            "sessions), pipeline.ended, pipeline.failed, budget.warning, budget.exhausted, "
            "endpoint.degraded, node.lost."
        ),
    ),
]
Own = Annotated[
    bool | None,
    typer.Option("--own/--everyone", help="Only your own sessions (the default), or everyone's."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", help="Only in this resource group.", autocompletion=group_names),
]
Selector = Annotated[
    str | None, typer.Option("--selector", "-l", help="Only sessions with these labels.")
]
SessionName = Annotated[
    str | None, typer.Option(help="Only sessions with this name; * and ? are wildcards.")
]
Waiting = Annotated[
    float | None,
    duration_option("waiting: time in the queue after which it is sent.", min_s=60),
]
BeforeEnd = Annotated[
    float | None,
    duration_option("time-limit: time before the end at which it is sent.", min_s=60),
]


@list_command(notifications)
def list_subscriptions(cli: Cli) -> None:
    """List your subscriptions and those of the project, with their last delivery."""
    found = cli.run(lambda client: client.subscriptions.list())
    if cli.json:
        cli.print_json({"subscriptions": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    elif not found:
        cli.note("there is no subscription; `moorage notifications create` makes one")
    else:
        columns = ("NAME", "OWNER", "TO", "EVENTS", "STATE", "QUEUED", "LAST")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])
        for view in found:
            if view.reason:
                cli.note(printable(f"{view.name}: {view.state}: {view.reason}", one_line=True))


@command(notifications, "create")
def create_subscription(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    event: Events = None,
    webhook: Annotated[
        str | None, typer.Option(help="URL that receives a signed POST for each event.")
    ] = None,
    mail: Annotated[
        bool, typer.Option("--mail", help="Send mail to your own address, or to --to.")
    ] = False,
    to: Annotated[str | None, typer.Option(help="Address for --mail.")] = None,
    format: Annotated[
        str, typer.Option(help="json, or for a chat's incoming webhook: slack, discord.")
    ] = "json",
    own: Own = None,
    group: Groups = None,
    selector: Selector = None,
    session_name: SessionName = None,
    waiting: Waiting = None,
    before_end: BeforeEnd = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="It belongs to the project; for its administrators.")
    ] = False,
    all_projects: Annotated[
        bool,
        typer.Option("--all-projects", help="All projects and nodes; for administrators."),
    ] = False,
) -> None:
    """Subscribe to events.

    A webhook's signing secret is printed once; receivers verify signatures with it, as Standard
    Webhooks defines them. Without --event, only sessions that name the subscription are reported:
    `moorage run --notify end=NAME`.

    \b
    Examples:
      moorage notifications create mail --mail --event end,fail
      moorage notifications create lab --webhook https://example.com/hook --event fail --everyone
      moorage notifications create chat --webhook https://hooks.slack.com/x --format slack
    """
    from moorage.common.views.subscriptions import SubscriptionSpec

    if (webhook is None) == (not mail):
        raise InvalidInput(
            "a subscription has one target", next_step="give --webhook URL, or --mail"
        )
    if to is not None and not mail:
        raise InvalidInput("--to is an address for --mail", next_step="also give --mail")

    fields = _fields(event, own, group, selector, session_name, waiting, before_end)
    spec = SubscriptionSpec.model_validate(
        fields
        | {
            "name": name,
            "channel": "mail" if mail else "webhook",
            "target": (to or "") if mail else webhook,
            "format": format,
            "shared": shared,
            "all_projects": all_projects,
        }
    )
    _print_secret(cli, cli.run(lambda client: client.subscriptions.create(spec)))


@command(notifications, "update")
def update_subscription(
    cli: Cli,
    name: Name,
    event: Events = None,
    own: Own = None,
    group: Groups = None,
    selector: Selector = None,
    session_name: SessionName = None,
    waiting: Waiting = None,
    before_end: BeforeEnd = None,
    enable: Annotated[
        bool | None,
        typer.Option("--enable/--disable", help="Report events again, or no longer."),
    ] = None,
) -> None:
    """Change what a subscription reports; only what is given changes.

    \b
    Examples:
      moorage notifications update lab --event fail --session-name 'train-*'
      moorage notifications update lab --enable
    """
    from moorage.common.views.subscriptions import SubscriptionPatch

    fields = _fields(event, own, group, selector, session_name, waiting, before_end)
    if enable is not None:
        fields["enabled"] = enable
    if not fields:
        raise InvalidInput("nothing to change", next_step="give an option, such as --event end")

    patch = SubscriptionPatch.model_validate(fields)

    async def work(client: Client) -> SubscriptionView:
        found = await client.subscriptions.find(name)
        return await client.subscriptions.update(found.id, patch)

    _print(cli, cli.run(work))


@command(notifications, "delete")
def delete_subscription(cli: Cli, name: Name) -> None:
    """Delete a subscription. What waits to be sent is not sent."""

    async def work(client: Client) -> SubscriptionView:
        return await client.subscriptions.delete((await client.subscriptions.find(name)).id)

    _print(cli, cli.run(work))


@command(notifications, "test")
def test_subscription(cli: Cli, name: Name) -> None:
    """Send a test event now, and show what the receiver answers.

    \b
    Examples:
      moorage notifications test mail
    """

    async def work(client: Client) -> DeliveryView:
        found = await client.subscriptions.find(name)
        queued = await client.subscriptions.test(found.id)

        until = cli.clock.monotonic() + _TEST_S
        while cli.clock.monotonic() < until:
            async for view in client.subscriptions.deliveries(found.id, limit=20):
                if view.id == queued.id and view.answer:
                    return view
            await asyncio.sleep(_POLL_S)

        return queued

    view = cli.run(work)
    if cli.json:
        cli.print_json(view)
    else:
        print(printable(f"{view.state}: {view.answer or 'not sent yet'}", one_line=True))
    if view.state != "delivered":
        raise typer.Exit(1)


@command(notifications, "rotate")
def rotate_subscription(cli: Cli, name: Name) -> None:
    """Replace a webhook's signing secret, and print the new one. For a day, events are signed with
    the previous one too."""

    async def work(client: Client) -> SubscriptionSecret:
        return await client.subscriptions.rotate((await client.subscriptions.find(name)).id)

    _print_secret(cli, cli.run(work))


@command(notifications, "log")
def list_deliveries(
    cli: Cli,
    name: Name,
    state: Annotated[
        str | None, typer.Option(help="Only pending, delivered or failed ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of deliveries.")] = 20,
) -> None:
    """List the newest deliveries of a subscription, with their attempts and answers.

    \b
    Examples:
      moorage notifications log lab --state failed
    """

    async def work(client: Client) -> list[DeliveryView]:
        found = await client.subscriptions.find(name)
        return list(await client.subscriptions.deliveries(found.id, state=state, limit=limit))

    found = cli.run(work)
    if cli.json:
        cli.print_json({"deliveries": found})
        return

    rows = [
        (
            f"{output.format_age(cli.clock.now(), view.happened_at)} ago",
            str(view.event),
            printable(view.subject, one_line=True),
            view.state,
            str(view.attempts),
            printable(view.answer, one_line=True)[:80] or "-",
        )
        for view in found
    ]
    columns = ("HAPPENED", "EVENT", "SUBJECT", "STATE", "ATTEMPTS", "ANSWER")
    output.print_table(cli.out, columns, rows)


def _fields(
    event: list[str] | None,
    own: bool | None,
    group: list[str] | None,
    selector: str | None,
    *others: Any,
) -> dict[str, Any]:
    """The fields that were given. ``others``: name of the session, waiting, before the end."""
    session_name, waiting, before_end = others
    fields: dict[str, Any] = {
        "events": None if event is None else list(parse_events(_split(event), "--event")),
        "own": own,
        "resource_groups": group,
        "selector": selector,
        "session_name": session_name,
        "waiting_s": waiting,
        "before_end_s": before_end,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _split(texts: list[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part.strip()]


def _print_secret(cli: Cli, made: SubscriptionSecret) -> None:
    if cli.json:
        cli.print_json(made)
    else:
        print(made.secret or made.subscription.name)
    if made.secret is not None and not cli.json:
        cli.note("this is the secret of the signatures; it is not shown again")


def _print(cli: Cli, view: SubscriptionView) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def _row(cli: Cli, view: SubscriptionView) -> tuple[str, ...]:
    last = "-"
    if view.last_delivery is not None:
        age = output.format_age(cli.clock.now(), view.last_delivery.at)
        last = f"{view.last_delivery.state} {age} ago"

    owner = f"project {view.project}" if view.shared else view.user
    return (
        view.name,
        owner,
        printable(view.target, one_line=True) or "own address",
        ",".join(view.events) or "as sessions ask",
        view.state,
        str(view.queued),
        last,
    )
