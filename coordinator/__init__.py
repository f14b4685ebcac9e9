"""The wing of Missions: the client SDK and the `treadle` command."""

from .client import Client, Mission, MissionFailed
from .specs import MissionSpec, WorkSpec

__all__ = ["Client", "Mission", "MissionFailed", "MissionSpec", "WorkSpec"]
