"""Code in sessions, run by real code kernels: one for Python, and one for another language."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.code_sessions import (
    CodeSession,
    environment,
    items_of,
    text_of,
    write_kernelspecs,
)
from tests.conformance.harnesses import ProcessHarness

from moorage.agent.execution.code.records import BEFORE
from moorage.agent.runtimes.execution import ExecFailed
from moorage.common.model.code_runs import MAX_OUTPUT_BYTES
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.status import ObservedState
from moorage.testing.runtime_conformance import until

# A code kernel takes a second of CPU time to start, so the tests share one.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("code")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CodeSession]:
    tmp_path = tmp_path_factory.mktemp("code")
    harness = ProcessHarness(tmp_path / "agent")
    runtime: Any = harness.runtime()
    env = environment(write_kernelspecs(tmp_path / "jupyter"))
    launch = replace(harness.launch(), env=env)
    handle = await runtime.create(launch)
    await until(runtime, handle, ObservedState.RUNNING)
    made = CodeSession(
        runtime,
        handle,
        launch.kernel_id,
        runtime.work_dir(launch.kernel_id),
        state=tmp_path / "agent",
    )
    yield made
    await made.service.close()
    await runtime.destroy(handle)
    await harness.close()


async def test_state_lasts_and_results_are_mime_bundles(session: CodeSession) -> None:
    first = await session.execute("import os\nx = 6\nprint('set', os.environ['PATH'] != '')")
    assert (first["status"], first["exit_code"], text_of(first)) == ("finished", 0, "set True\n")
    second = await session.execute("x * 7")
    assert [r["data"]["text/plain"] for r in items_of(second, "result")] == ["42"]
    shown = await session.execute(
        "from IPython.display import HTML, Image, display\n"
        "display(HTML('<b>x</b>')); display(Image(b'\\x89PNG\\r\\n\\x1a\\n', format='png'))"
    )
    html, image = items_of(shown, "display")
    assert html["data"]["text/html"] == "<b>x</b>"
    assert image["data"]["image/png"].startswith("iVBOR")
    failed = await session.execute("print('before'); 1/0")
    assert (failed["status"], failed["exit_code"], text_of(failed)) == ("finished", 1, "before\n")
    assert items_of(failed, "error")[0]["name"] == "ZeroDivisionError"
    after = await session.execute("import sys; print(x, file=sys.stderr)")
    assert text_of(after, "stderr") == "6\n"


async def test_input_is_asked_for_and_given(session: CodeSession) -> None:
    run = await session.execute("name = input('who? ')\nprint('hello', name)", run_id="ask-1")
    assert run["status"] == "waiting-input"
    assert items_of(run, "input") == [{"type": "input", "prompt": "who? ", "password": False}]
    done = await session.ask("input", run_id="ask-1", text="Ada", after=run["next"], wait_s=20)
    assert (done["status"], text_of(done)) == ("finished", "hello Ada\n")
    with pytest.raises(Conflict, match="is not asking for input"):
        await session.ask("input", run_id="ask-1", text="again")


async def test_input_that_never_comes_ends_with_the_time_of_the_run(session: CodeSession) -> None:
    run = await session.execute("import getpass; getpass.getpass('secret')", timeout_s=3)
    assert (run["status"], items_of(run, "input")[0]["password"]) == ("waiting-input", True)
    while run["status"] == "waiting-input":
        await asyncio.sleep(0.1)
        run = await session.ask("read", run_id=run["run_id"], after=run["next"])
    assert run["status"] == "exec-timeout"
    assert "time" in run["reason"]


async def test_interrupt_keeps_the_state_and_reaches_programs(session: CodeSession) -> None:
    for language in ("python3", "other"):
        await session.execute("y = 5", language)
        code = "import subprocess\nprint('begun', flush=True)\nsubprocess.run(['sleep', '60'])"
        run = await session.ask("execute", code=code, language=language, wait_s=0)
        while not text_of(run):
            run = await session.ask("read", run_id=run["run_id"], wait_s=0.1)

        await session.ask("interrupt", run_id=run["run_id"])
        done = await session.finish(run)
        assert (done["status"], done["exit_code"]) == ("finished", 1)
        assert items_of(done, "error")[0]["name"] == "KeyboardInterrupt"
        assert (
            items_of(await session.execute("y", language), "result")[0]["data"]["text/plain"] == "5"
        )

    env = await session.execute("import os; print(os.environ['OTHER'])", "other")
    assert text_of(env) == "yes\n"


async def test_interrupt_at_once_is_not_lost(session: CodeSession) -> None:
    """An idle Jupyter kernel ignores a signal, and a starting one has no process to send it to."""
    await session.ask("restart", language="python")
    async with asyncio.timeout(60):
        run = await session.ask("execute", code="while True: pass", language="python", wait_s=0)
        await session.ask("interrupt", run_id=run["run_id"])
        assert (await session.finish(run))["reason"] == BEFORE
        await session.execute("x = 5")

        for wait_s in (0.001, 0.003, 0.005, 0.01, 0.1):
            run = await session.ask(
                "execute", code="while True: pass", language="python", wait_s=wait_s
            )
            await session.ask("interrupt", run_id=run["run_id"])
            done = await session.finish(run)
            assert done["exit_code"] == 1 or done["reason"] == BEFORE, done

        assert done["exit_code"] == 1
        assert items_of(await session.execute("x"), "result")[0]["data"]["text/plain"] == "5"


async def test_code_that_never_ends_is_stopped_by_its_time(session: CodeSession) -> None:
    await session.execute("z = 1")
    run = await session.execute("while True: pass", timeout_s=1)
    assert run["status"] == "exec-timeout"
    assert text_of(await session.execute("print(z)")) == "1\n"
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    run = await session.execute(stubborn, timeout_s=1)
    assert run["status"] == "exec-timeout"
    assert "killed" in run["reason"]
    lost = await session.execute("z")
    assert items_of(lost, "error")[0]["name"] == "NameError"


async def test_code_that_prints_without_end_is_bounded(session: CodeSession) -> None:
    code = "line = 'x' * 100_000\nwhile True: print(line, flush=True)"
    run = await session.execute(code, timeout_s=60)
    assert run["status"] == "finished"
    assert "printed many times" in run["reason"]
    assert len(items_of(run, "truncated")) == 1
    assert 1_000_000 < len(text_of(run)) <= MAX_OUTPUT_BYTES
    assert text_of(await session.execute("print(len(line))")) == "100000\n"


async def test_kernel_that_dies_is_told_and_replaced(session: CodeSession) -> None:
    await session.execute("x = 1")
    waiting = asyncio.gather(
        session.execute("import os; os._exit(9)", run_id="dies"), session.execute("print('next')")
    )
    died, following = await waiting
    assert (died["status"], died["exit_code"]) == ("finished", None)
    assert "exit code 9" in died["reason"]
    assert text_of(following) == "next\n"
    assert items_of(await session.execute("x"), "error")[0]["name"] == "NameError"


async def test_runs_wait_in_order_and_languages_beside_each_other(
    session: CodeSession, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    slow = await session.ask("execute", code=wait, language="python", wait_s=0)
    while slow["waiting_for"]:
        slow = await session.ask("read", run_id=slow["run_id"], wait_s=0.01)

    second = await session.ask(
        "execute", code="order = [1]", language="python", run_id="second", wait_s=0
    )
    third = await session.ask("execute", code="order.append(2); order", language="python", wait_s=0)
    assert (second["status"], third["waiting_for"] > second["waiting_for"] >= 0) == (
        "continued",
        True,
    )
    fourth = await session.ask("execute", code="order.append(3)", language="python", wait_s=0)
    await session.ask("interrupt", run_id=fourth["run_id"])
    assert "before it started" in (await session.finish(fourth))["reason"]
    bash = await session.execute("x=from-bash; echo $x", "bash")
    assert text_of(bash) == "from-bash\n"
    assert text_of(await session.execute("echo $x again", "bash")) == "from-bash again\n"
    gate.touch()
    assert (await session.finish(slow))["status"] == "finished"
    assert items_of(await session.finish(third), "result")[0]["data"]["text/plain"] == "[1, 2]"
    kernels = {one["name"]: one for one in (await session.ask("kernels"))["items"]}
    assert (kernels["python3"]["state"], kernels["bash"]["state"]) == ("idle", "idle")
    assert "damaged" not in kernels


async def test_completion_and_restart(session: CodeSession) -> None:
    # Without a cache in its user's directory, jedi first spends several seconds reading files.
    await session.execute("%config Completer.use_jedi = False\nsome_long_name = 1")
    found = await session.ask("complete", code="some_lo", cursor=7, language="python")
    assert (found["matches"], found["cursor_start"], found["cursor_end"]) == (
        ["some_long_name"],
        0,
        7,
    )
    assert (await session.ask("restart", language="python"))["state"] == "none"
    assert items_of(await session.execute("some_long_name"), "error")[0]["name"] == "NameError"
    busy = await session.ask(
        "execute", code="import time; time.sleep(60)", language="python", wait_s=0
    )
    with pytest.raises(Conflict, match="is busy"):
        await session.ask("complete", code="x", cursor=1, language="python")

    await session.ask("restart", language="python")
    assert "restarted" in (await session.finish(busy))["reason"]


async def test_one_of_two_requests_at_once_starts_the_code_kernel(session: CodeSession) -> None:
    await session.ask("restart", language="python")
    found, run = await asyncio.gather(
        session.ask("complete", code="impor", cursor=5, language="python"),
        session.execute("print(1 + 1)"),
    )
    assert (found["cursor_start"], run["exit_code"], text_of(run)) == (0, 0, "2\n")


async def test_text_that_grows_when_it_is_sent_is_bounded(session: CodeSession) -> None:
    run = await session.execute("print('\N{GRINNING FACE}' * 2_900_000)", timeout_s=60)
    assert (run["status"], len(items_of(run, "truncated"))) == ("finished", 1)
    assert len(json.dumps(text_of(run))) <= MAX_OUTPUT_BYTES


async def test_kernelspec_without_end_is_refused(session: CodeSession) -> None:
    made = (
        "import os, pathlib\np = pathlib.Path(os.environ['JUPYTER_PATH'].split(':')[0], "
        "'kernels/endless')\n"
    )
    await session.execute(
        made + "p.mkdir(); f = (p / 'kernel.json').open('w'); f.truncate(1 << 33); f.close()"
    )
    with pytest.raises(ExecFailed, match="printed more than"):
        await session.execute("1", "endless")

    await session.execute(made + "import shutil; shutil.rmtree(p)")


async def test_request_that_repeats_is_the_same_run(session: CodeSession) -> None:
    await session.execute("count = 0")
    for _ in range(2):
        run = await session.execute("count += 1; print(count)", run_id="once")
        assert text_of(run) == "1\n"

    with pytest.raises(Conflict, match="its request was different"):
        await session.execute("count += 2", run_id="once")
    with pytest.raises(InvalidInput, match="run_id"):
        await session.execute("1", run_id="../up")
    with pytest.raises(NotFound):
        await session.ask("read", run_id="never")


async def test_records_outlive_the_agent_and_say_what_it_cut_off(session: CodeSession) -> None:
    done = await session.execute("print('kept')", run_id="done")
    open_run = await session.ask(
        "execute",
        code="print('half', flush=True); import time; time.sleep(60)",
        language="python",
        run_id="open",
        wait_s=0,
    )
    while not text_of(open_run):
        open_run = await session.ask("read", run_id="open", wait_s=0.1)

    await session.restart_agent()
    assert (await session.ask("read", run_id="done"))["console"] == done["console"]
    cut = await session.ask("read", run_id="open")
    assert (cut["status"], text_of(cut)) == ("finished", "half\n")
    items = [line["item"] for line in await session.ask("follow", run_id="done", after=0)]
    assert [item["type"] for item in items] == ["stream", "end"]
    session.alive.clear()
    await session.service.collect()
    with pytest.raises(NotFound):
        await session.ask("read", run_id="done")


async def test_batch_tells_its_stages(session: CodeSession) -> None:
    request = {
        "mode": "batch",
        "clean": "rm -f out",
        "build": "echo built >out",
        "exec": "cat out; exit 3",
    }
    found = await session.ask("execute", **request, wait_s=20)
    seen = [found["status"]]
    while found["status"] not in ("finished", "exec-timeout"):
        found = await session.ask("read", run_id=found["run_id"], after=found["next"], wait_s=20)
        seen.append(found["status"])

    assert seen == ["clean-finished", "build-finished", "finished"]
    assert (found["exit_code"], text_of(found)) == (3, "built\n")
    failed = await session.finish(
        await session.ask("execute", mode="batch", build="exit 2", exec="echo no", wait_s=20)
    )
    assert (failed["exit_code"], text_of(failed)) == (127, "")


async def test_kernelspecs_that_do_not_start(session: CodeSession) -> None:
    with pytest.raises(NotFound, match="no kernelspec for 'cobol'"):
        await session.execute("1", "cobol")
    for language in ("broken", "quiet"):
        run = await session.execute("1", language)
        assert (run["status"], "did not start" in run["reason"]) == ("finished", True), run
    assert "it cannot" in run["reason"]
