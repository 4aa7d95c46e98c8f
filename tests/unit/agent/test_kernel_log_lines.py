"""Log lines of a kernel's task: ours and the libraries' have its ids."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from test_kernel_failures import Node, kernel
from tests.json_lines import json_lines

from moorage.common.model.ids import EndpointId
from moorage.common.model.status import ObservedState as S

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def test_lines_have_the_ids_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    await node.kernels.recover()
    create = node.runtime.create

    async def creating(launch: Any) -> Any:
        await asyncio.to_thread(logging.getLogger("docker").warning, "slow")
        return await create(launch)

    monkeypatch.setattr(node.runtime, "create", creating)
    node.runtime.failing["create"] = 1
    traceparent = f"00-{TRACE}-b7ad6b7169203331-01"
    spec = kernel(traceparent=traceparent, endpoint_id=EndpointId("e"), served_name="chat")
    with json_lines("agent") as lines:
        try:
            node.order(spec)
            await node.until(spec, S.EXITED)
        finally:
            await node.kernels.close()

        logging.getLogger("docker").warning("outside")

    slow, outside = lines.of("docker")
    (ended,) = lines.of("moorage.agent.kernel.task")
    (failed,) = lines.of("moorage.supervisor")
    for line in (slow, ended, failed):
        assert (line["trace_id"], line["session_id"]) == (TRACE, spec.session_id)
        assert (line["kernel_id"], line["endpoint"]) == (spec.kernel_id, "chat")
        assert line["component"] == "agent"

    assert not outside.keys() & {"trace_id", "session_id", "kernel_id", "endpoint"}
