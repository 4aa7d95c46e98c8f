"""Store: all SQL of the manager. It reads and writes rows and decides nothing; statements are in
``sql/``.

Constraints are in the migrations. A device cannot be allocated twice because ``session_place.sql``
would violate ``used_within_capacity``; the batch writer then retries the items of that batch
separately.
"""

from moorage.manager.store.leases import Lease
from moorage.manager.store.migrate import migrate
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.report_fencing import ReportRefused
from moorage.manager.store.store import Store

__all__ = ["Lease", "Notifier", "ReportRefused", "Store", "Topic", "migrate"]
