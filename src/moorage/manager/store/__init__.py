"""Store: all SQL of the manager. It reads and writes rows and decides nothing; statements are in ``sql/``."""

from moorage.manager.store.migrate import migrate
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.report_fencing import ReportRefused
from moorage.manager.store.store import Store

__all__ = ["Notifier", "ReportRefused", "Store", "Topic", "migrate"]
