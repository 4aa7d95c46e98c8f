"""The access rule for sessions, at every door: each role with each relation to a session of each
kind.

The allowed cases are generated from the rule's enums (``common/model/session_access.py``). A route,
tool, SSH channel or link call that is not in the matrix fails it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import asyncssh
import pytest

import moorage
from moorage.cli.mcp.server import MoorageTools
from moorage.cli.mcp.tools import PLAN, operations
from moorage.common.aio.clock import SystemClock
from moorage.common.link.pb import agent_pb2, managers_pb2, peers_pb2, routes_pb2, ssh_pb2
from moorage.common.model.roles import PLATFORM_ROLES, Role
from moorage.common.model.session_access import Action, Relation, SessionKind, decide
from moorage.common.ssh.channels import SessionChannel
from moorage.manager.api.routes import ROUTES
from moorage.manager.store import Store
from moorage.proxy.ssh.files import FilesChannel
from moorage.proxy.ssh.server import SshConnection
from tests.clocks import StoreClock

from .doors import (
    ALL,
    CHANNELS,
    DOCUMENT,
    ROUTE_OF,
    Door,
    Key,
    Session,
    World,
    make_world,
    mcp_doors,
    proxy_doors,
    rest_doors,
    ssh_doors,
)
from .tenancy_harness import serve

DOORS = {"rest": rest_doors, "proxy": proxy_doors, "ssh": ssh_doors, "mcp": mcp_doors}
SOURCE = Path(moorage.__file__).parent


def expected(door: Door, key: Key, session: Session) -> int:
    if door.looks_up_first and session.relation(key) is Relation.FOREIGN:
        return 404
    answers = [
        decide(key.caller, session.subject, action).http for action in (*door.reads, door.action)
    ]
    return next((status for status in answers if status != 200), 200)


def asked(world: World, kind: str, door: Door) -> list[tuple[Key, Session]]:
    """Callers who are refused come first, because a caller who is allowed may stop or rename the
    session."""
    cases = list(world.cases(ALL if kind == "proxy" else (None,)))
    if kind in ("rest", "ssh"):  # each costs a request
        cases += [
            (key, session)
            for key, session in world.cases(ALL[1:])
            if key.role in (Role.MEMBER, Role.ADMIN)
            and session.subject.kind is SessionKind.ISOLATED
            and session.relation(key) is not Relation.PROJECT
        ]

    return sorted(cases, key=lambda case: expected(door, *case) == 200)


def _when(door: Door) -> tuple[bool, bool]:
    """What changes a session comes after what reads it. A stop precedes a requeue, because a
    pending session would be cancelled by a stop, and its workspace would then be looked for."""
    return door.action is Action.CHANGE, door.name.endswith("/requeue")


@pytest.mark.parametrize("kind", DOORS)
async def test_every_door_decides_by_the_one_rule(
    store: Store, clock: StoreClock, kind: str
) -> None:
    wrong = []
    seen = set()
    async with serve(store) as api:
        world = await make_world(api, clock)
        for door in sorted(DOORS[kind](), key=_when):
            for key, session in asked(world, kind, door):
                want = expected(door, key, session)
                status = await door.ask(world, key, session)
                seen.add((key.role, session.relation(key), session.subject.kind, door.action))

                if status != want:
                    wrong.append(
                        f"{door.name} as {key.name} on {session.name}: {status}, expected {want}"
                    )

    assert wrong == [], "\n".join(wrong)
    actions = {door.action for door in DOORS[kind]()}
    assert seen == {
        (role, relation, kind_of_session, action)
        for role in Role
        for relation in Relation
        for kind_of_session in SessionKind
        for action in actions
        if relation is not Relation.FOREIGN or role not in PLATFORM_ROLES
    }


def test_every_action_has_a_door() -> None:
    assert {door.action for doors in DOORS.values() for door in doors()} == set(Action)


async def test_every_route_about_a_session_is_in_the_matrix(store: Store) -> None:
    """This checks aiohttp's own routes. Those outside the table serve the console's files."""
    for row in ROUTES:
        names_session = "/sessions/{ref" in row.path or "/workspaces/{ref" in row.path
        assert names_session == (row.action is not None), (
            f"{row.method} {row.path}: which action is it?"
        )

    async with serve(store) as api:
        app = api.app

    paths = {row.path.replace(":.+}", "}") for row in ROUTES}
    others = set()
    for served in app.router.routes():
        assert served.resource is not None
        if served.resource.canonical not in paths:
            others.add((served.method, served.resource.canonical))

    assert {path for _, path in others} == {
        *("/console", "/console/settings.json", "/console/chat"),
        *("/console/assets/{name}", "/console/{name}", "/console/{page}"),
    }


def test_every_tool_is_a_route() -> None:
    """The MCP server makes no decisions of its own: each tool sends requests to routes as its
    user. ``apply_plan`` sends the request of a plan, and ``get_schema`` sends none."""
    known = operations(DOCUMENT)
    tools = MoorageTools(None, DOCUMENT, None, SystemClock(), read_only=False)  # type: ignore[arg-type]
    named = {tool.name.removeprefix(PLAN) for tool in tools.tools()}
    named -= {"apply_plan", "get_schema"}
    about_sessions = {door.name.removeprefix("mcp ").removeprefix(PLAN) for door in mcp_doors()}
    for name in named:
        operation = known[name]
        row = ROUTE_OF[operation.method, operation.path]
        assert (row.action is not None) == (name in about_sessions), name


def test_every_ssh_channel_is_in_the_matrix() -> None:
    """asyncssh's server refuses every client request whose handler is not overridden."""

    def asked_of(kind: type, base: type) -> set[str]:
        names = {name for one in kind.__mro__ if one not in base.__mro__ for name in vars(one)}
        return {name for name in names & set(dir(base)) if name.endswith("_requested")}

    assert asked_of(SshConnection, asyncssh.SSHServer) == {
        "session_requested",
        "connection_requested",
    }
    requests = {"shell_requested", "exec_requested", "subsystem_requested", "pty_requested"}
    for channel in (SessionChannel, FilesChannel):
        assert asked_of(channel, asyncssh.SSHServerSession) == requests
        session = channel.__new__(channel)
        assert session.subsystem_requested("sftp")
        assert not session.subsystem_requested("netconf")

    assert CHANNELS.keys() == {"shell", "exec", "subsystem sftp", "direct-tcpip"}


