"""Fixture: a running platform."""

from __future__ import annotations

from tests.e2e.conftest import one_node as one_node
