"""The gRPC side of the manager: agents and proxies dial in here."""

from moorage.manager.rpc.agent_link import Links
from moorage.manager.rpc.authentication import Admission
from moorage.manager.rpc.commands import ExecBroker
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.rpc.route_feed import Feed
from moorage.manager.rpc.server import LinkServer
from moorage.manager.rpc.workspaces import WorkspaceBroker

__all__ = ["Admission", "ExecBroker", "Feed", "LinkServer", "Links", "LogBroker", "WorkspaceBroker"]