def test_calls_of_the_links_that_open_a_session_for_a_user_are_in_the_matrix() -> None:
    """The other calls belong to agents, managers and proxies, which act for no user."""
    served = {
        f"{service.name}.{method.name}"
        for module in (agent_pb2, managers_pb2, peers_pb2, routes_pb2, ssh_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    of_users = {"SshAccess.LogIn", "SshAccess.Open", "SshAccess.List"}
    assert served == of_users | {
        *("AgentLink.Attach", "AgentLink.SendLogs", "AgentLink.SendUsage", "AgentLink.Exec"),
        "AgentLink.ExchangeTasks",
        *("AgentLink.SendWorkspaces", "AgentLink.FetchOutput", "AgentLink.NeededOutputs"),
        *("ManagerLink.ReadLog", "ManagerLink.RunCommand", "ManagerLink.AskWorkspaces"),
        *("ManagerLink.Identify", "Peers.Renew", "Peers.Hello", "SshAccess.HostKey"),
        *("RouteFeed.Watch", "RouteFeed.WatchCredentials", "RouteFeed.Report"),
    }


def test_nobody_else_decides() -> None:
    """The code that consults the rule, and the code that reads a session's kind."""
    asks = set()
    reads = set()
    for path in SOURCE.rglob("*.py"):
        if path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            continue

        text = path.read_text()
        if "decide" not in text and "unisolated" not in text and "isolated" not in text:
            continue

        where = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "moorage.common.model.session_access"
            ):
                asks |= {where for one in node.names if one.name in ("decide", "kind_of")}

            if isinstance(node, ast.Attribute) and node.attr in ("unisolated", "isolated"):
                reads.add(where)

    assert asks == {
        "manager/identity/session_access.py",
        "manager/serving/routes.py",
        "proxy/apps/admission.py",
    }
    assert {one for one in reads if one.startswith(("manager/api", "manager/rpc", "proxy"))} == {
        # These decide whether pipeline steps, retried tasks and sessions from templates run
        # isolated.
        "manager/api/pipelines/handlers.py",
        "manager/api/sessions/tasks.py",
        "manager/api/sessions/templates.py",
        "proxy/apps/admission.py",
    }
