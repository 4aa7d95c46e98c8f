"""Growth of the memory held by Moorage's code, from the second tenth of many examples to the last
two.

Only `make soak` measures it: a few examples cannot distinguish a leak from filling caches, and
tracing makes Python several times slower. Memory that hypothesis or the tests keep for each example
is not counted: an allocation is counted if Moorage's code is among its callers.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import moorage
from tests.examples import FACTOR

CODE = str(Path(moorage.__file__).parent / "*")

PARTS = 10
# The tenths after which memory is measured, which takes seconds. The smaller of the last two values
# is used, because work in progress at one moment is not growth.
MEASURED = (2, 9, 10)
# How many callers of an allocation are recorded: libraries that our code calls call other
# libraries.
_FRAMES = 12
_SHOWN = 12


class Growth:
    """``count``: the number of examples, as in ``examples``. ``allowed``: bytes by which the memory
    may have grown. A context manager, which on exit raises ``AssertionError`` with the lines that
    allocated most. ``without``: files whose memory belongs to objects that the examples have
    created. ``always``: also measure when few examples are run."""

    def __init__(
        self,
        count: int,
        *,
        allowed: int,
        files: str = CODE,
        without: Sequence[str] = (),
        always: bool = False,
    ) -> None:
        self._every = max(1, count * FACTOR // PARTS)
        self._allowed = allowed
        self._files = files
        self._without = (*without, __file__)
        self._measures = always or FACTOR > 1
        self._examples = 0
        self._before: tracemalloc.Snapshot | None = None
        self._after: tracemalloc.Snapshot | None = None
        self.sizes: list[int] = []

    def __enter__(self) -> Growth:
        if self._measures:
            tracemalloc.start(_FRAMES)
        return self

    def note_example(self) -> None:
        """Another example has run, and nothing of it is left."""
        self._examples += 1
        tenth, within = divmod(self._examples, self._every)
        if self._measures and within == 0 and tenth in MEASURED:
            self._measure()

    def _measure(self) -> None:
        gc.collect()
        own = tracemalloc.Filter(True, self._files, all_frames=True)
        others = [tracemalloc.Filter(False, file, all_frames=True) for file in self._without]
        self._after = tracemalloc.take_snapshot().filter_traces([own, *others])
        self._before = self._before or self._after
        self.sizes.append(sum(trace.size for trace in self._after.traces))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._measures:
            return
        try:
            if kind is None:
                self._judge()
        finally:
            tracemalloc.stop()

    def _judge(self) -> None:
        assert len(self.sizes) == len(MEASURED), (
            f"{self._examples} examples are too few to see growth"
        )
        assert self._before is not None
        assert self._after is not None
        growth = min(self.sizes[1:]) - self.sizes[0]
        print(f"growth over {self._examples} examples: {growth:+,} bytes; {self.sizes}")
        lines = "\n".join(
            str(one) for one in self._after.compare_to(self._before, "lineno")[:_SHOWN]
        )
        assert growth <= self._allowed, (
            f"it holds {growth:,} bytes more than after 2 tenths:\n{lines}"
        )
