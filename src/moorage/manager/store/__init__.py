"""All SQL lives here: methods named by intent, one statement per file in ``sql/``."""

from moorage.manager.store.bell import Bell, Topic
from moorage.manager.store.migrate import migrate
from moorage.manager.store.speaking import ReportRefused
from moorage.manager.store.store import Store

__all__ = ["Bell", "ReportRefused", "Store", "Topic", "migrate"]
