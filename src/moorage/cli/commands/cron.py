"""``moorage cron``: sessions and pipelines that start at the times of a cron expression."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from moorage.cli import output, times
from moorage.cli.app import list_command, noun
from moorage.cli.commands.apply import read_file
from moorage.cli.commands.run import batch_spec, run
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.session_options import TemplateStart
from moorage.common.model.cron_jobs import CronJobSpec, CronRunState, NewCronJob
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.cron_jobs import CronJobView, CronRunView
    from moorage.sdk import Client

cron = noun(
    "cron", help="Cron jobs: sessions and pipelines that start at the times of a cron expression."
)

_RUNS_SHOWN = 10
_NEW_NAME = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Name of the cron job and of its runs.")
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name or id of the cron job.",
        autocompletion=names_of("cron-jobs"),
    ),
]
_File = Annotated[
    str | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="The cron job as YAML or JSON; -: standard input."
    ),
]
_Pipeline = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Each run is this pipeline, as for `pipelines submit -f`."),
]
_Cron = Annotated[
    str | None,
    typer.Option(
        "--cron",
        help="Minute, hour, day of the month, month and day of the week, like '30 7 * * MON-FRI'; "
        "or @hourly, @daily, @weekly.",
    ),
]
_Zone = Annotated[
    str | None, typer.Option("--time-zone", help="Time zone, like Europe/Prague. Default: UTC.")
]
_Concurrency = Annotated[
    str | None,
    typer.Option(help="If the previous run has not ended: forbid (the default), allow, replace."),
]
_Missed = Annotated[
    str | None,
    typer.Option(help="Runs that no manager could start in time: skip (the default) or run-once."),
]
_Deadline = Annotated[float | None, duration_option("How late a run may start.")]
_History = Annotated[int | None, typer.Option(min=1, help="How many ended runs are kept.")]
_From = Annotated[
    str | None,
    typer.Option("--from", help="No run before this: a duration from now (2d), or a time."),
]
_Until = Annotated[
    str | None, typer.Option("--until", help="No run at or after this, written like --from.")
]
_Command = Annotated[
    list[str] | None, typer.Argument(help="After --: program and arguments of each run.")
]


def create(cli: Cli, name: str | None, command: list[str] | None = None, **given: Any) -> None:
    """Create a cron job, which runs a program, a template or a pipeline at the times of --cron.

    The other options are those of `moorage run`. A run has the rights and limits that its owner has
    when it starts.

    \b
    Examples:
      moorage cron create report --cron "0 7 * * 1-5" --time-zone Europe/Prague -- ./report.sh
      moorage cron create nightly --cron @daily --gpus 1 --missed run-once -- python train.py
      moorage cron create retrain --cron @weekly --template train --set epochs=3
      moorage cron create -f cron-job.yaml
    """
    fields = _own_fields(given, cli.clock.now())
    file = given["file"]
    if file is not None:
        fields = _read(file) | fields | ({} if name is None else {"name": name})
        _refuse_program(command, given)
        _print(cli, _create(cli, fields))
        return

    if name is None:
        raise InvalidInput(
            "there is no name", next_step="moorage cron create NAME --cron '…' -- PROGRAM"
        )

    fields["name"] = name
    if given["pipeline"] is not None:
        _refuse_program(command, given)
        fields["pipeline"] = _read(given["pipeline"])
    else:
        fields |= _work(cli, command, given)

    _print(cli, _create(cli, fields))


def _create(cli: Cli, fields: dict[str, Any]) -> CronJobView:
    if "cron" not in fields:
        raise InvalidInput("there is no --cron", next_step="for example --cron '30 7 * * MON-FRI'")
    job = NewCronJob.model_validate(fields)
    return cli.run(lambda client: client.cron_jobs.create(job))


def _work(cli: Cli, command: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    """What each run does, from the options of ``run``."""
    if not command and given["template"] is None:
        raise InvalidInput("there is no program", next_step="add -- PROGRAM ARGUMENTS")

    options = given | {"name": None, "file": None, "starts_at": None, "command": command}
    spec = batch_spec(options, cli.clock.now())
    if not isinstance(spec, TemplateStart):
        return {"session": spec}

    start = spec
    name, version, values = cli.run(lambda client: start.read(client))
    ref = name if version is None or "@" not in start.ref else f"{name}@{version}"
    return {"template": ref, "parameters": values, "overrides": dict(start.overrides)}


def _refuse_program(command: list[str] | None, given: dict[str, Any]) -> None:
    """Raise ``InvalidInput`` for options of a program beside a file that describes the runs."""
    own = _of_cron()
    others = [name for name, value in given.items() if name not in own and value is not None]
    if command or others:
        raise InvalidInput(
            "a file describes the runs, so no program and none of its options can be given",
            next_step="put them into the file",
        )


def _own_fields(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The fields of the cron job itself that options set."""
    found = {
        "cron": given["cron"],
        "time_zone": given["time_zone"],
        "concurrency": given["concurrency"],
        "missed": given["missed"],
        "start_deadline_s": given["start_deadline"],
        "history": given["history"],
    }
    for field, option in (("starts_at", "from_"), ("ends_at", "until")):
        text = given[option]
        name = f"--{option.rstrip('_')}"
        found[field] = None if text is None else times.future(text, now, name)
    return {name: value for name, value in found.items() if value is not None}


