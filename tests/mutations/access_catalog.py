"""Faults in access to sessions through every door, and in the manager's handling of hostile agents
and proxies. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

RULE = ("tests/unit/common/test_session_access.py",)
DOORS = ("tests/store/test_doors.py",)
PROXY_REPORTS = ("tests/unit/manager/test_proxy_reports.py",)
STREAMS = ("tests/store/api/test_hostile_streams.py",)
LINKS = ("tests/wire/test_link_fuzz.py",)

MUTATIONS = (
    Mutation(
        "quotas are read without a scope unless one is given",
        "manager/store/scheduling/quotas.py",
        "async def get(self, scope: Scope, kind",
        "async def get(self, scope: Scope | None, kind",
        ("tests/store/test_tenancy.py", "-k", "scope_cannot_be_left_out"),
    ),
    Mutation(
        "a project administrator opens ports of what runs as the agent",
        "proxy/apps/admission.py",
        "kind = SessionKind.AS_AGENT if route.unisolated else SessionKind.ISOLATED",
        "kind = SessionKind.ISOLATED",
        ("tests/unit/proxy/test_app_admission.py", *DOORS),
    ),
    Mutation(
        "routes do not tell that a session runs as the agent",
        "manager/serving/routes.py",
        'kind_of(row["runtime"], isolated=row["isolated"]) is SessionKind.AS_AGENT',
        "False",
        DOORS,
    ),
    Mutation(
        "a port of the release before opens to who may not see its session",
        "proxy/apps/admission.py",
        "return Verdict.ALLOWED if sees_all else verdict",
        "return Verdict.ALLOWED",
        ("tests/unit/proxy/test_app_admission.py",),
    ),
    Mutation(
        "an open connection outlives the right of its key",
        "proxy/apps/admission.py",
        "return key is not None and may_open(key, grant.route) is Verdict.ALLOWED",
        "return key is not None",
        ("tests/unit/proxy/test_app_admission.py",),
    ),
    Mutation(
        "the manager's doors do not ask the rule",
        "manager/api/http/authorization.py",
        "if refusal := session_access.refusal(call.scope, session, call.action, what):",
        "if False:",
        DOORS,
    ),
    Mutation(
        "a run of code is open to who may not see its session",
        "manager/api/kernels/code.py",
        "    session = await authorization.session_of(call)",
        '    session = await call.deps.store.sessions.get(call.scope, call.path("ref"))',
        DOORS,
    ),
    Mutation(
        "a command is open to who may see its session",
        "manager/api/kernels/commands.py",
        "    session = await authorization.session_of(call)",
        '    session = await call.deps.store.sessions.get(call.scope, call.path("ref"))',
        DOORS,
    ),
    Mutation(
        "SSH asks whether there is a session, and no more",
        "manager/rpc/ssh.py",
        "if refused := refusal(scope, view, action):",
        "if False:",
        DOORS,
    ),
    Mutation(
        "SFTP lists sessions whose files it does not open",
        "manager/rpc/ssh.py",
        "has_files(item) and allows(scope, item, Action.FILES)",
        "has_files(item)",
        DOORS,
    ),
    Mutation(
        "what runs as the agent is open to who controls it",
        "common/model/session_access.py",
        "if session.kind is SessionKind.AS_AGENT and action in INSIDE and caller.role is not Role.ADMIN:",
        "if False:",
        RULE,
    ),
    Mutation(
        "a session of another project is forbidden, and so it is known to exist",
        "common/model/session_access.py",
        "    if relation is Relation.FOREIGN:\n        return Verdict.UNKNOWN",
        "    if relation is Relation.FOREIGN:\n        return Verdict.OTHERS",
        RULE,
    ),
    Mutation(
        "the scopes of a key do not count for sessions",
        "common/model/session_access.py",
        "if scopes is not None and NEEDS[action] not in scopes:",
        "if False:",
        RULE,
    ),
    Mutation(
        "the audit log does not note what a key with the scope to write only removes",
        "manager/api/http/audit.py",
        "scope = call.scope if reader.action is None else replace(call.scope, key=None)",
        "scope = call.scope",
        DOORS,
    ),
    Mutation(
        "a load of an engine that is none fails those of all agents",
        "manager/store/endpoints/loads.py",
        (
            "        loads = [\n"
            '            (agent, load) for agent, load in loads if "\\0" not in agent and as_uuid(load.kernel_id)\n'  # noqa: E501 - as in the source
            "        ]"
        ),
        "        loads = [(agent, load) for agent, load in loads]",
        ("tests/store/test_loads.py",),
    ),
    Mutation(
        "a proxy reports the load of another one",
        "manager/rpc/proxy_report_validation.py",
        'if load.proxy_id != proxy and not load.proxy_id.startswith(f"{proxy}/"):',
        "if False:",
        PROXY_REPORTS,
    ),
    Mutation(
        "a time of a proxy's load may be no number",
        "manager/rpc/proxy_report_validation.py",
        "if math.isnan(time) or abs(time) > _MAX_SECONDS), None)",
        "if abs(time) > _MAX_SECONDS), None)",
        PROXY_REPORTS,
    ),
    Mutation(
        "reports of proxies are stored as they come",
        "manager/rpc/proxy_links.py",
        "if wrong := find_problem(report):",
        'if wrong := "":',
        LINKS,
    ),
    Mutation(
        "an item of a hostile agent that is no text is a fault of the manager",
        "manager/api/kernels/code.py",
        "    except UnicodeDecodeError:",
        "    except MemoryError:",
        STREAMS,
    ),
    Mutation(
        "a run without items is a fault of the manager",
        "manager/api/kernels/code.py",
        "if receiving is None:  # no item has been sent yet",
        "if False:",
        STREAMS,
    ),
    Mutation(
        "a packet of SFTP of an unknown type is a fault of the proxy",
        "proxy/ssh/router.py",
        "if kind not in _BY_PATH:",
        "if False:",
        ("tests/unit/proxy/test_sftp_router.py",),
    ),
    Mutation(
        "a name of a proxy that cannot be stored ends the presence of its manager",
        "manager/rpc/server.py",
        'if not 0 < len(name) <= _MOST_OF_A_NAME or "\\0" in name:',
        "if False:",
        LINKS,
    ),
    Mutation(
        "names that a proxy passes on for SSH may be none",
        "manager/rpc/ssh_service.py",
        'if "\\0" in "".join((login.login, login.fingerprint, login.address, *names)):',
        "if False:",
        LINKS,
    ),
)
