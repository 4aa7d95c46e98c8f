"""Step outputs on this node: keeping them, fetching them from other nodes, and removing them."""

from moorage.agent.outputs.service import NoOutputs as NoOutputs
from moorage.agent.outputs.service import Outputs as Outputs
from moorage.agent.outputs.service import OutputService as OutputService
from moorage.agent.outputs.store import NodeOutputs as NodeOutputs
