"""Test server that speaks HEAppE's protocol, in the profiles 6.3.2 and 6.5, in front of a cluster.

``README.md`` in this directory lists its traps and the switches that set them.
"""

from tests.heappe.cluster import Script, ScriptedCluster, Submission
from tests.heappe.server import HeappeServer
from tests.heappe.site import NodeType, Project, Site, Template, Timing, User

__all__ = [
    "HeappeServer",
    "NodeType",
    "Project",
    "Script",
    "ScriptedCluster",
    "Site",
    "Submission",
    "Template",
    "Timing",
    "User",
]
