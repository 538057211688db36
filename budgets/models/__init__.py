"""The rows of the ledger."""

from budgets.models.limit import LimitChange, LimitRule, ThresholdCrossing
from budgets.models.meter import Meter
from budgets.models.model_task import Invocation, ModelTask
from budgets.models.reservation import Entry, Reservation, ReservationState
from budgets.models.verdict import LedgerVerdict

__all__ = [
    "Entry",
    "Invocation",
    "LedgerVerdict",
    "LimitChange",
    "LimitRule",
    "Meter",
    "ModelTask",
    "Reservation",
    "ReservationState",
    "ThresholdCrossing",
]
