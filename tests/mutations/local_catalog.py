"""Mutations in how clients on a manager's host verify that it is the manager. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PROOF = ("tests/unit/common/test_local_proof.py",)
CLI = ("tests/unit/cli/test_cli_local_manager.py", "--timeout", "60")
LINKS = ("tests/wire/test_local_links.py", "--timeout", "60")
CONNECTION = "sdk/installation/local_manager.py"

MUTATIONS = (
    Mutation(
        "whoever listens at a socket is the manager",
        "common/local/proof.py",
        "        if uid not in (_ROOT, own_uid, last.uid):",
        "        if uid < 0:",
        (*PROOF, "-k", "stranger_who_listens"),
    ),
    Mutation(
        "a directory of somebody else leads to a socket",
        "common/local/proof.py",
        "        if step.uid not in allowed:",
        "        if step.in_shared and step.uid not in allowed:",
        (*PROOF, "-k", "prove_nothing"),
    ),
    Mutation(
        "whoever came first in a shared directory is the manager",
        "common/local/proof.py",
        "allowed = {_ROOT, own_uid} if step.in_shared else {_ROOT, own_uid, owner}",
        "allowed = {_ROOT, own_uid, owner}",
        (*PROOF, "-k", "shared or prove_nothing"),
    ),
    Mutation(
        "a directory that others may write to leads to a socket",
        "common/local/proof.py",
        "        if step.others_may_write and not",
        "        if step is steps[-1] and step.others_may_write and not",
        (*PROOF, "-k", "prove_nothing"),
    ),
    Mutation(
        "the socket's own directory may be shared",
        "common/local/proof.py",
        "not (step.is_shared and step is not steps[-1])",
        "not step.is_shared",
        (*PROOF, "-k", "prove_nothing"),
    ),
    Mutation(
        "any group counts as the private one of its owner",
        "common/local/proof.py",
        "    if user.pw_gid != gid or user.pw_name != group.gr_name:\n",
        "    if user.pw_gid != gid and user.pw_name != user.pw_name:\n",
        (*PROOF, "-k", "group_may_write"),
    ),
    Mutation(
        "links on the way to a socket are not looked at",
        "common/local/proof.py",
        "        yield step\n        if not step.is_link:",
        "        if not step.is_link:\n            yield step\n        if not step.is_link:",
        (*PROOF, "-k", "stranger_s_link"),
    ),
    Mutation(
        "sockets with long paths are not reached",
        "common/local/proof.py",
        "    if len(os.fsencode(path)) <= _LONGEST_PATH:",
        "    if path:",
        (*PROOF, "-k", "longer"),
    ),
    Mutation(
        "a second manager takes the socket of the first",
        "common/local/listening.py",
        "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (*PROOF, "-k", "not_replaced"),
    ),
    Mutation(
        "the command line sends its key to any port of loopback",
        CONNECTION,
        "            return url\n\n        if socket is None or not _has_manager(home):",
        "            return url\n\n        if socket is None:\n            return url\n\n"
        "        if not _has_manager(home):",
        (*CLI, "-k", "took_the_port"),
    ),
    Mutation(
        "the saved address is used instead of the socket",
        CONNECTION,
        "    if socket is None or (is_insecure and not Path(socket).is_socket()):",
        "    if socket is None or not Path(socket).is_socket():",
        (*CLI, "-k", "took_the_port"),
    ),
    Mutation(
        "another spelling of loopback is another host",
        "common/local/paths.py",
        "    return address.is_loopback or address.is_unspecified",
        "    return address.is_loopback",
        (*PROOF, "-k", "lead_here"),
    ),
    Mutation(
        "a context is rewritten before the manager has accepted its key",
        "cli/context.py",
        "                done: T = await work(client)\n                if at.url != at.http_url:\n"
        "                    from moorage.sdk.installation.local_manager import keep_socket\n\n"
        "                    keep_socket(os.environ, at.url)\n",
        "                from moorage.sdk.installation.local_manager import keep_socket\n\n"
        "                keep_socket(os.environ, at.url)\n                done: T = await work(client)\n",
        (*CLI, "-k", "once_it_has_answered"),
    ),
    Mutation(
        "streams of the client go to a socket that nobody has checked",
        "sdk/streams.py",
        "connector=_ProvenConnector(path)",
        "connector=aiohttp.UnixConnector(path)",
        (*CLI, "-k", "streams_of_the_client"),
    ),
    Mutation(
        "agents and proxies send the link token to any port of loopback",
        "common/link/local.py",
        "    except OSError as error:\n",
        "    except OSError as error:\n        return target\n",
        (*LINKS, "-k", "took_the_port"),
    ),
    Mutation(
        "managers send the link token to any port of loopback",
        "manager/rpc/manager_link.py",
        "            if self._home is not None:\n                target = proven_target(",
        "            if self._home is None:\n                target = proven_target(",
        (*LINKS, "-k", "of_before"),
    ),
    Mutation(
        "agents that dial out send the link token to any port of loopback",
        "common/link/dial.py",
        "    def token_in_clear(self) -> str:",
        "    def token_in_clear(self) -> str:\n        return self._token\n\n    def _never(self) -> str:",
        (*LINKS, "-k", "no_proxy"),
    ),
    Mutation(
        "a peer over a Unix socket chooses the address that it comes from",
        "manager/rpc/peer_addresses.py",
        '    return _LOOPBACK if family == "unix" else _parse(',
        "    return _parse(",
        ("tests/unit/manager/test_plain_senders.py", "-k", "unix_socket"),
    ),
    Mutation(
        "an agent that was upgraded is still named",
        "manager/plain_senders.py",
        "            self._names[kind].pop(name, None)\n",
        "            pass\n",
        ("tests/unit/manager/test_plain_senders.py", "-k", "newest"),
    ),
)
