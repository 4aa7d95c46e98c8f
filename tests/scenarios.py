"""Scenarios for templates, idle criteria, pipelines and reuse, each with the tests that show it.

Letters and numbers come from a catalogue of issues that have mattered on other platforms: E, F and
H for the scheduler, J for idle sessions, S for equal requests. T for templates and P for pipelines
follow their own rules. ``differs``: what is done differently on purpose, and why.
``tests/tidy/test_scenarios.py`` checks that the tests exist.
"""

from __future__ import annotations

from dataclasses import dataclass

IDLE = "tests/unit/manager/test_idle.py"
IDLE_STORED = "tests/store/test_idle.py"
SHARED = "tests/store/test_shared_results.py"
REUSE = "tests/store/test_reuse.py"
TEMPLATES = "tests/unit/manager/test_templates.py"
TEMPLATES_STORED = "tests/store/test_templates.py"
PIPELINES = "tests/store/test_pipelines.py"
GRAPHS = "tests/unit/manager/test_pipelines.py"
RACE = "tests/store/test_pipeline_retry_race.py"
START_CONDITIONS = "tests/unit/manager/test_start_conditions.py::test_start_conditions"
QUEUE = "tests/unit/manager/test_scheduling_queue.py"


@dataclass(frozen=True)
class Scenario:
    given: str
    tests: tuple[str, ...]
    differs: str = ""


