"""Pause, approve, resume: what is bound, what is checked, and who has the time (rows 228 to 235).

A pause stores data and frees its worker. A decision stores data and runs nothing. Whoever goes on claims all the
time that is left, checks that everything is as it was, and runs the one command that a person said yes to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from agents import archive
from agents.clock import wait
from agents.desk import Desk
from agents.errors import GitError, NeedsApproval, SandboxLimit, SnapshotError, StopRun
from agents.models import Approval, ApprovalState, Continuation, ContinuationState, Reconciliation
from agents.prompts import AGENT
from agents.snapshot import Snapshot, decode, encode
from agents.spec import AttemptSpec, Paused
from agents.tools.toolbox import specs_of, tools_for
from agents.workspace.checkout import KEPT_REFS, Workspace
from agents.workspace.git import store_for
from agents.workspace.upkeep import stores
from routing.active_time import Claimed, Exhausted, claim, given_back
from routing.words import EndReason
from tenants.models import User

# Other attempts of the Change hold its sandboxes: each ends within its own time.
SANDBOX_ASK_SECONDS = 2.0
SANDBOX_WAIT_SECONDS_MAX = 300.0
# Until then the row of a first pause may be on its way; a run works 15 minutes at most.
ORPHAN_AGE_HOURS_MIN = 24
REF = re.compile(r"(?P<run>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<revision>[0-9]{1,5})")
DECLINED = "A person declined this command; it was not run."
# What an approval binds beside its own id (row 228), and what a person sends back with the decision.
BOUND = ("record", "revision", "payload_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What must still be true when a paused attempt goes on (row 230): one word or hash for each."""

    route: str
    reasoning: str
    model: str
    tools: str
    policy: str
    authority: str
    source: str

    def as_data(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Mismatch(Exception):
    """The decision was about something else than what waits here, or comes too late. Nothing was changed."""

    code = "approval_mismatch"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


def pause(desk: Desk, asking: NeedsApproval) -> Paused:
    """Stores the talk and the files of a run; no row is written. Its hold books are closed: it pauses between calls."""
    spec, revision = desk.spec, desk.spec.pauses + 1
    kept = None
    if desk.bench.workspace is not None:
        kept = desk.bench.workspace.keep(_ref(spec.run_id, revision), at=spec.committed_at)
    content = encode(desk.snapshot(revision=revision, written=kept.written if kept else ()))
    patch = archive.put_by_hash(f"{spec.archive_prefix}/patches", kept.patch, ".patch") if kept else ""
    return Paused(
        argv=asking.argv,
        why=asking.why,
        snapshot_key=archive.put_by_hash(f"{spec.archive_prefix}/paused", content, ".json"),
        tree_commit=kept.commit if kept else "",
        patch_key=patch,
        calls=desk.tab.calls,
        reads=desk.bench.reads,
        tool_log_key=desk.log.store(pauses=True),
        noted=desk.noted,
    )


def binding_of(spec: AttemptSpec, *, floor: str, authority: str, stacked_on: tuple[str, ...]) -> Binding:
    """From the spec of an attempt, which is made from rows and settings each time it goes on.

    The caps are not in it: an attempt keeps those that it started with.
    """
    thinking, source = spec.thinking, spec.source
    tools = {tool.name: [tool.description, dict(tool.schema)] for tool in specs_of(tools_for(spec))}
    rules = [[[rule.pattern, str(rule.permission)] for rule in layer] for layer in spec.tool_rules]
    policy = {
        "trusted": spec.trusted,
        "extra_commands": [list(each) for each in spec.extra_commands],
        "approval_commands": [list(each) for each in spec.approval_commands],
        "publish_rules": dict(spec.publish_rules),
        "system_prompt": AGENT,
    }
    return Binding(
        route=f"{spec.tier.word} by {spec.payers.connector}, floor {floor or 'none'}",
        reasoning=f"{thinking.mode} {thinking.effort} {thinking.budget_tokens or ''}".strip(),
        model=f"{spec.model}, {spec.output_tokens_max} tokens",
        tools=digest([tools, rules]),
        policy=digest(policy),
        authority=authority,
        source=digest([source.base_commit, source.start_commit, *stacked_on] if source else []),
    )


def what_changed(then: Mapping[str, str], now: Binding) -> tuple[str, ...]:
    """Pure: the names of everything that is no longer as it was (row 230)."""
    data = now.as_data()
    return tuple(name for name in data if then.get(name) != data[name])


def keep(
    paused: Paused,
    spec: AttemptSpec,
    binding: Binding,
    *,
    budget_ms: int,
    started_at: datetime,
    now: datetime,
) -> Approval:
    """The rows of a pause, in the domain's transaction: what this part did not use of its time is given back."""
    payers = spec.payers
    assert payers.project_id is not None, "an attempt has a project"
    assert payers.change_id is not None, "and a Change"
    assert payers.task_id is not None, "and a Task"
    before = Continuation.objects.select_for_update().filter(run_id=spec.run_id).first()
    if before is None or before.claimed_at is None:
        left = given_back(budget_ms, _ms(started_at, now))
    else:
        left = given_back(before.claimed_ms, _ms(before.claimed_at, now))
    columns: dict[str, Any] = {
        "revision": spec.pauses + 1,
        "state": ContinuationState.WAITING,
        "snapshot_key": paused.snapshot_key,
        "tree_commit": paused.tree_commit,
        "patch_key": paused.patch_key,
        "binding": binding.as_data(),
        "remaining_ms": left,
        "claimed_ms": 0,
        "paused_at": now,
        "claimed_at": None,
    }
    record: Continuation
    if before is None:
        record = Continuation.objects.create(
            organization_id=payers.organization_id,
            project_id=payers.project_id,
            change_id=payers.change_id,
            task_id=payers.task_id,
            run_id=spec.run_id,
            budget_ms=budget_ms,
            **columns,
        )
    else:
        _forget_later(before)
        Continuation.objects.filter(pk=before.pk).update(**columns)
        record = Continuation.objects.get(pk=before.pk)
    approval = Approval(
        organization_id=payers.organization_id,
        continuation=record,
        revision=record.revision,
        argv=list(paused.argv),
        why=paused.why.replace("\0", ""),
        asked_at=now,
    )
    approval.payload_hash = payload_hash(approval, record)
    approval.save()
    return approval


def payload_hash(approval: Approval, record: Continuation) -> str:
    """Of everything that a decision is about: the command and why, the talk, the files, and what must not change."""
    bound = [
        str(approval.pk),
        str(record.pk),
        approval.revision,
        approval.argv,
        approval.why,
        record.snapshot_key,
        record.tree_commit,
        record.binding,
    ]
    return digest(bound)


def decide(
    approval: Approval, *, approves: bool, bound: Mapping[str, Any], by: User, reason: str, now: datetime
) -> bool:
    """Store a decision; nothing is run (row 228). False when the very same one is stored already (row 229).

    `bound` is what the person saw: record, revision and payload hash. Raises `Mismatch`.
    """
    fresh = Approval.objects.select_for_update().select_related("continuation").get(pk=approval.pk)
    record = fresh.continuation
    expected = {"record": str(record.pk), "revision": fresh.revision, "payload_hash": fresh.payload_hash}
    for name in BOUND:
        if bound.get(name) != expected[name]:
            raise Mismatch(name, f"{name} is not that of this approval: read it again before you decide")
    wanted = ApprovalState.APPROVED if approves else ApprovalState.DECLINED
    if fresh.state == wanted:
        return False
    if fresh.state != ApprovalState.PENDING:
        raise Mismatch("state", f"this approval is {fresh.get_state_display()} already")
    if record.revision != fresh.revision or record.state != ContinuationState.WAITING:
        raise Mismatch("revision", "the attempt does not wait for this approval any more")
    if payload_hash(fresh, record) != fresh.payload_hash:
        raise Mismatch("payload_hash", "the rows are not as they were when the approval was asked for")
    _move(fresh, wanted, decided_by=by, decided_at=now, reason=reason)
    return True


def take_back(approval: Approval) -> None:
    """A yes that its person may not say any more: the same command waits for another's. Raises `Mismatch`."""
    said = Approval.objects.filter(pk=approval.pk, state=ApprovalState.APPROVED, effect_began_at__isnull=True)
    if not said.update(state=ApprovalState.PENDING, decided_by=None, decided_at=None, reason=""):
        raise Mismatch("state", "this yes is used, or taken back already")


def claim_time(record: Continuation, *, now: datetime) -> Claimed | Exhausted:
    """All that is left, for one worker (row 231). A second claim finds nothing."""
    verdict = claim(record.remaining_ms)
    if isinstance(verdict, Claimed):
        waiting = Continuation.objects.filter(
            pk=record.pk, state=ContinuationState.WAITING, remaining_ms=record.remaining_ms
        )
        taken = waiting.update(
            state=ContinuationState.CLAIMED, remaining_ms=0, claimed_ms=verdict.ms, claimed_at=now
        )
        if not taken:
            return Exhausted()
    return verdict


def snapshot_of(record: Continuation) -> Snapshot:
    """The stored talk. Raises `SnapshotError`: there is no such thing as an empty conversation to go on with."""
    try:
        content = archive.get(record.snapshot_key)
    except archive.NotStored as missing:
        raise SnapshotError("corrupt", str(missing)) from missing
    return decode(
        content,
        run_id=record.run_id,
        organization_id=record.organization_id,
        revision=record.revision,
    )


def check(approval: Approval, record: Continuation, now: Binding) -> Snapshot:
    """Everything that must be right before anything stored is used. Raises `StopRun`, `SnapshotError`."""
    decided = approval.state in (ApprovalState.APPROVED, ApprovalState.DECLINED)
    if not decided or approval.payload_hash != payload_hash(approval, record):
        raise StopRun(EndReason.RESUME_REJECTED, "changed: approval")
    changed = what_changed(record.binding, now)
    if changed:
        raise StopRun(EndReason.RESUME_REJECTED, f"changed: {', '.join(changed)}")
    return snapshot_of(record)


def go_on(desk: Desk, approval: Approval, snapshot: Snapshot) -> None:
    """Brings talk and files back, and answers the pending call: with the command's result, or with the refusal."""
    record = approval.continuation
    desk.bring_back(snapshot)
    if record.tree_commit and desk.bench.workspace is not None:
        _bring_back(desk, desk.bench.workspace, record.tree_commit, snapshot.written)
    if approval.state == ApprovalState.APPROVED:
        _run_approved(desk, approval)
    else:
        reason = approval.reason
        desk.refuse(f"{DECLINED} They said: {reason}" if reason else DECLINED)
    desk.use_the_rest()


def uncertain_effect(run_id: UUID) -> Approval | None:
    """The approved command that a worker began and nobody saw end (row 232)."""
    found: Approval | None = Approval.objects.filter(
        continuation__run_id=run_id,
        effect_began_at__isnull=False,
        effect_ended_at__isnull=True,
        reconciliation=None,
    ).first()
    return found


def was_claimed(run_id: UUID) -> bool:
    """Whether the attempt goes on after a pause: its claim is forfeited when its worker dies (row 231)."""
    return Continuation.objects.filter(run_id=run_id, state=ContinuationState.CLAIMED).exists()


def close(run_id: UUID, *, abandoned: bool = False, now: datetime) -> None:
    """The attempt has ended: an open approval is withdrawn, and talk and files are forgotten after the commit.

    An orderly end gives back what it did not use of its time; an abandoned claim is forfeited (row 231).
    """
    record = Continuation.objects.select_for_update().filter(run_id=run_id).first()
    if record is None or record.state == ContinuationState.CLOSED:
        return
    left = record.remaining_ms
    if record.claimed_at is not None and not abandoned:
        left = given_back(record.claimed_ms, _ms(record.claimed_at, now))
    Continuation.objects.filter(pk=record.pk).update(
        state=ContinuationState.CLOSED, remaining_ms=left, claimed_ms=0, closed_at=now
    )
    for approval in record.approvals.filter(state=ApprovalState.PENDING):
        _move(approval, ApprovalState.WITHDRAWN)
    _forget_later(record)


def forget_orphans(*, now: datetime) -> int:
    """The housekeeping's share: names of kept files that no pause needs any more, left by workers that died. How many.

    A live pause is never touched, nor one whose row is on its way: files are kept before the rows are written.
    """
    count = 0
    for store in stores():
        with suppress(OSError, GitError):  # a broken repository keeps the others from nothing
            for name in _orphans(store.names(KEPT_REFS), now=now):
                store.drop_ref(KEPT_REFS, name)
                count += 1
    return count


def reconcile(approval: Approval, *, took_effect: bool, by: User, reason: str, now: datetime) -> bool:
    """Store what a person found out; nothing is run. False when this is stored already. Raises `Mismatch`."""
    fresh = Approval.objects.select_for_update().select_related("continuation").get(pk=approval.pk)
    known = Reconciliation.objects.filter(approval=fresh).first()
    if known is not None:
        if known.took_effect == took_effect:
            return False
        raise Mismatch("took_effect", "somebody has said already what became of this command")
    if uncertain_effect(fresh.continuation.run_id) != fresh or (
        fresh.continuation.state != ContinuationState.CLOSED
    ):
        raise Mismatch("state", "what became of this command is not in doubt")
    Reconciliation.objects.create(
        organization_id=fresh.organization_id,
        approval=fresh,
        took_effect=took_effect,
        by=by,
        reason=reason,
        at=now,
    )
    return True


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _bring_back(desk: Desk, workspace: Workspace, commit: str, written: tuple[str, ...]) -> None:
    """The files of the pause; a sandbox that is not free yet is waited for, on this attempt's own time (row 56)."""
    waited = 0.0
    while True:
        try:
            workspace.bring_back(commit, written)
        except SandboxLimit as full:
            if waited >= SANDBOX_WAIT_SECONDS_MAX:
                raise StopRun(EndReason.RESUME_REJECTED, str(full)) from full
        except GitError as lost:
            raise StopRun(
                EndReason.RESUME_REJECTED, f"the files cannot be brought back: {lost}"[:500]
            ) from lost
        else:
            return
        wait(SANDBOX_ASK_SECONDS, supervisor=desk.supervisor, clock=desk.clock)
        waited += SANDBOX_ASK_SECONDS
        desk.supervisor.beat()


def _run_approved(desk: Desk, approval: Approval) -> None:
    """Begun is written before, ended after: a worker that dies in between leaves an effect that nobody knows."""
    fresh = Approval.objects.filter(pk=approval.pk, effect_began_at__isnull=True)
    if not fresh.update(effect_began_at=desk.clock.now()):
        raise StopRun(EndReason.RESUME_REJECTED, "this command was begun before; it is never replayed")
    try:
        desk.use_approved(tuple(approval.argv))
    except StopRun:  # cancelled, or out of time: the sandbox has killed it, which is an end that is known
        _effect_ended(desk, approval)
        raise
    _effect_ended(desk, approval)


def _effect_ended(desk: Desk, approval: Approval) -> None:
    Approval.objects.filter(pk=approval.pk).update(effect_ended_at=desk.clock.now())


def _move(approval: Approval, to: ApprovalState, **columns: Any) -> None:
    """Compare and set: two who decide at once, one decision."""
    pending = Approval.objects.filter(pk=approval.pk, state=ApprovalState.PENDING)
    if not pending.update(state=to, **columns):
        raise Mismatch("state", "somebody else has decided this meanwhile")


def _ms(since: datetime, until: datetime) -> int:
    return max(0, int((until - since).total_seconds() * 1_000))


def _ref(run_id: UUID, revision: int) -> str:
    return f"{run_id}-{revision}"


def _orphans(names: Iterable[str], *, now: datetime) -> list[str]:
    named = {name: found for name in names if (found := _named(name)) is not None}
    rows = Continuation.objects.filter(run_id__in={run_id for run_id, _ in named.values()})
    ended = set(rows.filter(state=ContinuationState.CLOSED).values_list("run_id", flat=True))
    paused: dict[UUID, int] = dict(
        rows.exclude(state=ContinuationState.CLOSED).values_list("run_id", "revision")
    )

    def needed(run_id: UUID, revision: int) -> bool:
        if run_id in paused:
            return revision >= paused[run_id]
        return run_id not in ended and now - _made_at(run_id) < timedelta(hours=ORPHAN_AGE_HOURS_MIN)

    return [name for name, found in named.items() if not needed(*found)]


def _named(ref: str) -> tuple[UUID, int] | None:
    """Run and revision of a name that `_ref` made; None for any other."""
    found = REF.fullmatch(ref)
    return (UUID(found["run"]), int(found["revision"])) if found else None


def _made_at(run_id: UUID) -> datetime:
    """The ids of runs say when they were made."""
    return datetime.fromtimestamp((run_id.int >> 80) / 1_000, tz=UTC)


def _forget_later(record: Continuation) -> None:
    """What was kept for this pause goes when the rows say so; nothing else names it."""
    key, ref, project_id = record.snapshot_key, _ref(record.run_id, record.revision), record.project_id
    kept = bool(record.tree_commit)

    def forget() -> None:
        with suppress(OSError):
            archive.remove(key)
        if kept:
            with suppress(OSError, GitError):
                store_for(project_id).drop_ref(KEPT_REFS, ref)

    transaction.on_commit(forget)
