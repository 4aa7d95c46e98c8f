"""gRPC servers of the manager, which agents and proxies dial."""

from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import LinkAuthenticator
from moorage.manager.rpc.commands import CommandBroker
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.rpc.manager_link import ManagerLinkClient
from moorage.manager.rpc.peer_addresses import PeerAddresses
from moorage.manager.rpc.proxy_links import ProxyLinks
from moorage.manager.rpc.route_feed import RouteFeed
from moorage.manager.rpc.server import LinkServer
from moorage.manager.rpc.workspaces import WorkspaceBroker

__all__ = [
    "AgentLinks",
    "CommandBroker",
    "LinkAuthenticator",
    "LinkServer",
    "LogBroker",
    "ManagerLinkClient",
    "PeerAddresses",
    "ProxyLinks",
    "RouteFeed",
    "WorkspaceBroker",
]
