"""Options of ``moorage scheduler replay`` that change the recorded group, and their effect on
waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import Cli, output, parse
from moorage.cli.completion import agent_ids
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import parse_amount

if TYPE_CHECKING:
    from moorage.simulator.scheduler import SimulationResult
    from moorage.simulator.scheduler.trace import Trace
    from moorage.simulator.scheduler.what_if import QuotaChange

AddAgents = Annotated[
    int, typer.Option(min=0, max=10_000, help="Simulate with this many more agents.")
]
AddGpus = Annotated[
    int,
    typer.Option(
        min=0,
        max=100_000,
        help="Simulate with this many more GPUs, on as many more agents as needed.",
    ),
]
Like = Annotated[
    str | None,
    typer.Option(
        help="The recorded agent that added ones copy. Default: the one with the most GPUs.",
        metavar="AGENT",
        autocompletion=agent_ids,
    ),
]
QuotaTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        help="Simulate with other limits, as for `quotas set`: 'user ann cuda.device=8 "
        "sessions=none'. Repeatable; other limits stay as recorded.",
    ),
]
_SCOPES = ("user", "project", "group")
_MAX_USERS = 10  # listed by name


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes given by the options. ``like``: the agent to copy when agents are added; None
    means the one with the most GPUs."""

    agents: int
    gpus: int
    like: str | None
    quotas: tuple[QuotaChange, ...]

    def __bool__(self) -> bool:
        return bool(self.agents or self.gpus or self.quotas)

    def apply(self, trace: Trace) -> tuple[Trace, str]:
        """Return the changed trace, and the changes in words. Raises ``InvalidInput``."""
        from moorage.simulator.scheduler import what_if

        words = []
        changed = trace
        model = what_if.model_agent(trace, self.like)
        if self.agents:
            changed = what_if.with_agents(changed, model, self.agents)
            words.append(f"{self.agents} more agents like {model.agent_id}")
        if self.gpus:
            changed = what_if.with_devices(changed, model, self.gpus)
            words.append(f"{self.gpus} more devices on agents like {model.agent_id}")

        for quota in self.quotas:
            if quota.scope == "group" and quota.name != trace.group:
                raise InvalidInput(
                    f"--quota group {quota.name!r} does not apply: group {trace.group!r} is "
                    "simulated",
                    next_step=f"write --quota 'group {trace.group} …'",
                )

            words.append(f"another quota of {quota.scope} {quota.name}")

        if self.quotas:
            changed = what_if.with_quotas(changed, list(self.quotas))

        return changed, ", ".join(words)


def parse_changes(agents: int, gpus: int, like: str | None, quotas: list[str]) -> Changes:
    """Parse the options. Raises ``InvalidInput`` that names the option."""
    if like is not None and not agents and not gpus:
        raise InvalidInput("--like needs --add-agents or --add-gpus", next_step="add one of them")
    return Changes(agents, gpus, like, tuple(map(_parse_quota, quotas)))


def _parse_quota(text: str) -> QuotaChange:
    from moorage.simulator.scheduler.what_if import QuotaChange

    scope, name, *limits = [*text.split(), "", ""][: max(2, len(text.split()))]
    given = parse.pairs(limits, "--quota", "'user ann cuda.device=8'")
    if scope not in _SCOPES or not name or not given:
        raise InvalidInput(
            f"--quota {text!r} is not SCOPE NAME LIMIT=AMOUNT …",
            next_step=(
                "write it like 'user ann cuda.device=8 sessions=none'; scopes: user, project, group"
            ),
        )

    sessions = given.pop("sessions", None)
    if "pending" in given:
        raise InvalidInput(
            "--quota pending=… has no effect: recorded sessions are pending already",
            next_step="leave it out",
        )

    count = None
    if sessions not in (None, "none"):
        if not sessions.isdecimal():
            raise InvalidInput(
                f"--quota sessions={sessions} is not a number", next_step="like sessions=4"
            )

        count = int(sessions)

    slots = {
        slot: None if each == "none" else parse_amount(slot, each) for slot, each in given.items()
    }
    return QuotaChange(
        scope,  # type: ignore[arg-type]
        name,
        limits=slots,
        sessions=count,
        changes_sessions=sessions is not None,
    )


def waits(result: SimulationResult) -> dict[str, list[float]]:
    """The waits of all sessions (under "") and of each user's sessions, in seconds; sessions that
    have not started have waited until the end."""
    assert result.span is not None, "a recording has an end"
    found: dict[str, list[float]] = {"": []}
    for outcome in result.outcomes:
        until = result.span[1] if outcome.started is None else outcome.started
        for name in ("", outcome.user):
            found.setdefault(name, []).append((until - outcome.arrived) / 1_000_000)
    return found


def print_waits(cli: Cli, results: Mapping[str, SimulationResult]) -> None:
    """Print the mean waits of all sessions and of each user's sessions, compared with the first
    result."""
    by_result = {name: waits(result) for name, result in results.items()}
    first = next(iter(by_result.values()))
    users = sorted(first.keys() - {""}, key=lambda user: (-len(first[user]), user))[:_MAX_USERS]
    rows = [
        (
            user or "all",
            str(len(first[user])),
            *(_compared(each[user], first[user]) for each in by_result.values()),
        )
        for user in ("", *users)
    ]

    output.print_table(
        cli.out, ("MEAN WAIT OF", "SESSIONS", *(name.upper() for name in by_result)), rows
    )


def _compared(own: list[float], before: list[float]) -> str:
    mean, mean_before = (sum(each) / len(each) for each in (own, before))
    if own is before or not mean_before:
        return format_duration(mean)
    return f"{format_duration(mean)} ({mean / mean_before - 1:+.0%})"


def waits_to_json(results: Mapping[str, SimulationResult]) -> dict[str, Any]:
    return {
        name: {
            user or "all": {"sessions": len(own), "mean_wait": sum(own) / len(own)}
            for user, own in waits(result).items()
        }
        for name, result in results.items()
    }
