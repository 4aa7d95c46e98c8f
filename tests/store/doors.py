"""Doors to sessions, and callers of each role with each relation to sessions of each kind, for the
matrix."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import aiohttp

from moorage.cli.mcp.plans import PlanBook
from moorage.cli.mcp.server import APPLY, MoorageTools
from moorage.cli.mcp.tools import PLAN, Operation, operations
from moorage.common.link.pb import agent_pb2, ssh_pb2
from moorage.common.model.commands import ExecEnd, ExecSpec
from moorage.common.model.ids import SessionId
from moorage.common.model.public_keys import fingerprint_of, parse_public_key
from moorage.common.model.roles import PLATFORM_ROLES, KeyScope, Role
from moorage.common.model.service_ports import AppPort
from moorage.common.model.session_access import (
    Action,
    Caller,
    Relation,
    SessionKind,
    Subject,
    relation_of,
)
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.common.ssh.requests import SFTP, Terminal, command_of, connection_to
from moorage.common.views.access_tokens import AccessTokenSpec
from moorage.common.views.identity import UserSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.api.http.openapi import describe, path_of
from moorage.manager.api.http.route import Route
from moorage.manager.api.routes import ROUTES
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.rpc.running_command import RelayedCommand
from moorage.manager.rpc.ssh import SshBroker
from moorage.proxy.apps.address import parse_address
from moorage.proxy.apps.admission import AppGrant, admit
from moorage.proxy.apps.credentials import read_credentials
from moorage.proxy.core.routes import IndexedTable
from moorage.sdk import Client
from tests.clocks import StoreClock
from tests.ssh_signing import SshSigner

from .conftest import FakeAgent, reconcile_all, schedule
from .tenancy_bodies import BODIES
from .tenancy_harness import ROOT, Api

HERE = "vision"
ELSEWHERE = "speech"
OTHER = "other"
STRANGER = "stranger"
READ: frozenset[KeyScope] = frozenset({"sessions:read"})
WRITE: frozenset[KeyScope] = frozenset({"sessions:write"})
MODELS: frozenset[KeyScope] = frozenset({"models:use"})
ALL: tuple[frozenset[KeyScope] | None, ...] = (None, READ, WRITE, MODELS)
DOMAIN = "apps.example"
DOCUMENT = describe(ROUTES, "1")
ROUTE_OF = {(row.method.lower(), path_of(row)): row for row in ROUTES}


@dataclass(frozen=True)
class Key:
    """An API key of a user in project ``HERE``, and the SSH key that was registered with it."""

    role: Role
    scopes: frozenset[KeyScope] | None
    secret: str = ""
    signer: SshSigner | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{'all' if self.scopes is None else '-'.join(sorted(self.scopes))}"

    @property
    def user(self) -> str:
        return user_of(self.role)

    @property
    def caller(self) -> Caller:
        projects = None if self.role in PLATFORM_ROLES else (HERE,)
        return Caller(self.role, self.user, projects, self.scopes)


def user_of(role: Role) -> str:
    return f"u-{role}"


@dataclass(frozen=True)
class Session:
    id: SessionId
    name: str
    subject: Subject

    def relation(self, key: Key) -> Relation:
        caller = key.caller
        mine = self.subject
        return relation_of(caller.user, caller.projects, mine.user, mine.project)


@dataclass
class World:
    """Keys for every role with each set of scopes, and running sessions of both kinds: those of a
    user with each role, of another user in their project, and of a user in another project."""

    api: Api
    clock: StoreClock
    keys: list[Key] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    table: IndexedTable | None = None

    def cases(
        self, scopes: tuple[frozenset[KeyScope] | None, ...]
    ) -> Iterator[tuple[Key, Session]]:
        """Each role with each relation to a session of each kind, where the combination exists."""
        for key in self.keys:
            for session in self.sessions:
                if key.scopes in scopes and session.subject.user in (key.user, OTHER, STRANGER):
                    yield key, session


async def make_world(api: Api, clock: StoreClock) -> World:
    world = World(api, clock)
    store = api.store
    for name in (OTHER, STRANGER):
        await store.users.create(ROOT, UserSpec(name=name))
    for number, role in enumerate(Role):
        platform = cast(Any, role.value if role in PLATFORM_ROLES else None)
        await store.users.create(ROOT, UserSpec(name=user_of(role), platform_role=platform))
        if platform is None:
            member = cast(Any, role.value.removeprefix("project-"))
            await store.projects.set_member(ROOT, HERE, user_of(role), member)

        for count, scopes in enumerate(ALL):
            world.keys.append(await _make_key(api, Key(role, scopes), 100 * number + count))

    await _make_sessions(world)
    world.table = IndexedTable(await store.routes.table())
    return world


async def _make_key(api: Api, key: Key, number: int) -> Key:
    scopes = None if key.scopes is None else cast(Any, sorted(key.scopes))
    spec = KeySpec(name=key.name, user=key.user, project=HERE, role=key.role, scopes=scopes)
    secret = (await api.store.keys.create(ROOT, spec)).secret
    [row] = await api.store.database.fetch("SELECT id FROM api_keys WHERE name = $1", key.name)
    made = ApiKey(str(row["id"]), key.name, key.role, Owner(key.user, HERE))
    signer = SshSigner(number)
    await api.store.ssh_keys.create(
        Scope.of(made), parse_public_key(f"{signer.public_key} {key.name}")
    )
    api.keys[key.name] = secret

    return replace(key, secret=secret, signer=signer)


async def _make_sessions(world: World) -> None:
    store = world.api.store
    agent = FakeAgent(store, runtimes=("process", "isolated-process"))
    await agent.report()
    owners = [(user_of(role), HERE) for role in Role] + [(OTHER, HERE), (STRANGER, ELSEWHERE)]
    made = []
    for user, project in owners:
        for kind in SessionKind:
            owner = Owner(user, project, isolated=kind is SessionKind.ISOLATED)
            name = f"of-{user}-{kind}"
            given = {
                "name": name,
                "command": ["x"],
                "ports": [{"name": "web"}],
                "resources": {"cpu": 0.5},
            }
            spec = SessionSpec.model_validate(given)
            view = await store.sessions.create(Scope(user, owner, Role.MEMBER, None), spec)
            made.append(Session(view.id, name, Subject(user, project, kind)))

    assert await schedule(store) == len(made)
    for number, session in enumerate(made):
        [kernel] = (await store.sessions.get(ROOT, session.id)).kernels
        port = 21000 + 2 * number
        apps = (AppPort("web", port + 1, "http", False, port + 1),)
        agent.see(kernel.id, ObservedState.RUNNING, host="127.0.0.1", port=port, apps=apps)

    await agent.report()
    await reconcile_all(store)
    world.sessions += made


@dataclass(frozen=True)
class Door:
    """``ask``: the answer's status in HTTP terms, or 200 for anything that is not a refusal.
    ``looks_up_first``: whether the door looks for sessions in its user's projects only, before it
    checks what the role allows. ``reads``: the read that precedes its action."""

    name: str
    action: Action
    ask: Callable[[World, Key, Session], Awaitable[int]]
    looks_up_first: bool = False
    reads: tuple[Action, ...] = ()


def _status(status: int) -> int:
    assert status < 500, status
    return status if status in (401, 403, 404) else 200


def rest_doors() -> list[Door]:
    """One door for each route with a session in its path, and another if the route can be opened as
    a WebSocket."""
    doors = [
        Door(f"{row.method} {row.path}", row.action, _asking(row)) for row in ROUTES if row.action
    ]
    sockets = [
        row
        for row in ROUTES
        if row.action and row.handler.__name__ in ("exec_in_session", "follow")
    ]
    return doors + [Door(f"WebSocket {row.path}", row.action, _connecting(row)) for row in sockets]  # type: ignore[arg-type]


def _path(row: Route, session: Session, token: str = "") -> str:
    given = {"ref": session.id, "app": "web", "id": token, "run_id": "run-1", "language": "python"}
    # The query is read before the rights are checked.
    query = "?path=x" if row.path.endswith("/content") else ""
    return path_of(row).format_map(given) + query


def _asking(row: Route) -> Callable[[World, Key, Session], Awaitable[int]]:
    async def ask(world: World, key: Key, session: Session) -> int:
        token = ""
        if "{id}" in row.path:
            made = await world.api.store.access_tokens.create(
                ROOT, session.id, "web", AccessTokenSpec()
            )
            token = made.id
        body = None if row.body is None else BODIES[row.body.__name__]
        status, _ = await world.api.call(key.name, row.method, _path(row, session, token), body)
        return _status(status)

    return ask


def _connecting(row: Route) -> Callable[[World, Key, Session], Awaitable[int]]:
    async def ask(world: World, key: Key, session: Session) -> int:
        headers = {"Authorization": f"Bearer {key.secret}"}
        try:
            async with world.api.http.ws_connect(_path(row, session), headers=headers):
                return 200
        except aiohttp.WSServerHandshakeError as error:
            return _status(error.status)

    return ask


def proxy_doors() -> list[Door]:
    """The addresses under which a proxy serves a port, over HTTP and over a WebSocket."""
    places = {
        "path": lambda one: ("proxy", f"/apps/{one.id}/web/"),
        "host name": lambda one: (f"web--{one.id}.{DOMAIN}", "/"),
        "tunnel": lambda one: ("proxy", f"/tunnel/{one.id}/web"),
    }
    return [
        Door(
            f"port by {name}{' in a WebSocket' if upgrade else ''}",
            Action.PORTS,
            _opening(place, upgrade),
        )
        for name, place in places.items()
        for upgrade in (False, True)
    ]


def _opening(
    place: Callable[[Session], tuple[str, str]], upgrade: bool
) -> Callable[[World, Key, Session], Awaitable[int]]:
    async def ask(world: World, key: Key, session: Session) -> int:
        host, target = place(session)
        address = parse_address(host, target, DOMAIN)
        assert address is not None
        assert world.table is not None
        credentials = read_credentials(address, {"Authorization": f"Bearer {key.secret}"}, [])
        found = admit(credentials, world.table, time.time(), upgrade=upgrade, host=host)
        return 200 if isinstance(found, AppGrant) else found.status

    return ask


# An SSH client's request to a session: the command that its channel runs.
CHANNELS: dict[str, ExecSpec] = {
    "shell": command_of(None, None, Terminal("xterm", 24, 80), {}, kernel="main1"),
    "exec": command_of("id", None, None, {}, kernel="main1"),
    "subsystem sftp": command_of(None, SFTP, None, {}, kernel="main1"),
    "direct-tcpip": connection_to("127.0.0.1", 80, "main1"),
}


def ssh_doors() -> list[Door]:
    doors = [
        Door(f"ssh {name}", Action.EXEC, _opening_channel(spec), looks_up_first=True)
        for name, spec in CHANNELS.items()
    ]
    return [
        *doors,
        Door("ssh login", Action.EXEC, _logging_in, looks_up_first=True),
        Door("sftp files", Action.FILES, _opening_files, looks_up_first=True),
        Door("sftp list", Action.FILES, _listing, looks_up_first=True),
    ]


class Commands:
    """Replaces the command broker. Each command ends at once."""

    @asynccontextmanager
    async def open(
        self, session: Any, spec: ExecSpec, *, actor: str
    ) -> AsyncIterator[RelayedCommand]:
        yield _ended()

    @asynccontextmanager
    async def open_files(self, session: Any) -> AsyncIterator[RelayedCommand]:
        yield _ended()


def _ended() -> RelayedCommand:
    command = RelayedCommand("node-1")
    command.outputs.close()
    command.end = ExecEnd(exit_code=0)
    return command


class Context:
    """The context of a gRPC call; it keeps the sent messages."""

    def __init__(self) -> None:
        self.sent: list[agent_pb2.ExecOutput] = []

    async def write(self, message: agent_pb2.ExecOutput) -> None:
        self.sent.append(message)


def _broker(world: World) -> SshBroker:
    return SshBroker(world.api.store, cast(Any, Commands()))


def _login(key: Key, session: Session) -> ssh_pb2.SshLogin:
    return _proved(key, f"{session.subject.project}/{session.name}")


def _proved(key: Key, login: str) -> ssh_pb2.SshLogin:
    """As signed by the holder of the key."""
    assert key.signer is not None
    signed = key.signer.signed_login(login)
    proof = ssh_pb2.SshProof(key=key.signer.blob, signed=signed, signature=key.signer.sign(signed))
    return ssh_pb2.SshLogin(login=login, fingerprint=fingerprint_of(key.signer.blob), proof=proof)


async def _serve(world: World, start: ssh_pb2.SshStart) -> int:
    async def nothing() -> AsyncIterator[ssh_pb2.SshInput]:
        return
        yield

    context = Context()
    await _broker(world).serve(start, nothing(), context)
    if not context.sent[0].HasField("end"):
        return 200
    return {"forbidden": 403, "not-found": 404}[context.sent[0].end.code]


def _opening_channel(spec: ExecSpec) -> Callable[[World, Key, Session], Awaitable[int]]:
    async def ask(world: World, key: Key, session: Session) -> int:
        return await _serve(
            world, ssh_pb2.SshStart(login=_login(key, session), spec=spec.model_dump_json())
        )

    return ask


async def _opening_files(world: World, key: Key, session: Session) -> int:
    login = _proved(key, key.user)
    of = f"{session.subject.project}/{session.name}"
    return await _serve(world, ssh_pb2.SshStart(login=login, session=of))


async def _logging_in(world: World, key: Key, session: Session) -> int:
    """A refusal is only a text here; the channels cover its other forms."""
    target = await _broker(world).log_in(_login(key, session))
    assert bool(target.refusal) != (target.session_id == session.id)
    if not target.refusal:
        return 200
    return 404 if "there is no such session" in target.refusal else 403


async def _listing(world: World, key: Key, session: Session) -> int:
    """A session is listed if and only if it may be opened, because a list has no status for it."""
    folder = ssh_pb2.SshFolder(login=_proved(key, key.user), project=session.subject.project)
    entries = await _broker(world).list_files(folder)
    if session.name in entries.names:
        return 200
    return 404 if entries.refusal else 403


def mcp_doors() -> list[Door]:
    """Tools for a session: reading tools; and for writing tools, the plan and its application."""
    return [
        Door(
            f"mcp {PLAN if one.writes else ''}{one.name}",
            row.action,
            _using(one),
            reads=_reads(one),
        )
        for one in operations(DOCUMENT).values()
        if (row := ROUTE_OF[one.method, one.path]).action
    ]


def _reads(operation: Operation) -> tuple[Action, ...]:
    """A plan shows the changes that it would make."""
    about = ROUTE_OF["get", operation.about].action if operation.about else None
    return (about,) if about is not None else ()


def _using(operation: Operation) -> Callable[[World, Key, Session], Awaitable[int]]:
    async def ask(world: World, key: Key, session: Session) -> int:
        arguments: dict[str, Any] = {"ref": session.id, "run_id": "run-1"}
        arguments = {name: arguments[name] for name in arguments if name in operation.parameters}
        if operation.body is not None:
            arguments["body"] = BODIES[ROUTE_OF[operation.method, operation.path].body.__name__]  # type: ignore[union-attr]

        book = PlanBook(None)
        async with Client(world.api.url, key.secret) as client:
            tools = MoorageTools(client, DOCUMENT, book, world.clock, read_only=False)
            name = f"{PLAN}{operation.name}" if operation.writes else operation.name
            found = await tools.call(name, arguments)
            if operation.writes and not found.is_error:
                assert found.structured_content is not None
                found = await tools.call(APPLY, {"plan_id": found.structured_content["plan_id"]})

        return _status_of(found)

    return ask


def _status_of(result: Any) -> int:
    """A tool reports the problem to its agent, without a status."""
    text = result.content[0].text if result.is_error else ""
    refusals = ("this operation requires", "belongs to user", "as the user of the agent")
    if any(part in text for part in refusals):
        return 403
    return 404 if text.startswith("no session") else 200
