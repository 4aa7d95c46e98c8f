"""Batch runs: commands that clean, build and execute the files copied into the session."""

from __future__ import annotations

import codecs

from moorage.agent.execution.code.kernel import RunCommand
from moorage.agent.execution.code.records import Run
from moorage.agent.execution.code.speaker import FLOOD
from moorage.agent.runtimes.execution import STDERR, Command, Execution
from moorage.common.model.code_runs import MAX_OUTPUT_BYTES, STAGES

# Backend.AI's exit code for a run that executed nothing.
_NOT_BUILT = 127


class Batch:
    """A performer of batch runs, which runs each stage with a shell in the workspace."""

    def __init__(self, run_command: RunCommand) -> None:
        self._run_command = run_command
        self._execution: Execution | None = None

    async def perform(self, run: Run) -> None:
        code = 0
        for stage in STAGES:
            command = run.request[stage]
            if not command:
                continue

            code = await self._stage(run, command)
            run.append({"type": "stage", "stage": stage, "exit_code": code})
            if code != 0 and stage == "build":
                code = _NOT_BUILT
                break

        run.end(code)

    async def _stage(self, run: Run, command: str) -> int:
        execution = await self._run_command(Command(("sh", "-c", command)))
        self._execution = execution
        decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]
        size = 0
        try:
            while (piece := await execution.read()) is not None:
                text = decoders[piece[0] == STDERR].decode(piece[1])
                before = size
                size = size + len(piece[1]) + 64
                if size <= MAX_OUTPUT_BYTES:
                    name = "stderr" if piece[0] == STDERR else "stdout"
                    run.append({"type": "stream", "name": name, "text": text})
                elif before <= MAX_OUTPUT_BYTES:
                    run.append({"type": "truncated", "kept_bytes": MAX_OUTPUT_BYTES})
                elif size > FLOOD * MAX_OUTPUT_BYTES and not run.flooded:
                    run.flood()

            return await execution.wait()
        finally:
            self._execution = None
            execution.disconnect()

    async def interrupt(self) -> None:
        """Interrupt the command with SIGHUP, then SIGKILL."""
        if self._execution is not None:
            self._execution.disconnect()

    def give_input(self, run: Run, text: str) -> bool:
        return False

    async def kill(self) -> None:
        await self.interrupt()
