"""Faults in task lists. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

JOURNAL = ("tests/unit/agent/test_task_journal.py",)
RUNNER = ("tests/unit/agent/test_task_runner.py",)
STORE = ("tests/store/test_tasks.py",)

MUTATIONS = (
    Mutation(
        "a runner that exits with 0 makes the session succeed",
        "agent/kernel/task_list.py",
        "if outcome.reason is Reason.EXIT_ZERO and (result is None or not result.success):",
        "if outcome.reason is Reason.EXIT_ZERO and result is None:",
        JOURNAL,
    ),
    Mutation(
        "a stopped task that failed is not LOST",
        "agent/tasks/journal.py",
        'if not known or detail == "stopped":',
        "if not known:",
        (*JOURNAL, *RUNNER),
    ),
    Mutation(
        "a task of a lost journal runs again",
        "manager/store/schema/functions/exchange_tasks.sql",
        "t.kernel_id = of_kernel AND complete AS unstarted",
        "t.kernel_id = of_kernel AS unstarted",
        STORE,
    ),
    Mutation(
        "an end counts again when it is repeated",
        "manager/store/schema/functions/exchange_tasks.sql",
        "AND t.state = 'GIVEN' AND (t.kernel_id = of_kernel OR e.state = 'LOST')",
        "AND (t.kernel_id = of_kernel OR e.state = 'LOST')",
        STORE,
    ),
    Mutation(
        "the tasks of a lost answer are never given",
        "manager/store/schema/functions/exchange_tasks.sql",
        "WHERE t.kernel_id = of_kernel AND t.seq > received AND t.state = 'GIVEN' AND NOT is_over;",
        "WHERE t.kernel_id = of_kernel AND t.seq > next_seq AND t.state = 'GIVEN' AND NOT is_over;",
        STORE,
    ),
    Mutation(
        "an agent gets tasks of another one's kernel",
        "manager/store/schema/functions/exchange_tasks.sql",
        "WHERE k.id = of_kernel AND k.agent_id = on_agent;",
        "WHERE k.id = of_kernel;",
        STORE,
    ),
    Mutation(
        "the agent follows a link of the program",
        "agent/tasks/folder.py",
        "if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:",
        "if not stat.S_ISREG(found.st_mode):",
        RUNNER,
    ),
)
