"""Passwords: argon2id hashes and their verification, outside the event loop and a few at a time.

A hash takes 64 MiB and tens of milliseconds, so guesses also cost the manager something.
"""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

_AT_ONCE = 2


class Passwords:
    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._nobody = ""

    async def hash(self, password: str) -> str:
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify(self, stored: str | None, password: str) -> bool:
        """Whether ``password`` has this hash. A hash of None takes as long to check, and never
        matches."""
        if stored is None:
            stored = self._nobody or await self.hash("nobody")
            self._nobody = stored
            await self._verify(stored, password)
            return False
        return await self._verify(stored, password)

    async def _verify(self, stored: str, password: str) -> bool:
        def check() -> bool:
            try:
                return self._hasher.verify(stored, password)
            except (Argon2Error, InvalidHashError):
                return False

        async with self._turns:
            return await asyncio.to_thread(check)
