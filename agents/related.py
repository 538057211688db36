"""What a Task should see beside its declared files: their neighbours, and similar files within the daily limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from agents.clock import WALL, Clock
from agents.index import Embedder, Match, nearest_files, neighbours_of
from agents.models import TreeIndex
from agents.spec import Payers
from budgets.decisions import Amount
from budgets.keys import MeterKind
from budgets.meters import daily_meter
from budgets.money import ZERO
from budgets.prices import tokens_of
from budgets.reservations import CallContext, Held, keep, reserve, settle
from providers.messages import Usage

QUESTION_CHARACTERS_MAX = 4_000
EMBEDDING_HOLD_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """`note` is empty, or a fixed word that says why there are no similar files."""

    neighbours: tuple[str, ...]
    similar: tuple[Match, ...]
    note: str = ""  # no_embedder, other_embedder, embeddings_daily_limit


def related_files(
    index: TreeIndex,
    payers: Payers,
    *,
    declared: Sequence[str],
    question: str,
    live: Collection[str] | None = None,
    embedder: Embedder | None = None,
    clock: Clock = WALL,
) -> Related:
    """Neighbours by imports, and at most five similar files; these only while the day has embeddings left (row 209)."""
    neighbours = tuple(path for path in neighbours_of(index, declared) if live is None or path in live)
    note = _why_none(index, embedder)
    if note or embedder is None:
        return Related(neighbours=neighbours, similar=(), note=note)
    vector = _embedded(question[:QUESTION_CHARACTERS_MAX], payers, embedder, clock)
    if vector is None:
        return Related(neighbours=neighbours, similar=(), note="embeddings_daily_limit")
    without = {*declared, *neighbours}
    return Related(neighbours=neighbours, similar=nearest_files(index, vector, live=live, without=without))


def _why_none(index: TreeIndex, embedder: Embedder | None) -> str:
    if embedder is None:
        return "no_embedder"
    # The vectors of two embedders are two languages.
    return "" if index.embedder == embedder.name else "other_embedder"


def _embedded(question: str, payers: Payers, embedder: Embedder, clock: Clock) -> Sequence[float] | None:
    """The question's vector, counted on the day's embeddings; None when the day has no more."""
    meter = daily_meter(MeterKind.EMBEDDINGS, payers.organization_id, now=clock.now())
    tokens = tokens_of(len(question))
    held = reserve(
        key=f"embedding:{uuid4()}",
        meters=[meter],
        # The service is the deployment's own: its calls are counted, and cost nothing here.
        amount=Amount(usd=ZERO, tokens=tokens, calls=1),
        context=CallContext(
            organization_id=payers.organization_id,
            project_id=payers.project_id,
            user_id=payers.user_id,
            change_id=payers.change_id,
            task_id=payers.task_id,
            run_id=payers.run_id,
            purpose="embedding",
            model=embedder.name,
        ),
        owner=payers.key,
        lease_seconds=EMBEDDING_HOLD_SECONDS,
    )
    if not isinstance(held, Held):
        return None
    try:
        (vector,) = embedder.embed([question])
    except BaseException:
        keep(held.reservation_id, reason="interrupted")
        raise
    settle(held.reservation_id, cost=ZERO, usage=Usage(input_uncached=max(tokens, 1), output=0), rates=None)
    return vector
