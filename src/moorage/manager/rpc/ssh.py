"""The manager's side of SSH at the proxies: who may log in where, and the commands that run in the
channels.

A proxy forwards the data that the client has signed to log in, and the manager verifies who holds
the key. A proxy therefore cannot name a key whose holder has not logged in there, nor a session or
user other than those of the login. The manager also decides what the user may do, at login and
again for every channel. A channel is closed when its key has been removed or its user has lost
access to the session. A connection is closed when its login would no longer be accepted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import structlog
from pydantic import ValidationError

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import BROKEN
from moorage.common.link.pb import agent_pb2, ssh_pb2
from moorage.common.model.commands import ExecSpec
from moorage.common.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MoorageError,
    NotFound,
    StoreUnavailable,
)
from moorage.common.model.paging import Paging
from moorage.common.model.public_keys import fingerprint_of
from moorage.common.model.session_access import Action
from moorage.common.ssh.logins import candidates, decoded, encoded, named
from moorage.common.views.resources import SessionView
from moorage.manager.crypto.ssh_keys import derive_key_pair
from moorage.manager.crypto.ssh_signatures import proves_login
from moorage.manager.identity.scope import Scope
from moorage.manager.identity.session_access import allows, refusal
from moorage.manager.rpc.commands import CommandBroker, has_files
from moorage.manager.rpc.running_command import RelayedCommand
from moorage.manager.store import Store
from moorage.manager.store.identity.ssh_keys import SshUser

log = structlog.get_logger("moorage.ssh")

# Maximum number of sessions shown for a project over SFTP, newest first.
_LISTED = 500
_HOST_KEY = "ssh-host-key"
# Seconds between a change and the next check, because changes come in bursts, and seconds between
# two checks without a change.
_PAUSE_S = 0.1
RECHECK_S = 30.0
_UNKNOWN = "the key is not registered, or its user may not log in"
_UNPROVED = "the proxy has not shown that the client holds the key"
_UPGRADE = "log in again; a proxy of an earlier release must be upgraded"


class SshBroker:
    """``file_servers``: the maximum number that a user may have open."""

    def __init__(self, store: Store, execs: CommandBroker, *, file_servers: int = 32) -> None:
        self._store = store
        self._execs = execs
        self._file_servers = file_servers
        self._open_files: Counter[str] = Counter()
        self._channels: set[asyncio.Event] = set()
        store.ssh_keys.on_change(self._recheck)

    def _recheck(self) -> None:
        for changed in self._channels:
            changed.set()

    async def host_key(self) -> str:
        """The private key of all proxies, created when a proxy first asks, and stored encrypted."""
        secret = await self._store.platform_secrets.get_or_create(_HOST_KEY)
        return derive_key_pair(secret, "moorage").private_key

    async def log_in(self, login: ssh_pb2.SshLogin) -> ssh_pb2.SshTarget:
        """Decide whether the holder of the key may log in under the given name.

        A login requires a proof; before that, the proxy asks with which keys it should let the
        client sign."""
        user = await self._store.ssh_keys.who(login.fingerprint)
        if user is None:
            return ssh_pb2.SshTarget(refusal=_UNKNOWN)

        is_login = login.HasField("proof")
        bound = log.bind(
            user=user.user, key=user.key, login=login.login, from_address=login.address
        )
        if is_login and not _is_proved(login):
            bound.warning("ssh login without a proof", proxy=login.proxy_id)
            return ssh_pb2.SshTarget(refusal=_UNPROVED)

        target = await self._target(login, user)
        if target.refusal:
            bound.info("ssh login refused", reason=target.refusal)
        elif is_login:
            bound.info("ssh login", session_id=target.session_id, files=not target.session_id)

        return target

    async def _target(self, login: ssh_pb2.SshLogin, user: SshUser) -> ssh_pb2.SshTarget:
        if login.login == user.user:
            return ssh_pb2.SshTarget()
        try:
            session, _ = await self._session(
                user, login.fingerprint, candidates(login.login), Action.EXEC
            )
        except (Forbidden, NotFound) as error:
            return ssh_pb2.SshTarget(refusal=error.message)
        return ssh_pb2.SshTarget(session_id=session.id)

    async def _until_logged_out(self, login: ssh_pb2.SshLogin, context: Any) -> agent_pb2.ExecEnd:
        """Return once an accepted login would be refused."""
        refusal = ""
        if not _is_proved(login):
            raise Forbidden(_UNPROVED, next_step=_UPGRADE)

        async def authorize() -> None:
            nonlocal refusal
            user = await self._store.ssh_keys.who(login.fingerprint)
            refusal = _UNKNOWN if user is None else (await self._target(login, user)).refusal
            if refusal:
                raise Forbidden(refusal)

        await context.write(agent_pb2.ExecOutput())
        changed = asyncio.Event()
        changed.set()
        self._channels.add(changed)

        try:
            await _refused(changed, authorize)
        finally:
            self._channels.discard(changed)

        log.info("ssh connection ended: its login is refused", login=login.login, reason=refusal)
        return agent_pb2.ExecEnd(code="forbidden", detail=refusal)

    async def list_files(self, folder: ssh_pb2.SshFolder) -> ssh_pb2.SshEntries:
        """A user's projects, or a project's newest sessions whose files the user may access."""
        try:
            user = await self._files_user(folder.login)
        except Forbidden as error:
            return ssh_pb2.SshEntries(refusal=error.message)

        if not folder.project:
            return ssh_pb2.SshEntries(names=[encoded(name) for name in user.projects])

        project = decoded(folder.project)
        scope = (
            await self._scope(folder.login.fingerprint, project)
            if project in user.projects
            else None
        )
        if scope is None:
            return ssh_pb2.SshEntries(
                refusal=f"there is no project {project!r}, or you are not a member of it"
            )

        page = await self._store.sessions.page(scope, Paging(_LISTED), user=scope.user)
        reachable = (
            item for item in page.items if has_files(item) and allows(scope, item, Action.FILES)
        )
        return ssh_pb2.SshEntries(names=sorted({encoded(session.name) for session in reachable}))

    async def _user(self, login: ssh_pb2.SshLogin) -> SshUser:
        """The user who has logged in. Raises ``Forbidden``."""
        user = await self._store.ssh_keys.who(login.fingerprint)
        if user is None:
            raise Forbidden(_UNKNOWN, next_step="`moorage keys list-ssh` lists the registered keys")
        if not _is_proved(login):
            log.warning("ssh without a proof", user=user.user, key=user.key, proxy=login.proxy_id)
            raise Forbidden(_UNPROVED, next_step=_UPGRADE)
        return user

    async def _files_user(self, login: ssh_pb2.SshLogin) -> SshUser:
        """The user whose login is for the files of all sessions.

        Raises ``Forbidden``, even for a login to a single session, whose proof is valid only for
        that session."""
        user = await self._user(login)
        if login.login != user.user:
            raise Forbidden("the login is for one session", next_step=f"log in as {user.user!r}")
        return user

    async def _session(
        self, user: SshUser, fingerprint: str, targets: list[tuple[str, str]], action: Action
    ) -> tuple[SessionView, Scope]:
        """The first of these sessions that exists in its project, if the key may do this with it.

        Raises ``NotFound``, ``Forbidden``."""
        for project, ref in targets:
            if project not in user.projects:
                continue

            scope = await self._scope(fingerprint, project)
            if scope is None:
                continue

            try:
                view = await self._store.sessions.get(scope, ref)
            except NotFound:
                continue

            if refused := refusal(scope, view, action):
                raise refused

            return view, scope

        raise NotFound(
            "there is no such session, or you may not see it",
            next_step="log in as PROJECT/SESSION or PROJECT+SESSION; `moorage ps` lists sessions",
        )

    async def _scope(self, fingerprint: str, project: str) -> Scope | None:
        """The key's scope in one project, or None if it cannot read anything there."""
        key = await self._store.ssh_keys.find(fingerprint, project)
        if key is None or not (scope := Scope.of(key)).reads(project):
            return None
        return replace(scope, projects=(project,))

    async def serve(
        self, start: ssh_pb2.SshStart, requests: AsyncIterator[ssh_pb2.SshInput], context: Any
    ) -> None:
        """Serve one channel, from its start to its end."""
        end: agent_pb2.ExecEnd | None
        try:
            if start.watch:
                end = await self._until_logged_out(start.login, context)
            else:
                end = await self._run(start, requests, context)
        except StoreUnavailable:
            raise
        except MoorageError as error:
            end = agent_pb2.ExecEnd(
                code=error.code, detail=error.message, next_step=error.next_step
            )

        if end is not None:
            await context.write(agent_pb2.ExecOutput(end=end))

    async def _run(
        self, start: ssh_pb2.SshStart, requests: AsyncIterator[ssh_pb2.SshInput], context: Any
    ) -> agent_pb2.ExecEnd | None:
        """Relay until the command ends. Returns the outcome if its agent has not sent one."""
        login = start.login
        is_files = bool(start.session)
        targets = [named(start.session)] if is_files else candidates(login.login)
        action = Action.FILES if is_files else Action.EXEC

        async def authorize() -> tuple[SessionView, Scope]:
            user = await (self._files_user(login) if is_files else self._user(login))
            return await self._session(user, login.fingerprint, targets, action)

        changed = asyncio.Event()
        async with AsyncExitStack() as stack:
            self._channels.add(changed)
            stack.callback(self._channels.discard, changed)
            session, scope = await authorize()
            command = await stack.enter_async_context(
                self._files(session, scope)
                if is_files
                else self._execs.open(session, _parse(start.spec), actor=scope.actor)
            )
            inputs = spawn("ssh.inputs", _put_inputs(command, requests))
            watcher = spawn("ssh.authorized", _until_refused(changed, authorize, command))
            try:
                await context.write(agent_pb2.ExecOutput())  # it runs
                while (output := await command.read_message()) is not None:
                    await context.write(output)
            finally:
                await cancel_and_wait(inputs, watcher)

            if command.end is not None:
                return None

            if command.closed.is_set():
                return agent_pb2.ExecEnd(
                    code="forbidden", detail="you may no longer use the session"
                )

            return agent_pb2.ExecEnd(
                code="agent-unreachable",
                detail=(
                    "the connection to the session's node was lost, and the command was terminated"
                ),
                next_step="try again in a moment",
            )

    @asynccontextmanager
    async def _files(self, session: SessionView, scope: Scope) -> AsyncIterator[RelayedCommand]:
        """Raise ``Conflict`` beyond the number that one user may have open on this manager."""
        user = scope.owner.user
        if self._open_files[user] >= self._file_servers:
            raise Conflict(
                f"user {user!r} has the files of {self._file_servers} sessions open",
                next_step="close an SFTP connection; manager.file_servers_per_user is the limit",
            )

        self._open_files[user] += 1
        bound = log.bind(session=session.name, session_id=session.id, actor=scope.actor)
        bound.info("files opened")

        try:
            async with self._execs.open_files(session) as command:
                yield command
        finally:
            self._open_files[user] -= 1
            if not self._open_files[user]:
                del self._open_files[user]

            bound.info("files closed")


