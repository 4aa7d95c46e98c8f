"""Usage spool: keeps the usage of requests on disk until a manager has acknowledged it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import structlog

from moorage.common.link.proxy_messages import RecordsAck, UsageBatch, UsageRecord
from moorage.proxy.core.usage_book import Amounts, Payer

log = structlog.get_logger("moorage.proxy")

MAX_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"([A-Za-z0-9-]+)\.([0-9]{1,18})\.json")
# Records in one batch.
_BATCH = 1000


class UsageSpool:
    """A spool with one file per batch in a directory that the workers of a proxy share. The methods
    block, so call them in a thread, one at a time.

    ``epoch``: identifies this run of this worker. ``dropped``: the number of records for which
    there was no space.
    """

    def __init__(self, directory: Path, epoch: str, max_bytes: int = MAX_BYTES) -> None:
        self._directory = directory
        self._epoch = epoch
        self._max_bytes = max_bytes
        self._sequence = 0
        self._bytes = 0
        self.dropped = 0

    def load(self) -> list[UsageBatch]:
        """Load the unacknowledged usage of earlier runs of all workers. Another worker may also
        send it, but it is counted once. It is in order within each epoch, which the manager relies
        on."""
        found = []
        paths = self._directory.glob("*.json")
        named = ((path, match) for path in paths if (match := _NAME.fullmatch(path.name)))
        for path, _ in sorted(named, key=lambda spooled: (spooled[1][1], int(spooled[1][2]))):
            try:
                document = json.loads(path.read_bytes())
                records = tuple(UsageRecord(**record) for record in document["records"])
                self._bytes += path.stat().st_size
            except FileNotFoundError:
                continue  # another worker has removed it
            except (OSError, ValueError, TypeError, KeyError) as error:
                log.error("a usage batch is unusable", path=str(path), error=repr(error))
                continue

            found.append(UsageBatch(document["epoch"], records))

        return found

    def store(
        self, amounts: Mapping[Payer, Amounts], began_ms: int, ended_ms: int
    ) -> list[UsageBatch]:
        """Store an interval's usage as new batches. If this raises ``OSError``, none of it is
        stored."""
        payers = list(amounts.items())
        batches = []
        for start in range(0, len(payers), _BATCH):
            records = tuple(
                UsageRecord(
                    self._sequence + start + number,
                    began_ms,
                    ended_ms=ended_ms,
                    project=payer.project,
                    user=payer.user,
                    key_id=payer.key_id,
                    model=payer.model,
                    requests=used.requests,
                    tokens_in=used.tokens_in,
                    tokens_out=used.tokens_out,
                    tokens_cached=used.tokens_cached,
                    session_id=payer.session_id,
                )
                for number, (payer, used) in enumerate(payers[start : start + _BATCH], 1)
            )
            batches.append(UsageBatch(self._epoch, records))

        encoded = [(self._path(batch), json.dumps(asdict(batch)).encode()) for batch in batches]
        size = sum(len(data) for _, data in encoded)
        if self._bytes + size > self._max_bytes:
            self.dropped += len(payers)
            log.error(
                "usage was dropped: no manager has accepted the usage on disk",
                records=len(payers),
                path=str(self._directory),
                next_step="start a manager, or check proxy.manager",
            )
            return []

        written: list[Path] = []
        try:
            for path, data in encoded:
                written.append(path)
                self._write(path, data)
        except OSError:
            for path in written:
                path.unlink(missing_ok=True)
            raise

        self._sequence += len(payers)
        self._bytes += size
        return batches

    def remove(self, acks: Sequence[RecordsAck]) -> None:
        """Remove batches that a manager has stored."""
        for ack in acks:
            path = self._directory / f"{ack.epoch}.{ack.sequence}.json"
            try:
                size = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                continue
            self._bytes = max(0, self._bytes - size)

    def _path(self, batch: UsageBatch) -> Path:
        return self._directory / f"{batch.epoch}.{batch.records[-1].sequence}.json"

    def _write(self, path: Path, data: bytes) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
