"""Faults in routing: fallbacks, affinity, adapters, reachability of agents. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

FLOW = "proxy/core/flow.py"
CHAIN = "proxy/core/fallback.py"
FALLBACKS = ("tests/unit/proxy/test_fallback.py",)
PLANES = ("tests/conformance/planes/test_fallbacks.py",)
STORE = ("tests/store/test_routing.py",)
REACH = ("tests/wire/test_reach_of_agents.py", "-k", "shown")

MUTATIONS = (
    Mutation(
        "a caller gets a model as a fallback that it may not ask",
        CHAIN,
        "if found is None or not may_ask(RequestCaller(head.key, head.project), found):",
        "if found is None:",
        FALLBACKS,
    ),
    Mutation(
        "a fallback is tried more than once",
        CHAIN,
        "                self._left.remove(fallback)\n",
        "",
        FALLBACKS,
    ),
    Mutation(
        "a provider's refusal of our key reaches the client",
        FLOW,
        "if target.tls and is_refused(status):",
        "if False:",
        PLANES,
    ),
    Mutation(
        "a provider gets all headers of the client",
        "proxy/core/headers.py",
        "    return [pair for pair in kept if pair[0].lower() in _TO_PROVIDER] +",
        "    return kept +",
        PLANES,
    ),
    Mutation(
        "a provider may be at any address",
        "proxy/planes/providers.py",
        '            return (await self._guard.check(f"https://{shown}:{port}/")).addresses',
        "            return (host,)",
        PLANES,
    ),
    Mutation(
        "a request counts for the model that could not serve it",
        FLOW,
        "            if route.name != request.route_name:\n                self._settle(503, now)\n",
        "            if route.name != request.route_name:\n",
        FALLBACKS,
    ),
    Mutation(
        "affinity overloads a replica",
        "proxy/core/affinity.py",
        "if load < most]",
        "if load < most + 9]",
        ("tests/unit/proxy/test_affinity.py",),
    ),
    Mutation(
        "a request for an adapter goes to a replica without it",
        "proxy/core/routes.py",
        "    targets = tuple(target for target in route.targets if name in target.adapters)\n",
        "    targets = route.targets\n",
        ("tests/unit/proxy/test_adapters.py",),
    ),
    Mutation(
        "an adapter takes the name of another project's model",
        "manager/store/schema/functions/take_adapter_names.sql",
        "    IF taken < cardinality(names) THEN",
        "    IF false THEN",
        STORE,
    ),
    Mutation(
        "a canary takes the place of stable replicas",
        "manager/serving/endpoint_plan.py",
        "    others = tuple(r for r in endpoint.replicas if r.revision != endpoint.revision)\n",
        "    others = endpoint.replicas\n",
        ("tests/unit/manager/test_endpoint_plan.py",),
    ),
    Mutation(
        "a failing canary goes on",
        "manager/serving/endpoint_plan.py",
        ">= endpoint.spec.rollout.max_failures:",
        ">= 99:",
        ("tests/unit/manager/test_endpoint_plan.py",),
    ),
    Mutation(
        "a canary gets a little more than its share",
        "proxy/core/canary.py",
        "draw % 100 < percent",
        "draw % 100 <= percent",
        ("tests/unit/proxy/test_canary_share.py",),
    ),
    Mutation(
        "a replica goes back to the group that it has left",
        "manager/serving/groups.py",
        "        if (r.reason is Reason.GROUP_FULL and r.status_since > left)\n",
        "        if False\n",
        ("tests/unit/manager/test_endpoint_groups.py",),
    ),
    Mutation(
        "a key names a group in resource_groups that it may not use",
        "common/model/spec.py",
        "for group in self.groups]",
        "for group in self.groups[:1]]",
        ("tests/store/test_key_limits.py", "-k", "enforced"),
    ),
    Mutation(
        "automatic reach is accepted in silence",
        "agent/dialout/client.py",
        'if settings.reach == "auto":',
        "if False:",
        ("tests/unit/agent/test_reach_setting.py",),
    ),
    Mutation(
        "an agent of the previous release that was told to dial out is reached directly",
        "manager/rpc/reach_control.py",
        "            if stored == stream.dial_out_host:",
        "            if False:",
        REACH,
    ),
    Mutation(
        "a proxy of the previous release seems not to reach agents that dial out",
        "manager/store/platform/sql/agent_list.sql",
        " AND a.address NOT LIKE '%.agent.invalid'",
        "",
        REACH,
    ),
)
