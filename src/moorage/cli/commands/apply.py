"""``moorage apply``: makes resource groups, quotas, projects and templates as a file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, command
from moorage.cli.errors import FAILURE
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.cli.manifests import Manifest, Outcome, Planned
    from moorage.sdk import Client

File = Annotated[str, typer.Option("--file", "-f", help="YAML, with one or more documents; -: stdin.")]


@command(app)
def apply(cli: Cli, file: File) -> None:
    """Create and change resource groups, quotas, projects and templates as a file says. For administrators.

    Each document has `kind` (resource-group, quota, project or template), `name` and `spec`. All are checked
    before anything is written. What is as the file says stays untouched; what somebody else changes at that
    moment is a conflict. `moorage plan -f FILE` shows what would change.

    \b
    Examples:
      moorage apply -f cluster.yaml
      moorage groups describe default -o yaml | moorage apply -f -
    """
    from moorage.cli import manifests

    found = manifests.parse(read_file(file))

    async def work(client: Client) -> list[tuple[Manifest, Outcome, str]]:
        return await manifests.apply(client, await manifests.read(client, found))

    done = cli.run(work)
    if cli.json:
        cli.print_json(
            {"objects": [{"object": m.title, "outcome": how, "detail": why} for m, how, why in done]}
        )
    else:
        for manifest, outcome, why in done:
            print(
                f"{manifest.title} {outcome}" + (f": {output.printable(why, one_line=True)}" if why else "")
            )
    if any(outcome == "conflict" for _, outcome, _ in done):
        raise typer.Exit(FAILURE)


def print_plan(cli: Cli, file: str) -> None:
    """What ``apply`` would change. Writes nothing."""
    from moorage.cli import manifests

    found = manifests.parse(read_file(file))

    def shown(one: Planned) -> dict[str, object]:
        return {"object": one.manifest.title, "outcome": one.outcome, "changes": one.changes}

    planned = cli.run(lambda client: manifests.read(client, found))
    if cli.json:
        cli.print_json({"objects": [shown(one) for one in planned]})
        return
    words = {"created": "would be created", "changed": "would be changed", "unchanged": "is unchanged"}
    for one in planned:
        if cli.output is Output.NAME:
            print(one.manifest.title)
            continue
        print(f"{one.manifest.title} {words[one.outcome]}")
        for line in one.changes if one.outcome != "created" else ():
            print(f"  {output.printable(line, one_line=True)}")


def read_file(file: str) -> str:
    """The text of a file, or of stdin for ``-``. Raises ``InvalidInput``."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"--file {file}: {why}") from None
