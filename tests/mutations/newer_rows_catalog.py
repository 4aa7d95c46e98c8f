"""Faults in what is read although a newer release has stored it. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ROWS = ("tests/store/test_newer_rows.py",)
UNREADABLE = "manager/store/unreadable.py"
ORDERS = "manager/store/orders.py"


def _unguarded(what: str, file: str, guarded: str, rows: str, read: str) -> Mutation:
    """``read`` is called for every row, and one that it does not know ends all."""
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
        "manager/store/lifecycle.py",
        'self._unreadable.each("session", stored, _reconciled)',
        "stored",
        "_reconciled",
    ),
    _unguarded(
        "pending session",
        "manager/store/pending_cache.py",
        'self._unreadable.each("session", rows, planner_rows.pending)',
        "rows",
        "planner_rows.pending",
    ),
    _unguarded(
        "running kernel",
        "manager/store/planner_rows.py",
        'unreadable.each("kernel", rows, _running)',
        "rows",
        "_running",
    ),
    _unguarded(
        "kernel in a report",
        "manager/store/reports.py",
        'self._unreadable.each("kernel", known, _stored_kernel)',
        "known",
        "_stored_kernel",
    ),
    _unguarded(
        "autoscaled endpoint",
        "manager/store/loads.py",
        'self._unreadable.each("endpoint", rows, _scaled)',
        "rows",
        "_scaled",
    ),
    _unguarded(
        "session with idle criteria",
        "manager/store/idle.py",
        'self._unreadable.each("session", rows, _session)',
        "rows",
        "_session",
    ),
    _unguarded(
        "watched agent",
        "manager/store/agents.py",
        'self._unreadable.each("agent", rows, _contact)',
        "rows",
        "_contact",
    ),
    _unguarded(
        "policy of a group",
        "manager/store/groups.py",
        'self._unreadable.each("resource group", rows, _policy, key="name")',
        "rows",
        "_policy",
    ),
    _unguarded(
        "site of a group",
        "manager/store/groups.py",
        'self._unreadable.each("resource group", sites, _site, key="name")',
        "sites",
        "_site",
    ),
    _unguarded(
        "key", "manager/store/keys.py", 'self._unreadable.each("key", rows, _grant)', "rows", "_grant"
    ),
    _unguarded(
        "measured budget",
        "manager/store/budgets.py",
        'self._unreadable.each("budget", rows, _reached, key="name")',
        "rows",
        "_reached",
    ),
    _unguarded(
        "changed session",
        "manager/store/overviews.py",
        'each("session", await self._rows(SQL["changed_sessions"], sessions), _session_change)',
        'await self._rows(SQL["changed_sessions"], sessions)',
        "_session_change",
    ),
    Mutation(
        "one agent that is not known stops the placement on others",
        "manager/store/planner_rows.py",
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
        "manager/store/planner_rows.py",
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
        "manager/store/endpoint_rows.py",
        "if record.needs_newer and not record.snapshot.deleted:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a deleted endpoint that is not known keeps its replicas",
        "manager/store/endpoint_rows.py",
        "if record.needs_newer and not record.snapshot.deleted:",
        "if record.needs_newer:",
        ROWS,
    ),
    Mutation(
        "an update drops what is not known of an endpoint",
        "manager/store/endpoints.py",
        "if before.needs_newer:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a model with a route that is not known is taken from the proxies",
        "manager/store/routes.py",
        "        for name, _ in read:",
        "        for name in by_name:",
        ROWS,
    ),
    Mutation(
        "a quota that is not known limits nothing",
        "manager/store/quotas.py",
        'Quota(row["scope"], row["name"], sessions=0)',
        'Quota(row["scope"], row["name"])',
        ROWS,
    ),
    Mutation(
        "a group with a site that is not known is taken for one without",
        "manager/store/groups.py",
        "if name in self._with_site and name not in self._sites:",
        "if False:",
        ROWS,
    ),
    Mutation(
        "a session that is not known cannot be stopped",
        "manager/store/lifecycle.py",
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
        "answer_type.model_validate_json(raw, context=KNOWN_FIELDS)",
        "answer_type.model_validate_json(raw)",
        ("tests/unit/sdk/test_sdk_client.py",),
    ),
    Mutation(
        "only fields of the outermost value may be new",
        "common/model/newer_values.py",
        "inner = inner[part]",
        "inner = left",
        ("tests/unit/common/test_newer_values.py",),
    ),
)
