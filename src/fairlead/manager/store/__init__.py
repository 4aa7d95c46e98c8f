"""All SQL lives here: methods named by intent, one statement per file in ``sql/``."""

from fairlead.manager.store.bell import Bell, Topic
from fairlead.manager.store.migrate import migrate
from fairlead.manager.store.speaking import ReportRefused
from fairlead.manager.store.store import Store

__all__ = ["Bell", "ReportRefused", "Store", "Topic", "migrate"]
