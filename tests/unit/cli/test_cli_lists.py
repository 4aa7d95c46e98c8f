"""Lists and descriptions: sessions, endpoints, agents, groups, quotas."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import CREATED_AT, batch, fails_with

from moorage.cli.commands.ps import endpoint_row
from moorage.cli.summary import shown_status
from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import AgentStatus, Result, Status
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.pipelines import PipelineView
from moorage.common.views.resources import DoubtfulJobView, Hold, OfferView, SiteNodesView
from moorage.common.views.steps import StepRef

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def tiny() -> EndpointSpec:
    return EndpointSpec(
        name="tiny", engine="custom", command=["serve"], probe=Probe(), env={"TOKEN": "s3cret"}
    )


def test_ps_shows_live_sessions_and_with_all_also_ended_ones(
    manager: FakeManager, moorage: Run
) -> None:
    manager.add_endpoint(tiny())
    manager.add_session(batch("going"))
    manager.add_session(batch("gone"), status=Status.TERMINATED, script=[])
    living = json.loads(moorage("ps", "-o", "json").stdout)
    assert [s["name"] for s in living["sessions"]] == ["going", "tiny-r1"]
    assert [e["name"] for e in living["endpoints"]] == ["tiny"]
    assert [
        s["name"] for s in json.loads(moorage("ps", "-a", "-o", "json").stdout)["sessions"]
    ] == [
        "gone",
        "going",
        "tiny-r1",
    ]
    assert moorage("-o", "json", "ps", "-o", "name").stdout == "tiny\ngoing\n"


@pytest.mark.parametrize(("code", "shown"), [(0, "SUCCEEDED"), (3, "FAILED")])
def test_success_and_failure_are_two_statuses_for_people(
    manager: FakeManager, moorage: Run, code: int, shown: str
) -> None:
    ended = manager.add_session(batch("job"), status=Status.TERMINATED, script=[], exit_code=code)
    assert moorage("ps", "-a").stdout.splitlines()[1].split()[2] == shown
    assert f"{shown} for " in moorage("describe", "job").stdout
    assert (
        json.loads(moorage("ps", "-a", "-o", "json").stdout)["sessions"][0]["status"]
        == "TERMINATED"
    )
    without = ended.view().model_copy(update={"result": Result.UNDEFINED})
    assert shown_status(without) == "TERMINATED", "such as a stopped notebook"


def test_lists_can_be_of_what_succeeded_or_failed(manager: FakeManager, moorage: Run) -> None:
    for name, code in (("good", 0), ("bad", 3)):
        manager.add_session(batch(name), status=Status.TERMINATED, script=[], exit_code=code)

    manager.add_session(batch("waits"))

    def names(*arguments: str) -> list[str]:
        return moorage(*arguments, "-o", "name").stdout.split()

    assert names("ps", "--status", "succeeded") == ["good"]
    assert names("ps", "--status", "FAILED,PENDING") == ["waits", "bad"]
    assert names("sessions", "list", "--status", "SUCCEEDED", "--status", "FAILED") == [
        "bad",
        "good",
    ]
    assert names("sessions", "list", "--status", "TERMINATED") == ["bad", "good"]
    refused = moorage("ps", "--status", "DONE")
    assert refused.exit_code == 2
    assert "there is no status 'DONE'" in refused.stderr
    assert "SUCCEEDED, FAILED" in refused.stderr


def test_ps_and_describe_show_the_step_of_a_session(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("alone"))
    place = StepRef(id="p-1", name="train", step="part", index=3, run=2)
    manager.add_session(batch("part-3"), pipeline=place)
    assert "train/part[3]" in moorage("ps", "--elements", "-o", "wide").stdout
    assert "part-3" not in moorage("ps").stdout, "its array is one line"
    shown = moorage("describe", "part-3").stdout
    assert "train/part[3], run 2; `moorage pipelines describe p-1`" in " ".join(shown.split())
    assert "pipeline" not in moorage("describe", "alone").stdout


def test_a_pipeline_is_described_and_other_commands_name_the_one_to_use(
    manager: FakeManager, moorage: Run
) -> None:
    view = PipelineView(
        id="p-1",
        name="digits",
        project="default",
        user="root",
        created_at=NOW,
        created_by="root",
        state="running",
        counts={},
    )
    manager.can("GET", "/v1/pipelines/digits", 200, view)
    manager.can("GET", "/v1/pipelines/p-1", 200, view)
    refused = moorage("why", "digits")
    assert refused.exit_code == 3
    assert "no endpoint or session 'digits', but a pipeline" in refused.stderr
    assert "`moorage pipelines describe digits`" in refused.stderr
    assert moorage("describe", "digits").stdout.startswith("digits (p-1): running, 0/0 ended")
    manager.can("GET", "/v1/pipelines/other", 404, "{}")
    assert "`moorage ps --all` lists them" in moorage("describe", "other").stderr


def test_ps_reads_all_pages(manager: FakeManager, moorage: Run) -> None:
    for number in range(205):
        manager.add_session(batch(f"job-{number}"))
    assert len(moorage("ps", "-o", "name").stdout.splitlines()) == 205


def test_ps_prints_next_steps_when_nothing_runs(moorage: Run) -> None:
    result = moorage("ps")
    assert result.stdout == ""
    assert "moorage serve" in result.stderr


def test_user_text_is_printed_without_markup_or_escapes(manager: FakeManager, moorage: Run) -> None:
    nasty = "[bold]x[/bold] :smile: \x1b[2J\x07 \u202eabc " + "long " * 60 + "end"
    manager.next_session(
        **({"status": Status.ERROR, "script": [], "reason": Reason.OOM, "detail": nasty})
    )
    manager.add_session(batch("job"))

    for args in (("ps", "-a", "-o", "wide"), ("describe", "job")):
        shown = moorage(*args).stdout
        assert "[bold]x[/bold] :smile: \\x1b[2J\\x07 \\u202eabc" in shown
        assert "long end" in shown  # cells are not truncated in a pipe
        assert "\x1b" not in shown

    assert json.loads(moorage("describe", "job", "-o", "json").stdout)["session"]["detail"] == nasty


def test_describe_explains_why_a_session_waits(manager: FakeManager, moorage: Run) -> None:
    hold = Hold(
        reason=Reason.NO_ELIGIBLE_AGENT,
        text="no agent",
        refusals=["0 agents in group"],
        attempts=2,
        at=CREATED_AT,
    )
    manager.add_session(batch("job"), script=[], hold=hold)
    shown = moorage("describe", "job").stdout
    step = REASONS[Reason.NO_ELIGIBLE_AGENT].next_step
    for part in ("no agent (tried 2 times", step, "0 agents in group", "PENDING", "history"):
        assert part in shown


def test_describe_shows_reason_log_and_history_of_a_failing_endpoint(
    manager: FakeManager, moorage: Run
) -> None:
    manager.add_endpoint(tiny(), **fails_with(Reason.EXIT_NONZERO, "exit code 7", "no such file\n"))
    for session in manager.sessions:
        session.finish()

    result = moorage("describe", "tiny")
    for part in (
        "exit code 7",
        REASONS[Reason.EXIT_NONZERO].next_step,
        "no such file",
        "history of tiny-r1",
        "env",
        "TOKEN",
    ):
        assert part in result.stdout

    assert "s3cret" not in result.stdout
    answer = json.loads(moorage("describe", "tiny", "-o", "json").stdout)
    assert [move["to_status"] for move in next(iter(answer["histories"].values()))][-1] == "ERROR"


def test_agents(manager: FakeManager, moorage: Run) -> None:
    offers = [
        OfferView(
            slot="cpu",
            device_id="",
            model="",
            memory_bytes=0,
            healthy=True,
            capacity=4000,
            used=1500,
        ),
        *(
            OfferView(
                slot="cuda.device",
                device_id=f"GPU-{n}",
                model="H100",
                memory_bytes=80 << 30,
                healthy=n == 0,
                capacity=1000,
                used=500 * n,
            )
            for n in range(2)
        ),
    ]
    manager.set_agent(offers=offers, labels={"room": "[red]north[/red]"})
    assert "1.5/4" in (listed := moorage("agents").stdout)
    assert "cuda.device=1/2" in listed
    one = moorage("agents", "describe", "node-1").stdout
    for part in ("room=[red]north[/red]", "GPU-1", "50%", "80GiB", "unhealthy"):
        assert part in one

    assert json.loads(moorage("agents", "-o", "json").stdout)["agents"][0]["id"] == "node-1"
    assert moorage("agents", "describe", "nope").exit_code == 3


def test_nodes_of_a_site_are_shown(manager: FakeManager, moorage: Run) -> None:
    assert "nodes of" not in moorage("agents", "describe", "node-1").stdout
    manager.set_agent(site_nodes=[SiteNodesView(name="qgpu", used=7, total=8)])
    assert "7 of 8 in use" in moorage("agents", "describe", "node-1").stdout


def test_agents_describe_shows_doubtful_jobs(manager: FakeManager, moorage: Run) -> None:
    assert "doubtful" not in moorage("agents", "describe", "node-1").stdout
    since = datetime(2026, 11, day=22, hour=23, minute=0, tzinfo=UTC)
    job = DoubtfulJobView(
        runtime="slurm", name="mg-1", job_id="", since=since, why="no answer", tried="watched"
    )
    manager.set_agent(doubtful_jobs=[job])
    shown = moorage("agents", "describe", "node-1").stdout
    for part in ("doubtful jobs", "unknown", "mg-1", "2026-11-22 23:00:00", "no answer", "watched"):
        assert part in shown


def test_agents_describe_shows_device_topology(manager: FakeManager, moorage: Run) -> None:
    whole = OfferView(
        slot="cuda.device",
        device_id="GPU-0",
        model="H100",
        memory_bytes=0,
        healthy=True,
        capacity=1000,
        used=0,
    )
    manager.set_agent(offers=[whole])
    assert "NVLINK" not in moorage("agents", "describe", "node-1").stdout
    part = whole.model_copy(
        update={"device_id": "MIG-1", "slot": "cuda-1g10gb.device", "parent": "GPU-1"}
    )
    manager.set_agent(offers=[whole.model_copy(update={"numa": 1, "nvlink_domain": "0"}), part])
    shown = moorage("agents", "describe", "node-1").stdout
    assert "NVLINK" in shown
    line = next(line for line in shown.splitlines() if "GPU-0" in line)
    assert line.split()[-2:] == ["1", "0"]
    assert next(line for line in shown.splitlines() if "MIG-1" in line).split()[-1] == "GPU-1"


def test_agents_forget_refuses_a_live_agent(manager: FakeManager, moorage: Run) -> None:
    refused = moorage("agents", "forget", "node-1")
    assert refused.exit_code != 0
    assert "ALIVE" in refused.stderr
    manager.set_agent(status=AgentStatus.LOST)
    assert moorage("agents", "forget", "node-1").stdout == "node-1\n"
    assert manager.store.agents.views == []


def test_groups(manager: FakeManager, moorage: Run) -> None:
    assert "default" in moorage("groups").stdout
    changed = moorage("groups", "set", "default", "--hol", "strict", "-o", "json")
    assert json.loads(changed.stdout)["options"] == GroupOptions(hol="strict").model_dump(
        mode="json"
    )
    assert "strict" in moorage("groups", "describe", "default").stdout
    assert moorage("groups", "-o", "name").stdout == "default\n"
    assert moorage("groups", "list", "-o", "name").stdout == "default\n"
    assert moorage("groups", "set", "default", "--hol", "maybe").exit_code == 2
    assert moorage("groups", "set", "default").exit_code == 2
    assert moorage("groups", "describe", "nope").exit_code == 3
    assert manager.store.groups.options["default"].hol == "strict"


def test_groups_set_changes_only_the_given_options(manager: FakeManager, moorage: Run) -> None:
    args = (
        "strategy=drf weights.ann=2 weights.bob/x=3 session_types=batch,inference "
        "exclusive=cuda+rocm,tpu+npu"
    )
    assert moorage("groups", "set", "default", *args.split(), "preemption=on").exit_code == 0
    options = manager.store.groups.options["default"]
    assert (options.strategy, options.weights) == ("drf", {"ann": 2, "bob/x": 3})
    assert options.session_types == ["batch", "inference"]
    assert options.exclusive == [["cuda", "rocm"], ["tpu", "npu"]]
    assert options.preemption == PreemptionOptions()
    more = (
        "preemption.how=end max_bypasses=none weights.ann=none replicas=none num_retries_to_skip=4"
    )
    assert moorage("groups", "set", "default", *more.split()).exit_code == 0
    options = manager.store.groups.options["default"]
    assert options.preemption == PreemptionOptions(how="end")
    assert (options.max_bypasses, options.weights, options.replicas) == (None, {"bob/x": 3}, "none")
    assert (options.num_retries_to_skip, options.strategy) == (4, "drf"), (
        "options that are not given must not change"
    )
    shown = moorage("groups", "describe", "default").stdout
    for part in ("cuda+rocm,tpu+npu", "batch,inference", "bob/x=3", "how=end"):
        assert part in shown


def test_groups_set_and_describe_limits(manager: FakeManager, moorage: Run) -> None:
    args = (
        "limits.max_batch_time_s=86400 limits.max_per_user.cuda.device=4 "
        "limits.max_per_user.mem=64GiB limits.max_running_per_user=2"
    )
    assert moorage("groups", "set", "default", *args.split()).exit_code == 0
    limits = manager.store.groups.options["default"].limits
    expected = {"max_batch_time_s": 86_400, "max_running_per_user": 2}
    expected_slots = {"max_per_user": {"cuda.device": "4", "mem": "64GiB"}}
    assert limits == GroupLimits.model_validate(expected | expected_slots)
    shown = moorage("groups", "describe", "default").stdout
    assert "max_per_user.cuda.device=4 max_per_user.mem=64GiB max_running_per_user=2" in shown
    assert "max_pending_per_user" not in shown

    args = "limits.max_per_user.mem=none limits.max_batch_time_s=none"
    assert moorage("groups", "set", "default", *args.split()).exit_code == 0
    limits = manager.store.groups.options["default"].limits
    rest = {"max_running_per_user": 2, "max_per_user": {"cuda.device": "4"}}
    assert limits == GroupLimits.model_validate(rest)
    for wrong, message in (
        ("limits.max_jobs=1", "there is no option 'limits.max_jobs'"),
        ("limits.max_running_per_user=0", "limits.max_running_per_user"),
        ("limits.max_per_user.gpu=1", "unknown slot 'gpu'"),
        (
            '{"max_batch_time_s": 1, "default_batch_time_s": 2}',
            "`default_batch_time_s` is 2, which is above `max_batch_time_s`, 1",
        ),
    ):
        given = wrong if wrong.startswith("limits") else f"limits={wrong}"
        refused = moorage("groups", "set", "default", given)
        assert refused.exit_code != 0
        assert message in refused.stderr

    assert moorage("groups", "set", "default", "limits=none").exit_code == 0
    assert manager.store.groups.options["default"].limits is None


def test_groups_set_reaches_into_options_of_options(manager: FakeManager, moorage: Run) -> None:
    args = (
        "hpc.runtime=slurm hpc.walltime_s=3600 hpc.options.constraint=a100 hpc.options.exclusive="
    )
    assert moorage("groups", "set", "default", *args.split()).exit_code == 0
    hpc = manager.store.groups.options["default"].hpc
    assert hpc is not None
    assert (hpc.walltime_s, hpc.options) == (3600, {"constraint": "a100", "exclusive": ""})
    args = "hpc.options.exclusive=none hpc.options.mem-per-cpu=4G hpc.partition=gpu"
    assert moorage("groups", "set", "default", *args.split()).exit_code == 0
    hpc = manager.store.groups.options["default"].hpc
    assert hpc is not None
    assert (hpc.partition, hpc.options) == ("gpu", {"constraint": "a100", "mem-per-cpu": "4G"})
    assert moorage("groups", "set", "default", "hpc.options=none").exit_code == 0
    hpc = manager.store.groups.options["default"].hpc
    assert hpc is not None
    assert (hpc.partition, hpc.options) == ("gpu", {})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("hpc.walltime=60", ("'hpc.walltime'", "hpc.walltime_s", "hpc.options")),
        ("hols=strict", ("'hols'", "hol", "weights")),
        ("hol=maybe", ("hol", "strict", "backfill")),
        ("max_bypasses=-1", ("max_bypasses", "greater than or equal to 0")),
        ("weights.ann=0", ("weights", "greater than or equal to 1")),
        ("agent_selection=best", ("'best'", "round-robin", "custom:NAME")),
        ("session_types=cron", ("session_types", "batch")),
        ("preemption.who=all", ("preemption", "who")),
        ("exclusive=cuda", ("exclusive", "at least 2")),
        ("hol", ("OPTION", "hol=backfill")),
    ],
)
def test_groups_set_names_the_allowed_options(
    manager: FakeManager, moorage: Run, option: str, message: tuple[str, ...]
) -> None:
    before = manager.store.groups.options["default"]
    refused = moorage("groups", "set", "default", option)
    assert refused.exit_code == 2
    assert all(part in refused.stderr for part in message), refused.stderr
    assert manager.store.groups.options["default"] == before


def test_quotas(manager: FakeManager, moorage: Run) -> None:
    quotas = manager.store.quotas
    quotas.used = {"cpu": 1500}
    quotas.running = 2
    quotas.waiting = 3
    assert "there is no quota" in moorage("quotas", "list").stderr
    args = "cpu=2.5 mem=1536MiB cuda.device=0 sessions=10 pending=0"
    assert moorage("quotas", "set", "user", "ann", *args.split()).exit_code == 0
    quota = manager.store.quotas.views["user", "ann"]
    assert quota.slots == {"cpu": 2500, "mem": 1536 << 20, "cuda.device": 0}, "zero is a limit too"
    assert (quota.sessions, quota.pending) == (10, 0)
    assert moorage("quotas", "set", "user", "ann", "cpu=none", "sessions=none").exit_code == 0
    quota = manager.store.quotas.views["user", "ann"]
    assert (quota.slots, quota.sessions, quota.pending) == (
        {"mem": 1536 << 20, "cuda.device": 0},
        None,
        0,
    )
    assert moorage("quotas", "set", "user", "ann", "node_hours=12.5").exit_code == 0
    assert manager.store.quotas.views["user", "ann"].node_hours == 12.5
    quotas.node_hours_used = 2.25
    moorage("quotas", "set", "user", "ann", "pending=0")
    refused = moorage("quotas", "set", "user", "ann", "node_hours=many")
    assert "node_hours='many': Input should be a valid number" in refused.stderr
    moorage("quotas", "set", "group", "default", "cpu=4")
    shown = moorage("quotas", "list").stdout
    for part in ("ann", "2/-", "3/0", "cuda.device=0/0", "mem=0B/1.5GiB", "cpu=1.5/4", "2.25/12.5"):
        assert part in shown

    assert moorage("quotas", "list", "-o", "name").stdout == "group/default\nuser/ann\n"
    assert json.loads(moorage("quotas", "list", "-o", "json").stdout)["quotas"][1]["name"] == "ann"
    assert moorage("quotas", "delete", "user", "ann").stdout == "user/ann\n"
    assert list(manager.store.quotas.views) == [("group", "default")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("team ann cpu=1", "user, project, group"),
        ("user ann", "no limit was given"),
        ("user ann cpu", "cuda.device=4"),
        ("user ann gpu=1", "unknown slot 'gpu'"),
        ("user ann cpu=-1", "0 or more"),
        ("user ann sessions=-1", "greater than or equal to 0"),
        ("user ann pending=many", "valid integer"),
    ],
)
def test_quotas_set_refuses_invalid_limits(
    manager: FakeManager, moorage: Run, args: str, message: str
) -> None:
    refused = moorage("quotas", "set", *args.split())
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not manager.store.quotas.views


def test_endpoint_that_loads_shows_how_far_it_is() -> None:
    replica = {
        "session_id": "s",
        "name": "tiny-1",
        "status": "CREATING",
        "state": "loading",
        "reason": "",
    }
    replica |= {"detail": "loading weights: 50%", "agent_id": None, "status_since": NOW}
    fields = {
        "id": "e",
        "name": "tiny",
        "status": "loading",
        "replicas": 1,
        "ready": 0,
        "created_at": NOW,
    }
    view = EndpointView.model_validate(fields | {"sessions": [replica]})
    assert endpoint_row(view, NOW, wide=False)[-1] == "loading weights: 50%"
    serving = view.model_copy(update={"sessions": []})
    assert endpoint_row(serving, NOW, wide=False)[-1] == ""


def test_labels_select_and_change(manager: FakeManager, moorage: Run) -> None:
    assert (
        moorage("run", "--name", "a", "--label", "team=vision", "--no-wait", "--", "true").exit_code
        == 0
    )
    assert moorage("run", "--name", "b", "--no-wait", "--", "true").exit_code == 0
    assert moorage("ps", "-l", "team=vision", "-o", "name").output.split() == ["a"]
    assert moorage("ps", "-l", "!team", "-o", "name").output.split() == ["b"]
    assert (
        moorage("label", "b", "team=speech", "stage=dev").output.strip()
        == "b stage=dev,team=speech"
    )
    assert moorage("label", "b", "stage-").output.strip() == "b team=speech"
    assert moorage(
        "sessions", "list", "-l", "team in (speech,vision)", "-o", "name"
    ).output.split() == [
        "b",
        "a",
    ]
    wrong = moorage("ps", "-l", "team in vision")
    assert wrong.exit_code == 2
    assert "write it as in team=vision" in wrong.stderr
    assert "does not change a label" in moorage("label", "b", "nonsense").stderr


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"status": AgentStatus.ALIVE}, ""),
        (
            {"status": AgentStatus.SUSPECT},
            "it becomes LOST, and its sessions end, wait or run again",
        ),
        ({"status": AgentStatus.SUSPECT, "loss_held_since": NOW}, "does not become LOST"),
        (
            {"status": AgentStatus.LOST},
            "`moorage agents forget node-1 --destroyed` if it never returns",
        ),
    ],
)
def test_describe_says_what_the_silence_of_an_agent_means(
    manager: FakeManager, moorage: Run, fields: dict[str, Any], says: str
) -> None:
    manager.set_agent(**fields)
    shown = moorage("agents", "describe", "node-1").stdout
    assert says in shown
    assert ("silent  " in shown) == (says != "")
