"""Faults in reading data that a newer release has stored. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROWS = ("tests/store/test_newer_rows.py",)
ALONE = ("tests/store/test_newer_rows_alone.py",)
LEADERS = ("tests/store/test_compatibility.py",)
STATEMENTS = ("tests/store/test_statements_and_newer_rows.py",)
UNREADABLE = "manager/store/database/unreadable.py"
ORDERS = "manager/store/kernels/orders.py"


def _unguarded(what: str, file: str, guarded: str, rows: str, *, read: str) -> Mutation:
    """``read`` is called for every row, and an unknown one stops the whole read."""
    return Mutation(
        f"one {what} that is not known stops the others",
        file,
        guarded,
        f"[{read}(one) for one in {rows}]",
        ROWS,
    )


MUTATIONS = (
    _unguarded(
        "session",
        "manager/store/sessions/lifecycle.py",
        'self._unreadable.each("session", stored, _reconciled)',
        "stored",
        read="_reconciled",
    ),
    _unguarded(
        "pending session",
        "manager/store/scheduling/pending_cache.py",
        'self._unreadable.each("session", rows, planner_rows.pending)',
        "rows",
        read="planner_rows.pending",
    ),
    _unguarded(
        "running kernel",
        "manager/store/scheduling/planner_rows.py",
        'unreadable.each("kernel", rows, _running)',
        "rows",
        read="_running",
    ),
    _unguarded(
        "kernel in a report",
        "manager/store/platform/reports.py",
        'self._unreadable.each("kernel", known, _stored_kernel)',
        "known",
        read="_stored_kernel",
    ),
    _unguarded(
        "autoscaled endpoint",
        "manager/store/endpoints/loads.py",
        'self._unreadable.each("endpoint", rows, _scaled)',
        "rows",
        read="_scaled",
    ),
    _unguarded(
        "session with idle criteria",
        "manager/store/sessions/idle.py",
        'self._unreadable.each("session", rows, _session)',
        "rows",
        read="_session",
    ),
    _unguarded(
        "watched agent",
        "manager/store/platform/agents.py",
        'self._unreadable.each("agent", rows, _contact)',
        "rows",
        read="_contact",
    ),
    _unguarded(
        "policy of a group",
        "manager/store/groups/repository.py",
        'self._unreadable.each("resource group", rows, _policy, key="name")',
        "rows",
        read="_policy",
    ),
    _unguarded(
        "site of a group",
        "manager/store/groups/repository.py",
        'self._unreadable.each("resource group", sites, _site, key="name")',
        "sites",
        read="_site",
    ),
    _unguarded(
        "key",
        "manager/store/identity/keys.py",
        'self._unreadable.each("key", rows, _grant)',
        "rows",
        read="_grant",
    ),
    _unguarded(
        "measured budget",
        "manager/store/metering/budgets.py",
        'self._unreadable.each("budget", rows, _reached, key="name")',
        "rows",
        read="_reached",
    ),
    _unguarded(
        "changed session",
        "manager/store/platform/overviews.py",
        """each(
            "session", await self._rows(SQL["changed_sessions"], sessions), _session_change
        )""",
        'await self._rows(SQL["changed_sessions"], sessions)',
        read="_session_change",
    ),
    Mutation(
        "one kernel whose lease is not known ends no lease",
        "manager/store/kernels/leases.py",
        'self._unreadable.each("kernel", rows, _leased)',
        "[_leased(row) for row in rows]",
        STATEMENTS,
    ),
    Mutation(
        "one reason of a rollback that is not known stops all endpoints",
        "manager/store/endpoints/rows.py",
        "        return Reason.NONE, why_unreadable(error)",
        "        raise error",
        ALONE,
    ),
    Mutation(
        "labels of an endpoint that are not known hide the list",
        "manager/store/endpoints/rows.py",
        "if isinstance(value, str)}",
        "}",
        STATEMENTS,
    ),
    Mutation(
        "one agent that runs what nobody can name stops the orders of all",
        "manager/store/kernels/sql/agent_kernels.sql",
        "jsonb_array_elements(as_array(a.unknown_kernels)) u\nWHERE",
        "jsonb_array_elements(a.unknown_kernels) u\nWHERE",
        STATEMENTS,
    ),
    Mutation(
        "one session whose length is not known stops the scheduler",
        "manager/store/scheduling/sql/pending_sessions.sql",
        "as_number(s.spec -> 'stop_grace_s')\n           + coalesce(",
        "(s.spec ->> 'stop_grace_s')::float8 + coalesce(",
        STATEMENTS,
    ),
    Mutation(
        "seconds without a bound are a time that nobody can read",
        "manager/store/schema/functions/as_number.sql",
        "BETWEEN -1e11 AND 1e11 THEN value::float8 END END",
        "BETWEEN -1e300 AND 1e300 THEN value::float8 END END",
        ("tests/store/test_values_in_json.py",),
    ),
    Mutation(
        "one share that is not known stops the limits of a proxy",
        "manager/serving/limit_shares.py",
        "if name != proxy and _is_known(held)]",
        "if name != proxy]",
        ALONE,
    ),
    Mutation(
        "a share that is not known is taken from the proxy of a newer manager",
        "manager/serving/limit_shares.py",
        "if _ends_at(held) > stored.now}",
        "if _ends_at(held) > stored.now and _is_known(held)}",
        ALONE,
    ),
    Mutation(
        "a stop of many ends at a part that is not known",
        "manager/termination.py",
        "                if clock.monotonic() >= until:\n",
        "                if not stopped or clock.monotonic() >= until:\n",
        ALONE,
    ),
    Mutation(
        "a stop that nobody can carry out is tried without a pause",
        "manager/loops/stop_controller.py",
        "if state is StopState.GOES_ON:",
        "if state is not StopState.DONE:",
        ALONE,
    ),
    Mutation(
        "a user that is not known is an internal error",
        "manager/store/identity/users.py",
        'read_one("user", name, row, _user)',
        "_user(row)",
        ALONE,
    ),
    Mutation(
        "a project that is not known is an internal error",
        "manager/store/identity/users.py",
        'read_one("project", name, row, _project)',
        "_project(row)",
        ALONE,
    ),
    Mutation(
        "a key that is not known is an internal error",
        "manager/store/identity/keys.py",
        'return read_one("key", name, row, _view)',
        "return _view(row)",
        ALONE,
    ),
    Mutation(
        "a caller of a role that is not known is an internal error",
        "manager/store/identity/keys.py",
        (
            "\n"
            "        found = read_one(\n"
            '            "key",\n'
            '            row["name"],\n'
            "            row,\n"
            '            lambda key_row: key_of_row(key_row, key_row["name"], Role(key_row["role"])),\n'
            "        )\n"
            '        if found is not None and row["use_unrecorded"]:\n'
            '            await self._connection.fetch(SQL["key_record_use"], row["id"])\n'
        ),
        (
            '        found = key_of_row(row, row["name"], Role(row["role"]))\n'
            '        if found is not None and row["use_unrecorded"]:\n'
            '            await self._connection.fetch(SQL["key_record_use"], row["id"])'
        ),
        ALONE,
    ),
    Mutation(
        "a key that is not known gets a secret that nobody learns",
        "manager/store/identity/keys.py",
        "        await self.get(scope, name)\n        secret, digest",
        "        secret, digest",
        ALONE,
    ),
    Mutation(
        "a peer that is not known is an internal error",
        "manager/store/platform/peers.py",
        'read_one(kind, name, rows[0], _peer, done="was revoked")',
        "_peer(rows[0])",
        ALONE,
    ),
    Mutation(
        "the audit refuses the deletion of what cannot be shown",
        "manager/api/http/audit.py",
        "    except NeedsNewerManager as error:",
        "    except ZeroDivisionError as error:",
        ALONE,
    ),
    Mutation(
        "a budget that is not known hides the list",
        "manager/store/metering/budgets.py",
        'read_page(views.BudgetView, "budget", rows=rows, read=_view, following=None)',
        "Page[views.BudgetView](items=[_view(row) for row in rows])",
        ROWS,
    ),
    Mutation(
        "a leader keeps the schema of the one before",
        "manager/store/schema/functions/refuse_older_leader.sql",
        "    NEW.schema := nullif(current_setting('moorage.schema', true), '');\n",
        "",
        LEADERS,
    ),
    Mutation(
        "one agent that is not known stops the placement on others",
        "manager/store/scheduling/planner_rows.py",
        'labels=dict(row["labels"]),',
        'labels=row["labels"],',
        ROWS,
    ),
    Mutation(
        "one item that is not known hides the list",
        UNREADABLE,
        "            shown.append(read(row))\n        except UNREADABLE as error:",
        "            shown.append(read(row))\n        except ZeroDivisionError as error:",
        ROWS,
    ),
    Mutation(
        "a session is placed by a manager that does not know what it asks for",
        "manager/store/scheduling/planner_rows.py",
        '    spec = parse_spec(row["spec"])\n    cluster = spec if spec.cluster is not None else None',
        '    spec = parse_spec(row["spec"]) if \'"cluster"\' in row["spec"] else None\n'
        "    cluster = spec if spec is not None and spec.cluster is not None else None",
        ROWS,
    ),
    Mutation(
        "a kernel that has been started is ended because its spec is not known",
        ORDERS,
        'return _unknown_spec(row) if row["begun"] else None',
        "return None",
        ROWS,
    ),
    Mutation(
        "a kernel is started without a spec",
        ORDERS,
        'return _unknown_spec(row) if row["begun"] else None',
        "return _unknown_spec(row)",
        ROWS,
    ),
    Mutation(
        "a kernel that is only kept stays so",
        ORDERS,
        "if known := {k: spec for k, spec in found.items() if not _is_kept(spec)}:",
        "if known := dict(found):",
        ROWS,
    ),
    Mutation(
        "replicas are reconciled by half of an endpoint",
        "manager/store/endpoints/rows.py",
        "if record.needs_newer and not record.snapshot.deleted:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a deleted endpoint that is not known keeps its replicas",
        "manager/store/endpoints/rows.py",
        "if record.needs_newer and not record.snapshot.deleted:",
        "if record.needs_newer:",
        ROWS,
    ),
    Mutation(
        "an update drops what is not known of an endpoint",
        "manager/store/endpoints/repository.py",
        "if before.needs_newer:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a model with a route that is not known is taken from the proxies",
        "manager/store/endpoints/routes.py",
        "        for name, _ in read:",
        "        for name in by_name:",
        ROWS,
    ),
    Mutation(
        "a quota that is not known limits nothing",
        "manager/store/scheduling/quotas.py",
        'Quota(row["scope"], row["name"], sessions=0)',
        'Quota(row["scope"], row["name"])',
        ROWS,
    ),
    Mutation(
        "a group with a site that is not known is taken for one without",
        "manager/store/groups/repository.py",
        "if name in self._with_site and name not in self._sites:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a session that is not known cannot be stopped",
        "manager/store/sessions/lifecycle.py",
        'return shown_spec(rows[0]["spec"])[0]',
        'return parse_spec(rows[0]["spec"])',
        ROWS,
    ),
    Mutation(
        "a row that can be read again counts as unreadable",
        UNREADABLE,
        "                    self._met.pop((kind, str(row[key])), None)",
        "                    pass",
        ROWS,
    ),
    Mutation(
        "a client refuses what a newer manager says more",
        "sdk/transport.py",
        'return answer_type.model_validate_json(raw, extra="ignore")',
        "return answer_type.model_validate_json(raw)",
        ("tests/unit/manager/api/test_api_openapi.py",),
    ),
)
