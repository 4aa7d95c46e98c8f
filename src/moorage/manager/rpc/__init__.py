"""The gRPC side of the manager: agents and proxies dial in here."""

from moorage.manager.rpc.admission import Admission
from moorage.manager.rpc.execs import ExecBroker
from moorage.manager.rpc.feed import Feed
from moorage.manager.rpc.link import Links
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.rpc.server import LinkServer
from moorage.manager.rpc.workspaces import WorkspaceBroker

__all__ = ["Admission", "ExecBroker", "Feed", "LinkServer", "Links", "LogBroker", "WorkspaceBroker"]
