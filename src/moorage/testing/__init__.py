"""Conformance suites for plug-ins, to run in their own tests. They need pytest and pytest-asyncio
(the extra ``testing``)."""

import pytest

pytest.register_assert_rewrite("moorage.testing.runtime_conformance")

from moorage.testing.runtime_conformance import RuntimeConformance, RuntimeHarness  # noqa: E402

__all__ = ["RuntimeConformance", "RuntimeHarness"]
