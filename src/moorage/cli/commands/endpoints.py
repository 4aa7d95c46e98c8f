"""``moorage endpoints``: lists endpoints and changes their specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import parse
from moorage.cli.app import list_command, noun
from moorage.cli.commands.ps import ListOutput, Selector, endpoint_table, plainly, show
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.lookup import all_endpoints

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView

endpoints = noun(
    "endpoints",
    help="Endpoints. `ps` lists them with the sessions; commands at the root act on them.",
)


@list_command(endpoints)
def list_endpoints(cli: Cli, selector: Selector = None) -> None:
    """List endpoints."""

    def listing(found: list[EndpointView]) -> ListOutput:
        return ListOutput(
            [view.name for view in found], [endpoint_table(cli, found)], {"endpoints": found}
        )

    def plain() -> ListOutput:
        return listing(*cli.read_lists(("/v1/endpoints", {"selector": selector})))

    def complete() -> ListOutput:
        return listing(cli.run(lambda client: all_endpoints(client, selector)))

    show(
        cli,
        plainly(cli, plain) or complete(),
        "there is no endpoint; `moorage serve MODEL` creates one",
    )


@command(endpoints, "set")
def set_endpoint(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)],
    fields: Annotated[list[str], typer.Argument(help="FIELD=VALUE; none removes a field.")],
    if_version: Annotated[
        int | None,
        typer.Option(help="Refuse if the endpoint's version differs; `-o json` shows the version."),
    ] = None,
) -> None:
    """Change fields of an endpoint's spec; others stay. Changes that affect its replicas roll out.

    \b
    Examples:
      moorage endpoints set tiny model=/models/tiny-v2.gguf resources.mem=4GiB
      moorage endpoints set tiny args='["--ctx-size","8192"]' env.LOG=debug
      moorage endpoints set tiny autoscale.min=0 autoscale.max=4 autoscale.waiting=2
      moorage endpoints set tiny rollout.max_surge=2 rollout.drain_timeout_s=300
      moorage endpoints set tiny routing.fallbacks='[{"model":"small"}]'
    """
    from moorage.common.views.endpoints import EndpointPatch

    patch = EndpointPatch.model_validate(parse.patch(fields))
    view = cli.run(lambda client: client.endpoints.update(name, patch, version=if_version))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        note = f"; `moorage rollout status {view.name}` shows its progress"
        rolls = view.rollout is not None and view.rollout.state == "progressing"
        print(f"{view.name} has revision {view.revision}{note if rolls else ''}")
