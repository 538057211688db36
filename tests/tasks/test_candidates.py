"""Composition: merged in order, checked by Remit, decided by evidence."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents import archive
from tasks.conflicts import why_no_edges
from tasks.fence import make_due, take_work
from tasks.models import Candidate, Change, Check, Dependency, Task, Trunk
from tasks.promotion import promote
from tasks.states import CandidateState, ChangeState, TaskState
from tasks.work import work_on
from tenants.models import Promotion
from tests.factories.tasks import make_change, make_criterion, make_dependency, make_task
from tests.factories.tenants import make_project
from tests.tasks.repositories import FILES, make_done, make_repository, make_script, publish, says, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bwrap]

UNIT_TESTS = "python3 -m unittest"


@pytest.fixture
def change() -> Change:
    """A Change of a project that promotes by itself, with one criterion that the repository passes."""
    project = make_project(promotion=Promotion.AUTO)
    make_repository(project)
    change = make_change(project)
    make_criterion(change, text="The tests pass", command=UNIT_TESTS)
    return change


def compose(change: Change) -> Candidate:
    """Let the Change do its own work once, as a worker would."""
    make_due(change, now=timezone.now())
    work_on(change.pk)
    change.refresh_from_db()
    candidate: Candidate | None = change.candidates.order_by("-number").first()
    assert candidate is not None
    return candidate


def app(first: int = 1, second: int = 2, third: int = 3) -> bytes:
    return f"first = {first}\nsecond = {second}\nthird = {third}\n".encode()


def test_the_work_of_a_stack_is_merged_checked_and_promoted(change: Change) -> None:
    """Row 218: what a Task stands on is shared history, not merged twice."""
    first = make_done(change, {"app.py": app(second=20)})
    make_done(change, {"more.py": b"more = 1\n"}, needs=(first,))
    candidate = compose(change)
    assert change.state == ChangeState.PROMOTED
    assert candidate.state == CandidateState.PROMOTED
    assert candidate.files == ["app.py", "more.py"]
    assert candidate.flagged_files == []
    trunk = Trunk.objects.get(project=change.project)
    assert (trunk.commit, trunk.generation) == (candidate.commit, 2)
    check = Check.objects.get(candidate=candidate)
    assert (check.verdict, check.exit_code, check.commit) == ("passed", 0, candidate.commit)
    assert "OK" in check.output
    assert b"OK" in archive.get(check.output_key)
    assert check.ended_at >= check.started_at


def test_a_person_promotes_where_the_project_says_so(change: Change) -> None:
    change.project.promotion = Promotion.PERSON
    change.project.save()
    make_done(change, {"more.py": b"more = 1\n"})
    candidate = compose(change)
    assert (change.state, candidate.state) == (ChangeState.READY, CandidateState.PASSED)
    promote(candidate, by=change.author, now=timezone.now())
    change.refresh_from_db()
    assert change.state == ChangeState.PROMOTED


def test_main_that_moved_meanwhile_means_composing_anew(change: Change) -> None:
    change.project.promotion = Promotion.PERSON
    change.project.save()
    make_done(change, {"more.py": b"more = 1\n"})
    first = compose(change)
    other = make_change(change.project)
    make_criterion(other, command=UNIT_TESTS)
    make_done(other, {"other.py": b"other = 1\n"})
    promote(compose(other), by=None, now=timezone.now())
    promote(first, by=None, now=timezone.now())
    work_on(change.pk)
    second = change.candidates.get(number=2)
    first.refresh_from_db()
    assert first.state == CandidateState.STALE
    assert (second.state, second.generation) == (CandidateState.PASSED, 2)
    assert second.commit != first.commit


def test_a_failed_criterion_sends_the_last_task_back_once_with_the_evidence(change: Change) -> None:
    first = make_done(change, {"a.py": b"a = 1\n"})
    second = make_done(change, {"app.py": app(first=9)})
    candidate = compose(change)
    assert candidate.state == CandidateState.FAILED
    assert candidate.problem == f"criterion 1 ({UNIT_TESTS}): exit code 1"
    assert change.state == ChangeState.RUNNING
    second.refresh_from_db()
    assert second.state == TaskState.READY
    assert "9 != 1" in second.notes[-1]
    assert Dependency.objects.filter(task=second, on=first, added_by="integrate").exists()
    # It is wrong again: now a person decides, with the evidence before them.
    Task.objects.filter(pk=second.pk).update(state=TaskState.DONE)
    publish(second, {"app.py": app(first=8)})
    again = compose(change)
    assert (again.number, again.state) == (2, CandidateState.FAILED)
    assert change.state == ChangeState.FAILED
    assert change.failure == again.problem
    assert Check.objects.filter(candidate=again).get().exit_code == 1


def test_tests_that_agents_loosened_are_flagged_and_run_in_both_versions(change: Change) -> None:
    """Fault C93: green only with the agent's own tests is for a person to judge."""
    loose = FILES["tests/test_app.py"].replace(b"assertEqual(app.first, 1)", b"assertTrue(True)")
    make_done(change, {"app.py": app(first=9), "tests/test_app.py": loose})
    candidate = compose(change)
    assert candidate.flagged_files == ["tests/test_app.py"]
    check = Check.objects.get(candidate=candidate)
    assert (check.verdict, check.base_verdict, check.base_exit_code) == ("passed", "failed", 1)
    assert "9 != 1" in check.base_output
    assert (change.state, candidate.state) == (ChangeState.READY, CandidateState.PASSED)
    receipt = change.receipts.get(kind="promotion")
    assert receipt.reasons == ["fails_with_the_base_tests"]


