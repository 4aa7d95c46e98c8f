"""Faults in the path to a site's jobs, and in handling its loss. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

REACH = "agent/runtimes/heappe/reach.py"
TUNNEL = "agent/runtimes/heappe/tunnel.py"
RELAY = "agent/runtimes/heappe/relay.py"
REPLICAS = "manager/serving/replicas.py"
REACHED = ("tests/unit/agent/test_heappe_reach.py",)
AWAY = ("tests/wire/test_heappe_relay.py", "-k", "cannot_open")
ANSWERS = ("tests/unit/proxy/test_answering.py",)
PLANS = ("tests/unit/manager/test_rollouts.py",)
LOADS = ("tests/store/test_loads.py",)
OUTAGES = ("tests/unit/agent/test_site_outage.py",)
BOOK = "agent/runtimes/heappe/book.py"
RUNTIME = "tests/wire/test_heappe_runtime.py"

MUTATIONS = (
    Mutation(
        "a job that waits has failed as soon as its site says so",
        "agent/runtimes/heappe/interpretation.py",
        "    if not facts.confirmed:\n",
        "    if False:\n",
        ("tests/unit/agent/test_heappe_interpretation.py",),
    ),
    Mutation(
        "a job that waits has failed when its site says so twice",
        BOOK,
        "return now - job.ended_at < (SETTLE_S if is_answered else DOUBT_S)",
        "return False",
        (RUNTIME, "-k", "waits_on"),
    ),
    Mutation(
        "a job has failed that could not be asked",
        BOOK,
        "SETTLE_S if is_answered else DOUBT_S",
        "SETTLE_S",
        (RUNTIME, "-k", "cannot_be_asked"),
    ),
    Mutation(
        "a program has failed that begins after its site said so",
        BOOK,
        "return job.was_silent and not record.serves",
        "return False",
        (RUNTIME, "-k", "begins_after"),
    ),
    Mutation(
        "a model is followed that nothing can reach",
        BOOK,
        "return job.was_silent and not record.serves",
        "return job.was_silent",
        (RUNTIME, "-k", "begins_after"),
    ),
    Mutation(
        "a tunnel is opened again for each request",
        REACH,
        "return now >= self.renew_at",
        "return True",
        REACHED,
    ),
    Mutation(
        "a renewal does not wait for its turn",
        TUNNEL,
        "\n            self._pace()",
        "",
        ("tests/wire/test_heappe_tunnel.py", "-k", "renewals"),
    ),
    Mutation(
        "a job is ended as soon as its tunnel does not heal",
        REACH,
        "return now - self.missed_at >= timeout_s",
        "return True",
        REACHED,
    ),
    Mutation(
        "a request that found no way to its engine is refused",
        RELAY,
        " or (way is None and error.is_outage)",
        "",
        AWAY,
    ),
    Mutation(
        "what a request meets does not count as silence",
        REACH,
        "if error.problem in _SILENT:",
        "if False:",
        REACHED,
    ),
    Mutation(
        "a replica that cannot be reached is replaced at once",
        REPLICAS,
        "is_kept = r.kept_until is not None and now < r.kept_until",
        "is_kept = False",
        PLANS,
    ),
    Mutation(
        "until when a replica is kept is not stored",
        "manager/store/platform/sql/kernel_observe.sql",
        "ELSE to_timestamp(nullif(i.kept_until, 0)) END",
        "ELSE NULL END",
        (*LOADS, "-k", "out_of_reach"),
    ),
    Mutation(
        "a later time until which a replica is kept is no change",
        "manager/lifecycle/kernels.py",
        " or _is_kept_otherwise(kernel, observation)",
        "",
        (*LOADS, "-k", "out_of_reach"),
    ),
    Mutation(
        "requests are sent to a replica that cannot be reached",
        "manager/store/endpoints/sql/model_routes.sql",
        "OR k.kept_until IS NULL AND NOT EXISTS (",
        "OR NOT EXISTS (",
        (*LOADS, "-k", "out_of_reach"),
    ),
    Mutation(
        "the last replica leaves the routes because its probe fails",
        "manager/store/endpoints/sql/model_routes.sql",
        "OR k.kept_until IS NULL AND NOT EXISTS (",
        "OR false AND NOT EXISTS (",
        (*LOADS, "-k", "unhealthy"),
    ),
    Mutation(
        "an unhealthy replica beside a healthy one gets requests",
        "manager/store/endpoints/sql/model_routes.sql",
        "OR k.kept_until IS NULL AND NOT EXISTS (",
        "OR k.kept_until IS NULL OR EXISTS (",
        (*LOADS, "-k", "unhealthy"),
    ),
    Mutation(
        "requests at an unhealthy replica that drains are not counted",
        "manager/store/endpoints/sql/model_routes.sql",
        "(k.unhealthy_since IS NULL OR s.draining_since IS NOT NULL\n",
        "(k.unhealthy_since IS NULL\n",
        (*LOADS, "-k", "drains_stays"),
    ),
    Mutation(
        "a worker learns only by its own requests",
        "proxy/core/request_router.py",
        "for kind, kernel_id, key, at in self.results.read():",
        "for kind, kernel_id, key, at in ():",
        ANSWERS,
    ),
    Mutation(
        "a worker keeps to itself that a replica answers again",
        "proxy/core/request_router.py",
        'self.results.tell(ANSWERED, kernel_id, "", now)',
        "pass",
        ANSWERS,
    ),
    Mutation(
        "a worker counts its own failures twice",
        "proxy/core/result_news.py",
        "if worker != self._worker:",
        "if True:",
        ANSWERS,
    ),
    Mutation(
        "one tenant ejects a replica",
        "proxy/core/answering.py",
        "KEYS = 2",
        "KEYS = 1",
        ANSWERS,
    ),
    Mutation(
        "a refusal lets a replica return that fails everybody",
        "proxy/core/request_router.py",
        "elif self.answering.failing_since(kernel_id) is None:",
        "else:",
        ANSWERS,
    ),
    Mutation(
        "the answers of other proxies do not count",
        "manager/store/endpoints/sql/endpoint_sessions.sql",
        "o.answering ? f.key",
        "false",
        (*LOADS, "-k", "fails_everybody"),
    ),
    Mutation(
        "a replica that fails everybody is called ready",
        "manager/serving/snapshots.py",
        " or self.failing_since is not None",
        "",
        PLANS,
    ),
    Mutation(
        "the last replica is stopped for the results of proxies",
        REPLICAS,
        "until = None if bad_since is None else",
        "bad_since = bad_since or r.failing_since\n        until = None if bad_since is None else",
        PLANS,
    ),
    Mutation(
        "a job without a successor takes requests until it is killed",
        REPLICAS,
        " or (at is not None and now >= at)",
        "",
        PLANS,
    ),
    Mutation(
        "what a gateway refuses fails the request",
        RELAY,
        (
            "\n"
            "    return error.problem in (SiteFault.GATEWAY, SiteFault.INTERNAL) and error.status not in (\n"
            "        0,\n"
            "        200,\n"
            "        504,\n"
            "    )"
        ),
        "    return error.problem in (SiteFault.GATEWAY, SiteFault.INTERNAL) and False",
        ("tests/wire/test_heappe_relay.py", "-k", "gateway_refuses"),
    ),
    Mutation(
        "what a gateway gave up waiting for is sent again",
        RELAY,
        (
            "\n"
            "    return error.problem in (SiteFault.GATEWAY, SiteFault.INTERNAL) and error.status not in (\n"
            "        0,\n"
            "        200,\n"
            "        504,\n"
            "    )"
        ),
        "    return error.problem in (SiteFault.GATEWAY, SiteFault.INTERNAL) and error.status != 0",
        ("tests/wire/test_heappe_relay.py", "-k", "gave_up_waiting"),
    ),
    Mutation(
        "what ends when it is asked to has succeeded",
        "agent/runtimes/batch/ends.py",
        "if terminated and code == 0:",
        "if False:",
        (
            "tests/unit/agent/test_heappe_interpretation.py",
            "tests/unit/agent/test_slurm_interpretation.py",
        ),
    ),
    Mutation(
        "a site that refuses its agent does not make it say so",
        "agent/runtimes/heappe/errors.py",
        "self.is_refusal = problem in REFUSALS",
        "",
        ("tests/unit/agent/test_runtime_availability.py",),
    ),
    Mutation(
        "new credentials wait for the pause of the old ones",
        "agent/runtimes/heappe/transport.py",
        "self._clock.monotonic() < until and not await self._read_secret()",
        "self._clock.monotonic() < until",
        ("tests/wire/test_heappe_client.py", "-k", "new_credentials"),
    ),
    Mutation(
        "a site reads the secret of all sites instead of its own",
        "common/config/sites.py",
        'own_secret = {f"{SECRET}_file": None} if SECRET in given else {}',
        "own_secret = {}",
        ("tests/unit/common/test_site_settings.py",),
    ),
    Mutation(
        "a walltime that is short for its model is not told",
        "manager/explain/site_queue.py",
        "if serves_s >= SHORT * found.walltime_s:",
        "if True:",
        ("tests/unit/manager/test_walltime.py", "-k", "short"),
    ),
    Mutation(
        "a job is cancelled each second until it ends",
        "agent/runtimes/heappe/interpretation.py",
        "return was_lost or now - last[1] >= CANCEL_AGAIN_S",
        "return True",
        ("tests/unit/agent/test_heappe_interpretation.py",),
    ),
    Mutation(
        "a job that was never submitted waits for ever",
        "agent/runtimes/heappe/interpretation.py",
        "facts.now - facts.created_at > UNSUBMITTED_S",
        "False",
        ("tests/unit/agent/test_heappe_interpretation.py",),
    ),
    Mutation(
        "refused credentials in a header are sent again and again",
        "agent/runtimes/heappe/transport.py",
        "        if error.problem is SiteFault.CREDENTIALS:\n            pause_s",
        "        if False:\n            pause_s",
        ("tests/wire/test_heappe_client.py", "-k", "refused_credentials"),
    ),
    Mutation(
        "the health of what no request gets to is judged",
        "agent/kernel/health.py",
        "if self._is_unreachable(kernel_id):",
        "if False:",
        ("tests/unit/agent/test_health.py",),
    ),
    Mutation(
        "a batch session fails because its site does not answer for some seconds",
        "agent/runtimes/heappe/runtime.py",
        "outage_s=self._rules.unreachable_timeout_s,",
        "",
        ("tests/wire/test_heappe_runtime.py", "-k", "outage"),
    ),
    Mutation(
        "the time in which a job could not be submitted counts as its start",
        "agent/kernel/task.py",
        "            self._start_clock.note(ObservedState.QUEUED, clock.monotonic())\n",
        "",
        OUTAGES,
    ),
    Mutation(
        "a job that could not be submitted is lost with a restart of its agent",
        "agent/kernel/task.py",
        "            await asyncio.to_thread(context.checkpoint.remove, spec.kernel_id)\n",
        "",
        OUTAGES,
    ),
    Mutation(
        "a job is submitted again without an intent",
        "agent/kernel/task.py",
        "            await create.write_intent(context, self.record)\n\n    async def _watch",
        "\n    async def _watch",
        OUTAGES,
    ),
    Mutation(
        "a job that may have been submitted is submitted again",
        "agent/kernel/task.py",
        "if not isinstance(started, CreateFailed) or not started.clean:",
        "if not isinstance(started, CreateFailed):",
        OUTAGES,
    ),
)
