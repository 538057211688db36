"""The attempts of a Task as lanes, in the windows in which they count. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from routing.words import Tier
from tasks.models import ChangeSet, DecisionReceipt, Reopening, TaskRun
from tasks.pages.receipts import ReceiptRow, receipt_row

# Decisions after which the attempts before no longer count (row 198).
OPENS_A_WINDOW = frozenset({"fresh_window", "reopened"})


@dataclass(frozen=True, slots=True)
class Files:
    """What an attempt published: `own` it changed itself, `inherited` changed what it builds on."""

    own: tuple[str, ...]
    inherited: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.own) + len(self.inherited)


@dataclass(frozen=True, slots=True)
class Lane:
    """One attempt. `before` is the attempt whose packet its own is compared with."""

    run: TaskRun
    tier: str
    receipts: tuple[ReceiptRow, ...]
    files: Files | None
    before: TaskRun | None

    @property
    def same_packet(self) -> bool:
        return self.before is not None and self.before.context_hash == self.run.context_hash


@dataclass(frozen=True, slots=True)
class Window:
    """Attempts that count together. Only those of the last window are looked at when the next one is chosen."""

    number: int
    lanes: tuple[Lane, ...]
    counts: bool
    opened_at: datetime | None  # None: the first one
    opening: Reopening | None  # by a person or a raise


def windows_of(
    runs: Sequence[TaskRun],
    receipts: Sequence[DecisionReceipt],
    openings: Iterable[Reopening],
    reset_at: datetime | None,
) -> list[Window]:
    """The windows in order of time, each with its attempts; the last one may have none yet."""
    by_moment = {each.at: each for each in openings}
    moments = {each.at for each in receipts if each.run_id is None and each.decision in OPENS_A_WINDOW}
    moments |= {reset_at} if reset_at else set()
    starts: list[datetime | None] = [None, *sorted(at for at in moments if reset_at and at <= reset_at)]
    lanes = _lanes(runs, receipts)
    found: list[Window] = []
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else None
        mine = tuple(
            lane
            for lane in lanes
            if (start is None or lane.run.started_at >= start) and (end is None or lane.run.started_at < end)
        )
        is_last = end is None
        if mine or is_last:
            opening = by_moment.get(start) if start else None
            found.append(Window(len(found) + 1, mine, is_last, start, opening))
    return found


def _lanes(runs: Sequence[TaskRun], receipts: Sequence[DecisionReceipt]) -> list[Lane]:
    return [
        Lane(
            run=run,
            tier=Tier(run.tier).word,
            receipts=tuple(receipt_row(each) for each in receipts if each.run_id == run.pk),
            files=_files(run),
            before=runs[place - 1] if place else None,
        )
        for place, run in enumerate(runs)
    ]


def _files(run: TaskRun) -> Files | None:
    changeset: ChangeSet | None = getattr(run, "changeset", None)  # of a reverse key: absent, not None
    if changeset is None:
        return None
    own = tuple(changeset.own_files)
    return Files(own, tuple(path for path in changeset.files if path not in own))