def test_new_tests_are_flagged_but_need_no_second_run(change: Change) -> None:
    make_done(change, {"tests/test_more.py": b"import unittest\n"})
    candidate = compose(change)
    assert candidate.flagged_files == ["tests/test_more.py"]
    assert Check.objects.get(candidate=candidate).base_verdict == ""
    assert change.state == ChangeState.PROMOTED


def test_one_criterion_leaves_nothing_behind_for_the_next(change: Change) -> None:
    script = b"import pathlib, sys\np = pathlib.Path('left')\nsys.exit(p.exists() or p.write_text('x') * 0)\n"
    make_criterion(change, command="python3 leave.py")
    make_criterion(change, command="python3 leave.py")
    make_done(change, {"leave.py": script})
    candidate = compose(change)
    assert [check.exit_code for check in candidate.checks.all()] == [0, 0, 0]


def test_a_criterion_without_a_command_is_judged_and_then_a_person_promotes(change: Change) -> None:
    """A model's word closes nothing."""
    make_script(change.organization, says("acceptance_check", {"verdict": "pass", "reason": "It says so."}))
    make_criterion(change, text="It is documented")
    make_done(change, {"README.md": b"Documented.\n"})
    candidate = compose(change)
    check = candidate.checks.get(criterion__position=2)
    assert (check.verdict, check.asked, check.output) == ("passed", "acceptance_check", "It says so.")
    assert change.state == ChangeState.READY
    assert change.receipts.get(kind="promotion").reasons == ["judged_by_a_model"]


def test_a_verdict_that_cannot_be_read_is_no_pass(change: Change) -> None:
    make_script(change.organization, says("acceptance_check", "Looks good to me!"))
    make_criterion(change, text="It is documented")
    make_done(change, {"README.md": b"Documented.\n"})
    candidate = compose(change)
    assert candidate.checks.get(criterion__position=2).verdict == "error"
    assert candidate.state == CandidateState.FAILED


def test_the_judge_can_veto(change: Change) -> None:
    change.invariants = ["app.second stays 2"]
    change.save()
    make_script(change.organization, says("integration_judge", {"verdict": "fail", "reason": "second is 20"}))
    make_done(change, {"app.py": app(second=20)})
    candidate = compose(change)
    assert candidate.state == CandidateState.FAILED
    assert candidate.judgement == "second is 20"
    assert states(change) == [TaskState.READY]


