"""Code kernels of interactive sessions, which keep the state of the code."""

from __future__ import annotations

from moorage.common.views.executions import CodeKernelView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class CodeKernels(Resource):
    """Code kernels of interactive sessions, which keep the state of the code."""

    def list(self, ref: str, *, kernel: str = "main1") -> PagedList[CodeKernelView]:
        """The kernelspecs of the session."""
        path = f"/v1/sessions/{segment(ref)}/code-kernels"
        query = {"kernel": kernel}
        return self._list(CodeKernelView, path, query, is_paged=False)

    async def restart(
        self, ref: str, language: str = "python", *, kernel: str = "main1"
    ) -> CodeKernelView:
        """Restart a code kernel. Its definitions are lost, and its current and waiting runs end."""
        path = f"/v1/sessions/{segment(ref)}/code-kernels/{segment(language)}/restart"
        return await self._call(CodeKernelView, "POST", path, query={"kernel": kernel})


class SyncCodeKernels(SyncResource[CodeKernels]):
    """``CodeKernels`` without asyncio."""

    list = listed(CodeKernels.list)
    restart = blocking(CodeKernels.restart)
