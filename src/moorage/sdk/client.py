"""Clients for the management API (``/v1``), with and without asyncio. Each attribute is a resource.

An attribute's module in ``moorage.sdk.resources`` is imported when the attribute is first used,
because a short command spends most of its time on imports.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from moorage.sdk.loop_thread import LoopThread
from moorage.sdk.transport import Transport

if TYPE_CHECKING:
    from moorage.common.views.resources import Health
    from moorage.sdk.resources.access_tokens import AccessTokens, SyncAccessTokens
    from moorage.sdk.resources.agents import Agents, SyncAgents
    from moorage.sdk.resources.apps import Apps, SyncApps
    from moorage.sdk.resources.audit import Audit, SyncAudit
    from moorage.sdk.resources.budgets import Budgets, SyncBudgets
    from moorage.sdk.resources.ca import Ca, SyncCa
    from moorage.sdk.resources.catalog import Catalog, SyncCatalog
    from moorage.sdk.resources.code_kernels import CodeKernels, SyncCodeKernels
    from moorage.sdk.resources.cron_jobs import CronJobs, SyncCronJobs
    from moorage.sdk.resources.decisions import Decisions, SyncDecisions
    from moorage.sdk.resources.endpoints import Endpoints, SyncEndpoints
    from moorage.sdk.resources.events import Events, SyncEvents
    from moorage.sdk.resources.executions import Executions, SyncExecutions
    from moorage.sdk.resources.groups import Groups, SyncGroups
    from moorage.sdk.resources.join_tokens import JoinTokens, SyncJoinTokens
    from moorage.sdk.resources.keys import Keys, SyncKeys
    from moorage.sdk.resources.limits import Limits, SyncLimits
    from moorage.sdk.resources.managers import Managers, SyncManagers
    from moorage.sdk.resources.members import Members, SyncMembers
    from moorage.sdk.resources.occupancy import Occupancy, SyncOccupancy
    from moorage.sdk.resources.peers import Peers, SyncPeers
    from moorage.sdk.resources.pipelines import Pipelines, SyncPipelines
    from moorage.sdk.resources.prices import Prices, SyncPrices
    from moorage.sdk.resources.projects import Projects, SyncProjects
    from moorage.sdk.resources.qos import Qos, SyncQos
    from moorage.sdk.resources.quotas import Quotas, SyncQuotas
    from moorage.sdk.resources.rollouts import Rollouts, SyncRollouts
    from moorage.sdk.resources.runtimes import Runtimes, SyncRuntimes
    from moorage.sdk.resources.secrets import Secrets, SyncSecrets
    from moorage.sdk.resources.sessions import Sessions, SyncSessions
    from moorage.sdk.resources.ssh_keys import SshKeys, SyncSshKeys
    from moorage.sdk.resources.subscriptions import Subscriptions, SyncSubscriptions
    from moorage.sdk.resources.tasks import SyncTasks, Tasks
    from moorage.sdk.resources.templates import SyncTemplates, Templates
    from moorage.sdk.resources.usage import SyncUsage, Usage
    from moorage.sdk.resources.users import SyncUsers, Users
    from moorage.sdk.resources.workspaces import SyncWorkspaces, Workspaces

T = TypeVar("T")


class Client(Transport):
    """Typed calls to one manager: ``async with Client() as client``, then
    ``await client.sessions.get("train")``.

    Without ``url``, the client finds the address, the key and the authority like the command line:
    in ``MOORAGE_URL``, ``MOORAGE_API_KEY`` and the other variables, in the context in use, and in
    the files saved by ``moorage up``. With ``url``, it reads none of these and sends no key except
    ``key``.

    ``timeout``: limit of each call in seconds; for followed logs, it applies only to the connection
    attempt. ``ca_file``: a PEM file with an authority to trust in addition to the system's.
    ``verify``: False accepts any certificate. ``retries``: how often a call that reads or creates
    is repeated after an outage, with growing pauses. Creations then carry an idempotency key, so
    that none happens twice.

    Every call raises ``ApiError`` if the manager refuses it and ``Unreachable`` if the manager does
    not answer. The constructor raises ``ConfigError`` for sources that it cannot use.
    """

    access_tokens: AccessTokens
    agents: Agents
    apps: Apps
    audit: Audit
    budgets: Budgets
    ca: Ca
    catalog: Catalog
    code_kernels: CodeKernels
    cron_jobs: CronJobs
    decisions: Decisions
    endpoints: Endpoints
    events: Events
    executions: Executions
    groups: Groups
    join_tokens: JoinTokens
    keys: Keys
    limits: Limits
    managers: Managers
    members: Members
    occupancy: Occupancy
    peers: Peers
    pipelines: Pipelines
    prices: Prices
    projects: Projects
    qos: Qos
    quotas: Quotas
    rollouts: Rollouts
    runtimes: Runtimes
    secrets: Secrets
    sessions: Sessions
    ssh_keys: SshKeys
    subscriptions: Subscriptions
    tasks: Tasks
    templates: Templates
    usage: Usage
    users: Users
    workspaces: Workspaces

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        ca_file: str | None = None,
        verify: bool = True,
        retries: int = 0,
    ) -> None:
        if url is None:
            from moorage.sdk.installation.connection import find_connection

            found = find_connection(os.environ, ca_file=ca_file)
            url = found.url
            key = found.key if key is None else key
            ca_file = found.ca_file

        super().__init__(
            url, key or "", timeout=timeout, ca_file=ca_file, verify=verify, retries=retries
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Create a resource when it is first used."""
            self.__dict__[name] = resource = _resource_type(Client, name)(self)
            return resource

        def __dir__(self) -> list[str]:
            return [*super().__dir__(), *Client.__annotations__]