SCENARIOS = {
    "J1": Scenario(
        "remaining time of (now, last traffic, timeout, end of grace): 10, 40, 40 and -30 s",
        (f"{IDLE}::test_time_without_traffic",),
    ),
    "J2": Scenario(
        "no traffic for 5 and 50 s of 10 s: alive with 5 s left; it ends",
        (
            f"{IDLE}::test_time_without_traffic",
            f"{IDLE_STORED}::test_an_unused_session_is_warned_and_ends_with_its_criterion",
        ),
        "it ends only after it was warned, so that nobody loses a session between two looks",
    ),
    "J3": Scenario(
        "the same with 30 s of grace: 35 s left; it ends", (f"{IDLE}::test_time_without_traffic",)
    ),
    "J4": Scenario(
        "lifetime of 30 s after 10 and 50 s: 20 s left; it ends",
        (
            f"{IDLE}::test_lifetime_counts_from_the_start",
            f"{IDLE_STORED}::test_neither_a_gap_nor_a_failover_counts",
        ),
        "it counts what a leader has observed since RUNNING: waiting in the queue and gaps cost nothing",
    ),
    "J6": Scenario(
        "grace of 100 s: no decision before a full window; then it ends below the threshold of use",
        (
            f"{IDLE}::test_utilization",
            f"{IDLE_STORED}::test_utilization_counts_once_its_window_is_measured",
        ),
        "a window has 60 s at least: usage is known by the minute",
    ),
    "J7": Scenario(
        "every resource must be in use, one is not measured, the other at its threshold: alive",
        (f"{IDLE}::test_utilization",),
    ),
    "J8": Scenario(
        "one resource in use keeps it: cpu 0, memory 50 alive; both 0: it ends",
        (f"{IDLE}::test_utilization",),
    ),
    "J11": Scenario(
        "a batch session without connections goes on",
        (f"{IDLE_STORED}::test_a_batch_session_that_nobody_connects_to_goes_on",),
    ),
    "J12": Scenario(
        "an open connection to an app keeps the session",
        (
            f"{IDLE_STORED}::test_an_unused_session_is_warned_and_ends_with_its_criterion",
            f"{IDLE_STORED}::test_traffic_takes_the_warning_back",
        ),
    ),
    "F13": Scenario(
        "dependencies that succeeded let a session begin",
        (
            START_CONDITIONS,
            "tests/store/test_dependencies.py::test_chain_of_dependencies_starts_in_order",
        ),
    ),
    "F14": Scenario(
        "one that runs holds it, by name",
        (START_CONDITIONS, "tests/store/test_dependencies.py::test_hold_names_the_dependency"),
    ),
    "F15": Scenario(
        "one that failed ends it",
        (
            f"{QUEUE}::test_e7_e8_unmet_conditions_block_nobody",
            "tests/store/test_dependencies.py::test_failed_dependency_ends_its_dependents",
        ),
        "`dependency_failed: wait` keeps it, for the retry of a pipeline",
    ),
    "F17": Scenario(
        "a batch session begins at its time, not before",
        (
            START_CONDITIONS,
            "tests/store/test_dependencies.py::test_session_does_not_start_before_its_begin_time",
        ),
        "`starts_at` of an interactive session is refused instead of ignored",
    ),
    "E7, E8": Scenario(
        "a session that waits for a time or another one blocks nobody",
        (f"{QUEUE}::test_e7_e8_unmet_conditions_block_nobody",),
    ),
    "H20": Scenario(
        "a pending session that is stopped is CANCELLED at once",
        ("tests/store/test_session_lifecycle.py::test_stop_is_accepted_in_every_status",),
    ),
    "P1": Scenario(
        "steps run in their order; conditions success, failure and any end",
        (
            f"{PIPELINES}::test_steps_run_in_their_order_and_a_failed_one_ends_those_after_its_success",
            f"{GRAPHS}::test_each_step_runs_after_its_conditions_and_the_end_is_what_the_graph_implies",
        ),
        "elsewhere only success is a condition",
    ),
    "P2": Scenario(
        "cycles, unknown and repeated names create nothing",
        (f"{PIPELINES}::test_nothing_is_created_for_a_pipeline_that_is_refused",),
    ),
    "P3": Scenario(
        "the graph shows the present status of each step",
        (f"{PIPELINES}::test_the_graph_is_drawn_with_the_state_of_each_step",),
    ),
    "P4": Scenario(
        "stop ends what depends on a step as well",
        (f"{PIPELINES}::test_an_array_runs_so_many_at_once",),
        "a pipeline is stopped as one, without a recursion over sessions",
    ),
    "P5": Scenario(
        "retry keeps what succeeded, also if steps change meanwhile",
        (
            f"{PIPELINES}::test_a_pending_step_waits_for_the_new_run_when_asked",
            f"{RACE}::test_a_step_that_is_skipped_while_a_retry_begins_runs_again",
        ),
    ),
    "P6": Scenario(
        "crashes, failovers, restores and clock jumps change nothing of that",
        (
            "tests/sim/test_simulation.py::test_seeds",
            "tests/sim/test_feature_guards.py::test_mutation_of_a_statement_is_detected",
        ),
    ),
    "T1": Scenario(
        "each role once, main exactly one kernel",
        (
            f"{TEMPLATES}::test_roles_have_one_main_and_no_other_than_sub",
            f"{TEMPLATES}::test_roles_become_a_cluster_with_their_own_commands_and_resources",
        ),
        "roles are parts of one template, not references to others; `base` reuses one",
    ),
    "T2": Scenario(
        "what the caller gives overrides the template",
        (f"{TEMPLATES}::test_the_caller_overrides_the_group_which_overrides_the_template",),
    ),
    "T3": Scenario(
        "a session keeps the version it was made from",
        (
            f"{TEMPLATES_STORED}::test_a_session_keeps_its_template_and_the_merged_specification",
            f"{TEMPLATES_STORED}::test_versions_are_numbered_immutable_and_never_used_again",
        ),
        "elsewhere a template can be changed under its sessions",
    ),
    "T4": Scenario(
        "a template has mounts, a git repository and a bootstrap script",
        (f"{TEMPLATES}::test_templates_that_make_no_session_are_refused",),
        "a template has the fields of a session and no others: what it makes could be written by hand",
    ),
    "S1": Scenario(
        "two GPUs, five requests: new and failed ones run, others share or take a result",
        (f"{SHARED}::test_only_what_is_new_or_has_failed_runs_and_no_gpu_stays_taken",),
        "what to do is decided when a request arrives, not when a GPU is free",
    ),
    "S2": Scenario(
        "one success is kept for each request",
        (f"{SHARED}::test_only_what_is_new_or_has_failed_runs_and_no_gpu_stays_taken",),
    ),
    "S3": Scenario(
        "a session waits for those that it names by id; an earlier failure of an equal one says nothing",
        (
            f"{SHARED}::test_a_session_waits_for_those_that_it_names_and_not_for_equal_ones",
            f"{REUSE}::test_dependency_on_a_session_that_shares_a_run",
        ),
    ),
    "S4": Scenario(
        "the GPUs of a node, from a text of their numbers",
        ("tests/unit/agent/test_inventory.py::test_invalid_inventory_setting_is_rejected",),
        "agents find their devices themselves and name them by UUID, since numbers change with a restart",
    ),
    "S5": Scenario(
        "a GPU is released twice, or one that is not there",
        (
            "tests/store/test_integrity.py::test_violation_is_found",
            "tests/store/test_session_lifecycle.py::test_kernel_stopped_before_its_orders_arrive_ends",
        ),
        "nothing releases by number: the end of a kernel releases its own, once",
    ),
    "S7": Scenario(
        "two GPUs: two sessions get one each, a third waits, and no processor is taken instead",
        (
            f"{SHARED}::test_a_third_session_waits_for_one_of_two_gpus_and_gets_no_processor_instead",
        ),
    ),
    "reuse: tenants": Scenario(
        "equal requests of two projects share nothing",
        (f"{REUSE}::test_requests_of_other_projects_are_not_equal",),
        "elsewhere a result tells others what was run",
    ),
    "reuse: stop": Scenario(
        "who shares a run stops alone, and takes the place of one that is stopped",
        (
            f"{REUSE}::test_session_that_shares_a_run_is_cancelled_alone",
            f"{REUSE}::test_oldest_takes_the_place_of_a_stopped_session",
        ),
    ),
    "reuse: force": Scenario("`never` runs anew", (f"{REUSE}::test_policy_of_a_live_session",)),
    "reuse: restart": Scenario(
        "the decision survives a restart, and is one for any number of managers",
        (
            f"{REUSE}::test_one_of_many_equal_requests_at_once_runs",
            "tests/sim/test_feature_guards.py::test_equal_requests_that_run_at_once_are_detected",
        ),
    ),
}
