"""Sessions: their lifecycle, logs, commands and statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from moorage.common.aio.clock import SystemClock
from moorage.common.model.commands import ExecSpec
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Outcome, SessionType, Status
from moorage.common.views.idle import Extension, IdleView
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resource_usage import SessionStats, SessionUsage
from moorage.common.views.resources import (
    HistoryEntry,
    SessionPatch,
    SessionView,
    StoppedSessions,
)
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, iterated, listed
from moorage.sdk.transport import segment
from moorage.sdk.waiting import first, has_reloaded

if TYPE_CHECKING:
    from moorage.sdk.execution import RunningCommand
    from moorage.sdk.log_positions import SeenLog


# The byte of the log at which an answer starts, and the byte at which it should start.
OFFSET = "X-Moorage-Log-Offset"
# The attempt whose log it is.
ATTEMPT = "X-Moorage-Log-Attempt"


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


class Sessions(Resource):
    """Sessions: their lifecycle, logs, commands and statistics."""

    async def create(
        self,
        spec: SessionSpec,
        *,
        idempotency_key: str | None = None,
        strict: bool = False,
        force: bool = False,
    ) -> SessionView:
        """``idempotency_key``: any unique text, like a UUID. It makes the call safe to repeat after
        ``Unreachable``: the same key and spec return the same session; another spec is refused
        (409).

        ``strict``: refuse (409) a session that no agent could ever hold. Otherwise, ``warnings``
        reports this. ``force``: run it even if an equal session could be reused.
        """
        query = {"strict": "true" if strict else None, "force": "true" if force else None}
        return await self._call(
            SessionView,
            "POST",
            "/v1/sessions",
            query=query,
            body=spec,
            idempotency_key=self._client.repeatable(idempotency_key),
        )

    async def plan(self, spec: SessionSpec) -> PlanView:
        """Where the session would be placed if it were created now, or what it lacks. Creates
        nothing."""
        return await self._call(PlanView, "POST", "/v1/sessions/plan", body=spec)

    async def get(self, ref: str) -> SessionView:
        """Return a session, given by id or name."""
        return await self._call(SessionView, "GET", f"/v1/sessions/{segment(ref)}")

    def list(
        self,
        *,
        statuses: Collection[Status | Outcome] = (),
        resource_group: str | None = None,
        type: SessionType | None = None,
        name: str | None = None,
        search: str | None = None,
        endpoint: str | None = None,
        pipeline: str | None = None,
        index: str | None = None,
        elements: bool = True,
        user: str | None = None,
        project: str | None = None,
        selector: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> PagedList[SessionView]:
        """List sessions, newest first. ``limit``: the most to return; None means all.

        ``statuses``: only sessions in one of these; empty means all. ``Outcome`` has the two
        statuses of an ended program; TERMINATED covers both. ``search``: a part of the name.
        ``selector``: selects by user labels, like "team=vision,stage in (dev,test)". ``pipeline``:
        an id, or a name, which means its newest pipeline. ``index``: only array elements with
        these indexes, like "0-9,12". ``elements``: False leaves out the elements of arrays.
        ``sort``: created_at, name, user, project, resource_group, priority or status, with a
        leading "-" for descending order.
        """
        query = {
            "status": ",".join(sorted(statuses)) or None,
            "resource_group": resource_group,
            "type": type,
            "name": name,
            "search": search,
            "endpoint": endpoint,
            "pipeline": pipeline,
            "index": index,
            "elements": None if elements else "false",
            "user": user,
            "project": project,
            "selector": selector,
            "sort": sort,
        }
        return self._list(SessionView, "/v1/sessions", query, limit=limit)

    async def update(
        self, ref: str, patch: SessionPatch, *, revision: int | None = None
    ) -> SessionView:
        """Change a session: its name and labels and, as its status allows, its priority, time
        limit, group and hold. All changes are made, or none (409).

        ``revision``: change it only if it still has this ``revision``; otherwise, 412 is raised."""
        return await self._call(
            SessionView,
            "PATCH",
            f"/v1/sessions/{segment(ref)}",
            body=patch,
            if_match=None if revision is None else f'"{revision}"',
        )

    async def label(self, ref: str, labels: Mapping[str, str | None]) -> SessionView:
        """Set user labels. None removes a label; others stay."""
        body = SessionPatch(user_labels=dict(labels))
        return await self._call(SessionView, "PATCH", f"/v1/sessions/{segment(ref)}", body=body)

    async def rename(self, ref: str, name: str) -> SessionView:
        """Rename a session. Its program keeps the former name in ``MOORAGE_SESSION_NAME``. Models
        cannot be renamed (409)."""
        body = SessionPatch(name=name)
        return await self._call(SessionView, "PATCH", f"/v1/sessions/{segment(ref)}", body=body)

    async def delete(self, ref: str) -> SessionView:
        """Remove the record of an ended session from all lists. Its usage stays in the ledger."""
        return await self._call(SessionView, "DELETE", f"/v1/sessions/{segment(ref)}")

    async def stop(self, ref: str) -> SessionView:
        return await self._call(SessionView, "POST", f"/v1/sessions/{segment(ref)}/stop")

    async def stop_all(self, user: str) -> StoppedSessions:
        """Stop all of a user's sessions except replicas. Once the request is accepted, all of them
        will stop, even if some have not started to stop when the call returns."""
        return await self._call(StoppedSessions, "POST", "/v1/sessions/stop", query={"user": user})

    async def requeue(self, ref: str) -> SessionView:
        """Stop a batch session's program, and return the session to the queue as a new attempt.
        This counts no retry."""
        return await self._call(SessionView, "POST", f"/v1/sessions/{segment(ref)}/requeue")

    async def suspend(self, ref: str) -> SessionView:
        """Stop the processes of a running session where they are. The session keeps its resources,
        and its time limit does not pass. Returns once the request is stored."""
        return await self._call(SessionView, "POST", f"/v1/sessions/{segment(ref)}/suspend")

    async def resume(self, ref: str) -> SessionView:
        """Let the processes of a suspended session continue."""
        return await self._call(SessionView, "POST", f"/v1/sessions/{segment(ref)}/resume")

    async def reload(self, ref: str) -> SessionView:
        """Ask the session's program to reload its settings. Returns once the request is stored.
        Each kernel's ``reload`` shows when it is acknowledged, and ``wait_reloaded`` waits for
        that."""
        return await self._call(SessionView, "POST", f"/v1/sessions/{segment(ref)}/reload")

    async def idle(self, ref: str) -> IdleView:
        """When the session will end because it is idle, by criterion."""
        return await self._call(IdleView, "GET", f"/v1/sessions/{segment(ref)}/idle")

    async def extend(self, ref: str, seconds: float | None = None) -> IdleView:
        """Keep the session for ``seconds`` from now. None means as long as its resource group
        allows."""
        body = Extension(seconds=seconds)
        return await self._call(IdleView, "POST", f"/v1/sessions/{segment(ref)}/extend", body=body)

    async def why(self, ref: str) -> WhyView:
        """Explain why the session waits and until when, or return its state if it does not wait."""
        return await self._call(WhyView, "GET", f"/v1/sessions/{segment(ref)}/why")

    def history(self, ref: str) -> PagedList[HistoryEntry]:
        """Every status change, oldest first."""
        return self._list(HistoryEntry, f"/v1/sessions/{segment(ref)}/history")

    def logs(
        self,
        ref: str,
        *,
        tail: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        kernel: str | None = None,
        timestamps: bool = False,
        since: datetime | None = None,
        seen: SeenLog | None = None,
        on_loss: Callable[[], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the log in pieces. ``tail``: only this number of last lines. ``follow``: read until
        the session ends. If the connection is lost, for example because the manager restarts,
        reading continues from there. ``on_loss`` is called if the node has rotated away the next
        output, and by default logs a warning; reading continues with the output that is left.
        ``seen``: an earlier, interrupted reading to continue.

        ``attempt``: by default the newest. ``kernel``: a kernel of a cluster, like ``sub1``; by
        default the main one. ``timestamps``: each line starts with its time (RFC 3339, UTC) and a
        space. ``since``: only output written since this time, which needs a time zone.
        """
        from moorage.sdk.log_following import Begin, LogReader, LogSelection, warn_of_loss

        def read(wanted: LogSelection, offset: int | None) -> AsyncIterator[Begin | bytes]:
            query = {
                "tail": None if wanted.tail is None else str(wanted.tail),
                "follow": "true" if wanted.follow else None,
                "attempt": None if wanted.attempt is None else str(wanted.attempt),
                "kernel": kernel,
                "timestamps": "true" if wanted.timestamps else None,
                "since": wanted.since,
            }
            return self._client.read_stream(
                f"/v1/sessions/{segment(ref)}/logs",
                query,
                # Not in the query, because older managers refuse unknown parameters.
                {} if offset is None else {OFFSET: str(offset)},
                idle_s=None if wanted.follow else self._client.timeout,
                begin=lambda headers: Begin(
                    _number(headers.get(OFFSET.lower(), "")),
                    _number(headers.get(ATTEMPT.lower(), "")),
                ),
            )

        wanted = LogSelection(
            tail,
            follow,
            timestamps=timestamps,
            since=None if since is None else since.isoformat(),
            attempt=attempt,
        )
        reader = LogReader(read, wanted, SystemClock(), seen=seen, on_loss=on_loss or warn_of_loss)
        return reader.pieces()

    def exec(self, ref: str, spec: ExecSpec) -> AbstractAsyncContextManager[RunningCommand]:
        """Run a command in a running session: ``async with client.sessions.exec(...) as
        command``.

        Leaving the block disconnects, which ends a command that is still running.
        """
        from yarl import URL

        from moorage.sdk.execution import run_command

        url = URL(self._client.address(f"/v1/sessions/{segment(ref)}/exec", {}), encoded=True)
        return run_command(
            self._client.http,
            url,
            spec,
            timeout_s=self._client.timeout,
            unreachable=self._client.unreachable,
        )

    async def stats(self, ref: str, *, spans: str = "none", limit: int = 60) -> SessionStats:
        """``spans``: include the newest ``limit`` "minutes" or "hours"."""
        query = {"spans": spans, "limit": str(limit)}
        return await self._call(
            SessionStats, "GET", f"/v1/sessions/{segment(ref)}/stats", query=query
        )

    def top(self, *, sort: str = "cpu", limit: int = 100) -> PagedList[SessionUsage]:
        """Sorted by cpu, memory, rx, tx, gpu or gpu_memory, highest first, or by created_at, newest
        first."""
        query = {"sort": sort, "limit": str(limit)}
        return self._list(SessionUsage, "/v1/stats/sessions", query, is_paged=False)

    async def wait(
        self, ref: str, condition: Callable[[SessionView], bool], *, timeout_s: float | None = None
    ) -> SessionView:
        """Return the session, given by id or name, as soon as ``condition`` holds.

        Raises ``TimeoutError`` after ``timeout_s``, ``ApiError`` and ``Unreachable``.
        """
        # Imported here because only waits need events.
        from moorage.sdk.resources.events import Events

        found = await self.get(ref)
        if condition(found):
            return found

        states = Events(self._client).states(
            lambda: self.get(found.id), "session", about=found.id, timeout_s=timeout_s
        )
        return await first(states, condition)

    async def wait_reloaded(
        self, asked: SessionView, *, timeout_s: float | None = None
    ) -> SessionView:
        """Return the session once each of its kernels has acknowledged a reload or failed to, as
        shown by the kernel's ``reload.state``. ``asked``: the answer from ``reload``, which
        identifies the reload. Raises the same errors as ``wait``."""
        return await self.wait(
            asked.id, lambda view: has_reloaded(view, asked), timeout_s=timeout_s
        )


class SyncSessions(SyncResource[Sessions]):
    """``Sessions`` without asyncio."""

    create = blocking(Sessions.create)
    plan = blocking(Sessions.plan)
    get = blocking(Sessions.get)
    list = listed(Sessions.list)
    update = blocking(Sessions.update)
    label = blocking(Sessions.label)
    rename = blocking(Sessions.rename)
    delete = blocking(Sessions.delete)
    stop = blocking(Sessions.stop)
    stop_all = blocking(Sessions.stop_all)
    requeue = blocking(Sessions.requeue)
    suspend = blocking(Sessions.suspend)
    resume = blocking(Sessions.resume)
    reload = blocking(Sessions.reload)
    idle = blocking(Sessions.idle)
    extend = blocking(Sessions.extend)
    why = blocking(Sessions.why)
    history = listed(Sessions.history)
    logs = iterated(Sessions.logs)
    stats = blocking(Sessions.stats)
    top = listed(Sessions.top)
    wait = blocking(Sessions.wait)
    wait_reloaded = blocking(Sessions.wait_reloaded)