def _of_cron() -> set[str]:
    """Parameters that are not options of the program."""
    own = {"cron", "time_zone", "concurrency", "missed", "start_deadline", "history"}
    return own | {"from_", "until", "file", "pipeline"}


def _add_options_of_run() -> None:
    """Give ``create`` the options of ``run`` that describe a session."""
    own: dict[str, Any] = {
        "cron": _Cron,
        "time_zone": _Zone,
        "concurrency": _Concurrency,
        "missed": _Missed,
        "start_deadline": _Deadline,
        "history": _History,
        "from_": _From,
        "until": _Until,
        "file": _File,
        "pipeline": _Pipeline,
    }
    excluded = {
        *("name", "file", "command", "cli", "starts_at", "strict", "force", "wait", "detach"),
        *("stop_on_interrupt", "stdin", "remove"),
    }
    hints = get_type_hints(run, include_extras=True)
    of_run = {
        name: hints[name] for name in inspect.signature(run).parameters if name not in excluded
    }
    hints = {"cli": Cli, "name": _NEW_NAME, "command": _Command, **own, **of_run}
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    create.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                positional,
                default=inspect.Parameter.empty if name == "cli" else None,
            )
            for name in hints
        ]
    )
    create.__annotations__ = hints | {"return": None}


_add_options_of_run()
command(cron, "create")(create)


