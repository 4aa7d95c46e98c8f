"""All SQL lives here: methods named by intent, one statement per file in ``sql/``."""

from moorage.manager.store.migrate import migrate
from moorage.manager.store.notifier import Bell, Topic
from moorage.manager.store.report_fencing import ReportRefused
from moorage.manager.store.store import Store

__all__ = ["Bell", "ReportRefused", "Store", "Topic", "migrate"]
