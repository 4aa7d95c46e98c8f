"""``moorage usage``: requests and tokens of models, by project, user, key, model, replica and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from moorage.cli import output, times
from moorage.cli.app import app
from moorage.cli.context import Cli, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.metering import Bucket, Dimension, ModelUsage
    from moorage.sdk import Client

_PAGE = 500
_COLUMNS = {
    "project": "PROJECT",
    "user": "USER",
    "key": "KEY",
    "model": "MODEL",
    "endpoint": "ENDPOINT",
    "session": "SESSION",
    "resource_group": "GROUP",
}
_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}


By = Annotated[str, typer.Option(help=f"Separated by commas: {', '.join(_COLUMNS)}.")]
BucketName = Annotated[str, typer.Option(help="Also by hour, day or month, in UTC; none: all in one.")]
From = Annotated[
    str | None, typer.Option("--from", help="A time like 2026-05-04T13:00, or 7d (ago). Default: 1d.")
]
To = Annotated[str | None, typer.Option("--to", help="Written like --from. Default: now.")]
Project = Annotated[str | None, typer.Option(help="Only of this project.")]
User = Annotated[str | None, typer.Option(help="Only of this user.")]
Key = Annotated[str | None, typer.Option(help="Only of this key.")]
Model = Annotated[str | None, typer.Option(help="Only of this model.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Show at most so many lines.")]


@command(app)
def usage(
    cli: Cli,
    by: By = "project,model",
    bucket: BucketName = "none",
    begin: From = None,
    end: To = None,
    project: Project = None,
    user: User = None,
    key: Key = None,
    model: Model = None,
    limit: Limit = 1000,
) -> None:
    """Show what requests for models used: requests and tokens, in full hours.

    \b
    Examples:
      moorage usage
      moorage usage --by key,model --from 7d --bucket day
      moorage usage --by session --model qwen
      moorage usage --from 30d -o json | jq '.usage[] | [.project, .tokens_out]'
    """
    split = _split(by, bucket)
    now = cli.clock.now()
    since = None if begin is None else times.past(begin, now, "--from")
    until = None if end is None else times.past(end, now, "--to")

    async def work(client: Client) -> list[ModelUsage]:
        found: list[ModelUsage] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await client.usage(
                since=since,
                until=until,
                by=split,
                bucket=cast("Bucket", bucket),
                project=project,
                user=user,
                key=key,
                model=model,
                cursor=cursor,
                limit=min(_PAGE, limit - len(found)),
            )
            found += page.items
            if not (cursor := page.next):
                return found
        cli.note(f"only the first {limit} lines are shown; --limit shows more")
        return found

    found = cli.run(work)
    if cli.json:
        cli.print_json({"usage": found})
    elif not found:
        cli.note("no request was counted in this time")
    else:
        columns = (*([bucket.upper()] if bucket != "none" else []), *(_COLUMNS[name] for name in split))
        amounts = ("REQUESTS", "TOKENS IN", "CACHED", "TOKENS OUT")
        output.print_table(cli.out, (*columns, *amounts), [_row(view, split, bucket) for view in found])


def _split(by: str, bucket: str) -> list[Any]:
    from moorage.common.views.metering import Bucket

    names = [name.strip() for name in by.split(",") if name.strip()]
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise InvalidInput(f"--by {unknown[0]!r} is unknown", next_step=f"use {', '.join(_COLUMNS)}")
    if bucket not in get_args(Bucket):
        raise InvalidInput(f"--bucket {bucket!r} is unknown", next_step=f"use {', '.join(get_args(Bucket))}")
    return names


def _row(view: ModelUsage, split: list[Dimension], bucket: str) -> list[str]:
    names = {
        "project": view.project,
        "user": view.user,
        "key": view.key or view.key_id,
        "model": view.model,
        "endpoint": view.endpoint,
        "session": view.session_id,
        "resource_group": view.resource_group,
    }
    row = [] if bucket == "none" or view.at is None else [view.at.strftime(_FORMATS[bucket])]
    row += [names[name] or "-" for name in split]
    return row + [str(n) for n in (view.requests, view.tokens_in, view.tokens_cached, view.tokens_out)]
