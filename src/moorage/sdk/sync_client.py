"""Python client without asyncio: every call of ``Client`` as a method that returns its answer.

The connections live in the event loop of a thread, so it works in notebooks, too, and several
threads may use one client.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from moorage.common.views.audit import AuditEntry
from moorage.common.views.resources import Page
from moorage.sdk.client import Client
from moorage.sdk.code import Execution
from moorage.sdk.pipelines import PipelineBuilder

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **options: P.kwargs) -> T:
        return self.run(method(self.client, *args, **options))

    return call


def _iterated(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    @functools.wraps(method)
    def iterate(self: SyncClient, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        async def begin() -> AsyncIterator[T]:
            return method(self.client, *args, **options)

        async def end() -> None:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

        async def following() -> T:
            return await anext(items, _END)

        items = self.run(begin())
        try:
            while (item := self.run(following())) is not _END:
                yield item
        finally:
            if self._loop is not None:  # else leaving the client has ended it
                self.run(end())

    return iterate


class SyncClient:
    """Typed calls to one manager: ``with SyncClient(url, key) as client``. Parameters, answers and
    errors are those of ``Client``. ``logs`` and ``events`` are iterators; leaving one ends its
    stream.

    ``client``: the asynchronous one. ``run``: runs a coroutine of it and returns its result.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        timeout: float = 30.0,
        ca_file: str | None = None,
        verify: bool = True,
        retries: int = 0,
    ) -> None:
        self.client = Client(
            url, key, timeout=timeout, ca_file=ca_file, verify=verify, retries=retries
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name="moorage.sdk", daemon=True)
        self._thread.start()
        self.run(self.client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = self._loop
        thread = self._thread
        assert loop is not None
        assert thread is not None

        try:
            self.run(self.client.__aexit__(kind, error, trace))
            self.run(loop.shutdown_asyncgens())
        finally:
            self._loop = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("use the client within `with SyncClient(...) as client`")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:  # Ctrl-C, too
            running.cancel()
            raise

    def session(self, ref: str) -> SessionCode:
        """A running interactive session, by id or name, to run code in."""
        return SessionCode(self, ref)

    @contextmanager
    def pipeline(self, name: str) -> Iterator[PipelineBuilder]:
        """Submit what the block has built; nothing if it raises."""
        builder = PipelineBuilder(name)
        yield builder
        builder.view = self.submit_pipeline(builder.spec())

    def list_audit(self, *, cursor: str | None = None, **filters: str | None) -> Page[AuditEntry]:
        return self.run(self.client.list_audit(cursor=cursor, **filters))

    logs = _iterated(Client.logs)
    events = _iterated(Client.events)

    add_ssh_key = _blocking(Client.add_ssh_key)
    agent_history = _blocking(Client.agent_history)
    agent_stats = _blocking(Client.agent_stats)
    assign_agent = _blocking(Client.assign_agent)
    change_password = _blocking(Client.change_password)
    code_kernels = _blocking(Client.code_kernels)
    complete_code = _blocking(Client.complete_code)
    cordon_agent = _blocking(Client.cordon_agent)
    correct_usage = _blocking(Client.correct_usage)
    create_access_token = _blocking(Client.create_access_token)
    create_endpoint = _blocking(Client.create_endpoint)
    create_group = _blocking(Client.create_group)
    create_join_token = _blocking(Client.create_join_token)
    create_key = _blocking(Client.create_key)
    create_project = _blocking(Client.create_project)
    create_session = _blocking(Client.create_session)
    create_user = _blocking(Client.create_user)
    delete_budget = _blocking(Client.delete_budget)
    delete_endpoint = _blocking(Client.delete_endpoint)
    delete_join_token = _blocking(Client.delete_join_token)
    delete_password = _blocking(Client.delete_password)
    delete_quota = _blocking(Client.delete_quota)
    delete_secret = _blocking(Client.delete_secret)
    delete_template = _blocking(Client.delete_template)
    delete_workspace = _blocking(Client.delete_workspace)
    draw_pipeline = _blocking(Client.draw_pipeline)
    extend_session = _blocking(Client.extend_session)
    forget_agent = _blocking(Client.forget_agent)
    get_agent = _blocking(Client.get_agent)
    get_ca = _blocking(Client.get_ca)
    get_endpoint = _blocking(Client.get_endpoint)
    get_group = _blocking(Client.get_group)
    get_key = _blocking(Client.get_key)
    get_pipeline = _blocking(Client.get_pipeline)
    get_project = _blocking(Client.get_project)
    get_quota = _blocking(Client.get_quota)
    get_session = _blocking(Client.get_session)
    get_template = _blocking(Client.get_template)
    get_user = _blocking(Client.get_user)
    give_input = _blocking(Client.give_input)
    health = _blocking(Client.health)
    history = _blocking(Client.history)
    idle = _blocking(Client.idle)
    interrupt_execution = _blocking(Client.interrupt_execution)
    join = _blocking(Client.join)
    label_session = _blocking(Client.label_session)
    limits = _blocking(Client.limits)
    link_user = _blocking(Client.link_user)
    list_access_tokens = _blocking(Client.list_access_tokens)
    list_agents = _blocking(Client.list_agents)
    list_apps = _blocking(Client.list_apps)
    list_budgets = _blocking(Client.list_budgets)
    list_decisions = _blocking(Client.list_decisions)
    list_endpoints = _blocking(Client.list_endpoints)
    list_groups = _blocking(Client.list_groups)
    list_join_tokens = _blocking(Client.list_join_tokens)
    list_keys = _blocking(Client.list_keys)
    list_managers = _blocking(Client.list_managers)
    list_members = _blocking(Client.list_members)
    list_peers = _blocking(Client.list_peers)
    list_pipelines = _blocking(Client.list_pipelines)
    list_prices = _blocking(Client.list_prices)
    list_projects = _blocking(Client.list_projects)
    list_quotas = _blocking(Client.list_quotas)
    list_runs = _blocking(Client.list_runs)
    list_runtimes = _blocking(Client.list_runtimes)
    list_secrets = _blocking(Client.list_secrets)
    list_sessions = _blocking(Client.list_sessions)
    list_ssh_keys = _blocking(Client.list_ssh_keys)
    list_template_versions = _blocking(Client.list_template_versions)
    list_templates = _blocking(Client.list_templates)
    list_users = _blocking(Client.list_users)
    list_workspaces = _blocking(Client.list_workspaces)
    occupancy = _blocking(Client.occupancy)
    occupancy_history = _blocking(Client.occupancy_history)
    overview = _blocking(Client.overview)
    plan_session = _blocking(Client.plan_session)
    plan_template = _blocking(Client.plan_template)
    promote_rollout = _blocking(Client.promote_rollout)
    put_template = _blocking(Client.put_template)
    read_execution = _blocking(Client.read_execution)
    release_alias = _blocking(Client.release_alias)
    reload_session = _blocking(Client.reload_session)
    remove_member = _blocking(Client.remove_member)
    remove_session = _blocking(Client.remove_session)
    remove_ssh_key = _blocking(Client.remove_ssh_key)
    rename_group = _blocking(Client.rename_group)
    rename_session = _blocking(Client.rename_session)
    restart_code_kernel = _blocking(Client.restart_code_kernel)
    retire_group = _blocking(Client.retire_group)
    retry_pipeline = _blocking(Client.retry_pipeline)
    revoke_access_token = _blocking(Client.revoke_access_token)
    revoke_key = _blocking(Client.revoke_key)
    revoke_peer = _blocking(Client.revoke_peer)
    rollout_history = _blocking(Client.rollout_history)
    rollout_status = _blocking(Client.rollout_status)
    rotate_ca = _blocking(Client.rotate_ca)
    rotate_key = _blocking(Client.rotate_key)
    scale_endpoint = _blocking(Client.scale_endpoint)
    scaling_decisions = _blocking(Client.scaling_decisions)
    session_stats = _blocking(Client.session_stats)
    set_budget = _blocking(Client.set_budget)
    set_member = _blocking(Client.set_member)
    set_password = _blocking(Client.set_password)
    set_price = _blocking(Client.set_price)
    set_quota = _blocking(Client.set_quota)
    set_secret = _blocking(Client.set_secret)
    ssh_key_challenge = _blocking(Client.ssh_key_challenge)
    start_execution = _blocking(Client.start_execution)
    start_template = _blocking(Client.start_template)
    stop_pipeline = _blocking(Client.stop_pipeline)
    stop_session = _blocking(Client.stop_session)
    stop_sessions = _blocking(Client.stop_sessions)
    submit_pipeline = _blocking(Client.submit_pipeline)
    top_agents = _blocking(Client.top_agents)
    top_sessions = _blocking(Client.top_sessions)
    uncordon_agent = _blocking(Client.uncordon_agent)
    undo_rollout = _blocking(Client.undo_rollout)
    unlink_user = _blocking(Client.unlink_user)
    update_endpoint = _blocking(Client.update_endpoint)
    update_group = _blocking(Client.update_group)
    update_key = _blocking(Client.update_key)
    update_project = _blocking(Client.update_project)
    update_user = _blocking(Client.update_user)
    usage = _blocking(Client.usage)
    wait_endpoint = _blocking(Client.wait_endpoint)
    wait_reloaded = _blocking(Client.wait_reloaded)
    wait_session = _blocking(Client.wait_session)
    who_am_i = _blocking(Client.who_am_i)
    why = _blocking(Client.why)


class SessionCode:
    """``client.session("dev").execute("1 + 1")``."""

    def __init__(self, client: SyncClient, ref: str) -> None:
        self._client = client
        self.ref = ref

    def execute(self, code: str = "", **options: Any) -> Execution:
        """As ``Session.execute``."""
        return self._client.run(self._client.client.session(self.ref).execute(code, **options))
