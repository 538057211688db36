"""Remit proves the work: every criterion is run on the composed tree, and the evidence is kept with its commit."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from agents import archive
from agents.errors import GitError, NoSandbox
from agents.workspace.checkout import open_checkout
from agents.workspace.git import Store
from agents.workspace.trees import with_paths_of
from tasks.events import record
from tasks.fence import WorkHold
from tasks.models import Candidate, Check, Criterion
from tasks.reviews import CHECKER, acceptance_check, integration_judge
from tasks.verdicts import Verdict

CHECK_SECONDS_MAX = 600  # of one criterion's command
OUTPUT_HEAD_CHARACTERS = 2_000
OUTPUT_TAIL_CHARACTERS = 6_000
PASSED, FAILED, ERROR = "passed", "failed", "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One command, once. `exit_code` None: it never came to an end by itself, and `output` says why."""

    exit_code: int | None
    output: str
    output_key: str
    started_at: datetime
    ended_at: datetime

    @property
    def verdict(self) -> str:
        if self.exit_code is None:
            return ERROR
        return PASSED if self.exit_code == 0 else FAILED


@dataclass(frozen=True, slots=True)
class Evidence:
    """All checks of one Candidate."""

    checks: tuple[Check, ...] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        return all(check.verdict == PASSED for check in self.checks)

    @property
    def problem(self) -> str:
        """The first criterion that does not pass, in words fixed here; empty when all pass."""
        for check in self.checks:
            if check.verdict != PASSED:
                how = f"exit code {check.exit_code}" if check.exit_code is not None else check.verdict
                return f"criterion {check.criterion.position} ({check.command or check.asked}): {how}"
        return ""

    @property
    def output(self) -> str:
        return next((check.output for check in self.checks if check.verdict != PASSED), "")

    def why_a_person_decides(self) -> str:
        """Why a project's automatic promotion does not act; empty when Remit itself proved everything.

        A model's word alone closes nothing, and neither do checks that only pass in the version
        which the agents gave them (fault C93).
        """
        if any(check.asked for check in self.checks):
            return "judged_by_a_model"
        if any(check.base_verdict not in ("", PASSED) for check in self.checks):
            return "fails_with_the_base_tests"
        return ""


def run_checks(hold: WorkHold, candidate: Candidate, store: Store) -> Evidence:
    """Every criterion, in order, all of them: a person wants to see the whole. Raises StopRun and WorkLost."""
    criteria = list(candidate.change.criteria.order_by("position"))
    restored = _with_base_tests(candidate, store)
    return Evidence(tuple(_check(hold, candidate, store, criterion, restored) for criterion in criteria))


def ask_judge(hold: WorkHold, candidate: Candidate, store: Store) -> str:
    """The integration judge's reason why an invariant is broken; empty when none is. It can only veto."""
    change = candidate.change
    if not change.invariants:
        return ""
    verdict = integration_judge(hold, change, _patch(candidate, store), now=timezone.now())
    said = verdict.reason if isinstance(verdict, Verdict) else f"no verdict: {verdict.problem}"
    with hold.writing():
        Candidate.objects.filter(pk=candidate.pk).update(judgement=said)
    if isinstance(verdict, Verdict) and verdict.passed:
        return ""
    return said or "no reason given"


def _check(hold: WorkHold, candidate: Candidate, store: Store, criterion: Criterion, restored: str) -> Check:
    started_at = timezone.now()
    check = Check(
        candidate=candidate, criterion=criterion, commit=candidate.commit, command=criterion.command
    )
    if criterion.command:
        ran = _run(hold, candidate, store, candidate.commit, criterion)
        check.verdict, check.exit_code = ran.verdict, ran.exit_code
        check.output, check.output_key = ran.output, ran.output_key
        if restored:
            base = _run(hold, candidate, store, restored, criterion)
            check.base_verdict, check.base_exit_code = base.verdict, base.exit_code
            check.base_output, check.base_output_key = base.output, base.output_key
    else:
        _ask(hold, candidate, store, check)
    check.started_at, check.ended_at = started_at, timezone.now()
    with hold.writing() as change:
        check.save()
        data = {"candidate": candidate.number, "criterion": criterion.position, "verdict": check.verdict}
        record("criterion.checked", change=change, data=data, now=check.ended_at)
    return check


def _ask(hold: WorkHold, candidate: Candidate, store: Store, check: Check) -> None:
    """A criterion without a command: the acceptance check reads the patch. Unreadable is no pass."""
    patch = _patch(candidate, store)
    verdict = acceptance_check(hold, candidate.change, check.criterion, patch, now=timezone.now())
    check.asked = CHECKER.name
    if isinstance(verdict, Verdict):
        check.verdict = PASSED if verdict.passed else FAILED
        check.output = verdict.reason
    else:
        check.verdict, check.output = ERROR, verdict.problem


def _run(hold: WorkHold, candidate: Candidate, store: Store, commit: str, criterion: Criterion) -> Ran:
    """One command in a fresh checkout: what one criterion leaves behind never helps the next."""
    started_at = timezone.now()
    project = candidate.change.project
    hold.renew(started_at)
    try:
        with open_checkout(store, commit, trusted=project.trusted) as checkout:
            output = checkout.run(
                shlex.split(criterion.command), seconds_max=CHECK_SECONDS_MAX, beat=hold.beat
            )
            whole = output.whole
            exit_code, text = output.exit_code, output.text
            if exit_code is None:
                text = f"{text}\n[ended by {output.reason}]"
    except NoSandbox:
        exit_code, text, whole = None, "this host has no sandbox; nothing was run", None
    except GitError as error:
        exit_code, text, whole = None, f"the tree could not be checked out: {error}", None
    prefix = f"evidence/{candidate.change.project_id}/{candidate.change_id}"
    key = archive.put_by_hash(prefix, whole if whole is not None else text.encode(), ".txt")
    return Ran(
        exit_code=exit_code,
        output=shortened(text),
        output_key=key,
        started_at=started_at,
        ended_at=timezone.now(),
    )


def shortened(output: str) -> str:
    """Head and tail of an output, with a line that says how much is left out. No NUL: no database keeps one."""
    output = output.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(output) <= OUTPUT_HEAD_CHARACTERS + OUTPUT_TAIL_CHARACTERS:
        return output
    left_out = len(output) - OUTPUT_HEAD_CHARACTERS - OUTPUT_TAIL_CHARACTERS
    head, tail = output[:OUTPUT_HEAD_CHARACTERS], output[-OUTPUT_TAIL_CHARACTERS:]
    return f"{head}\n[... {left_out:,} characters left out ...]\n{tail}"


def _with_base_tests(candidate: Candidate, store: Store) -> str:
    """The commit with the base's versions of the protected files; empty when no such file was changed or removed."""
    at_base = {file.path for file in store.tree_files(candidate.base_commit)}
    paths = [path for path in candidate.flagged_files if path in at_base]
    if not paths:
        return ""
    commit = with_paths_of(store, candidate.commit, candidate.base_commit, paths)
    store.keep_ref("candidates", f"{candidate.pk}-base", commit)
    return commit


def _patch(candidate: Candidate, store: Store) -> str:
    return store.patch(candidate.base_commit, candidate.commit).decode("utf-8", "replace")
