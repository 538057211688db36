"""A run's log as people read it: bounded, searchable, in colour, and never a page of its own (faults C89, C91)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import DjangoAssertNumQueries

from agents import archive
from tasks.display.ansi import Piece, coloured
from tasks.display.log import PAGE_CHARACTERS_MAX, read_log
from tasks.models import TaskRun
from tenants.models import Role
from tests.factories.agents import make_model_call, make_tool_call
from tests.factories.tasks import make_change, make_run, make_task
from tests.factories.tenants import make_member

HOSTILE = "<script>alert('x')</script>\u202e"


def used(position: int = 1, **more: Any) -> dict[str, Any]:
    fields = {
        "tool": "run_command",
        "arguments": '{"command": "pytest"}',
        "verdict": "ok",
        "code": "",
        "kept": "",
    }
    return {"position": position, "model_call": 1, "result": "exit code 0", **fields, **more}


def log_of(*rows: dict[str, Any]) -> bytes:
    return json.dumps(rows).encode()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain\n", (Piece("plain\n", ""),)),
        ("\x1b[31mFAILED\x1b[0m done\n", (Piece("FAILED", "bad"), Piece(" done\n", ""))),
        ("\x1b[1;32mok\x1b[m", (Piece("ok", "good"),)),
        ("\x1b[33mover\ntwo lines\x1b[0m", (Piece("over\ntwo lines", "warn"),)),
        ("10%\r100%\n", (Piece("100%\n", ""),)),
        ("\x1b[38;5;196mmany colours\x1b[0m", (Piece("many colours", ""),)),
        ("\x1b]0;title\x07said", (Piece("said", ""),)),
        ("\x1b[2J\x1b[Hwiped", (Piece("wiped", ""),)),
    ],
)
def test_terminal_colours_become_tones_and_nothing_else_gets_through(
    text: str, pieces: tuple[Piece, ...]
) -> None:
    assert coloured(text) == pieces


def test_a_log_shows_arguments_and_answers_by_call() -> None:
    edit = used(
        2,
        tool="edit_file",
        arguments='{"path": "a.py", "edits": [{"oldText": "1"}]}',
        verdict="refused",
        code="no_match",
    )
    log = read_log(log_of(used(), edit))
    assert [entry.summary for entry in log.entries] == ["pytest", "a.py"]
    assert log.entries[1].arguments[0] == ("path", "a.py")
    assert not log.entries[1].is_ok


def test_a_search_keeps_the_calls_that_hold_it() -> None:
    log = read_log(log_of(used(), used(2, result="AssertionError: 3 != 4")), search="assertionERROR")
    assert ([entry.position for entry in log.entries], log.total) == ([2], 2)


def test_arguments_that_are_no_json_are_shown_as_they_came() -> None:
    assert read_log(log_of(used(arguments="not json"))).entries[0].arguments == (("", "not json"),)


def test_a_long_log_is_cut_with_both_its_ends() -> None:
    entry = read_log(log_of(used(result="begin" + "x" * 50_000 + "end"))).entries[0]
    shown = "".join(piece.text for piece in entry.pieces)
    assert (shown.startswith("begin"), shown.endswith("end"), entry.cut) == (True, True, True)


@pytest.mark.django_db
def test_a_log_of_five_megabytes_is_drawn_on_a_page_of_bounded_size(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    """Issue 6: long logs stay quick; `make bench` has the seconds."""
    run, client = a_run(*(used(n, result=("\x1b[31mline\x1b[0m of output\n" * 500)) for n in range(1, 450)))
    for number in range(1, 30):
        make_model_call(run_id=run.pk, organization=run.task.change.organization, key=f"k{number}")
    with django_assert_max_num_queries(16):
        page = client.get(f"/runs/{run.pk}")
    assert page.status_code == 200
    assert len(page.content) < 6 * PAGE_CHARACTERS_MAX


@pytest.mark.django_db
def test_the_run_page_shows_the_log_and_offers_it_whole() -> None:
    kept = archive.put_by_hash("outputs", b"<b>all of it</b>", ".txt")
    run, client = a_run(used(result=HOSTILE, kept=kept), used(2, tool="read_file", arguments=HOSTILE))
    make_model_call(run_id=run.pk, organization=run.task.change.organization)
    make_tool_call(run_id=run.pk, organization=run.task.change.organization)
    page = client.get(f"/runs/{run.pk}").content.decode()
    assert "<script>alert" not in page
    assert "⟨U+202E⟩" in page
    assert f"/runs/{run.pk}/outputs/1" in page
    whole = client.get(f"/runs/{run.pk}/outputs/1")
    assert (whole.content, whole.headers["Content-Type"]) == (
        b"<b>all of it</b>",
        "text/plain; charset=utf-8",
    )
    assert whole.headers["Content-Disposition"].startswith("attachment")
    assert client.get(f"/runs/{run.pk}/outputs/2").status_code == 404
    log = client.get(f"/runs/{run.pk}/log")
    assert (len(log.json()), log.headers["Content-Disposition"][:10]) == (2, "attachment")
    found = client.get(f"/runs/{run.pk}?q=read_file").content.decode()
    assert "1 of 2 tool calls hold" in found


@pytest.mark.django_db
def test_a_run_that_still_works_has_no_log_to_download() -> None:
    run, client = a_run()
    TaskRun.objects.filter(pk=run.pk).update(tool_log_key="")
    assert client.get(f"/runs/{run.pk}/log").status_code == 404
    assert "No call yet" in client.get(f"/runs/{run.pk}").content.decode()


def a_run(*rows: dict[str, Any]) -> tuple[TaskRun, Client]:
    run = make_run(make_task(make_change()))
    key = archive.put(f"logs/tools-{run.pk}.json", log_of(*rows))
    TaskRun.objects.filter(pk=run.pk).update(tool_log_key=key)
    client = Client()
    client.force_login(make_member(run.task.change.organization, Role.VIEWER))
    return TaskRun.objects.get(pk=run.pk), client
