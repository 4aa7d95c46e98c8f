"""Mutations of what a writer of etcd can decide. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

SHARING = ("tests/unit/common/test_sharing.py",)

MUTATIONS = (
    Mutation(
        "etcd sets everything but secrets",
        "common/config/loader.py",
        "    if reason := why_local(name):",
        "    if (reason := why_local(name)) and name in SECRETS:",
        (*SHARING, "-k", "local_setting"),
    ),
    Mutation(
        "a setting that nobody has classified is taken from etcd",
        "common/config/sharing.py",
        'LOCAL.get(name, "is not in the list of settings that etcd may have")',
        'LOCAL.get(name, "")',
        (*SHARING, "-k", "not_classified"),
    ),
    Mutation(
        "a command of a host is taken from etcd",
        "common/config/sharing.py",
        '        "agent.stop_kernels_on_exit",\n',
        '        "agent.stop_kernels_on_exit",\n        "agent.vllm_command",\n',
        (*SHARING, "-k", "either or choice"),
    ),
    Mutation(
        "a running daemon announces settings of etcd that it will not take",
        "server/shared_settings.py",
        "[name for name in changed if not why_local(name)]",
        "changed",
        (*SHARING, "-k", "running_daemon"),
    ),
)
