"""Client for a HEAppE server, with typed arguments and answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import aiohttp

from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.transport import Account, HeappeTransport
from moorage.common.aio.clock import Clock

# HEAppE needs at least one header for a GET on the node.
_ANY = [{"Name": "Accept", "Value": "*/*"}]


class HeappeClient:
    """The client. It raises only ``HeappeFailed``."""

    def __init__(self, account: Account, clock: Clock) -> None:
        self.transport = HeappeTransport(account, clock)

    async def close(self) -> None:
        await self.transport.close()

    # Calls that return descriptions of the site.

    async def health(self) -> tuple[str, datetime | None]:
        """The server's version and time. This call needs no credentials, and succeeds during
        maintenance."""
        answer = await self.transport.call(wire.HEALTH, anonymous=True)
        values = answer if isinstance(answer, dict) else {}
        return str(values.get("Version") or ""), wire.parse_time(values.get("Timestamp"))

    async def projects(self) -> list[wire.Project]:
        answer = await self.transport.call(wire.PROJECTS)
        found = [entry.get("Project") for entry in answer or () if isinstance(entry, dict)]
        return [wire.parse_project(project) for project in found if isinstance(project, dict)]

    async def node_types(self, accounting: str, *, refresh: bool = False) -> list[wire.NodeType]:
        """A project's node types, by its accounting string. The server caches its answer for hours;
        ``refresh`` makes it query again."""
        query = {"AccountingString": accounting} | ({"ForceRefresh": "true"} if refresh else {})
        return wire.parse_node_types(await self.transport.call(wire.CLUSTERS, query=query))

    async def used_nodes(self, node_type: wire.NodeType, project_id: int) -> tuple[int, int]:
        """The number of nodes in use, and the total number of nodes."""
        query = {"ClusterNodeId": str(node_type.id), "ProjectId": str(project_id)}
        answer = await self.transport.call(
            wire.NODE_USAGE, query=query, cluster_id=node_type.cluster_id
        )
        values = answer if isinstance(answer, dict) else {}
        return int(values.get("NumberOfUsedNodes") or 0), int(values.get("NumberOfNodes") or 0)

    # Jobs.

    async def create_job(self, specification: dict[str, Any]) -> wire.HeappeJob:
        """Create a job. This is slow, because the server creates a directory on the cluster."""
        body = {"JobSpecification": specification}
        cluster_id = int(specification["ClusterId"])
        return wire.parse_job(
            _object(await self.transport.call(wire.CREATE_JOB, body, cluster_id=cluster_id))
        )

    async def submit_job(self, job_id: int, cluster_id: int) -> wire.HeappeJob:
        """Submit a job. This is not idempotent, and the job may run even if the call fails."""
        body = {"CreatedJobInfoId": job_id}
        return wire.parse_job(
            _object(await self.transport.call(wire.SUBMIT_JOB, body, cluster_id=cluster_id))
        )

    async def cancel_job(self, job_id: int) -> None:
        """Cancel a job. It is not an error if the job has already ended."""
        try:
            await self.transport.call(wire.CANCEL_JOB, {"SubmittedJobInfoId": job_id})
        except HeappeFailed as error:
            if error.problem is not SiteFault.STATE:
                raise

    async def delete_job(self, job_id: int) -> None:
        """Delete a job that is not active, together with its directory."""
        await self.transport.call(
            wire.DELETE_JOB, {"SubmittedJobInfoId": job_id, "ArchiveLogs": False}
        )

    async def job(self, job_id: int) -> wire.HeappeJob:
        query = {"SubmittedJobInfoId": str(job_id)}
        return wire.parse_job(_object(await self.transport.call(wire.JOB_INFO, query=query)))

    async def jobs(self, states: Sequence[wire.JobState]) -> list[wire.HeappeJob]:
        """This user's jobs in these states. A project manager also gets other users' jobs."""
        query = {"JobStates": ",".join(str(int(state)) for state in states)}
        return wire.parse_jobs(await self.transport.call(wire.LIST_JOBS, query=query))

    async def node_ips(self, task_id: int) -> list[str]:
        """The server's answer about node addresses: host names, addresses, or a resolver error."""
        answer = await self.transport.call(
            wire.NODE_IPS, query={"SubmittedTaskInfoId": str(task_id)}
        )
        return [str(address).strip() for address in answer or ()]

    # Files.

    async def file_parts(
        self, job_id: int, offsets: dict[tuple[int, int], int]
    ) -> list[wire.FilePart]:
        """The new text in files. ``offsets``: by task id and kind, in bytes. Missing files are left
        out."""
        wanted = [
            {"SubmittedTaskInfoId": task_id, "FileType": kind, "Offset": offset}
            for (task_id, kind), offset in offsets.items()
        ]
        body = {"SubmittedJobInfoId": job_id, "TaskFileOffsets": wanted}
        return wire.parse_file_parts(await self.transport.call(wire.FILE_PARTS, body))

    async def download(self, job_id: int, path: str) -> bytes:
        answer = await self.transport.call(
            wire.DOWNLOAD, {"SubmittedJobInfoId": job_id, "RelativeFilePath": path}
        )
        return base64.b64decode(answer or "")

    async def changed_files(self, job_id: int) -> list[str]:
        answer = await self.transport.call(
            wire.CHANGED_FILES, query={"SubmittedJobInfoId": str(job_id)}
        )
        return [str(file.get("FileName") or "") for file in answer or () if isinstance(file, dict)]

    async def upload(self, job_id: int, task_id: int, name: str, data: bytes) -> None:
        """Upload a file to the directory of a job that has not been submitted yet."""
        form = aiohttp.FormData()
        form.add_field("files", data, filename=name, content_type="application/octet-stream")
        query = {"JobId": str(job_id), "TaskId": str(task_id)}

        answer = await self.transport.call(wire.UPLOAD, query=query, form=form)
        refused = [
            result
            for result in answer or ()
            if isinstance(result, dict) and result.get("Succeeded") is False
        ]
        if refused:
            raise HeappeFailed(
                SiteFault.SSH, f"the file {name} was not written", call=wire.UPLOAD.name
            )

    # Tunnels.

    async def request_tunnel(self, task_id: int, node_ip: str, port: int) -> wire.Tunnel:
        """This user's tunnel to the task. An existing tunnel is returned regardless of ``port``."""
        body = {"SubmittedTaskInfoId": task_id, "IpAddress": node_ip, "Port": port}
        return wire.parse_tunnel(_object(await self.transport.call(wire.REQUEST_TUNNEL, body)))

    async def close_tunnel(self, tunnel: wire.Tunnel) -> None:
        """Close all users' tunnels to this task."""
        method = {
            "SubmittedTaskId": tunnel.task_id,
            "Port": tunnel.port,
            "NodeIPAddress": tunnel.node_ip,
            "NodePort": tunnel.node_port,
        }
        await self.transport.call(wire.CLOSE_TUNNEL, {"UsedTransferMethod": method})

    async def get(
        self, tunnel: wire.Tunnel, path: str, headers: dict[str, str] | None = None
    ) -> str:
        """The body of one of the engine's pages. Any status except 200 raises ``UPSTREAM``."""
        body = _node_request(tunnel, path, headers) | {"HttpHeaders": _headers(headers) or _ANY}
        return _text(await self.transport.call(wire.NODE_GET, body))

    async def post(
        self, tunnel: wire.Tunnel, path: str, headers: dict[str, str], payload: str
    ) -> str:
        """Send a POST that takes at most ten seconds. Any status except 200 raises ``UPSTREAM``
        with the engine's body."""
        body = _node_request(tunnel, path, headers) | {"HttpPayload": payload}
        return _text(await self.transport.call(wire.NODE_POST, body))

    def stream(
        self, tunnel: wire.Tunnel, path: str, headers: dict[str, str], payload: str
    ) -> AbstractAsyncContextManager[aiohttp.StreamReader]:
        """Send a POST of any duration. The server forwards the answer, including errors. Leaving
        the context cancels the request on the engine."""
        body = _node_request(tunnel, path, headers) | {"HttpPayload": payload}
        return self.transport.stream(wire.NODE_STREAM, body)


def _node_request(tunnel: wire.Tunnel, path: str, headers: dict[str, str] | None) -> dict[str, Any]:
    return {
        "SubmittedTaskInfoId": tunnel.task_id,
        "HttpRequest": path,
        "HttpHeaders": _headers(headers),
        "NodeIPAddress": tunnel.node_ip,
        "NodePort": tunnel.node_port,
    }


def _headers(headers: dict[str, str] | None) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in (headers or {}).items()]


def _object(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer)
