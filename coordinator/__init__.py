"""The wing of Missions: the client SDK and the `treadle` command."""

from treadle.shared.answers import Added, Ended, Receipt
from treadle.shared.errors import Corrupt, Expired, Misuse, Refused, TreadleError, Unavailable

from .client import Client
from .core.gates import Gate
from .explaining import Why
from .failures import Failure, JobCancelled, JobFailed, MissionFailed
from .job import Job, JobReceipt
from .mission import Mission
from .specs import MissionSpec, Retry, WorkSpec
from .sync import SyncClient, SyncJob, SyncMission

__all__ = [
    "Added",
    "Client",
    "Corrupt",
    "Ended",
    "Expired",
    "Failure",
    "Gate",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobReceipt",
    "Mission",
    "MissionFailed",
    "MissionSpec",
    "Misuse",
    "Receipt",
    "Refused",
    "Retry",
    "SyncClient",
    "SyncJob",
    "SyncMission",
    "TreadleError",
    "Unavailable",
    "Why",
    "WorkSpec",
]
