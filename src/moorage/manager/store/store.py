"""Store: one repository per subject, over shared connections to Postgres."""

from __future__ import annotations

from contextlib import AsyncExitStack

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.telemetry import TraceSink
from moorage.manager.secrets.keyring import Keyring
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.connector import DatabaseConnector
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.endpoints.load_history import LoadHistoryStore
from moorage.manager.store.endpoints.loads import LoadStore
from moorage.manager.store.endpoints.replicas import ReplicaStore
from moorage.manager.store.endpoints.repository import EndpointStore
from moorage.manager.store.endpoints.routes import RouteStore
from moorage.manager.store.groups.aliases import GroupAliases
from moorage.manager.store.groups.occupancy_history import OccupancyHistoryStore
from moorage.manager.store.groups.repository import GroupStore
from moorage.manager.store.identity.console_sessions import ConsoleSessionStore
from moorage.manager.store.identity.keys import KeyStore
from moorage.manager.store.identity.oidc import OidcStore
from moorage.manager.store.identity.owner_names import OwnerNames
from moorage.manager.store.identity.secrets import SecretStore
from moorage.manager.store.identity.ssh_keys import SshKeyStore
from moorage.manager.store.identity.users import ProjectStore, UserStore
from moorage.manager.store.kernels.access_tokens import AccessTokenStore
from moorage.manager.store.kernels.leases import KernelLeaseStore
from moorage.manager.store.kernels.orders import OrderStore
from moorage.manager.store.kernels.progress import ProgressStore
from moorage.manager.store.kernels.reloads import ReloadStore
from moorage.manager.store.metering.budgets import BudgetStore
from moorage.manager.store.metering.limit_shares import LimitShareStore
from moorage.manager.store.metering.resource_usage import UsageStore
from moorage.manager.store.metering.usage_records import UsageRecordStore
from moorage.manager.store.notifications.outbox import OutboxStore
from moorage.manager.store.notifications.subscriptions import SubscriptionStore
from moorage.manager.store.pipelines.cron_jobs import CronJobStore
from moorage.manager.store.pipelines.outputs import OutputStore
from moorage.manager.store.pipelines.repository import PipelineStore
from moorage.manager.store.platform.agents import AgentStore
from moorage.manager.store.platform.audit import AuditStore
from moorage.manager.store.platform.authorities import AuthorityStore
from moorage.manager.store.platform.integrity import IntegrityStore
from moorage.manager.store.platform.leader_lease import LeaseStore
from moorage.manager.store.platform.managers import ManagerStore
from moorage.manager.store.platform.overviews import OverviewStore
from moorage.manager.store.platform.peers import PeerStore
from moorage.manager.store.platform.reports import HEARTBEATS_EVERY_S, ReportStore
from moorage.manager.store.platform.retention import RetentionStore
from moorage.manager.store.platform.secrets import PlatformSecrets
from moorage.manager.store.scheduling.decisions import DecisionStore
from moorage.manager.store.scheduling.expected_starts import ExpectedStartStore
from moorage.manager.store.scheduling.qos import QosStore
from moorage.manager.store.scheduling.quotas import QuotaStore
from moorage.manager.store.scheduling.repository import SchedulingStore
from moorage.manager.store.sessions.array_turns import ArrayTurns
from moorage.manager.store.sessions.deadline_shift import DeadlineShift
from moorage.manager.store.sessions.idle import IdleStore
from moorage.manager.store.sessions.lifecycle import LifecycleStore
from moorage.manager.store.sessions.records import SessionRecordStore
from moorage.manager.store.sessions.repository import SessionStore
from moorage.manager.store.sessions.stops import SessionStopStore
from moorage.manager.store.sessions.tasks import TaskStore
from moorage.manager.store.sessions.templates import TemplateStore


