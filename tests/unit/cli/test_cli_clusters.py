"""Cluster options, and how clusters are shown."""

import json
from datetime import UTC, datetime, timedelta

from fake_manager import FakeManager
from invoke import Run
from scripted_session import ScriptedSession, batch, runs

from moorage.common.model.cluster import WITHOUT
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import Status
from moorage.common.views.resources import Page, SessionView


def newest_session(manager: FakeManager) -> ScriptedSession:
    [one] = manager.sessions
    return one


def test_start_requests_a_cluster(manager: FakeManager, moorage: Run) -> None:
    args = ("--cluster", "4", "--cluster-mode", "multi-node", "--on-kernel-loss", "degrade")
    assert moorage("start", "--no-wait", *args).exit_code == 0
    cluster = newest_session(manager).spec.cluster
    assert cluster is not None
    assert (cluster.size, cluster.mode, cluster.on_kernel_loss) == (4, "multi-node", "degrade")


def test_cluster_of_one_kernel_is_an_ordinary_session(manager: FakeManager, moorage: Run) -> None:
    assert moorage("run", "--no-wait", "--cluster", "1", "--", "true").exit_code == 0
    assert newest_session(manager).spec.cluster is None


def test_run_refuses_invalid_clusters(manager: FakeManager, moorage: Run) -> None:
    for args, message in (
        (("--cluster-mode", "multi-node"), "--cluster 4"),
        (("--cluster", "4", "--cluster-mode", "both"), "multi-node"),
        (("--cluster", "129"), "128"),
    ):
        result = moorage("run", "--no-wait", *args, "--", "true")
        assert result.exit_code != 0
        assert message in result.stderr
    assert manager.sessions == []


def test_run_reports_the_failed_sub_kernel(manager: FakeManager, moorage: Run) -> None:
    """main1 was stopped because of sub1, so its own exit code does not explain the failure."""
    fields = runs(-15, Reason.EXIT_NONZERO, b"output of main1\n")
    manager.next_session(**(fields | {"detail": "sub1: it ended with 7"}))
    result = moorage("run", "--cluster", "2", "--", "true")
    assert result.exit_code == 143, "main1 exited by itself, with this code"
    fields["script"] = [*fields["script"][:-1], "TERMINATED"]
    manager.next_session(**(fields | {"detail": "sub1: it ended with 7"}))
    result = moorage("run", "--cluster", "2", "--", "true")
    assert result.exit_code == 1
    assert "sub1: it ended with 7" in result.stderr


def test_describe_names_the_kernels(manager: FakeManager, moorage: Run) -> None:
    moorage("start", "--name", "work", "--cluster", "3")
    shown = moorage("describe", "work").stdout
    assert "3 kernels, single-node; ends when a sub kernel is lost" in shown
    assert "main1" in shown
    assert (
        json.loads(moorage("describe", "work", "-o", "json").stdout)["session"]["kernels"][0][
            "role"
        ]
        == "main"
    )


def test_a_degraded_cluster_says_so(manager: FakeManager, moorage: Run) -> None:
    """It still runs, so it needs no restart."""
    made = manager.add_session(batch("work"), status=Status.RUNNING)
    detail = f"{WITHOUT}sub1: the kernel disappeared from the node"
    view = made.view().model_copy(update={"reason": Reason.KERNEL_GONE, "detail": detail})
    manager.can("GET", "/v1/sessions/work", 200, view)
    shown = moorage("describe", "work").stdout
    assert f"degraded      {detail}; the other kernels continue" in shown
    assert REASONS[Reason.KERNEL_GONE].next_step not in shown
    manager.can("GET", "/v1/sessions", 200, Page[SessionView](items=[view]))
    assert moorage("ps").stdout.splitlines()[-1].endswith(detail)


def test_a_silent_agent_is_named(manager: FakeManager, moorage: Run) -> None:
    made = manager.add_session(batch("work"), status=Status.RUNNING)
    view = made.view()
    [kernel] = view.kernels
    silent = kernel.model_copy(update={"silent_since": datetime.now(UTC) - timedelta(seconds=40)})
    earlier = silent.model_copy(update={"attempt": 0, "agent_id": "node-0"})
    view = view.model_copy(update={"kernels": [earlier, silent]})
    manager.can("GET", "/v1/sessions/work", 200, view)
    shown = moorage("describe", "work").stdout
    assert "warning       node-1 has not reported for 4" in shown
    assert "`moorage agents describe node-1`" in shown
    assert "RUNNING (agent silent)" in shown
    manager.can("GET", "/v1/sessions", 200, Page[SessionView](items=[view]))
    listed = moorage("ps").stdout
    assert "node-1 has not reported for 4" in listed
    assert "node-0" not in listed, "an earlier attempt had it"


def test_sessions_with_reporting_agents_have_no_warning(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("work"), status=Status.RUNNING)
    shown = moorage("describe", "work").stdout
    assert "warning" not in shown
    assert "degraded" not in shown
