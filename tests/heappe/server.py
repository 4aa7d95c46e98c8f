"""A HEAppE-compatible server: routes calls, schedules its services, and plays the gateway in
front."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from moorage.common.aio.clock import Clock, ManualClock, SystemClock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from tests.heappe.call import Call, Endpoint
from tests.heappe.cluster import ACTIVE, Cluster, ScriptedCluster, TruthJob, active
from tests.heappe.database import BY_CALLBACK, BY_POLL, ENDED, Database, Job, Views
from tests.heappe.discovery_calls import DiscoveryCalls
from tests.heappe.events import Events
from tests.heappe.file_calls import FileCalls
from tests.heappe.job_calls import JobCalls
from tests.heappe.sessions import PlainUnauthorized, Sessions, plain_unauthorized
from tests.heappe.site import Site, Timing
from tests.heappe.switches import Switches
from tests.heappe.traffic import Traffic
from tests.heappe.transfer_calls import TransferCalls
from tests.heappe.tunnels import EmptyError, Tunnels
from tests.heappe.wire import (
    PROFILES,
    BindingFailed,
    Problem,
    bind,
    binding_response,
    folded,
    problem_response,
    status_page,
)  # fmt: skip

HTML = "<html><head><title>{0}</title></head><body><center><h1>{0}</h1></center><hr>nginx</body></html>"


class HeappeServer:
    """``url`` has no slash at its end. ``calls`` counts calls by ``Controller/Action``.

    With a ``ManualClock``, only ``advance`` moves time; with a ``SystemClock``, it moves by itself.
    """

    def __init__(
        self,
        profile: str = "6.3.2",
        *,
        clock: Clock | None = None,
        site: Site | None = None,
        cluster: Cluster | None = None,
        timing: Timing | None = None,
    ) -> None:
        assert profile in PROFILES
        self.profile = profile
        self.clock = clock or SystemClock()
        self.site = site or Site()
        self.timing = timing or Timing()
        self.switches = Switches()
        self.cluster: Any = cluster or ScriptedCluster()
        self.database = Database(self.site, self.switches, profile)
        self.views = Views(self.site, self.switches, profile)
        self.sessions = Sessions(self.site, self.switches, self.timing, self.clock)
        self.tunnels = Tunnels(self.site.ports)
        self.traffic = Traffic(self)
        self.events = Events(self)
        self.jobs = JobCalls(self)
        self.discovery = DiscoveryCalls(self)
        parts = (self.jobs, self.discovery, TransferCalls(self), FileCalls(self), self.events)
        self._endpoints: dict[str, list[Endpoint]] = {}
        for endpoint in (endpoint for part in parts for endpoint in part.endpoints()):
            self._endpoints.setdefault(endpoint.path.lower(), []).append(endpoint)

        self.calls = Counter[str]()
        self.logged: list[str] = []
        self.queue_estimate_s = 0.0
        self.url = ""
        self._cache: dict[Any, tuple[Any, Any]] = {}
        self._lock = asyncio.Lock()
        self._leaked_s = 0.0
        self._requests = 0

    async def __aenter__(self) -> HeappeServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="heappe-"))
        self.root.chmod(0o755)
        self._settled = self.clock.now()
        self._next_poll = self._settled + timedelta(seconds=self.timing.poll_s)
        await self.traffic.start()
        await self._listen(port)
        self._ticking = spawn("heappe services", self._tick_for_ever())

    async def _listen(self, port: int) -> None:
        app = web.Application(client_max_size=1 << 40)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}{self.site.prefix}"

    async def stop(self) -> None:
        await cancel_and_wait(self._ticking)
        await self.events.close()
        await self._runner.cleanup()
        await self.traffic.close()
        await self.tunnels.clear()
        await self.cluster.close()
        self.remove_directory(self.root)

    async def interrupt(self) -> None:
        """HEAppE dies: its connections break, and nothing listens until ``resume``."""
        for connection in list(self._runner.server.connections if self._runner.server else []):
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        await self.restart()

    async def resume(self) -> None:
        await self._listen(int(self.url.removesuffix(self.site.prefix).rpartition(":")[2]))

    async def restart(self) -> None:
        """HEAppE restarts: tunnels and caches are gone, but the database and the cluster are
        not."""
        await self.tunnels.clear()
        self.discovery.clear()
        self._cache.clear()

    # Time.

    async def _tick_for_ever(self) -> None:
        while not isinstance(self.clock, ManualClock):
            await asyncio.sleep(0.05)
            await self.settle()

    async def advance(self, seconds: float) -> None:
        """Move a ``ManualClock``; everything that becomes due happens in order."""
        assert isinstance(self.clock, ManualClock)
        end = self.clock.now() + timedelta(seconds=seconds)
        while self._next_poll <= end:
            self.clock.advance((self._next_poll - self.clock.now()).total_seconds())
            await self.settle()
        self.clock.advance((end - self.clock.now()).total_seconds())
        await self.settle()

    async def settle(self) -> None:
        async with self._lock:
            now = self.clock.now()
            while self._next_poll <= now:
                await self._bill(self._next_poll)
                await self._services(self._next_poll)
                self._next_poll += timedelta(seconds=self.timing.poll_s)

            await self._bill(now)
            if self.switches.callback_cluster and not self.switches.callbacks_lost:
                for job in self.database.polled():
                    self.database.copy(job, self.truths(), now, BY_CALLBACK)
            if self.tunnels.forwards and self.switches.take("tunnels_die"):
                await self.tunnels.kill()
            if self.tunnels.forwards and self.switches.take("other_user_closes"):
                await self.tunnels.closed_by_another()

            await self.events.publish()

    async def _bill(self, now: Any) -> None:
        """Count the jobs that run unknown to the database, then bring the cluster up to date."""
        seconds = max(0.0, (now - self._settled).total_seconds())
        self._settled = max(now, self._settled)
        self._leaked_s += seconds * sum(
            len(job.nodes) for job in self.unknown() if job.state != "PENDING"
        )
        await self.cluster.settle(now)

    async def _services(self, now: Any) -> None:
        switches = self.switches
        if not switches.ssh_ca:
            if switches.callback_cluster:
                for job in self.database.overdue_callback(now):
                    self.database.fail(job, now)
            elif self.database.polled() and switches.take("false_failed"):
                for job in self.database.polled():
                    self.database.fail(job, now)
            elif not self.in_trouble():
                for job in self.database.polled():
                    self.database.copy(job, self.truths(), now, BY_POLL)
                await self.jobs.expire_waiting()

            await self.jobs.rotate()
            for number in list(self.tunnels.forwards):
                found = self.database.task(number)
                if found is None or found[1].state in ENDED:
                    await self.tunnels.forget(number)

        used = self.tunnels.last_use
        if used is not None and now - used > timedelta(seconds=self.timing.tunnel_idle_s):
            await self.tunnels.kill()

    # The cluster behind the server.

    def truths(self) -> dict[str, TruthJob]:
        return {job.scheduler_id: job for job in self.cluster.jobs}

    def running(self) -> list[str]:
        """Names of the jobs that wait or run on the cluster, regardless of the database."""
        return sorted(job.name for job in active(self.cluster.jobs))

    def unknown(self) -> list[TruthJob]:
        """Jobs on the cluster that the database does not have or considers ended."""
        known = {task.scheduler_id for job in self.database.polled() for task in job.tasks}
        return [
            job
            for job in self.cluster.jobs
            if job.state in ACTIVE and job.scheduler_id not in known
        ]

    def leaked_node_seconds(self) -> float:
        return self._leaked_s

    def in_trouble(self) -> bool:
        lost = getattr(self.cluster, "unreachable", False)
        return self.switches.maintenance or self.switches.slurm_down or lost

    def ssh(self) -> None:
        """Every call that reaches the cluster passes this check. Raises ``Problem`` if the site is
        in trouble."""
        switches = self.switches
        if switches.account_uninitialised:
            raise Problem("not-allowed", "The cluster account is not initialised for the project.")
        if self.profile == "6.5" and switches.take("pool_full"):
            raise Problem("pool", "The connection pool is exhausted.")
        if switches.maintenance:
            raise Problem("ssh", "Connection failed to establish within 15000 milliseconds.")

        if self.in_trouble():
            raise Problem(
                "slurm",
                "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            )

    def remove_directory(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)

    def add_job(self, name: str, user: str = "agent", state: int = 16) -> Job:
        """A row from an earlier time or from other software, without a job on the cluster."""
        now = self.clock.now()
        number = self.database.next_job
        self.database.next_job += 1
        project = self.site.projects[0]
        job = Job(
            number,
            name,
            owner=self.site.user(user),
            project=project,
            tasks=[],
            directory=self.root / str(number),
        )
        job.state = state
        job.created = now
        job.submitted = now
        job.updated = now
        self.database.jobs[number] = job

        return job

    # Answers in 6.5 are cached for some seconds.

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        now = self.clock.now()
        made, value = self._cache.get(key, (None, None))
        if (
            self.profile != "6.5"
            or made is None
            or now - made >= timedelta(seconds=self.timing.cache_s)
        ):
            value = make()
            self._cache[key] = (now, value)

        return value

    def forget_cached(self, job: int) -> None:
        if not self.switches.cache_survives_writes:
            self._cache = {
                key: value
                for key, value in self._cache.items()
                if key[0] != "list" and key[1] != job
            }

    # Calls.

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        await self.settle()
        self._requests += 1
        name = request.path.removeprefix(f"{self.site.prefix}/heappe/").strip("/")
        endpoints = self._endpoints.get(name.lower(), [])
        endpoint = next((found for found in endpoints if found.method == request.method), None)
        path = endpoint.path if endpoint else name
        self.calls[path] += 1
        if (spoiled := await self._gateway(request, path)) is not None:
            return spoiled
        if endpoint is None:
            return status_page(*((405, "Method Not Allowed") if endpoints else (404, "Not Found")))

        answer = await self._answer(request, endpoint)
        await self.settle()
        if self.switches.only in path and self.switches.take("answers_lost"):
            return self._html(504)

        return answer

    def _html(self, status: int) -> web.Response:
        reasons = {
            502: "502 Bad Gateway",
            503: "503 Service Temporarily Unavailable",
            504: "504 Gateway Time-out",
        }
        text = HTML.format(reasons.get(status, str(status)))
        return web.Response(status=status, text=text, content_type="text/html")

    async def _gateway(self, request: web.Request, path: str) -> web.Response | None:
        switches = self.switches
        if switches.only not in path:
            return None
        if switches.take("gateway_html"):
            return self._html(switches.gateway_status)
        if switches.take("resets"):
            request.transport.abort()
            return web.Response(status=500)
        if switches.take("hangs"):
            await asyncio.Event().wait()
        if switches.take("empty_500"):
            return web.Response(status=500)

        if switches.take("rate_limited"):
            return web.Response(
                status=429, text="API calls quota exceeded! maximum admitted 1000000 per 1h."
            )

        return None

    async def _answer(self, request: web.Request, endpoint: Endpoint) -> web.StreamResponse:
        number = f"0HN{self._requests:010X}"
        query: dict[str, list[str]] = {}
        for name, value in request.query.items():
            query.setdefault(name.lower(), []).append(value)

        call = Call(request, self.sessions, endpoint.path, query)
        try:
            if (
                endpoint.members is not None
                and (refused := await self._read(call, endpoint, number)) is not None
            ):
                return refused

            return await endpoint.handler(call)
        except BindingFailed as failed:
            return binding_response(failed.errors, number)
        except Problem as problem:
            return problem_response(problem, self.profile, number)
        except PlainUnauthorized as error:
            return plain_unauthorized(str(error))
        except EmptyError:
            return web.Response(status=500)

    async def _read(self, call: Call, endpoint: Endpoint, number: str) -> web.Response | None:
        """Read and bind the body; returns a refusal or None."""
        request = call.request
        if (request.content_length or 0) > endpoint.limit:
            return web.Response(status=413)

        raw = await request.read()
        if len(raw) > endpoint.limit:
            return web.Response(status=413)
        if endpoint.method == "GET":
            return None

        if not request.content_type.endswith("json"):
            rfc = "https://tools.ietf.org/html/rfc9110#section-15.5.16"
            body = {
                "type": rfc,
                "title": "Unsupported Media Type",
                "status": 415,
                "traceId": f"00-{number}-00",
            }
            return web.json_response(body, status=415, content_type="application/problem+json")

        with suppress(ValueError):
            call.body = folded(json.loads(raw))
            bind(endpoint.members or (), call.body)
            return None

        return binding_response({"$": ["The input is not valid JSON."]}, number)

    def remember(self, call: Call) -> None:
        """6.3.2 logs the whole request of a tunnelled call, including prompts."""
        if self.profile == "6.3.2":
            self.logged.append(str(call.body.get("httppayload")))
            del self.logged[:-1000]
