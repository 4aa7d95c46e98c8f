"""Subscriptions of users in a test, and the two loops that assign and send events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorage.common.config.settings import ManagerSettings
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.common.views.subscriptions import SubscriptionSpec, SubscriptionView
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.loops.notification_controller import NotificationController
from moorage.manager.loops.notification_sender import NotificationSender
from moorage.manager.notifications import signing
from moorage.manager.notifications.mail import Mailer
from moorage.manager.notifications.services import NotificationServices
from moorage.manager.notifications.webhook import Webhooks
from moorage.manager.store import Store
from moorage.manager.store.notifications.subscriptions import SealedTarget
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule

SECRET = signing.make_secret(b"0123456789abcdef0123456789abcdef")


def of(user: str, project: str = "vision", role: Role = Role.MEMBER) -> Scope:
    return Scope.of(ApiKey("", user, role, Owner(user, project)))


async def make_people(store: Store) -> None:
    """ann, bob and mate, members of the project vision; eve, a member of speech."""
    db = store.database
    await db.fetch("INSERT INTO projects (name) VALUES ('vision'), ('speech')")
    await db.fetch(
        "INSERT INTO users (name, email, platform_role) VALUES ('ann', 'ann@example.com', NULL), "
        "('bob', 'bob@example.com', NULL), ('mate', '', NULL), ('eve', '', NULL), "
        "('boss', '', 'admin')"
    )
    await db.fetch(
        "INSERT INTO memberships (project, user_name, role) VALUES ('vision', 'ann', 'member'), "
        "('vision', 'bob', 'member'), ('vision', 'mate', 'viewer'), ('speech', 'eve', 'member')"
    )


def services(clock: StoreClock, **settings: Any) -> NotificationServices:
    """Senders that may reach loopback."""
    made = ManagerSettings(**({"webhook_hosts": ("127.0.0.0/8",)} | settings))
    webhooks = Webhooks(made.webhook_hosts, made.webhook_ca, clock, version="1.2.3")
    return NotificationServices(webhooks, Mailer(made, clock))


async def subscribe(
    store: Store, scope: Scope, name: str, target: str, **fields: Any
) -> SubscriptionView:
    """Subscribe as the API does. Its target is not checked."""
    spec = SubscriptionSpec.model_validate(
        {"name": name, "channel": "webhook", "target": target, "events": ["session.ended"]} | fields
    )
    sealed = SealedTarget(url=target, secret=SECRET if spec.channel == "webhook" else "")
    return await store.subscriptions.create(scope, spec, sealed, shown=target)


@dataclass
class Notifications:
    """The loops of one manager, run step by step."""

    store: Store
    services: NotificationServices
    clock: StoreClock = field(default_factory=StoreClock)

    def __post_init__(self) -> None:
        self.leader = Leader(self.store, self.clock)
        self.controller = NotificationController(self.store, self.leader, self.clock)
        self.sender = NotificationSender(
            self.store, self.clock, self.services.webhooks, self.services.mailer
        )

    async def assign(self) -> None:
        # ``schedule`` has taken it, as another leader.
        await self.store.database.fetch("DELETE FROM leases")
        await self.leader.run_once()
        assert self.leader.term is not None
        await self.controller.run_once()

    async def send(self) -> None:
        """Send what is due, and wait for the end of the attempts."""
        await self.sender.run_once()
        await self.sender.finished()

    async def run(self) -> None:
        await self.assign()
        await self.send()


async def run_session(
    store: Store, agent: FakeAgent, scope: Scope, name: str, *, exit_code: int = 0, **spec: Any
) -> str:
    """Run a session to its end. Returns its id."""
    await agent.report()
    made = await store.sessions.create(
        scope,
        SessionSpec.model_validate(
            {"name": name, "command": ["sleep", "1"], "resources": {"cpu": 1}} | spec
        ),
    )
    await store.database.fetch("DELETE FROM leases")
    assert await schedule(store) == 1
    kernel = made.kernels[0].id
    agent.see(kernel, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    reason = "exit-zero" if exit_code == 0 else "exit-nonzero"
    agent.see(kernel, ObservedState.EXITED, exit_code=exit_code, reason=reason)
    await agent.report()
    await reconcile_all(store)
    return made.id
