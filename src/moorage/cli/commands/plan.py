"""``moorage plan``: where ``moorage run`` with the same options would start now. Creates
nothing."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, get_type_hints

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.commands.apply import print_plan
from moorage.cli.commands.run import batch_spec, run
from moorage.cli.commands.why import print_explanation
from moorage.cli.context import Cli, Output, command
from moorage.cli.exit_codes import FAILURE
from moorage.cli.session_file import holds_session
from moorage.cli.session_options import plan_session
from moorage.common.model.errors import InvalidInput

_File = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A session, as for `moorage run -f`, or YAML for `moorage apply`: show the changes it "
        "would make.",
    ),
]
_Command = Annotated[
    list[str] | None, typer.Argument(help="After --: program and arguments; optional.")
]


def plan(cli: Cli, **given: Any) -> None:
    """Show where `moorage run` with these options would start now, or what is missing. Creates
    nothing.

    The exit code is 1 if it would not start now. With --file, show the changes of `moorage apply`.

    \b
    Examples:
      moorage plan --gpus 4
      moorage plan --template train --set epochs=3
      moorage plan -f cluster.yaml
      moorage plan --gpus 1 --timeout 1h -o json -- ./job.sh
    """
    file = given["file"]
    if file is not None and not holds_session(file):
        if any(value is not None for name, value in given.items() if name != "file"):
            raise InvalidInput("--file cannot be combined with options of a session")

        print_plan(cli, file)
        return

    has_program = given["template"] is not None or file is not None
    command = given["command"] or ([] if has_program else ["true"])
    spec = batch_spec(given | {"command": command}, cli.clock.now())
    view = cli.run(lambda client: plan_session(client, spec))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print("\n".join(place.agent_id for place in view.places))
    else:
        rows = [
            (
                place.agent_id
                if len(view.places) == 1
                else f"{place.hostname} on {place.agent_id}",
                " ".join(device.device_id for device in place.devices if device.device_id),
            )
            for place in view.places
        ]
        output.print_facts(
            cli.out, [("fits", "yes" if view.fits else "no"), ("group", view.resource_group)]
        )
        output.print_facts(
            cli.out, [("agent", f"{agent}  {devices}".rstrip()) for agent, devices in rows]
        )
        print_explanation(cli.out, view, cli.clock.now())

    if not view.fits:
        raise typer.Exit(FAILURE)


def _copy_options_of_run() -> None:
    """Give ``plan`` the options of ``run``, except those that apply only after the session is
    created."""
    hints = get_type_hints(run, include_extras=True) | {"command": _Command}
    excluded = (
        "strict",
        "force",
        "wait",
        "detach",
        "stop_on_interrupt",
        "stdin",
        "remove",
        "array",
    )
    parameters = [
        parameter.replace(default=None) if name == "command" else parameter
        for name, parameter in inspect.signature(run).parameters.items()
        if name not in excluded
    ]

    keyword = [
        parameter
        if parameter.name == "cli"
        else parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters
    ]
    hints["file"] = _File
    plan.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    plan.__annotations__ = {name: hint for name, hint in hints.items() if name not in excluded}


_copy_options_of_run()
command(app)(plan)
