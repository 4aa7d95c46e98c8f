"""DataTransfer of the test server: requesting a tunnel and closing it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

from tests.heappe import traffic
from tests.heappe.call import Call, Endpoint
from tests.heappe.database import RUNNING
from tests.heappe.wire import Member, Problem, reply, require

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

_IPV4 = re.compile(r"(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}")
_IPV6 = re.compile(r"[0-9A-F]{4}(:[0-9A-F]{4}){7}")
_HOST = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_METHOD = Member("UsedTransferMethod", dict, members=(
    Member("SubmittedTaskId", int), Member("Port", int), Member("NodeIPAddress", str, 45),
    Member("NodePort", int),
))  # fmt: skip
_REQUEST = (
    Member("SessionCode", str, 50), Member("SubmittedTaskInfoId", int), Member("IpAddress", str, 50),
    Member("Port", int),
)  # fmt: skip


class TransferCalls:
    def __init__(self, server: HeappeServer) -> None:
        self._server = server

    def endpoints(self) -> list[Endpoint]:
        at = "DataTransfer/"
        through = self._server.traffic
        return [
            Endpoint("POST", at + "RequestDataTransfer", self.request, 170, _REQUEST),
            Endpoint(
                "POST",
                at + "CloseDataTransfer",
                self.close,
                220,
                (Member("SessionCode", str, 50), _METHOD),
            ),
            Endpoint("POST", at + "HttpGetToJobNode", through.get, 50_000, traffic.COMMON),
            Endpoint("POST", at + "HttpPostToJobNode", through.post, 5_000_000, traffic.POST),
            Endpoint(
                "POST", at + "HttpPostToJobNodeStream", through.stream, 5_000_000, traffic.POST
            ),
        ]

    async def request(self, call: Call) -> web.Response:
        server = self._server
        body = call.body
        number = body.get("submittedtaskinfoid") or 0
        host = body.get("ipaddress") or ""
        port = body.get("port") or 0
        require(
            _IPV4.fullmatch(host) or _IPV6.fullmatch(host) or _HOST.fullmatch(host),
            "IpAddress is not valid.",
        )
        require(0 <= port <= 65_535 and port != 22, "Port is not valid.")
        found = server.database.task(number)
        if found is None:
            raise Problem(
                "validation", "Submitted task info does not exist.", code="NotExistingTaskInfo"
            )

        job, task = found
        user = call.user()
        server.sessions.require(user, job.project)
        if task.state != RUNNING:
            raise Problem("connection", f"TaskId '{number}' is not a currently running task.")
        if server.switches.linux_local:
            raise Problem("no-tunnels-here", "NotSupportedEndpoint")

        record = server.tunnels.of(task.id, user)
        if record is None:
            server.ssh()
            address = dict(zip(task.nodes, task.addresses, strict=True)).get(host, host)
            others = server.switches.ports_taken
            record = await server.tunnels.request(
                task.id, user, host, port, address=address, others=others
            )
            server.tunnels.last_use = server.clock.now()

        forward = record.forward
        return reply(
            {
                "SubmittedTaskId": task.id,
                "Port": forward.port,
                "NodeIPAddress": forward.host,
                "NodePort": forward.node_port,
            }
        )

    async def close(self, call: Call) -> web.Response:
        server = self._server
        method = call.body.get("usedtransfermethod") or {}
        number = method.get("submittedtaskid") or 0
        found = server.database.task(number)
        if found is None:
            raise Problem(
                "validation", "Submitted task info does not exist.", code="NotExistingTaskInfo"
            )

        user = call.user()
        server.sessions.require(user, found[0].project)
        record = server.tunnels.of(number, user)
        if record is not None and record.forward.port != method.get("port"):
            raise Problem("connection", "There is no active connection for the user.")

        await server.tunnels.close(number, user)
        return reply("CloseDataTransfer")
