"""``moorage groups``: resource groups and their scheduling options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output, parse
from moorage.cli.app import list_command, noun
from moorage.cli.completion import group_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.start_times import start_text
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions

if TYPE_CHECKING:
    from moorage.common.views.resources import GroupView
    from moorage.sdk import Client

groups = noun("groups", help="Resource groups and their scheduling options.")


@list_command(groups)
def list_groups(cli: Cli) -> None:
    """List resource groups."""
    _print_groups(cli, cli.run(lambda client: client.groups.list()))


@command(groups)
def describe(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A resource group.", autocompletion=group_names)],
) -> None:
    """Show one resource group and all its options."""
    view = cli.run(lambda client: client.groups.get(name))
    if cli.output is not Output.TABLE and not cli.wide:
        _print_groups(cli, [view], single=True)
    else:
        counts = f"{view.agents} agents, {view.pending} pending, {view.running} running"
        facts = [("group", view.name), ("now", counts)]
        if view.aliases:
            facts.append(("aliases", ", ".join(view.aliases)))
        if view.start_times is not None:
            facts.append(("starts", start_text(view.start_times)))

        for site_node in view.site_nodes:
            facts.append(
                (f"nodes of {site_node.name}", f"{site_node.used} of {site_node.total} in use")
            )

        options = view.options.model_dump(mode="json")
        if view.options.limits is not None:  # most groups have only some of them
            options["limits"] = view.options.limits.model_dump(mode="json", exclude_defaults=True)
        output.print_facts(cli.out, facts + [(f, parse.shown(v)) for f, v in options.items()])


@command(groups)
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the new resource group.")],
    options: Annotated[
        list[str] | None, typer.Argument(help="OPTION=VALUE. `groups describe` lists the options.")
    ] = None,
) -> None:
    """Create a resource group, or bring a retired one back. For administrators.

    \b
    Examples:
      moorage groups create training strategy=drf hol=backfill
      moorage groups create lab projects=vision,speech session_types=interactive
    """
    from moorage.common.views.resources import NewGroup

    given = parse.options(options or [], GroupOptions, GroupOptions().model_dump(mode="json"))
    new = NewGroup(name=name, options=GroupOptions.model_validate(given))
    _print_groups(cli, [cli.run(lambda client: client.groups.create(new))], single=True)


@command(groups)
def rename(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A resource group.", autocompletion=group_names)],
    new_name: Annotated[str, typer.Argument(help="Its new name.")],
    if_version: Annotated[
        int | None,
        typer.Option(help="Refuse if the group's version differs; `-o json` shows the version."),
    ] = None,
) -> None:
    """Rename a resource group. For administrators.

    Sessions, agents and endpoints keep running. The former name becomes an alias: specs, templates,
    quotas and the configuration of agents may use it until `moorage groups forget` frees it.

    \b
    Examples:
      moorage groups rename training research
      moorage groups forget training
    """
    renamed = cli.run(lambda client: client.groups.rename(name, new_name, version=if_version))
    _print_groups(cli, [renamed], single=True)


@command(groups)
def forget(
    cli: Cli, alias: Annotated[str, typer.Argument(help="A former name of a resource group.")]
) -> None:
    """Free a former name of a renamed resource group. For administrators.

    This is refused while agents' configurations or templates use that name. Model usage recorded
    under that name keeps it.
    """
    _print_groups(cli, [cli.run(lambda client: client.groups.release_alias(alias))], single=True)


@command(groups)
def delete(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A resource group.", autocompletion=group_names)],
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="Retire it even while it is in use: nothing new is created, and existing sessions "
            "stay.",
        ),
    ] = False,
) -> None:
    """Retire a resource group: nothing new is created in it. For administrators.

    This is refused while the group has live sessions, endpoints or agents, unless --drain is given.
    """
    _print_groups(
        cli, [cli.run(lambda client: client.groups.retire(name, drain=drain))], single=True
    )


@command(groups, "set")
def set_group(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A resource group.", autocompletion=group_names)],
    options: Annotated[
        list[str] | None,
        typer.Argument(help="OPTION=VALUE; `none` unsets it. `groups describe` lists the options."),
    ] = None,
    hol: Annotated[
        str | None,
        typer.Option(
            help="Policy when the first session in the queue does not fit: strict, skip or "
            "backfill."
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            "--num-retries-to-skip",
            help="For skip: how often the first session is refused before others pass it.",
        ),
    ] = None,
    selection: Annotated[
        str | None,
        typer.Option(
            "--agent-selection", help="concentrated, dispersed, round-robin, custom:NAME."
        ),
    ] = None,
    if_version: Annotated[
        int | None,
        typer.Option(help="Refuse if the group's version differs; `-o json` shows the version."),
    ] = None,
) -> None:
    """Change options of a resource group, with immediate effect; other options stay. For
    administrators.

    \b
    Examples:
      moorage groups set default hol=skip num_retries_to_skip=3 agent_selection=dispersed
      moorage groups set default strategy=drf weights.ann=2 session_types=batch,inference
      moorage groups set default preemption=on preemption.how=end max_bypasses=none
      moorage groups set hpc hpc.partition=gpu hpc.options.constraint=a100
      moorage groups set default limits.max_batch_time_s=86400 limits.max_per_user.cuda.device=4
    """
    options_given = {"hol": hol, "num_retries_to_skip": retries, "agent_selection": selection}
    given = {field: value for field, value in options_given.items() if value is not None}
    if not given and not options:
        raise InvalidInput("no option was given", next_step="see `moorage groups set --help`")

    async def work(client: Client) -> GroupView:
        found = await client.groups.get(name)
        changed = (
            parse.options(options or [], GroupOptions, found.options.model_dump(mode="json"))
            | given
        )
        version = found.version if if_version is None else if_version
        return await client.groups.update(
            name, GroupOptions.model_validate(changed), version=version
        )

    _print_groups(cli, [cli.run(work)], single=True)


def _print_groups(cli: Cli, found: list[GroupView], *, single: bool = False) -> None:
    if cli.output is Output.YAML:
        cli.print_manifests(found)
    elif cli.json:
        cli.print_json(found[0] if single else {"groups": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = (
            "NAME",
            "AGENTS",
            "PENDING",
            "RUNNING",
            "STRATEGY",
            "HOL",
            "RETRIES",
            "SELECTION",
        )
        rows = [
            (
                *(g.name, str(g.agents), str(g.pending), str(g.running)),
                *(
                    g.options.strategy,
                    g.options.hol,
                    str(g.options.num_retries_to_skip),
                    g.options.agent_selection,
                ),
            )
            for g in found
        ]
        output.print_table(cli.out, columns, rows)

    if not found:
        cli.note("there is no resource group")
