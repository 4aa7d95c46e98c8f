"""gRPC service for SSH at the proxies: authenticates the proxy, and forwards its calls to the
broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from moorage.common.link.pb import ssh_pb2, ssh_pb2_grpc
from moorage.common.model.errors import ConfigError, StoreUnavailable
from moorage.manager.rpc.authentication import LinkAuthenticator, LinkCaller
from moorage.manager.rpc.ssh import SshBroker


class SshService(ssh_pb2_grpc.SshAccessServicer):
    def __init__(self, authenticator: LinkAuthenticator, broker: SshBroker) -> None:
        self._authenticator = authenticator
        self._broker = broker

    async def HostKey(self, request: ssh_pb2.SshHostKeyRequest, context: Any) -> ssh_pb2.SshHostKey:
        try:
            await self._authenticate(request.proxy_id, context)
            return ssh_pb2.SshHostKey(private_key=await self._broker.host_key())
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except ConfigError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("aborted")

    async def LogIn(self, request: ssh_pb2.SshLogin, context: Any) -> ssh_pb2.SshTarget:
        try:
            await self._authenticate(request.proxy_id, context)
            await _check(context, request)
            return await self._broker.log_in(request)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError("aborted")

    async def List(self, request: ssh_pb2.SshFolder, context: Any) -> ssh_pb2.SshEntries:
        try:
            await self._authenticate(request.login.proxy_id, context)
            await _check(context, request.login, request.project)
            return await self._broker.list_files(request)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError("aborted")

    async def Open(self, request_iterator: AsyncIterator[ssh_pb2.SshInput], context: Any) -> None:
        try:
            first = await anext(request_iterator)
            caller = await self._authenticate(first.start.login.proxy_id, context)
            await _check(context, first.start.login, first.start.session)
            async with self._authenticator.until_revoked(caller, context):
                await self._broker.serve(first.start, request_iterator, context)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except StopAsyncIteration:
            return

    async def _authenticate(self, proxy: str, context: Any) -> LinkCaller:
        caller = await self._authenticator.authenticate(context, "proxy")
        if wrong := caller.refusal_to_act_as(proxy):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        return caller


async def _check(context: Any, login: ssh_pb2.SshLogin, *names: str) -> None:
    """Refuse invalid names. A proxy forwards its clients' input without checking it."""
    if "\0" in "".join((login.login, login.fingerprint, login.address, *names)):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a name contains a NUL character")