@list_command(cron)
def list_cron_jobs(cli: Cli) -> None:
    """List cron jobs with their next run and the result of the last one."""
    found = cli.run(lambda client: client.cron_jobs.list())
    if cli.json:
        cli.print_json({"cron_jobs": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "CRON", "TIME ZONE", "NEXT RUN", "LAST RUN", "RESULT", "USER", "PROJECT")
        rows = [_row(cli, view) for view in found]
        output.print_table(cli.out, columns, rows, ("PROJECT", "TIME ZONE"))


@command(cron, "describe")
def describe_cron_job(cli: Cli, ref: Ref) -> None:
    """Show a cron job with its newest runs."""

    async def work(client: Client) -> tuple[CronJobView, list[CronRunView]]:
        view = await client.cron_jobs.get(ref)
        runs: list[CronRunView] = []
        async for run_of_job in client.cron_jobs.runs(ref):
            runs.append(run_of_job)
            if len(runs) == _RUNS_SHOWN:
                break
        return view, runs

    view, runs = cli.run(work)
    if cli.json:
        cli.print_json({"cron_job": view, "runs": runs})
        return

    spec = view.spec
    next_at = "suspended" if view.suspended else _time(view.next_at) or "never"
    output.print_facts(
        cli.out,
        [
            ("name", view.name),
            ("cron", f"{spec.cron} ({spec.time_zone})"),
            ("runs", _what(spec)),
            ("next run", next_at),
            ("if not ended", spec.concurrency),
            ("if missed", spec.missed),
            ("user", f"{view.user} in {view.project}"),
            ("refused", f"{view.refusals} in a row" if view.refusals else ""),
        ],
    )
    if runs:
        output.print_heading(cli.out, "runs")
        columns = ("SCHEDULED", "STATE", "SESSION", "REASON")
        output.print_table(cli.out, columns, [_run_row(found) for found in runs])


@command(cron, "update")
def update_cron_job(
    cli: Cli,
    ref: Ref,
    cron_expression: _Cron = None,
    time_zone: _Zone = None,
    concurrency: _Concurrency = None,
    missed: _Missed = None,
    start_deadline: _Deadline = None,
    history: _History = None,
    from_: _From = None,
    until: _Until = None,
    file: _File = None,
) -> None:
    """Change a cron job: its times and options, or all of it with --file. You become its owner.

    \b
    Examples:
      moorage cron update report --cron "30 7 * * *"
      moorage cron update report --concurrency replace
    """
    given = {
        "cron": cron_expression,
        "time_zone": time_zone,
        "concurrency": concurrency,
        "missed": missed,
        "start_deadline": start_deadline,
        "history": history,
        "from_": from_,
        "until": until,
    }
    changes = _own_fields(given, cli.clock.now())
    if not changes and file is None:
        raise InvalidInput("there is nothing to change", next_step="for example --cron @daily")

    async def work(client: Client) -> CronJobView:
        stored = await client.cron_jobs.get(ref)
        base = stored.spec.model_dump(exclude_unset=True) if file is None else _read(file)
        base.pop("name", None)
        spec = CronJobSpec.model_validate(base | changes)
        return await client.cron_jobs.put(stored.id, spec, version=stored.version)

    _print(cli, cli.run(work))


@command(cron, "suspend")
def suspend_cron_job(cli: Cli, ref: Ref) -> None:
    """Start no more runs until the cron job is resumed. A run that has started continues."""
    _print(cli, cli.run(lambda client: client.cron_jobs.suspend(ref)))


@command(cron, "resume")
def resume_cron_job(cli: Cli, ref: Ref) -> None:
    """Resume a suspended cron job. Runs that it left out do not start."""
    _print(cli, cli.run(lambda client: client.cron_jobs.resume(ref)))


@command(cron, "trigger")
def trigger_cron_job(cli: Cli, ref: Ref) -> None:
    """Start a run now, also while the cron job is suspended."""
    view = cli.run(lambda client: client.cron_jobs.run(ref))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.pipeline or view.session)


@command(cron, "delete")
def delete_cron_job(cli: Cli, ref: Ref) -> None:
    """Delete a cron job with the records of its runs. Its sessions and pipelines stay."""
    _print(cli, cli.run(lambda client: client.cron_jobs.delete(ref)))


def _read(file: str) -> dict[str, Any]:
    """Read one YAML or JSON document. Raises ``InvalidInput``."""
    import yaml

    from moorage.cli import yaml_input

    try:
        found = yaml_input.load(read_file(file))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"--file {file} is not one YAML document: {error}",
            next_step="correct it at that position",
        ) from None

    if not isinstance(found, dict):
        raise InvalidInput(f"--file {file} has no fields", next_step="write `cron: '0 7 * * *'`")
    return found


def _print(cli: Cli, view: CronJobView) -> None:
    if cli.json:
        cli.print_json(view)
        return

    print(view.name)
    for warning in view.warnings:
        cli.note(f"moorage: {output.printable(warning, one_line=True)}")


def _row(cli: Cli, view: CronJobView) -> tuple[str, ...]:
    last = view.last_run
    result = "-" if last is None else str(last.state)
    if view.refusals > 1:
        result = f"{result} ({view.refusals} in a row)"

    return (
        view.name,
        view.spec.cron,
        view.spec.time_zone,
        "suspended" if view.suspended else _time(view.next_at) or "never",
        "-" if last is None else f"{output.format_age(cli.clock.now(), last.scheduled_at)} ago",
        result,
        view.user,
        view.project,
    )


def _run_row(view: CronRunView) -> tuple[str, ...]:
    reason = view.reason
    if view.state is CronRunState.MISSED:
        reason = f"{view.missed} runs until {_time(view.missed_to)}" if view.missed > 1 else ""
    return (
        _time(view.scheduled_at),
        str(view.state) + (" (by hand)" if view.by_hand else ""),
        view.pipeline or view.session or "-",
        output.printable(reason, one_line=True),
    )


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M %Z}"


def _what(spec: CronJobSpec) -> str:
    if spec.pipeline is not None:
        return f"a pipeline of {len(spec.pipeline.steps)} steps"
    if spec.session is None:
        return f"template {spec.template}"
    words = [*spec.session.command, *spec.session.args]
    return output.printable(" ".join(words), one_line=True) or str(spec.session.engine)
