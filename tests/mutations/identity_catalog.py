"""Faults in sign-in: ID tokens, rules, attempt limits, console sessions, priority ceilings,
template isolation, SSH keys and logins with them. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TOKENS = "manager/oidc/tokens.py"
PROVIDER = "manager/oidc/provider.py"
AUTHENTICATION = "manager/api/http/authentication.py"
ID_TOKENS = ("tests/unit/manager/test_oidc.py",)
CLIENT = ("tests/wire/test_oidc_client.py",)
PEOPLE = ("tests/store/test_oidc.py",)
SESSIONS = ("tests/store/test_console_sessions.py",)
LONG_REQUESTS = "manager/api/http/long_requests.py"
OPEN_STREAMS = ("tests/store/api/test_api_long_requests.py",)
REVOCATION = ("tests/wire/test_revocation.py",)
CEILINGS = ("tests/store/test_priority_ceilings.py",)
SSH_KEYS = ("tests/store/test_ssh_keys.py",)
SSH_LOGINS = ("tests/store/test_ssh_logins.py",)
SSH_SIGNATURES = ("tests/unit/manager/test_ssh_signatures.py",)
TEMPLATES = ("tests/store/test_templates.py",)
ARCHIVED = ("tests/store/test_archived_owners.py",)
FUNCTIONS = "manager/store/schema/functions"

MUTATIONS = (
    Mutation(
        "a session is created while its project is archived",
        f"{FUNCTIONS}/require_owner.sql",
        "FROM projects WHERE name = owner FOR SHARE",
        "FROM projects WHERE name = owner",
        ARCHIVED,
    ),
    Mutation(
        "a project with live sessions is archived",
        f"{FUNCTIONS}/refuse_archiving_in_use.sql",
        "IF used IS NOT NULL THEN",
        "IF false THEN",
        ARCHIVED,
    ),
    Mutation(
        "a project with history is deleted",
        f"{FUNCTIONS}/delete_only_empty.sql",
        "    IF found IS NOT NULL THEN",
        "    IF false THEN",
        ARCHIVED,
    ),
    Mutation(
        "a restored user who was disabled is active",
        "manager/store/identity/sql/users.sql",
        "    status = archived_status\n",
        "    status = 'active'\n",
        ARCHIVED,
    ),
    Mutation(
        "a sign-in fails because a rule names an archived project",
        "manager/store/identity/sql/oidc_grant.sql",
        "p.name = w.key AND p.archived_at IS NULL",
        "p.name = w.key",
        ARCHIVED,
    ),
    Mutation(
        "archived projects are listed",
        "manager/store/identity/sql/projects.sql",
        "  AND ($3 OR p.archived_at IS NULL)\n",
        "  AND ($3 OR true)\n",
        ARCHIVED,
    ),
    Mutation(
        "a typing error in the project of a key creates a project",
        "manager/api/identity/keys.py",
        '        await require_owner(call, "project", spec.project, or_else=_CREATE)\n',
        "        pass\n",
        ("tests/store/api/test_api_keys.py", "-k", "on_purpose_only"),
    ),
    Mutation(
        "quotas of users and projects that do not exist",
        "manager/api/scheduling/quotas.py",
        "        await require_owner(call, path.scope, path.name)\n",
        "        pass\n",
        ("tests/store/api/test_api_routes.py", "-k", "limits_of_names"),
    ),
    Mutation(
        "budgets of names that do not exist",
        "manager/api/metering/budgets.py",
        "    await require_owner(call, path.scope, path.name)\n",
        "",
        ("tests/store/api/test_api_routes.py", "-k", "limits_of_names"),
    ),
    Mutation(
        "an expired key is called invalid",
        "manager/store/identity/keys.py",
        '        if row["is_expired"]:\n',
        "        if False:\n",
        ("tests/store/api/test_api_keys.py", "-k", "told_why"),
    ),
    Mutation(
        "a proxy opens a channel for whatever key it names",
        "manager/rpc/ssh.py",
        "        if not _is_proved(login):\n            log",
        "        if False:\n            log",
        SSH_LOGINS,
    ),
    Mutation(
        "a login with another key is a proof",
        "manager/rpc/ssh.py",
        "return is_its_key and proves_login(",
        "return proves_login(",
        SSH_LOGINS,
    ),
    Mutation(
        "a login to one session opens the files of all",
        "manager/rpc/ssh.py",
        "        if login.login != user.user:\n            raise",
        "        if False:\n            raise",
        SSH_LOGINS,
    ),
    Mutation(
        "a login under one name is a proof for another",
        "manager/crypto/ssh_signatures.py",
        (
            "    return (\n"
            "        len(session) >= 20\n"
            "        and signed == _string(session) + request\n"
            "        and verify(key, signature, signed)\n"
            "    )"
        ),
        "    return len(session) >= 20 and verify(key, signature, signed)",
        SSH_LOGINS,
    ),
    Mutation(
        "a proxy does not pass on what a client has signed",
        "proxy/ssh/server.py",
        "self._login = replace(self._login, proof=Proof(key.public_data, data, sig))",
        "pass",
        ("tests/wire/test_ssh_proofs.py",),
    ),
    Mutation(
        "a public key is registered without a proof",
        "manager/api/identity/ssh_keys.py",
        "    check_proof(call.body, key.fingerprint, user, installation, now=now)\n",
        "",
        SSH_KEYS,
    ),
    Mutation(
        "a key proves that another one is held",
        "manager/identity/ssh_proof.py",
        "if fingerprint_of(signer) != fingerprint:",
        "if False:",
        SSH_KEYS,
    ),
    Mutation(
        "a proof for one user is one for another",
        "manager/identity/ssh_proof.py",
        "user={user} installation",
        "user=any installation",
        SSH_KEYS,
    ),
    Mutation(
        "a signature for another purpose is a proof",
        "manager/crypto/ssh_signatures.py",
        "if given_namespace != namespace.encode():",
        "if False:",
        SSH_SIGNATURES,
    ),
    Mutation(
        "an old proof is one",
        "manager/identity/ssh_proof.py",
        "if not -_SKEW <= age <= VALID:",
        "if not -_SKEW <= age:",
        SSH_SIGNATURES,
    ),
    Mutation(
        "a proved key gives way to another proof",
        "manager/store/identity/sql/ssh_keys.sql",
        "WHERE NOT s.proved\n",
        "",
        SSH_KEYS,
    ),
    Mutation(
        "a member's template runs freely where an administrator starts it",
        "manager/api/sessions/templates.py",
        "scope = call.scope.isolating(found.isolated)",
        "scope = call.scope",
        TEMPLATES,
    ),
    Mutation(
        "a template that an administrator bases on a member's runs freely",
        "manager/api/sessions/templates.py",
        (
            "    if template.base is not None:\n"
            "        base = await _base(call, name, template.base)\n"
            "        bases = [base.ref, *base.bases]\n"
            "        isolated = base.isolated"
        ),
        (
            "\n"
            "    if template.base is not None:\n"
            "        base = await _base(call, name, template.base)\n"
            "        bases = [base.ref, *base.bases]"
        ),
        TEMPLATES,
    ),
    Mutation(
        "a step of a member's template runs freely in an administrator's pipeline",
        "manager/store/pipelines/repository.py",
        "self._sessions.new(scope.isolating(step.isolated), spec, None, None)",
        "self._sessions.new(scope, spec, None, None)",
        TEMPLATES,
    ),
    Mutation(
        "what an administrator sets again stays the member's",
        "manager/store/sessions/sql/template_put.sql",
        "        AND isolated <= $7::boolean\n",
        "",
        TEMPLATES,
    ),
    Mutation(
        "an ID token of another attempt is accepted",
        TOKENS,
        'if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):',
        "if False:",
        ID_TOKENS,
    ),
    Mutation(
        "an ID token for another client is accepted",
        TOKENS,
        'aud={"essential": True, "value": client_id}',
        'aud={"essential": True}',
        ID_TOKENS,
    ),
    Mutation(
        "an ID token may be signed with the public key",
        TOKENS,
        "algorithms=ALGORITHMS)",
        'algorithms=[*ALGORITHMS, "HS256"])',
        ID_TOKENS,
    ),
    Mutation(
        "claims about another person count",
        PROVIDER,
        'if told.get("sub") != claims["sub"]:',
        "if False:",
        CLIENT,
    ),
    Mutation(
        "the first piece of an answer counts as all of it",
        PROVIDER,
        "async for piece in answer.content.iter_any():",
        "for piece in [await answer.content.readany()]:",
        CLIENT,
    ),
    Mutation(
        "a rule replaces what was set by hand",
        "manager/store/identity/sql/oidc_grant.sql",
        "m.role IS NOT DISTINCT FROM i.granted_projects ->> w.key AS is_ours",
        "true AS is_ours",
        PEOPLE,
    ),
    Mutation(
        "an open page keeps a console session alive",
        AUTHENTICATION,
        "is_act=not renewed and BACKGROUND not in request.headers",
        "is_act=True",
        SESSIONS,
    ),
    Mutation(
        "what a page asks by itself hides an act from the idle expiry",
        AUTHENTICATION,
        '"act" if is_act else "console"',
        '"console"',
        SESSIONS,
    ),
    Mutation(
        "an address may try any number of names",
        "manager/api/identity/console_sessions.py",
        "if seconds := console.attempts.take(address, now):",
        "if seconds := 0:",
        SESSIONS,
    ),
    Mutation(
        "members have no ceiling of the priority",
        "manager/identity/limits.py",
        "    return ceilings.project_admin if role is Role.PROJECT_ADMIN else ceilings.member\n",
        "    return ceilings.project_admin\n",
        CEILINGS,
    ),
    Mutation(
        "administrators of projects have no ceiling of the priority",
        "manager/identity/limits.py",
        "    if role is Role.ADMIN:\n        return HIGHEST",
        "    if role in (Role.ADMIN, Role.PROJECT_ADMIN):\n        return HIGHEST",
        CEILINGS,
    ),
    Mutation(
        "a ceiling takes from an endpoint what it has",
        "manager/api/endpoints/handlers.py",
        "recorded = before.priority if group.resource_group in before.groups else 0",
        "recorded = 0",
        CEILINGS,
    ),
    Mutation(
        "an endpoint takes its priority to another resource group",
        "manager/api/endpoints/handlers.py",
        "recorded = before.priority if group.resource_group in before.groups else 0",
        "recorded = before.priority",
        CEILINGS,
    ),
    Mutation(
        "the priority of a template is for any program",
        "manager/workloads/templates.py",
        "if overrides.keys() - _NAMES or not",
        "if not",
        CEILINGS,
    ),
    Mutation(
        "a parameter chooses in which resource group the priority of a template holds",
        "manager/workloads/templates.py",
        ' or "{{" in str(chosen):',
        ":",
        CEILINGS,
    ),
    Mutation(
        "a template says any priority, whoever writes it",
        "manager/api/sessions/templates.py",
        "    await _check_priority(call, name, template)\n",
        "",
        CEILINGS,
    ),
    Mutation(
        "a pipeline that is retried loses its priorities",
        "manager/api/pipelines/handlers.py",
        "            if again:\n",
        "            if False:\n",
        CEILINGS,
    ),
    Mutation(
        "who makes a key gives it any highest priority",
        "manager/api/identity/keys.py",
        "    await _check_priority(call, call.body.max_priority)\n",
        "",
        CEILINGS,
    ),
    Mutation(
        "who changes a key gives it any highest priority",
        "manager/api/identity/keys.py",
        "        await _check_priority(call, changed.max_priority, before.max_priority or 0)\n",
        "",
        CEILINGS,
    ),
    Mutation(
        "what was lowered of an old key is raised again",
        "manager/store/identity/sql/key_update.sql",
        "least(k.kept_priority, $7)",
        "k.kept_priority",
        CEILINGS,
    ),
    Mutation(
        "a new key keeps what no key had before",
        "manager/store/identity/sql/key_update.sql",
        "CASE WHEN k.kept_priority IS NOT NULL THEN least(k.kept_priority, $7) END",
        "least(k.kept_priority, $7)",
        CEILINGS,
    ),
    Mutation(
        "options of a group are stored that the release before does not know",
        "manager/store/groups/repository.py",
        '    "max_priority",\n)',
        ")",
        CEILINGS,
    ),
    Mutation(
        "the routes of a revoked agent end when it is noticed as gone",
        "manager/store/platform/peers.py",
        'self._notifier.notify_routes([SessionId(str(session)) for session in rows[0]["sessions"]])',
        "pass",
        ("tests/store/test_revoked_agents.py",),
    ),
    Mutation(
        "clients' requests go to the engines of a revoked agent",
        "manager/store/endpoints/sql/model_routes.sql",
        "AND a.name = k.agent_id AND a.revoked_at IS NULL",
        "AND a.name = k.agent_id",
        ("tests/store/test_revoked_agents.py",),
    ),
    Mutation(
        "a revoked proxy serves on",
        "proxy/control/feed.py",
        "                    await self._forget()\n",
        "                    pass\n",
        REVOCATION,
    ),
    Mutation(
        "a revoked proxy serves again when it is started again",
        "proxy/control/feed.py",
        "await asyncio.to_thread(self._saved_table.remove)",
        "pass",
        REVOCATION,
    ),
    Mutation(
        "what is open to a revoked proxy ends with its keys only",
        "proxy/core/request_router.py",
        "revoked_agents=tuple(agents)))",
        "))",
        ("tests/unit/proxy/test_forgetting.py",),
    ),
    Mutation(
        "a proxy that the database does not know takes itself for revoked",
        "manager/rpc/authentication.py",
        "note = (REVOKED,) if call.revoked else ()",
        "note = (REVOKED,)",
        ("tests/unit/manager/test_link_authentication.py",),
    ),
    Mutation(
        "a hostile proxy has agents that dial out connect anywhere",
        "manager/rpc/proxy_links.py",
        "        host = await self._addresses.bind(report.proxy_id, reported, peer)",
        "        host = reported",
        ("tests/wire/test_dialout_manager.py", "-k", "connects_from"),
    ),
    Mutation(
        "agents do not learn which proxies were revoked",
        "manager/rpc/agent_link.py",
        "wire.dialout.revoked[:] = settings.revoked_proxies",
        "pass",
        ("tests/wire/test_dialout_manager.py",),
    ),
    Mutation(
        "what an agent has dialed at a revoked proxy stays open",
        "agent/dialout/client.py",
        'self._connection.end("the proxy was revoked")',
        "pass",
        ("tests/wire/test_dialout.py", "-k", "revoked"),
    ),
    Mutation(
        "an agent dials a revoked proxy again",
        "agent/dialout/client.py",
        "                    if peer_id in self._revoked:",
        "                    if False:",
        ("tests/wire/test_dialout.py", "-k", "revoked"),
    ),
    Mutation(
        "an SSH connection outlives its login",
        "manager/rpc/ssh.py",
        "                raise Forbidden(refusal)\n",
        "                pass\n",
        REVOCATION,
    ),
    Mutation(
        "a proxy keeps an SSH connection whose login is refused",
        "proxy/ssh/server.py",
        'self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, "the login is refused now")',
        "pass",
        REVOCATION,
    ),
    Mutation(
        "an access token outlives the rights of its maker",
        "manager/store/kernels/access_tokens.py",
        "            if _may_open(row)\n",
        "",
        ("tests/store/test_access_tokens.py",),
    ),
    Mutation(
        "an access token outlives the key that made it",
        "manager/store/kernels/sql/access_tokens.sql",
        "k.revoked_at IS NULL AND (k.expires_at",
        "(k.expires_at",
        ("tests/store/test_access_tokens.py",),
    ),
    Mutation(
        "an access token of a member opens the session of another",
        "manager/identity/session_access.py",
        "return decide(caller, session, Action.PORTS) is Verdict.ALLOWED",
        "return True",
        ("tests/store/test_access_tokens.py",),
    ),
    Mutation(
        "proxies do not learn which agents were revoked",
        "manager/store/platform/sql/revoked_peers.sql",
        "kind = $1 AND revoked_at IS NOT NULL\n  AND greatest",
        "kind = $1 AND revoked_at IS NULL AND greatest",
        ("tests/store/test_revoked_agents.py",),
    ),
    Mutation(
        "routes do not tell by which certificate an agent joined",
        "manager/serving/routes.py",
        '                    peer_id=row["peer_id"],\n',
        "",
        ("tests/store/test_revoked_agents.py",),
    ),
    Mutation(
        "streams of a revoked key end when they are looked at next",
        LONG_REQUESTS,
        "self._check_at(self._changed_at + _PAUSE_S)",
        "pass",
        OPEN_STREAMS,
    ),
    Mutation(
        "a stream that has just begun outlives its key",
        LONG_REQUESTS,
        "            self._check_at(min(young) + YOUNG_S)",
        "            pass",
        OPEN_STREAMS,
    ),
    Mutation(
        "a key that revokes itself gets no answer",
        LONG_REQUESTS,
        "if opened.since <= began_before]",
        "if opened.since]",
        OPEN_STREAMS,
    ),
)
