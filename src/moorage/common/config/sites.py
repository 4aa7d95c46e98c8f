"""Sites of one agent daemon. Turns ``agent.sites`` into settings for one agent per site. Pure.

The section ``agent`` supplies the settings that a site does not set.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from moorage.common.config.required import MISSING
from moorage.common.config.settings import AgentSettings
from moorage.common.config.site_settings import HeappeSettings, SlurmSettings
from moorage.common.model.errors import ConfigError
from moorage.common.model.runtimes import RUNTIMES, traits_of

SECRET = "heappe_secret"
_KEYS = (
    *("id", "runtimes", "resource_group", "address", "port_range", "labels"),
    *HeappeSettings.model_fields,
    *SlurmSettings.model_fields,
)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def site_agents(
    agent: AgentSettings, host_name: Callable[[], str] = socket.gethostname
) -> dict[str, AgentSettings]:
    """Settings of each site's agent, by site name. Raises ``ConfigError``."""
    common = agent.model_dump(exclude={"sites"})
    found = {
        name: _site(name, given, common, f"{agent.id or host_name()}-{name}")
        for name, given in agent.sites.items()
    }
    for (site, mine), (other, theirs) in combinations(found.items(), 2):
        for problem in _conflicts(site, mine, other, theirs):
            raise problem

    return found


def given_keys(agent: AgentSettings, site: str) -> frozenset[str]:
    """Settings that the site itself sets."""
    return frozenset(agent.sites[site])


def redacted(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: "***" if key == SECRET else value for key, value in given.items()}
        for name, given in sites.items()
    }


def _site(
    name: str, given: Mapping[str, Any], common: Mapping[str, Any], default_id: str
) -> AgentSettings:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"agent.sites.{name}: {name!r} is not a valid site name",
            next_step="use 1 to 63 letters, digits, dots, - and _, starting with a letter or digit",
        )

    for key in given:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1)
            raise ConfigError(
                f"unknown setting 'agent.sites.{name}.{key}'",
                next_step=f"did you mean {close[0]}?"
                if close
                else f"a site has {', '.join(_KEYS[:6])}, and all heappe_ and slurm_ settings",
            )

    # The secret file for all sites does not apply to a site with its own secret.
    own_secret = {f"{SECRET}_file": None} if SECRET in given else {}
    try:
        settings = AgentSettings.model_validate(
            dict(common) | {"id": default_id} | own_secret | dict(given)
        )
    except ValidationError as error:
        raise ConfigError(
            "; ".join(_explain(name, problem) for problem in error.errors())
        ) from None

    if not _ID.fullmatch(settings.id or ""):
        raise ConfigError(
            f"agent.sites.{name}.id = {settings.id!r} is not a valid agent name",
            next_step=(
                "use 1 to 128 letters, digits, dots, - and _, starting with a letter or digit"
            ),
        )

    _check_runtimes(name, settings)
    return settings


def _explain(site: str, problem: Any) -> str:
    key = str(problem["loc"][0])
    value = "***" if key == SECRET else repr(problem["input"])
    return f"agent.sites.{site}.{key} = {value}: {problem['msg'].removeprefix('Value error, ')}"


def _check_runtimes(name: str, settings: AgentSettings) -> None:
    known = [runtime for runtime, traits in RUNTIMES.items() if traits.settings]
    if others := [runtime for runtime in settings.runtimes if not traits_of(runtime).settings]:
        raise ConfigError(
            f"agent.sites.{name}.runtimes contains {', '.join(others)}; a site supports only "
            f"{' or '.join(known)}",
            next_step=(
                f'write runtimes = ["{known[-1]}"] in [agent.sites.{name}], or in [agent] for all'
            ),
        )

    for runtime in settings.runtimes:
        check = MISSING.get(traits_of(runtime).settings)
        if check is not None and (missing := check(settings)):
            raise ConfigError(
                f"the runtime {runtime} needs "
                f"{', '.join(f'agent.sites.{name}.{key}' for key in missing)}",
                next_step="docs/hpc.md explains what to request from the site",
            )


def _conflicts(
    site: str, mine: AgentSettings, other: str, theirs: AgentSettings
) -> Iterator[ConfigError]:
    if mine.id == theirs.id:
        yield ConfigError(
            f"agent.sites.{site}.id and agent.sites.{other}.id are both {mine.id!r}",
            next_step="give each site a different id, or none",
        )

    both = {traits_of(runtime).settings for runtime in set(mine.runtimes) & set(theirs.runtimes)}
    shared = mine.heappe_shared_account and theirs.heappe_shared_account
    if "heappe_" in both and not shared and _account(mine) == _account(theirs):
        user = (
            "one token" if mine.heappe_auth == "bearer" else f"heappe_user = {mine.heappe_user!r}"
        )
        yield ConfigError(
            f"agent.sites.{site} and agent.sites.{other} use the same HEAppE account: {user} at "
            f"{mine.heappe_url}",
            next_step=(
                "give each site a separate account, or set heappe_shared_account = true in both"
            ),
        )

    if "slurm_" in both and mine.slurm_work_dir and mine.slurm_work_dir == theirs.slurm_work_dir:
        yield ConfigError(
            f"agent.sites.{other}.slurm_work_dir = {theirs.slurm_work_dir!r} is also that of "
            f"agent.sites.{site}",
            next_step="give each site a separate directory",
        )


def _account(settings: AgentSettings) -> tuple[str, str | None]:
    """The agent's identity for a server."""
    url = settings.heappe_url.rstrip("/").lower()
    return url, settings.heappe_secret if settings.heappe_auth == "bearer" else settings.heappe_user
