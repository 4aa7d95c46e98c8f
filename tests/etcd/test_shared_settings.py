"""Settings that daemons share in etcd: set, refused, rolled back, written by hand, and
unavailable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Platform, until
from tests.etcd.servers import PASSWORD, PREFIX, USER, EtcdServers

# Run the command; the members with these process ids die when it writes, after it has read the
# settings with a quorum.
LOSES_QUORUM = """
import os, signal, sys
from moorage.common.etcd import shared_settings

pids, sys.argv[1:] = sys.argv[1].split(","), sys.argv[2:]
write = shared_settings.write

async def without_quorum(*arguments, **more):
    for pid in pids:
        os.kill(int(pid), signal.SIGKILL)
    return await write(*arguments, **more)

shared_settings.write = without_quorum
from moorage.__main__ import main
main()
"""
pytestmark = [pytest.mark.etcd, pytest.mark.timeout(300)]


@pytest.fixture
def platform(home: Path, one: EtcdServers) -> Platform:
    path = home / "platform"
    path.mkdir()
    created = Platform(path)
    created.env["MOORAGE_ETCD__ADDRESS"] = one.address
    del created.env[
        "MOORAGE_AGENT__REPORT_INTERVAL_S"
    ]  # the environment takes precedence over etcd
    return created


def config(platform: Platform, *arguments: str) -> str:
    done = platform.run("config", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(platform: Platform, *arguments: str) -> str:
    done = platform.run("config", *arguments)
    assert done.returncode == 2, done
    return done.stderr


def shown(platform: Platform) -> dict[str, dict[str, str]]:
    values: dict[str, dict[str, str]] = json.loads(
        config(platform, "show", "--origin", "-o", "json")
    )
    return values


def test_set_history_and_rollback(platform: Platform, one: EtcdServers) -> None:
    config(
        platform, "set", "--etcd", "telemetry.accept_traceparent=false", "agent.report_interval_s=7"
    )
    found = shown(platform)
    assert found["telemetry.accept_traceparent"] == {"value": False, "origin": "etcd"}
    assert found["agent.report_interval_s"] == {"value": 7.0, "origin": "etcd"}
    platform.env["MOORAGE_AGENT__REPORT_INTERVAL_S"] = "3"  # a host may deviate
    assert shown(platform)["agent.report_interval_s"]["value"] == 3
    config(platform, "set", "--etcd", "telemetry.accept_traceparent=true")
    config(platform, "unset", "--etcd", "agent.report_interval_s")
    config(platform, "rollback", "--etcd", "1")
    changes = json.loads(config(platform, "history", "--etcd", "-o", "json"))
    assert [change["number"] for change in changes] == [1, 2, 3, 4]
    assert changes[3]["what"] == "rollback to 1"
    assert changes[3]["settings"] == {
        "agent.report_interval_s": 7.0,
        "telemetry.accept_traceparent": False,
    }
    assert shown(platform)["telemetry.accept_traceparent"]["value"] is False
    assert "kept changes: 1 to 4" in platform.run("config", "rollback", "--etcd", "9").stderr


def test_what_cannot_be_shared_is_refused(platform: Platform, one: EtcdServers) -> None:
    for setting, message in {
        "proxy.metring=true": "did you mean proxy.metering",
        "proxy.workers=99": "less than or equal to 15",
        "manager.dsn=postgres://a:b@c/d": "anybody who can read etcd could read it",
        "agent.id=node-1": "differs from host to host",
        "agent.vllm_command=/tmp/mine": "decides which programs and images run",
        "etcd.prefix=/other/": "differs from host to host",
    }.items():
        assert message in refused(platform, "set", "--etcd", setting)

    assert "add --etcd" in refused(platform, "set", "telemetry.accept_traceparent=false")
    assert one.etcdctl("get", "--prefix", PREFIX) == ""


async def test_what_is_not_valid_by_hand_is_ignored(platform: Platform, one: EtcdServers) -> None:
    config(platform, "set", "--etcd", "telemetry.accept_traceparent=false")
    for name, text in {
        "proxy.workers": "99",
        "agent.vllm_command": '"/tmp/mine"',
        "agent.gpu": "1",
        "proxy.plane": "simple",
    }.items():
        one.etcdctl("put", f"{PREFIX}settings/{name}", text)

    assert shown(platform)["telemetry.accept_traceparent"]["value"] is False
    found = shown(platform)
    assert found["proxy.workers"]["value"] == 0
    assert found["agent.vllm_command"] == {"value": "vllm", "origin": "default"}
    platform.start("manager")

    async def ignored_four() -> bool:
        return platform.output("manager").count("shared setting ignored") == 4

    try:
        await until("it says so", ignored_four)
    finally:
        platform.close()

    done = platform.run("config", "set", "--etcd", "telemetry.accept_traceparent=true")
    assert done.stderr.count("removing an invalid setting") == 4
    assert shown(platform)["proxy.workers"]["origin"] == "default"


async def test_a_daemon_says_what_a_restart_would_change(
    platform: Platform, one: EtcdServers
) -> None:
    platform.start("manager")
    try:

        async def is_registered() -> bool:
            return f"{PREFIX}managers/" in one.etcdctl("get", "--prefix", "--keys-only", PREFIX)

        await until("it is registered", is_registered)
        config(platform, "set", "--etcd", "telemetry.accept_traceparent=false")

        async def says_so() -> bool:
            return "shared settings changed" in platform.output("manager")

        await until("it says so", says_so)
        assert "telemetry.accept_traceparent" in platform.output("manager")
    finally:
        platform.close()


def test_without_etcd_the_copy_of_the_host_is_used(platform: Platform, one: EtcdServers) -> None:
    config(platform, "set", "--etcd", "telemetry.accept_traceparent=false")
    before = shown(platform)
    one.stop()
    done = platform.run("config", "show", "--origin", "-o", "json")
    assert json.loads(done.stdout) == before
    assert "using the last known shared settings" in done.stderr
    (platform.home / "etcd-settings.json").unlink()
    done = platform.run("config", "show")
    assert done.returncode == 1
    assert "start etcd, or remove etcd.address" in done.stderr


def test_two_writers_do_not_overwrite_each_other(platform: Platform, one: EtcdServers) -> None:
    names = [
        f"agent.{key}=1" for key in ("report_interval_s", "stats_interval_s", "health_interval_s")
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "moorage", "config", "set", "--etcd", name],
            env=platform.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    outcomes = [process.communicate()[1] for process in running]
    made = [process.returncode == 0 for process in running]
    assert any(made)
    for ok, stderr in zip(made, outcomes, strict=True):
        assert ok or "somebody else has changed" in stderr

    shared = one.etcdctl("get", "--prefix", "--keys-only", f"{PREFIX}settings/").split()
    assert len(shared) == sum(made)


def test_a_change_of_unknown_outcome_is_made_once_at_most(home: Path, three: EtcdServers) -> None:
    platform = Platform(home / "platform")
    platform.home.mkdir()
    leader = three.leader()
    others = [member for member in three.members if member is not leader]
    address = ",".join(f"127.0.0.1:{member.client}" for member in (leader, *others))
    platform.env |= {
        "MOORAGE_ETCD__ADDRESS": f"etcds://{address}",  # the leader first: it takes the change
        "MOORAGE_ETCD__USER": USER,
        "MOORAGE_ETCD__PASSWORD": PASSWORD,
        "MOORAGE_ETCD__CA": str(three.home / "ca.crt"),
    }
    config(platform, "set", "--etcd", "telemetry.accept_traceparent=false")
    pids = ",".join(str(member.process.pid) for member in others if member.process is not None)
    lost = subprocess.run(
        [
            sys.executable,
            "-c",
            LOSES_QUORUM,
            pids,
            "config",
            "set",
            "--etcd",
            "proxy.max_hold_s=61",
        ],
        env=platform.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert lost.returncode == 1, lost
    assert "it is not known whether the change was made" in lost.stderr
    assert "check `moorage config history --etcd` when etcd answers again" in lost.stderr
    for member in others:
        three.kill(member)  # waits for its own turn to end
        three.start_member(member)

    three.wait_until_healthy()
    config(platform, "set", "--etcd", "proxy.max_hold_s=62")
    changes = json.loads(config(platform, "history", "--etcd", "-o", "json"))
    made = [change["what"] for change in changes]
    assert made[0] == "set telemetry.accept_traceparent"
    assert made.count("set proxy.max_hold_s") in (1, 2), "the first of them once or not at all"
    assert [change["number"] for change in changes] == list(range(1, len(changes) + 1))
    assert [change["settings"].get("proxy.max_hold_s") for change in changes].count(61) <= 1
    assert shown(platform)["proxy.max_hold_s"]["value"] == 62
