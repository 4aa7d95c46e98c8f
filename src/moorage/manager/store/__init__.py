"""All SQL lives here: methods named by intent, one statement per file in ``sql/``."""

from moorage.manager.store.migrate import migrate
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.report_fencing import ReportRefused
from moorage.manager.store.store import Store

__all__ = ["Notifier", "ReportRefused", "Store", "Topic", "migrate"]
