"""``moorage templates``: versioned sets of parameters that sessions are started from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput
from moorage.common.model.templates import TemplateSpec, split_version
from moorage.common.model.unique_keys import unique_object

if TYPE_CHECKING:
    from moorage.common.views.templates import TemplateView

templates = noun("templates", help="Templates of sessions: versioned sets of parameters.")

Name = Annotated[
    str, typer.Argument(help="Name of the template.", autocompletion=names_of("templates"))
]
VersionRef = Annotated[
    str, typer.Argument(help="NAME, or NAME@VERSION.", autocompletion=names_of("templates"))
]
ForAll = Annotated[
    bool,
    typer.Option("--for-all", help="Share the template with all projects; for administrators."),
]


@command(templates, "set")
def set_template(
    cli: Cli,
    name: Name,
    file: Annotated[Path, typer.Option("--from-file", "-f", help="The template, in JSON or TOML.")],
    for_all: ForAll = False,
) -> None:
    """Add a version of a template, which becomes the latest. Existing versions never change.

    \b
    Examples:
      moorage templates set train -f train.toml
      moorage start --template train --set epochs=3
    """
    template = TemplateSpec.model_validate(_read(file))
    view = cli.run(lambda client: client.templates.put(name, template, for_all=for_all))
    _print(cli, view)


@list_command(templates)
def list_templates(cli: Cli) -> None:
    """List the latest versions of the project's templates and of the shared ones."""
    _print_all(cli, cli.run(lambda client: client.templates.list()))


@command(templates, "versions")
def list_versions(cli: Cli, name: Name) -> None:
    """List the versions of a template, newest first."""
    _print_all(cli, cli.run(lambda client: client.templates.versions(name)))


@command(templates, "describe")
def describe_template(
    cli: Cli,
    ref: VersionRef,
) -> None:
    """Show a template with its parameters."""
    try:
        name, version = split_version(ref)
    except ValueError as error:
        raise InvalidInput(str(error)) from None

    view = cli.run(lambda client: client.templates.get(name, version))
    if cli.output is Output.YAML:
        cli.print_manifests([view])
        return
    if cli.json:
        cli.print_json(view)
        return

    shown = view.model_dump(mode="json", exclude_unset=True)["template"]
    based = f", based on {', '.join(view.bases)}" if view.bases else ""
    print(f"# {view.ref}{based}" + (", runs isolated" if view.isolated else ""))
    print(json.dumps(shown, indent=2))


@command(templates, "delete")
def delete_template(cli: Cli, name: Name, for_all: ForAll = False) -> None:
    """Delete all versions of a template. Sessions made from it stay."""
    _print(cli, cli.run(lambda client: client.templates.delete(name, for_all=for_all)))


def _read(file: Path) -> Any:
    """Read a template. Raises ``InvalidInput`` if the file cannot be read."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=unique_object)
    except OSError as error:
        raise InvalidInput(f"--from-file {file}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(
            f"--from-file {file}: {error}", next_step="write JSON, or TOML in a .toml file"
        ) from None


def _print(cli: Cli, view: TemplateView) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.ref)


def _print_all(cli: Cli, found: list[TemplateView]) -> None:
    if cli.output is Output.YAML:
        cli.print_manifests(found)
    elif cli.json:
        cli.print_json({"templates": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "VERSION", "PROJECT", "PARAMETERS", "CREATED", "CREATED BY")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


def _row(cli: Cli, view: TemplateView) -> tuple[str, ...]:
    created = f"{output.format_age(cli.clock.now(), view.created_at)} ago"
    parameters = ", ".join(view.template.parameters) or "-"
    return (
        view.name,
        str(view.version),
        view.project or "(all)",
        parameters,
        created,
        view.created_by,
    )
