"""The engine's rows: its own log of calls, paused attempts, and the file index."""

from agents.models.calls import CallState, ModelCall, ToolCall
from agents.models.continuation import (
    Approval,
    ApprovalState,
    Continuation,
    ContinuationState,
    Reconciliation,
)
from agents.models.host import WorkerHost
from agents.models.index import IndexedFile, TreeIndex

__all__ = [
    "Approval",
    "ApprovalState",
    "CallState",
    "Continuation",
    "ContinuationState",
    "IndexedFile",
    "ModelCall",
    "Reconciliation",
    "ToolCall",
    "TreeIndex",
    "WorkerHost",
]
