"""Prices apply to GPUs by the names that people write: ``ledger_price`` and ``device_named``."""

revision = "202611280353"
down_revision = "202611272345"
branch_labels = None
depends_on = None
functions = "83628099a1b6bea5"


def upgrade() -> None:
    pass
