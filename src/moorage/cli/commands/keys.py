"""``moorage keys``: API keys for the manager and the proxies, with their users and projects."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moorage.cli import output, parse, times
from moorage.cli.app import list_command, noun
from moorage.cli.completion import endpoint_names, group_names, key_names, project_names, user_names
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView, Rotation

keys = noun("keys", help="API keys with their users and projects.")

Name = Annotated[str, typer.Argument(help="Name of the key.", autocompletion=key_names)]
Expires = Annotated[
    str | None,
    typer.Option(help="A duration (12h, 30d) or a time like 2030-01-01T00:00:00Z. Default: never."),
]
_ALL = "`all` removes the restriction."
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        help=(
            f"Scope of the key: sessions:read, sessions:write, models:use, admin; repeatable. "
            f"{_ALL}"
        ),
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", help=f"Model that it may use; repeatable. {_ALL}", autocompletion=endpoint_names
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        help=f"Resource group that it may use; repeatable. {_ALL}",
        autocompletion=group_names,
    ),
]
MaxPriority = Annotated[
    str | None,
    typer.Option(
        help="Highest priority of the sessions and endpoints that it creates; `none`: any."
    ),
]
_MODELS_ONLY = "at models; 0 allows none, `none`: any."
Requests = Annotated[
    str | None,
    typer.Option("--requests-per-minute", metavar="N", help=f"Limit per minute {_MODELS_ONLY}"),
]
Tokens = Annotated[
    str | None,
    typer.Option(
        "--tokens-per-minute", metavar="N", help=f"Limit of tokens per minute {_MODELS_ONLY}"
    ),
]
Concurrent = Annotated[
    str | None,
    typer.Option("--concurrent", metavar="N", help=f"Limit of concurrent requests {_MODELS_ONLY}"),
]
MaxBody = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Largest body of a request to a model, such as 20MiB; `none`: any."
    ),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Longest time limit of the sessions that it creates, such as 8h; `none`: any.",
    ),
]
MaxPerSession = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SLOT=AMOUNT",
        help="Most that a session that it creates may request; repeatable. `none`: anything.",
    ),
]


@command(keys)
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    user: Annotated[
        str | None,
        typer.Option(
            help="Owner of everything created with it. Default: NAME for administrators, else you.",
            autocompletion=user_names,
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(help="Default: your key's, or `default`.", autocompletion=project_names),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help=(
                "viewer, member or project-admin; auditor or admin of the platform. Default: the "
                "user's."
            )
        ),
    ] = None,
    expires: Expires = None,
    scope: Scopes = None,
    model: Models = None,
    group: Groups = None,
    max_priority: MaxPriority = None,
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    concurrent: Concurrent = None,
    max_body: MaxBody = None,
    max_time: MaxTime = None,
    max_per_session: MaxPerSession = None,
    create_missing: Annotated[
        bool,
        typer.Option(
            "--create-missing", help="Create the project and the user if they do not exist."
        ),
    ] = False,
) -> None:
    """Create a key. Its secret is shown only once: the manager keeps only its hash.

    A key has at most its user's role. If an administrator creates it, the membership is created
    with the key, and so is a user of the key's name.

    \b
    Examples:
      moorage keys create ann --project vision --create-missing
      moorage keys create ci --user ann --project vision --expires 90d
      moorage keys create chat --scope models:use --model qwen --requests-per-minute 60
      moorage keys create notebooks --max-time 8h --max-per-session cuda.device=1
      moorage keys create root2 --role admin
    """
    fields: dict[str, Any] = {"name": name, "user": user, "project": project, "role": role}
    given = {field: value for field, value in fields.items() if value is not None}
    given |= {"create_missing": True} if create_missing else {}

    rates = _rates(requests_per_minute, tokens_per_minute, concurrent, max_body)
    limits = (
        _limits(cli, expires, scopes=scope, models=model, groups=group, max_priority=max_priority)
        | rates
        | _session_limits(max_time, max_per_session)
    )

    spec = KeySpec.model_validate(given | limits)
    _print_secret(cli, cli.run(lambda client: client.keys.create(spec)))


@command(keys, "set")
def set_limits(
    cli: Cli,
    name: Name,
    expires: Expires = None,
    scope: Scopes = None,
    model: Models = None,
    group: Groups = None,
    max_priority: MaxPriority = None,
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    concurrent: Concurrent = None,
    max_body: MaxBody = None,
    max_time: MaxTime = None,
    max_per_session: MaxPerSession = None,
) -> None:
    """Change the restrictions and the expiry of a key; other settings stay.

    \b
    Examples:
      moorage keys set chat --model qwen --model embed
      moorage keys set ci --expires 30d
    """
    rates = _rates(requests_per_minute, tokens_per_minute, concurrent, max_body)
    limits = (
        _limits(cli, expires, scopes=scope, models=model, groups=group, max_priority=max_priority)
        | rates
        | _session_limits(max_time, max_per_session)
    )

    view = cli.run(lambda client: client.keys.update(name, KeyLimits.model_validate(limits)))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


@command(keys)
def rotate(
    cli: Cli,
    name: Name,
    grace: Annotated[
        float,
        duration_option(
            "How long the former secret stays valid. Default: not at all.", max_s=2_592_000
        ),
    ] = 0.0,
) -> None:
    """Give a key a new secret, which is shown only once. Its name, role and restrictions stay.

    \b
    Example:
      moorage keys rotate ci --grace 1d
    """
    rotation = Rotation(grace_s=round(grace))
    _print_secret(cli, cli.run(lambda client: client.keys.rotate(name, rotation)))


def _print_secret(cli: Cli, created: NewKeyView) -> None:
    if cli.json:
        cli.print_json(created)
    else:
        cli.note(f"key of {created.user} in project {created.project}, shown only now:")
        print(created.secret)


def _limits(
    cli: Cli,
    expires: str | None,
    scopes: list[str] | None,
    models: list[str] | None,
    *,
    groups: list[str] | None,
    max_priority: str | None,
) -> dict[str, object]:
    limits: dict[str, object] = {}
    if expires is not None:
        limits["expires_at"] = (
            None if expires == "never" else times.future(expires, cli.clock.now(), "--expires")
        )

    if max_priority is not None:
        limits["max_priority"] = None if max_priority == "none" else max_priority

    for name, values in (("scopes", scopes), ("models", models), ("resource_groups", groups)):
        if values:
            limits[name] = None if values == ["all"] else values

    return limits


def _rates(
    requests: str | None, tokens: str | None, concurrent: str | None, max_body: str | None
) -> dict[str, object]:
    texts = {
        "--requests-per-minute": ("requests_per_minute", requests),
        "--tokens-per-minute": ("tokens_per_minute", tokens),
        "--concurrent": ("concurrent_requests", concurrent),
    }
    given: dict[str, object] = {
        field: parse.limit(text, option)
        for option, (field, text) in texts.items()
        if text is not None
    }

    if max_body is not None:
        given["max_body_bytes"] = parse.size_limit(max_body, "--max-body")
    return given


def _session_limits(max_time: str | None, max_per_session: list[str] | None) -> dict[str, object]:
    given: dict[str, object] = {}
    if max_time is not None:
        given["max_time_s"] = parse.duration_limit(max_time, "--max-time")

    if max_per_session:
        given["max_per_session"] = (
            None
            if max_per_session == ["none"]
            else parse.pairs(max_per_session, "--max-per-session", "cuda.device=1")
        )
    return given


@list_command(keys)
def list_keys(cli: Cli) -> None:
    """List keys that are not revoked."""
    found = cli.run(lambda client: client.keys.list())
    if cli.json:
        cli.print_json({"keys": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "PREFIX", "ROLE", "USER", "PROJECT", "CREATED", "LAST USED", "EXPIRES")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(keys)
def revoke(cli: Cli, name: Name) -> None:
    """Revoke a key: it is refused everywhere within two seconds, and its name is free again.

    Sessions and endpoints created with it keep running. The last administrator's key without expiry
    cannot be revoked.
    """
    revoked = cli.run(lambda client: client.keys.revoke(name))
    if cli.json:
        cli.print_json(revoked)
    else:
        print(revoked.name)


def _row(cli: Cli, view: KeyView) -> tuple[str, ...]:
    now = cli.clock.now()
    used = (
        "never" if view.last_used_at is None else f"{output.format_age(now, view.last_used_at)} ago"
    )
    expires = "never" if view.expires_at is None else f"{view.expires_at:%Y-%m-%d %H:%M}"
    if view.expires_at is not None and view.expires_at <= now:
        expires = "expired"
    created = f"{output.format_age(now, view.created_at)} ago"
    return view.name, view.prefix, view.role, view.user, view.project, created, used, expires
