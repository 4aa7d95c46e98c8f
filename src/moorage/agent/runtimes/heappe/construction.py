"""Construction of the HEAppE runtime from its agent's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import Clock
from moorage.common.config.required import missing_for_heappe
from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings


def account_of(settings: AgentSettings) -> Account:
    """Raises ``ConfigError``."""
    if missing := [f"agent.{name}" for name in missing_for_heappe(settings)]:
        raise ConfigError(
            f"the runtime heappe needs {', '.join(missing)}",
            next_step="see docs/hpc.md for what to request from the site",
        )

    return Account(
        settings.heappe_url,
        settings.heappe_user,
        secret=settings.heappe_secret or "",
        auth=settings.heappe_auth,
        secret_file=settings.heappe_secret_file,
    )


def wanted_of(settings: AgentSettings) -> SiteChoice:
    return SiteChoice(
        settings.heappe_project,
        settings.heappe_cluster,
        node_type=settings.heappe_node_type,
        template=settings.heappe_template,
        walltime_s=settings.heappe_walltime_s,
    )


def heappe_runtime(
    settings: AgentSettings, state: Path, logs: LogStore, clock: Clock, *, identity: str
) -> HeappeRuntime:
    """The runtime. The site need not answer: its jobs are kept, and are found once it does. Raises
    ``ConfigError``."""
    rules = HeappeRules(
        max_jobs=settings.heappe_max_jobs,
        defaults=wanted_of(settings),
        heartbeat_s=settings.heappe_heartbeat_timeout_s,
        poll_s=settings.heappe_poll_s,
        shared_account=settings.heappe_shared_account,
        unreachable_timeout_s=settings.heappe_unreachable_timeout_s,
    )

    # No other runtime of this agent uses ports.
    ports = PortAllocator(settings.port_range, settings.address, clock=clock, seed=identity)
    return HeappeRuntime(
        HeappeClient(account_of(settings), clock),
        JobRecords(state / "heappe"),
        logs=logs,
        rules=rules,
        clock=clock,
        identity=identity,
        host=settings.address,
        allocate=ports.allocate,
        release=ports.release,
        # With a token, the server can query the cluster only for single jobs during a request.
        per_job=settings.heappe_auth == "bearer",
    )
