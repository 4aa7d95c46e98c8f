"""The gRPC side of the manager: agents and proxies dial in here."""

from fairlead.manager.rpc.admission import Admission
from fairlead.manager.rpc.execs import ExecBroker
from fairlead.manager.rpc.feed import Feed
from fairlead.manager.rpc.link import Links
from fairlead.manager.rpc.logs import LogBroker
from fairlead.manager.rpc.server import LinkServer
from fairlead.manager.rpc.workspaces import WorkspaceBroker

__all__ = ["Admission", "ExecBroker", "Feed", "LinkServer", "Links", "LogBroker", "WorkspaceBroker"]
