"""A raw client for the test server's own tests: sends the given request and shows the response."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.heappe.server import HeappeServer

ACCEPT = [{"Name": "Accept", "Value": "*/*"}]
JSON = [{"Name": "content-type", "Value": "application/json"}]


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    kind: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


def specification(name: str, **task: Any) -> dict[str, Any]:
    """A job that passes validation."""
    parameters = ("args_b64", "args_b64_2", "args_b64_3", "args_b64_4")
    return {
        "Name": name, "ProjectId": 1, "ClusterId": 2, "FileTransferMethodId": 3, "WaitingLimit": 0,
        "Tasks": [{
            "Name": "engine", "MinCores": 1, "MaxCores": 8, "WalltimeLimit": 600,
            "ProgressFile": "progress.txt", "LogFile": "log.txt",
            "ClusterNodeTypeId": 7, "CommandTemplateId": 11,
            "TemplateParameterValues": [
                {"CommandParameterIdentifier": name, "ParameterValue": "e30"} for name in parameters
            ],
        } | task],
    }  # fmt: skip


class Caller:
    """One user. Use it as a context manager."""

    def __init__(self, server: HeappeServer, user: str = "agent", **headers: str) -> None:
        self.server = server
        self._headers = headers or {"X-API-Key": f"{user}:secret-{user}"}

    async def __aenter__(self) -> Caller:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return await self.send(method, path, data, **query)

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        kind: str = "application/json",
        **query: Any,
    ) -> Answer:
        url = f"{self.server.url}/heappe/{path}"
        headers = {"Content-Type": kind} if data is not None else {}
        async with self._session.request(
            method, url, data=data, params=query, headers=headers
        ) as got:
            return Answer(got.status, (await got.read()).decode(), got.content_type)

    async def create(self, name: str, **task: Any) -> int:
        answer = await self.call(
            "POST", "JobManagement/CreateJob", {"JobSpecification": specification(name, **task)}
        )
        assert answer.status == 200, answer
        number: int = answer.value["Id"]
        return number

    async def submit(self, job: int) -> Answer:
        return await self.call("PUT", "JobManagement/SubmitJob", {"CreatedJobInfoId": job})

    async def start(self, name: str, **task: Any) -> int:
        job = await self.create(name, **task)
        answer = await self.submit(job)
        assert answer.status == 200, answer
        return job

    async def info(self, job: int) -> dict[str, Any]:
        answer = await self.call("GET", "JobManagement/CurrentInfoForJob", SubmittedJobInfoId=job)
        assert answer.status == 200, answer
        value: dict[str, Any] = answer.value
        return value

    async def cancel(self, job: int) -> Answer:
        return await self.call("PUT", "JobManagement/CancelJob", {"SubmittedJobInfoId": job})

    async def part(self, job: int, task: int, kind: int = 1, offset: int = 0) -> Answer:
        wanted = [{"SubmittedTaskInfoId": task, "FileType": kind, "Offset": offset}]
        body = {"SubmittedJobInfoId": job, "TaskFileOffsets": wanted}
        return await self.call("POST", "FileTransfer/DownloadPartsOfJobFilesFromCluster", body)

    async def tunnel(self, task: int, host: str, port: int) -> Answer:
        body = {"SubmittedTaskInfoId": task, "IpAddress": host, "Port": port}
        return await self.call("POST", "DataTransfer/RequestDataTransfer", body)

    async def close(self, method: dict[str, Any]) -> Answer:
        return await self.call(
            "POST", "DataTransfer/CloseDataTransfer", {"UsedTransferMethod": method}
        )

    async def serve(self, name: str, **task: Any) -> Served:
        """A job with an engine that is reached through a tunnel."""
        job = await self.start(name, **task)
        await self.server.advance(31)
        task = (await self.info(job))["Tasks"][0]["Id"]
        addresses = await self.call(
            "GET", "JobManagement/AllocatedNodesIPs", SubmittedTaskInfoId=task
        )
        port = int((await self.part(job, task)).value[0]["Content"])
        answer = await self.tunnel(task, addresses.value[0], port)
        assert answer.status == 200, answer

        return Served(self, job, task, answer.value)


@dataclass(frozen=True)
class Served:
    caller: Caller
    job: int
    task: int
    method: dict[str, Any]

    def _where(self, path: str, headers: Any) -> dict[str, Any]:
        place = {"NodeIPAddress": self.method["NodeIPAddress"], "NodePort": self.method["NodePort"]}
        return {
            "SubmittedTaskInfoId": self.task,
            "HttpRequest": path,
            "HttpHeaders": headers,
        } | place

    async def get(self, path: str, headers: Any = ACCEPT) -> Answer:
        return await self.caller.call(
            "POST", "DataTransfer/HttpGetToJobNode", self._where(path, headers)
        )

    async def post(
        self, payload: dict[str, Any], *, stream: bool = True, headers: Any = JSON, **extra: Any
    ) -> Answer:
        body = (
            self._where("/v1/chat/completions", headers)
            | {"HttpPayload": json.dumps(payload)}
            | extra
        )
        action = "HttpPostToJobNodeStream" if stream else "HttpPostToJobNode"
        return await self.caller.call("POST", f"DataTransfer/{action}", body)
