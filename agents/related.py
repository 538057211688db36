"""What a Task should see beside its declared files: their neighbours, and similar files within the daily limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from agents.clock import WALL, Clock
from agents.index import EMBEDDING_SECONDS_MAX, Match, nearest_files, neighbours_of
from agents.models import TreeIndex
from agents.spec import Payers
from budgets.decisions import Amount
from budgets.keys import MeterKind
from budgets.meters import daily_meter
from budgets.money import ZERO
from budgets.prices import tokens_of
from budgets.reservations import CallContext, Held, keep, refund, reserve, settle
from providers import connectors
from providers.embeddings import HASHING_NAME, Embedder, Vectors
from providers.errors import ProviderError
from providers.messages import Usage

QUESTION_CHARACTERS_MAX = 4_000
EMBEDDING_HOLD_SECONDS = 120
# Embedders that work in this process: whoever dies meanwhile has sent nothing.
NEVER_SENT = frozenset({HASHING_NAME})


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """`note` is empty, or a fixed word that says why there are no similar files."""

    neighbours: tuple[str, ...]
    similar: tuple[Match, ...]
    note: str = ""  # no_vectors, other_embedder, embeddings_daily_limit, embedder_failed


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
    asked = embedder or connectors.embedder()
    if index.embedder != asked.name:  # the vectors of two embedders are two languages
        return Related(
            neighbours=neighbours, similar=(), note="other_embedder" if index.embedder else "no_vectors"
        )
    vector = _embedded(question[:QUESTION_CHARACTERS_MAX], payers, asked, clock)
    if isinstance(vector, str):
        return Related(neighbours=neighbours, similar=(), note=vector)
    without = {*declared, *neighbours}
    return Related(neighbours=neighbours, similar=nearest_files(index, vector, live=live, without=without))


def _embedded(question: str, payers: Payers, embedder: Embedder, clock: Clock) -> Vectors | str:
    """The question's vector, counted on the day's embeddings; otherwise a word that says why there is none."""
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
        return "embeddings_daily_limit"
    try:
        embedded = embedder.embed([question], seconds_max=EMBEDDING_SECONDS_MAX)
    except ProviderError as error:
        end = keep if error.may_be_billed else refund
        end(held.reservation_id, reason=error.kind)
        return "embedder_failed"
    except BaseException:
        keep(held.reservation_id, reason="interrupted")
        raise
    usage = embedded.usage or Usage(input_uncached=max(tokens, 1), output=0, quality="normalized")
    settle(held.reservation_id, cost=ZERO, usage=usage, rates=None)
    vector: Vectors = embedded.vectors[0]
    return vector