class Store:
    """Reads and writes rows and makes no decisions. All methods raise ``StoreUnavailable`` while
    Postgres is down.

    ``keyring``: the keys of stored secrets; None means no keys. ``outputs_kept_s``: how long nodes
    keep steps' outputs. ``database``: connections to use instead of those to ``dsn``, for
    simulations with scripted faults. ``connector`` opens the connections; with None, their lineage
    is not checked. ``tracer``: traces starts.
    """

    def __init__(
        self,
        dsn: str,
        clock: Clock,
        *,
        lost_grace_s: float = 120.0,
        keep_unknown_kernels: bool = True,
        keyring: Keyring | None = None,
        database: Database | None = None,
        connector: DatabaseConnector | None = None,
        outputs_kept_s: float = 86_400.0,
        tracer: TraceSink | None = None,
    ) -> None:
        db = database or Database(dsn, connector)
        self.database = db
        notifier = Notifier(db.connector, clock)
        self.notifier = notifier
        newer = UnreadableRows(clock)
        self.unreadable = newer
        self.sessions = SessionStore(db, notifier, clock, lost_grace_s, tracer=tracer)
        self.turns = ArrayTurns(db, notifier)
        self.lifecycle = LifecycleStore(db, notifier, clock, newer, turns=self.turns)
        self.console_sessions = ConsoleSessionStore(db, notifier, clock)
        self.oidc = OidcStore(db, notifier)
        self.audit = AuditStore(db)
        self.groups = GroupStore(db, notifier, clock, newer)
        self.group_aliases = GroupAliases(db, notifier, clock, self.groups)
        self.overviews = OverviewStore(db, clock, newer)
        self.occupancy_history = OccupancyHistoryStore(db)
        self.quotas = QuotaStore(db, notifier, newer)
        self.qos = QosStore(db, notifier, newer)
        self.scheduling = SchedulingStore(
            db,
            notifier,
            clock=clock,
            sessions=self.sessions,
            groups=self.groups,
            quotas=self.quotas,
            unreadable=newer,
        )
        self.managers = ManagerStore(db, notifier, clock.new_id())
        self.reports = ReportStore(
            db,
            notifier,
            clock=clock,
            manager_id=self.managers.own_id,
            unreadable=newer,
            keep_unknown=keep_unknown_kernels,
        )
        self.agents = AgentStore(db, notifier, self.reports, newer)
        keyring = keyring or Keyring(None, clock)
        self.secrets = SecretStore(db, keyring, notifier)
        self.platform_secrets = PlatformSecrets(db, keyring, clock)
        self.subscriptions = SubscriptionStore(db, keyring, notifier, clock)
        self.outbox = OutboxStore(db, notifier)
        self.orders = OrderStore(db, keyring, newer, keep_unknown=keep_unknown_kernels)
        self.endpoints = EndpointStore(db, notifier, self.sessions, clock)
        self.load_history = LoadHistoryStore(db, self.endpoints)
        self.replicas = ReplicaStore(db, notifier, self.orders, newer)
        self.loads = LoadStore(
            db, notifier, endpoints=self.endpoints, manager=self.managers.own_id, unreadable=newer
        )
        self.keys = KeyStore(db, notifier, clock, newer)
        self.ssh_keys = SshKeyStore(db, notifier, clock)
        self.users = UserStore(db, notifier)
        self.owner_names = OwnerNames(db)
        self.projects = ProjectStore(db, notifier)
        self.access_tokens = AccessTokenStore(db, notifier, clock)
        self.integrity = IntegrityStore(db, notifier)
        self.routes = RouteStore(
            db,
            self.keys,
            access_tokens=self.access_tokens,
            keyring=keyring,
            notifier=notifier,
            unreadable=newer,
        )
        self.peers = PeerStore(db, notifier, clock)
        self.authorities = AuthorityStore(db, notifier)
        self.leases = LeaseStore(db)
        self.kernel_leases = KernelLeaseStore(db, notifier, newer)
        self.deadlines = DeadlineShift(db)
        self.session_records = SessionRecordStore(db, notifier)
        self.idle = IdleStore(db, newer)
        self.reloads = ReloadStore(db, notifier)
        self.templates = TemplateStore(db)
        self.tasks = TaskStore(db)
        self.outputs = OutputStore(db)
        self.pipelines = PipelineStore(
            db,
            notifier,
            sessions=self.sessions,
            clock=clock,
            turns=self.turns,
            lost_grace_s=lost_grace_s,
            outputs_kept_s=outputs_kept_s,
            unreadable=newer,
        )
        self.cron_jobs = CronJobStore(db, clock, self.pipelines, newer)
        self.usage = UsageStore(db, self.sessions)
        self.progress = ProgressStore(db, notifier)
        self.usage_records = UsageRecordStore(db)
        self.limit_shares = LimitShareStore(db)
        self.budgets = BudgetStore(db, notifier, clock, newer)
        self.decisions = DecisionStore(db)
        self.retention = RetentionStore(db)
        self.expected_starts = ExpectedStartStore(db, clock)
        self.session_stops = SessionStopStore(db, clock)
        self._heartbeats = self._heartbeat_loop(clock)
        self._reread_after_failovers()
        self._stack = AsyncExitStack()

    def _heartbeat_loop(self, clock: Clock) -> Loop:
        write = self.reports.write_heartbeats
        return Loop("heartbeats", write, interval_s=HEARTBEATS_EVERY_S, clock=clock)

    def _reread_after_failovers(self) -> None:
        guard = self.database.connector.guard
        if guard is not None:
            guard.on_failover.extend((self.reports.invalidate_all, self.notifier.wake_all))

    async def __aenter__(self) -> Store:
        await self._stack.enter_async_context(self.database)
        await self._stack.enter_async_context(self.notifier)
        await self._stack.enter_async_context(self._heartbeats)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def ping(self) -> None:
        """Raise ``StoreUnavailable`` when Postgres does not answer."""
        await self.database.fetch("SELECT 1")

    async def slot_counts(self) -> list[tuple[str, str, dict[str, int]]]:
        """For metrics: resource group, slot, and the amounts offered, unhealthy and allocated."""
        return [
            (
                row["resource_group"],
                row["slot"],
                {
                    "offered": row["capacity"],
                    "unhealthy": row["unhealthy"],
                    "allocated": row["used"],
                },
            )
            for row in await self.database.fetch(SQL["slot_counts"])
        ]

    async def oldest_pending(self) -> dict[str, float]:
        """For metrics: how long the oldest pending session of each resource group has been waiting,
        in seconds."""
        rows = await self.database.fetch(SQL["oldest_pending"])
        return {row["resource_group"]: row["seconds"] for row in rows}

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """For metrics: ("session", "agent" or "doubtful-job", status, resource group, count)."""
        rows = await self.database.fetch(SQL["counts"])
        return [(row["kind"], row["status"], row["resource_group"], row["n"]) for row in rows]
