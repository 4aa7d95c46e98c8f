"""FileTransfer of the test server: parts of logs, and files copied from and to a job's
directory."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiohttp import BodyPartReader, web

from tests.heappe.call import Call, Endpoint
from tests.heappe.database import Job, Task
from tests.heappe.wire import Member, Problem, reply, require

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

LOG_FILE, PROGRESS_FILE, STANDARD_ERROR, STANDARD_OUTPUT = range(4)
_SESSION = Member("SessionCode", str, 50)
_JOB = Member("SubmittedJobInfoId", int)
_OFFSETS = Member("TaskFileOffsets", list, members=(
    Member("SubmittedTaskInfoId", int), Member("FileType", int), Member("Offset", int),
))  # fmt: skip
KEYS_PER_JOB = 5


class FileCalls:
    def __init__(self, server: HeappeServer) -> None:
        self._server = server
        self._keys: dict[int, set[str]] = {}

    def endpoints(self) -> list[Endpoint]:
        at = "FileTransfer/"
        path = Member("RelativeFilePath", str, 255)
        key = Member("PublicKey", str)
        return [
            Endpoint(
                "POST",
                at + "DownloadPartsOfJobFilesFromCluster",
                self.parts,
                480,
                (_SESSION, _JOB, _OFFSETS),
            ),
            Endpoint(
                "POST", at + "DownloadFileFromCluster", self.download, 700, (_SESSION, _JOB, path)
            ),
            Endpoint("GET", at + "ListChangedFilesForJob", self.changed, 98),
            Endpoint("POST", at + "UploadFilesToJobExecutionDir", self.upload, 2_200_000_000, None),
            Endpoint("POST", at + "RequestFileTransfer", self.request, 98, (_SESSION, _JOB)),
            Endpoint("POST", at + "CloseFileTransfer", self.close, 30_000, (_SESSION, _JOB, key)),
        ]

    def _job(self, call: Call, number: int) -> Job:
        server = self._server
        job = server.database.jobs.get(number)
        if job is None:
            raise Problem("validation", f"Submitted job info with ID '{number}' does not exist.")

        user = call.user()
        server.sessions.require(user, job.project)
        if job.owner != user:
            raise Problem("not-yours", f"User is not authorised to work with the job '{job.id}'.")

        server.ssh()
        return job

    async def parts(self, call: Call) -> web.Response:
        """The response has the requested offset instead of the next one; a missing file is left
        out."""
        job = self._job(call, call.body.get("submittedjobinfoid") or 0)
        tasks = {task.id: task for task in job.tasks}
        answer = []
        for given in call.body.get("taskfileoffsets") or []:
            task = tasks.get(given.get("submittedtaskinfoid"))
            require(task, "Task does not belong to the job.")
            kind = given.get("filetype") or 0
            offset = given.get("offset") or 0
            name = _file_name(task, kind)
            try:
                content = (task.spec.directory / name).read_bytes()[offset:]
            except FileNotFoundError:
                continue

            answer.append(
                {
                    "Content": content.decode("utf-8", "replace"),
                    "RelativePath": f"/{task.id}/{name}",
                    "Offset": offset,
                    "FileType": kind,
                    "SubmittedTaskInfoId": task.id,
                }
            )

        return reply(answer)

    async def download(self, call: Call) -> web.Response:
        job = self._job(call, call.body.get("submittedjobinfoid") or 0)
        asked = (call.body.get("relativefilepath") or "").lstrip("/")
        path = (job.directory / asked).resolve()
        if not path.is_relative_to(job.directory.resolve()) or not path.is_file():
            raise Problem("ssh", "No such file")
        return reply(base64.b64encode(path.read_bytes()).decode())

    async def changed(self, call: Call) -> web.Response:
        job = self._job(call, call.number("SubmittedJobInfoId"))
        found = [
            {
                "FileName": f"/{path.relative_to(job.directory)}",
                "LastModifiedDate": self._server.views.time(
                    datetime.fromtimestamp(path.stat().st_mtime, UTC)
                ),
            }
            for path in sorted(job.directory.rglob("*"))
            if path.is_file()
        ]
        return reply(found or None)

    async def upload(self, call: Call) -> web.Response:
        job = self._job(call, call.number("JobId"))
        task = next((task for task in job.tasks if task.id == call.number("TaskId")), job.tasks[0])
        answer = []
        async for part in await call.request.multipart():
            if isinstance(part, BodyPartReader) and part.filename:
                path = task.spec.directory / part.filename.rpartition("/")[2]
                path.write_bytes(await part.read(decode=False))
                path.chmod(0o755)
                answer.append({"FileName": part.filename, "Succeeded": True, "Path": str(path)})

        return reply(answer)

    async def request(self, call: Call) -> web.Response:
        job = self._job(call, call.body.get("submittedjobinfoid") or 0)
        keys = self._keys.setdefault(job.id, set())
        if len(keys) >= KEYS_PER_JOB:
            raise Problem("state", "The number of temporary keys of the job is exceeded.")

        public = f"ssh-ed25519 {self._server.clock.new_id()}"
        keys.add(public)
        credentials = dict.fromkeys(("Password", "PrivateKeyCertificate", "Passphrase"))
        return reply(
            {
                "Id": self._server.site.file_transfer,
                "ServerHostname": f"login.{self._server.site.cluster}",
                "SharedBasepath": str(job.directory),
                "Protocol": 2,
                "Port": 22,
                "ProxyConnection": None,
                "Credentials": {
                    "Username": "account-1", "CipherType": 4, "CredentialsAuthType": 2,
                    "PrivateKey": "a private key", "PublicKey": public, **credentials,
                },
            }
        )  # fmt: skip

    async def close(self, call: Call) -> web.Response:
        job = self._job(call, call.body.get("submittedjobinfoid") or 0)
        self._keys.get(job.id, set()).discard(call.body.get("publickey") or "")
        return reply("CloseFileTransfer")


def _file_name(task: Task, kind: int) -> str:
    names = {
        PROGRESS_FILE: task.spec.progress,
        STANDARD_ERROR: task.spec.stderr,
        STANDARD_OUTPUT: task.spec.stdout,
    }
    return names.get(kind, task.log)
