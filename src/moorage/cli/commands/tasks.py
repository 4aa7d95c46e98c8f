"""``moorage tasks``: the tasks of a session that works through a list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import noun
from moorage.cli.completion import session_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.output import printable
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.task_states import MAX_TASKS, TaskState

if TYPE_CHECKING:
    from moorage.common.views.tasks import TaskSummary, TaskView
    from moorage.sdk import Client

tasks = noun("tasks", help="Tasks of sessions that work through a list.")

Session = Annotated[
    str, typer.Argument(help="Name or id of the session.", autocompletion=session_names)
]
_LINE = 60


@command(tasks, "list")
def list_tasks(
    cli: Cli,
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only these states: SUCCEEDED, FAILED, LOST, GIVEN, WAITING; comma-separated or "
            "repeated.",
        ),
    ] = None,
) -> None:
    """List the tasks that were given to a node, with their exit codes and times, and count all.

    \b
    Examples:
      moorage tasks list scan
      moorage tasks list scan --state FAILED,LOST
    """
    states = _states(state or [])

    async def read(client: Client) -> tuple[TaskSummary, list[TaskView]]:
        return await client.tasks.summary(session), await client.tasks.list(session, states)

    summary, found = cli.run(read)
    if not summary.total:
        raise NotFound(
            f"session {session!r} has no task list",
            next_step="`moorage run --tasks FILE -- COMMAND {}` starts one that has",
        )

    if cli.json:
        cli.print_json(
            {
                "summary": summary.model_dump(mode="json"),
                "tasks": [task.model_dump(mode="json") for task in found],
            }
        )
    elif cli.output is Output.NAME:
        for task in found:
            print(task.number)
    else:
        columns = ("TASK", "ATTEMPT", "STATE", "EXIT", "TIME", "AGENT", "LINE")
        output.print_table(cli.out, columns, [_row(task) for task in found])
        cli.note(_counts(summary))


@command(tasks, "logs")
def print_logs(
    cli: Cli,
    session: Session,
    number: Annotated[
        int, typer.Argument(min=1, max=MAX_TASKS, help="Number of the task, from 1.")
    ],
) -> None:
    """Print the end of a task's output, at most 4 KiB, of each attempt. The log of the session has
    all of it."""
    found = cli.run(lambda client: client.tasks.list(session, number=number))
    if cli.json:
        cli.print_json({"tasks": [task.model_dump(mode="json") for task in found]})
        return

    if not found:
        raise NotFound(
            f"task {number} of {session!r} was not given to a node",
            next_step=f"moorage tasks list {session}",
        )

    for task in found:
        if len(found) > 1:
            cli.note(f"attempt {task.attempt}: {task.state}")
        if task.output is None and task.state in (TaskState.SUCCEEDED, TaskState.FAILED):
            cli.note(f"its output is not kept here; `moorage logs {session}` has it")
        sys.stdout.write(printable(task.output or ""))


@command(tasks, "retry")
def retry_tasks(
    cli: Cli,
    session: Session,
    name: Annotated[
        str | None, typer.Option(help="Name of the new session. Default: a generated one.")
    ] = None,
) -> None:
    """Start a session with the tasks of an ended session that did not succeed.

    Tasks that are LOST may have run before.

    \b
    Examples:
      moorage tasks retry scan
      moorage tasks retry scan --name scan-2
    """
    key = cli.clock.new_id()
    view = cli.run(lambda client: client.tasks.retry(session, name, idempotency_key=key))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def _states(given: list[str]) -> list[TaskState]:
    """The states in ``--state``. Raises ``InvalidInput``."""
    found = []
    for text in (part.strip() for value in given for part in value.split(",")):
        try:
            found.append(TaskState(text.upper()))
        except ValueError:
            raise InvalidInput(
                f"--state {text!r} is not the state of a task",
                next_step=f"use one of {', '.join(TaskState)}",
            ) from None
    return found


def _row(task: TaskView) -> tuple[str, ...]:
    line = printable(task.line, one_line=True)
    return (
        str(task.number),
        str(task.attempt),
        task.state,
        "-" if task.exit_code is None else str(task.exit_code),
        "-" if task.seconds is None else f"{task.seconds:.3g}s",
        task.agent_id or "-",
        line if len(line) <= _LINE else f"{line[: _LINE - 1]}…",
    )


def _counts(summary: TaskSummary) -> str:
    counts = {
        "succeeded": summary.succeeded,
        "failed": summary.failed,
        "LOST": summary.lost,
        "on nodes": summary.given,
        "waiting": summary.waiting,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"{summary.total:,} tasks: {shown}"
