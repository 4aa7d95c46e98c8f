"""Faults in request limits and in usage counting. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

LEDGER = "proxy/core/limits/ledger.py"
LIMITER = "proxy/core/limits/reservation.py"
LIMITS = ("tests/unit/proxy/test_limit_ledger.py", "tests/unit/proxy/test_limit_reservation.py")
SHARES = ("tests/unit/manager/test_limit_shares.py",)
STORED_SHARES = ("tests/store/test_usage_records.py", "-k", "shares", "--timeout", "30")
BUDGET_ROOM = ("tests/unit/proxy/test_budget_room.py",)
METER = ("tests/unit/proxy/test_token_meter.py",)
RECORDS = ("tests/store/test_usage_records.py",)
BUDGETS = ("tests/store/test_budgets.py",)
CHARGES = ("tests/store/test_ledger.py",)
ARITHMETIC = ("tests/store/test_ledger_arithmetic.py",)
SPOOL = ("tests/wire/test_proxy_link.py", "tests/unit/proxy/test_report_stream.py")
GAPS = ("tests/store/test_budgets.py", "-k", "without_a_price or nothing_counts")

MUTATIONS = (
    Mutation(
        "a share of a budget is adopted right after the manager was away",
        "proxy/control/report_stream.py",
        "if self._closed_at is not None and",
        "if False and self._closed_at is not None and",
        ("tests/unit/proxy/test_report_stream.py",),
    ),
    Mutation(
        "a share of a budget is adopted while usage waits for a manager",
        "proxy/control/report_stream.py",
        "if self._clock.now().timestamp() - ended_ms / 1000 > _LATE_S:",
        "if False:",
        ("tests/unit/proxy/test_report_stream.py",),
    ),
    Mutation(
        "requests that run do not count against what is left of a budget",
        "proxy/core/limits/ledger.py",
        "return running + cells[slot + _BEYOND], share",
        "return cells[slot + _BEYOND], share",
        BUDGET_ROOM,
    ),
    Mutation(
        "what the manager has not counted yet is forgotten with a new share of a budget",
        "proxy/core/limits/ledger.py",
        (
            "                cells[slot + _BEYOND] = sum(recent)\n"
            "                cells[slot + _SHARE_UNTIL] = 1"
        ),
        (
            "                cells[slot + _SHARE_UNTIL] = 1\n"
            "                cells[slot + _BEYOND] = 0"
        ),
        BUDGET_ROOM,
    ),
    Mutation(
        "a share of a budget is adopted while usage comes late",
        "proxy/core/limits/ledger.py",
        "if now < self._cells[_ROOMS_FROM]:",
        "if False:",
        BUDGET_ROOM,
    ),
    Mutation(
        "what was used of a budget stays part of its share",
        "manager/serving/limit_shares.py",
        (
            "            # used amounts are no longer part of it once they are aggregated\n"
            "            grant = min(grant, limit)"
        ),
        "            pass  # used amounts are no longer part of it once they are aggregated",
        BUDGET_ROOM,
    ),
    Mutation(
        "what is left of a budget is told though it was not summed up of late",
        "manager/store/metering/sql/limit_shares_read.sql",
        "b.measured_at > now() - interval '15 s'",
        "true",
        ("tests/store/test_budgets.py", "-k", "divide"),
    ),
    Mutation(
        "a replica may compress so that nobody can count",
        "proxy/core/headers.py",
        "offered(value) if name.lower() == _ACCEPTS else value",
        "value",
        ("tests/unit/proxy/test_content_coding.py",),
    ),
    Mutation(
        "a dense answer is decompressed in one go",
        "proxy/core/content_coding.py",
        "part = self._gzip.decompress(piece, room)",
        "part = self._gzip.decompress(piece)",
        ("tests/unit/proxy/test_content_coding.py",),
    ),
    Mutation(
        "what cannot be read of an answer is free",
        "proxy/core/token_meter.py",
        "found.answer + self._size // BYTES_PER_TOKEN",
        "found.answer",
        ("tests/unit/proxy/test_content_coding.py",),
    ),
    Mutation("a minute has 59 seconds", LEDGER, "_SPAN = WINDOW_S + 1", "_SPAN = WINDOW_S", LIMITS),
    Mutation(
        "the last request before a limit may exceed it",
        LEDGER,
        "fits = used + asked <= share",
        "fits = used < share",
        LIMITS,
    ),
    Mutation(
        "a request that no replica saw uses up a limit",
        LEDGER,
        "self._end(reservation, -1, -reservation.tokens, now)",
        "self._end(reservation, 0, 0, now)",
        LIMITS,
    ),
    Mutation(
        "a request counts as running for ever",
        LEDGER,
        "zip(_limits_of(grant.limits), (requests, tokens, -1), strict=True)",
        "zip(_limits_of(grant.limits), (requests, tokens, 0), strict=True)",
        LIMITS,
    ),
    Mutation(
        "each worker of a proxy has its own concurrent requests",
        LEDGER,
        "return sum(self._cells[slot + _RUNNING : slot + _RUNNING + WORKERS])",
        "return self._cells[slot + _RUNNING + self._worker]",
        LIMITS,
    ),
    Mutation(
        "a refund counts for the minute in which the answer ends",
        LEDGER,
        "grant.second if amount < 0 else second)",
        "second)",
        LIMITS,
    ),
    Mutation(
        "a request is refused after it has taken from one of its limits",
        LEDGER,
        "            if refused is not None:\n",
        "            if refused is not None:\n"
        "                self._take(slots[0], subjects[0].limits, tokens, second)\n",
        LIMITS,
    ),
    Mutation(
        "a share that was taken away is given to another proxy at once",
        "manager/serving/limit_shares.py",
        "kept.append(max(grant, held, used))",
        "kept.append(grant)",
        SHARES,
    ),
    Mutation(
        "a proxy that asks first gets what the others need",
        "manager/serving/limit_shares.py",
        "max(other.held, min(other.wanted, equal)) for other",
        "other.held for other",
        SHARES,
    ),
    Mutation(
        "a proxy stores shares of keys that do not exist",
        "manager/store/metering/sql/limit_shares_read.sql",
        "WHEN 'key' THEN EXISTS",
        "WHEN 'key' THEN true OR EXISTS",
        STORED_SHARES,
    ),
    Mutation(
        "a proxy stores shares of projects that do not exist",
        "manager/store/metering/sql/limit_shares_read.sql",
        "WHEN 'project'\n    THEN EXISTS",
        "WHEN 'project' THEN true OR EXISTS",
        STORED_SHARES,
    ),
    Mutation(
        "a proxy stores shares of models that do not exist",
        "manager/store/metering/sql/limit_shares_read.sql",
        "AND e.deleted_at IS NULL)",
        ")",
        STORED_SHARES,
    ),
    Mutation(
        "shares are deleted while a proxy uses one of them",
        "manager/store/platform/sql/limit_shares_delete_ended.sql",
        " - interval '1 hour'",
        " + interval '1 hour'",
        STORED_SHARES,
    ),
    Mutation(
        "shares are deleted in the moment in which a proxy asks for one",
        "manager/store/platform/sql/limit_shares_delete_ended.sql",
        " FOR UPDATE SKIP LOCKED",
        "",
        STORED_SHARES,
    ),
    Mutation(
        "usage that is sent twice counts twice",
        "manager/store/metering/sql/usage_records_put.sql",
        "ON CONFLICT (source, epoch, sequence) DO NOTHING",
        "ON CONFLICT (source, epoch, sequence) DO UPDATE SET requests = 2 * excluded.requests",
        RECORDS,
    ),
    Mutation(
        "a lost attempt is charged until its agent comes back",
        "manager/store/schema/migrations/baseline/sessions.sql",
        "        OLD.status IN ('RUNNING', 'TERMINATING', 'CREATING')\n",
        "        false AND OLD.status IN ('RUNNING', 'TERMINATING', 'CREATING')\n",
        CHARGES,
    ),
    Mutation(
        "a kernel that vanished is charged until its agent comes back",
        "manager/store/schema/functions/kernels_charge.sql",
        "THEN a.seen_before",
        "THEN now()",
        CHARGES,
    ),
    Mutation(
        "a lost kernel is charged again for a device that has another name by then",
        "manager/store/schema/functions/ledger_charge.sql",
        "WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.kernel_id = $1)",
        "",
        CHARGES,
    ),
    Mutation(
        "one amount beyond a bigint ends the sums of everyone",
        "manager/store/schema/functions/ledger_bounded.sql",
        "least(greatest(amount, -9223372036854775807), 9223372036854775807)::bigint",
        "amount::bigint",
        BUDGETS,
    ),
    Mutation(
        "a month that was rolled up has what other months used",
        "manager/store/metering/sql/ledger_roll_up.sql",
        "greatest(r.began_at, b.at AT TIME ZONE 'UTC')",
        "r.began_at",
        CHARGES,
    ),
    Mutation(
        "an hour has what was used before it",
        "manager/store/metering/sql/usage_records_page.sql",
        (
            "- greatest(c.began_at, $2, q.since,\n"
            "                          CASE WHEN $4 <> 'none' THEN b.at AT TIME ZONE 'UTC' END)"
        ),
        "- greatest(c.began_at, $2, q.since)",
        CHARGES,
    ),
    Mutation(
        "a new price changes the cost of the hours before it",
        "manager/store/metering/sql/usage_records_page.sql",
        "ledger_price(c.unit, c.device, c.resource_group, q.since)",
        "ledger_price(c.unit, c.device, c.resource_group, now())",
        BUDGETS,
    ),
    Mutation(
        "a budget of GPUs refuses all work",
        "manager/store/metering/budgets.py",
        'if reached and (row["unit"] != "gpu" or _uses_gpus(spec)):',
        "if reached:",
        BUDGETS,
    ),
    Mutation(
        "a budget of GPUs stops all sessions",
        "manager/store/metering/sql/budget_sessions.sql",
        "$3 <> 'gpu'",
        "true",
        BUDGETS,
    ),
    Mutation(
        "a budget of GPUs stops all endpoints",
        "manager/store/endpoints/sql/model_routes.sql",
        "b.unit <> 'gpu'",
        "true",
        BUDGETS,
    ),
    Mutation(
        "a price names a GPU only in full",
        "manager/store/schema/functions/ledger_price.sql",
        "OR (u = 'gpu' AND device_named(p.device, d))",
        "",
        BUDGETS,
    ),
    Mutation(
        "a part of a word names a GPU",
        "manager/store/schema/functions/device_named.sql",
        "SELECT position(' ' || trim",
        "SELECT position('' || trim",
        BUDGETS,
    ),
    Mutation(
        "a budget counts what was used before its period",
        "manager/store/metering/sql/budgets_measure.sql",
        "      AND c.ended_at >= o.began_at\n",
        "",
        BUDGETS,
    ),
    Mutation(
        "a proxy refuses for a budget whose period has ended",
        "proxy/core/limits/reservation.py",
        "and key.exhausted_until > self._unix_now()",
        "",
        ("tests/unit/proxy/test_limit_reservation.py",),
    ),
    Mutation(
        "a time has what was used after it",
        "manager/store/metering/sql/usage_records_page.sql",
        "least(c.ended_at, $3, q.until,",
        "least(c.ended_at, q.until,",
        ARITHMETIC,
    ),
    Mutation(
        "records that are rolled up later replace those of their month",
        "manager/store/metering/sql/ledger_roll_up.sql",
        "amount = m.amount + excluded.amount",
        "amount = excluded.amount",
        ARITHMETIC,
    ),
    Mutation(
        "a proxy warns of a budget whose period has ended",
        "proxy/core/limits/reservation.py",
        "key is not None and key.warned_until > self._unix_now()",
        "key is not None and key.warned_until > 0",
        ("tests/unit/proxy/test_limit_reservation.py",),
    ),
    Mutation(
        "everyone is warned of everyone's budgets",
        "manager/store/metering/budgets.py",
        'if (row["scope"], row["name"]) in payers and row["resets_at"] > now',
        'if row["resets_at"] > now',
        BUDGETS,
    ),
    Mutation(
        "usage is rolled up, and kept as well",
        "manager/store/metering/sql/usage_records_roll_up.sql",
        "    DELETE FROM usage_records r USING old o\n"
        "    WHERE (r.source, r.epoch, r.sequence) = (o.source, o.epoch, o.sequence) RETURNING r.*",
        "    SELECT r.* FROM usage_records r JOIN old o\n"
        "    ON (r.source, r.epoch, r.sequence) = (o.source, o.epoch, o.sequence)",
        RECORDS,
    ),
    Mutation(
        "the prompt of an Anthropic stream costs nothing",
        "proxy/core/token_meter.py",
        "begun = _last_usage(self._head) if self._is_stream else None",
        "begun = None",
        METER,
    ),
    Mutation(
        "a stored response that is read again is paid again",
        LIMITER,
        "if self.repeats or not self._limiter.counts_tokens",
        "if not self._limiter.counts_tokens",
        ("tests/unit/proxy/test_response_homes.py", "-k", "counted_once"),
    ),
    Mutation(
        "a client that leaves pays no prompt",
        LIMITER,
        "        if not self._is_answered and status != CLIENT_LEFT:",
        "        if not self._is_answered:",
        LIMITS,
    ),
    Mutation(
        "usage that could not be written is lost",
        "proxy/control/report_stream.py",
        "            self._usage.put_back(taken)\n",
        "",
        SPOOL,
    ),
    Mutation(
        "usage on disk grows without a bound",
        "proxy/control/usage_spool.py",
        "        if self._bytes + size > self._max_bytes:",
        "        if False:",
        SPOOL,
    ),
    Mutation(
        "a price that applies later hides that hours now cost nothing",
        "manager/store/metering/sql/fragments/price_gaps.sql",
        "HAVING min(p.since) IS NULL OR min(p.since) > now()",
        "HAVING min(p.since) IS NULL",
        GAPS,
    ),
    Mutation(
        "the groups of a project do not count for its budgets",
        "manager/store/metering/sql/fragments/budget_doubts.sql",
        "allowed IS NULL OR gpus.resource_group = ANY (allowed)\n           ) AS without_gpus",
        "true\n           ) AS without_gpus",
        GAPS,
    ),
    Mutation(
        "setting a budget does not warn that nothing counts against it",
        "manager/api/metering/budgets.py",
        "    (shown,) = await _with_warnings(call, [view])\n",
        "    shown = view\n",
        ("tests/unit/cli/test_cli_budgets.py",),
    ),
    Mutation(
        "the doctor says nothing about gaps in prices",
        "server/doctor/cluster.py",
        'if gaps := charge_warnings.of_prices(facts["price_gaps"]):',
        "if gaps := list[str]():",
        ("tests/unit/server/test_cluster_doctor.py",),
    ),
)
