"""The wing of Missions: the client SDK and the `treadle` command."""

from treadle.shared.errors import Expired, Misuse, Refused, Unavailable

from .client import Client
from .failures import Failure, JobCancelled, JobFailed, MissionFailed
from .job import Job
from .mission import Mission
from .specs import MissionSpec, Retry, WorkSpec
from .sync import SyncClient, SyncJob, SyncMission

__all__ = [
    "Client",
    "Expired",
    "Failure",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Mission",
    "MissionFailed",
    "MissionSpec",
    "Misuse",
    "Refused",
    "Retry",
    "SyncClient",
    "SyncJob",
    "SyncMission",
    "Unavailable",
    "WorkSpec",
]