class SyncClient:
    """Typed calls to one manager without asyncio: ``with SyncClient() as client``, then
    ``client.sessions.get("train")``. It accepts the parameters of ``Client``.

    Its connections belong to an event loop in a separate thread, so it also works in notebooks, and
    several threads can share a client. ``client``: the asynchronous client.
    """

    access_tokens: SyncAccessTokens
    agents: SyncAgents
    apps: SyncApps
    audit: SyncAudit
    budgets: SyncBudgets
    ca: SyncCa
    catalog: SyncCatalog
    code_kernels: SyncCodeKernels
    cron_jobs: SyncCronJobs
    decisions: SyncDecisions
    endpoints: SyncEndpoints
    events: SyncEvents
    executions: SyncExecutions
    groups: SyncGroups
    join_tokens: SyncJoinTokens
    keys: SyncKeys
    limits: SyncLimits
    managers: SyncManagers
    members: SyncMembers
    occupancy: SyncOccupancy
    peers: SyncPeers
    pipelines: SyncPipelines
    prices: SyncPrices
    projects: SyncProjects
    qos: SyncQos
    quotas: SyncQuotas
    rollouts: SyncRollouts
    runtimes: SyncRuntimes
    secrets: SyncSecrets
    sessions: SyncSessions
    ssh_keys: SyncSshKeys
    subscriptions: SyncSubscriptions
    tasks: SyncTasks
    templates: SyncTemplates
    usage: SyncUsage
    users: SyncUsers
    workspaces: SyncWorkspaces

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        ca_file: str | None = None,
        verify: bool = True,
        retries: int = 0,
    ) -> None:
        self.client = Client(
            url, key, timeout=timeout, ca_file=ca_file, verify=verify, retries=retries
        )
        self._loop = LoopThread()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Create a resource when it is first used."""
            resource_type = _resource_type(SyncClient, name)
            self.__dict__[name] = resource = resource_type(self._loop, getattr(self.client, name))
            return resource

        def __dir__(self) -> list[str]:
            return [*super().__dir__(), *SyncClient.__annotations__]

    def __enter__(self) -> Self:
        self._loop.start()
        self.run(self.client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.run(self.client.__aexit__(kind, error, trace))
        finally:
            self._loop.stop()

    def health(self) -> Health:
        """As ``Client.health``."""
        return self.run(self.client.health())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the asynchronous client and return its result."""
        return self._loop.run(work)


def _resource_type(client: type[Client | SyncClient], name: str) -> Any:
    """The declared class of the client's attribute ``name``. Raises ``AttributeError``."""
    declared = client.__annotations__.get(name)
    if declared is None:
        raise AttributeError(f"{client.__name__!r} object has no attribute {name!r}")

    return getattr(import_module(f"moorage.sdk.resources.{name}"), declared)
