"""Smoke cases: each integration has the one case that every gate runs."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
MARK = "pytest.mark.smoke"
# The hpc case has two sites: Slurm, and HEAppE in front of it. The heappe case does not need Slurm.
INTEGRATIONS = {
    "browser": "test_the_button_of_the_console_leads_there_and_back",
    "celery": "test_sessions_call_the_tasks_of_the_example",
    "clients": "test_essential_checks",
    "containers": "test_batch_session_and_served_engine",
    "etcd": "test_daemons_meet_in_etcd_and_live_without_it",
    "heappe": "test_one_agent_serves_several_node_types_and_projects",
    "hpc": "test_batch_session_and_its_log",
    "install": "test_a_wheel_without_extras_is_a_client",
    "isolation": "test_hostile_kernel_reaches_nothing",
    "monitoring": "test_every_query_of_a_dashboard_has_an_answer",
    "ssh": "test_openssh_runs_commands_in_a_session",
}


def test_each_integration_has_one_smoke_case() -> None:
    """A mark on anything except one test or one of its parameters would apply to several cases."""
    found: list[tuple[str, str]] = []
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text()
        if MARK not in text or file == Path(__file__):
            continue

        integration = file.relative_to(TESTS).parts[0]
        before = len(found)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = sum(ast.unparse(decorator).count(MARK) for decorator in node.decorator_list)
                found += [(integration, node.name)] * marks

        assert text.count(MARK) == len(found) - before, f"{file} marks more than one test"

    assert sorted(found) == sorted(INTEGRATIONS.items())
