"""Store: all of the manager's SQL. It reads and writes rows and makes no decisions; each subject's
statements are in its ``sql/``.

Constraints are in the migrations. A device cannot be allocated twice because ``session_place.sql``
would violate ``used_within_capacity``; the batch writer then retries the items of that batch
separately.
"""

from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.platform.leader_lease import Lease
from moorage.manager.store.platform.report_fencing import ReportRefused
from moorage.manager.store.schema.migrate import migrate
from moorage.manager.store.store import Store

__all__ = ["Lease", "Notifier", "ReportRefused", "Store", "Topic", "migrate"]
