"""The engine's rows: its own log of calls, and the file index."""

from agents.models.calls import CallState, ModelCall, ToolCall
from agents.models.host import WorkerHost
from agents.models.index import IndexedFile, TreeIndex

__all__ = ["CallState", "IndexedFile", "ModelCall", "ToolCall", "TreeIndex", "WorkerHost"]
