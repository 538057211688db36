"""The domain's rows."""

from tasks.models.candidate import Candidate, Check
from tasks.models.change import Change, Criterion
from tasks.models.changeset import ChangeSet
from tasks.models.claim import Claim
from tasks.models.event import Event
from tasks.models.helper_question import HelperQuestion
from tasks.models.preflight import Preflight
from tasks.models.project_import import ProjectImport
from tasks.models.receipt import DecisionReceipt
from tasks.models.reopening import Reopening
from tasks.models.run import TaskRun
from tasks.models.task import Dependency, Task
from tasks.models.trunk import Trunk

__all__ = [
    "Candidate",
    "Change",
    "ChangeSet",
    "Check",
    "Claim",
    "Criterion",
    "DecisionReceipt",
    "Dependency",
    "Event",
    "HelperQuestion",
    "Preflight",
    "ProjectImport",
    "Reopening",
    "Task",
    "TaskRun",
    "Trunk",
]