def _is_proved(login: ssh_pb2.SshLogin) -> bool:
    """Whether the client has signed this login with the key with this fingerprint."""
    proof = login.proof
    is_its_key = fingerprint_of(proof.key) == login.fingerprint
    return is_its_key and proves_login(login.login, proof.key, proof.signed, proof.signature)


def _parse(text: str) -> ExecSpec:
    try:
        return ExecSpec.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInput(
            f"the session cannot run this command: {error.errors()[0]['msg']}"
        ) from None


async def _put_inputs(command: RelayedCommand, requests: AsyncIterator[ssh_pb2.SshInput]) -> None:
    with suppress(*BROKEN):
        async for message in requests:
            await command.inputs.put(message.input)


async def _until_refused(
    changed: asyncio.Event,
    authorize: Callable[[], Awaitable[object]],
    command: RelayedCommand,
) -> None:
    await _refused(changed, authorize)
    command.close()


async def _refused(changed: asyncio.Event, authorize: Callable[[], Awaitable[object]]) -> None:
    """Check again whenever keys, members or projects have changed. Returns once access is
    refused."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(RECHECK_S):
                await changed.wait()

        await asyncio.sleep(_PAUSE_S)
        changed.clear()
        try:
            await authorize()
        except (Forbidden, NotFound):
            return
        except MoorageError:
            # The database is unavailable, so access remains allowed until the database's answer
            # refuses it.
            changed.set()
            await asyncio.sleep(1.0)
