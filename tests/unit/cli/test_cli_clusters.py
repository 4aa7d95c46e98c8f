"""Cluster options, and how clusters are shown."""

import json

from fake_manager import FakeManager
from invoke import Run
from scripted_session import ScriptedSession, runs

from moorage.common.model.reasons import Reason


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
