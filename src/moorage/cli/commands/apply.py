"""``moorage apply``: creates resource groups, quotas, projects, templates and pipelines from a
file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, command
from moorage.cli.exit_codes import FAILURE
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.cli.manifests import Outcome, Planned
    from moorage.sdk import Client

File = Annotated[
    str, typer.Option("--file", "-f", help="YAML, with one or more documents; -: stdin.")
]


@command(app)
def apply(cli: Cli, file: File) -> None:
    """Create and change resource groups, quotas, projects and templates from a file; submit
    pipelines.

    Each document has `kind` (resource-group, quota, project or template), `name` and `spec`; a
    `kind: pipeline` has `steps`. All documents are checked before anything is written. Objects that
    already match stay untouched. If another user changes an object at the same time, this is
    reported as a conflict. A pipeline is submitted once a day, unless its document changes.
    `moorage plan -f FILE` shows the changes in advance.

    \b
    Examples:
      moorage apply -f cluster.yaml
      moorage groups describe default -o yaml | moorage apply -f -
    """
    from moorage.cli import manifests, pipeline_plans

    text = read_file(file)
    found = manifests.parse(text)
    pipelines = manifests.pipelines(text)

    async def work(client: Client) -> list[tuple[str, Outcome, str]]:
        applied = await manifests.apply(client, await manifests.read(client, found))
        made: list[tuple[str, Outcome, str]] = [
            (manifest.title, outcome, why) for manifest, outcome, why in applied
        ]
        for pipeline in pipelines:  # last: they may need what the file creates
            submitted = await pipeline_plans.submit(client, pipeline)
            made.append((f"pipeline/{pipeline.name}", "created" if submitted else "unchanged", ""))
        return made

    done = cli.run(work)
    if cli.json:
        cli.print_json(
            {
                "objects": [
                    {"object": title, "outcome": how, "detail": why} for title, how, why in done
                ]
            }
        )
    else:
        for title, outcome, why in done:
            print(
                f"{title} {outcome}" + (f": {output.printable(why, one_line=True)}" if why else "")
            )

    if any(outcome == "conflict" for _, outcome, _ in done):
        raise typer.Exit(FAILURE)


def print_plan(cli: Cli, file: str) -> None:
    """Print what ``apply`` would change, and where each step of a pipeline would be placed now.
    Writes nothing."""
    from moorage.cli import manifests, pipeline_plans

    text = read_file(file)
    found = manifests.parse(text)
    pipelines = manifests.pipelines(text)

    def shown(plan: Planned) -> dict[str, object]:
        return {"object": plan.manifest.title, "outcome": plan.outcome, "changes": plan.changes}

    async def work(client: Client) -> tuple[list[Planned], list[list[pipeline_plans.StepPlan]]]:
        return await manifests.read(client, found), [
            await pipeline_plans.plan(client, p) for p in pipelines
        ]

    planned, placed = cli.run(work)
    steps = list(zip(pipelines, placed, strict=True))
    if cli.json:
        shown_steps = [pipeline_plans.as_json(pipeline, plans) for pipeline, plans in steps]
        cli.print_json({"objects": [*map(shown, planned), *shown_steps]})
        return

    words = {
        "created": "would be created",
        "changed": "would be changed",
        "unchanged": "is unchanged",
    }
    for plan in planned:
        if cli.output is Output.NAME:
            print(plan.manifest.title)
            continue

        print(f"{plan.manifest.title} {words[plan.outcome]}")
        for line in plan.changes if plan.outcome != "created" else ():
            print(f"  {output.printable(line, one_line=True)}")

    for pipeline, plans in steps:
        print(
            f"pipeline/{pipeline.name}"
            + ("" if cli.output is Output.NAME else " would be submitted")
        )
        if cli.output is not Output.NAME:
            rows = [pipeline_plans.row(plan) for plan in plans]
            output.print_table(cli.out, ("STEP", "AFTER", "SESSIONS", "WOULD START"), rows)


def read_file(file: str) -> str:
    """Return the text of a file, or of stdin for ``-``. Raises ``InvalidInput``."""
    try:
        # A byte order mark, which editors on Windows write, is not part of the text.
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"--file {file}: {why}") from None