def test_a_question_without_money_blocks_the_change_with_the_limits_name(change: Change) -> None:
    """Row 240."""
    from budgets.keys import MeterKind
    from budgets.limits import set_limit
    from budgets.money import Usd

    make_script(change.organization, says("acceptance_check", {"verdict": "pass", "reason": ""}))
    set_limit(
        organization_id=change.organization_id,
        kind=MeterKind.CHANGE,
        subject=str(change.pk),
        to=Usd(1),
        by=change.author,
        reason="",
        key="tight",
        now=timezone.now(),
    )
    make_criterion(change, text="It is documented")
    make_done(change, {"README.md": b"Documented.\n"})
    candidate = compose(change)
    assert candidate.state == CandidateState.STALE
    assert (change.state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    assert change.stop_detail["work"] == "composing"


def test_work_that_does_not_merge_is_done_again_on_top_of_the_other(change: Change) -> None:
    """Rows 215, 219, 223."""
    opinion = {"design_conflict": True, "resources": ["second", "third"], "advice": "Keep the first name."}
    make_script(change.organization, says("conflict_review", opinion))
    first = make_done(change, {"app.py": app(second=20)})
    second = make_done(change, {"app.py": app(second=21)})
    follower = make_done(change, {"more.py": b"more = 1\n"}, needs=(second,))
    candidate = compose(change)
    assert candidate.state == CandidateState.CONFLICT
    assert candidate.conflicts[0]["task"] == second.key
    assert candidate.conflicts[0]["paths"] == ["app.py"]
    assert change.state == ChangeState.RUNNING
    assert states(change) == [TaskState.DONE, TaskState.READY, TaskState.PENDING]
    second.refresh_from_db()
    assert Dependency.objects.filter(task=second, on=first, added_by="integrate").exists()
    assert second.design_conflicts == 2
    assert "Build on the real routes, names and shapes" in second.notes[-1]
    assert "Keep the first name." in second.notes[-1]
    assert follower.state == TaskState.DONE  # as it was read; its row waits
    for task in (second, follower):
        Task.objects.filter(pk=task.pk).update(state=TaskState.DONE)
    publish(second, {"app.py": app(second=22)})
    publish(follower, {"more.py": b"more = 2\n"})
    assert compose(change).state == CandidateState.PROMOTED


def test_an_edge_that_leads_in_a_circle_is_refused_with_the_way(change: Change) -> None:
    """Row 219."""
    first = make_task(change)
    second = make_task(change, needs=(first,))
    third = make_task(change, needs=(second,))
    assert why_no_edges(first, [third]) == "the dependencies would lead in a circle: T1 -> T3 -> T2 -> T1"
    assert why_no_edges(third, [first]) == ""
    make_dependency(third, first)
    assert "already builds on" in why_no_edges(third, [first])


def test_a_start_that_did_not_merge_is_mended_by_the_integrate_rule(change: Change) -> None:
    """Row 215: the dependency that did not merge is done again on top of the others."""
    make_script(
        change.organization,
        says("conflict_review", {"design_conflict": False, "resources": [], "advice": ""}),
    )
    first = make_done(change, {"app.py": app(second=20)})
    second = make_done(change, {"app.py": app(second=21)})
    at = second.changesets.get()
    stuck = make_task(
        change,
        needs=(first, second),
        state=TaskState.FAILED,
        failure="dependency_merge_conflict",
        stop_detail={
            "at": at.commit,
            "paths": ["app.py"],
            "stacked_on": [str(first.changesets.get().pk), str(at.pk)],
        },
    )
    make_due(change, now=timezone.now())
    work_on(change.pk)
    change.refresh_from_db()
    assert states(change) == [TaskState.DONE, TaskState.READY, TaskState.PENDING]
    assert Dependency.objects.filter(task=second, on=first).exists()
    stuck.refresh_from_db()
    assert stuck.failure == ""


def test_two_composers_make_one_candidate(change: Change) -> None:
    make_done(change, {"more.py": b"more = 1\n"})
    make_due(change, now=timezone.now())
    first = take_work(change.pk, now=timezone.now())
    assert first is not None
    assert take_work(change.pk, now=timezone.now()) is None
    work_on(change.pk)
    assert not change.candidates.exists()


def test_a_worker_that_lost_its_work_writes_nothing(change: Change) -> None:
    from tasks.candidates import compose as compose_with
    from tasks.fence import WorkLost

    make_done(change, {"more.py": b"more = 1\n"})
    make_due(change, now=timezone.now())
    lost = take_work(change.pk, now=timezone.now())
    assert lost is not None
    make_due(change, now=timezone.now())
    with pytest.raises(WorkLost):
        compose_with(lost)
    assert not change.candidates.exists()
