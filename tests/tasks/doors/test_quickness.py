"""Long logs and long diffs in a real browser: what it takes to show them is bounded (issue 6: 5 MB, 20,000 lines)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from agents import archive
from tasks.states import CandidateState, ChangeState, RunState
from tests.browser import sign_in, watched
from tests.factories.agents import make_model_call
from tests.factories.tasks import make_candidate, make_change, make_run, make_task
from tests.tasks.doors.conftest import Team

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

LOG_BYTES = 5_000_000
PATCH_LINES = 20_000
# Of the page itself, and of what stands in it: what makes a browser stutter is bounded, not how busy this machine is.
PAGE_BYTES_MAX = 8_000_000
ELEMENTS_MAX = 160_000
PATIENCE_MILLISECONDS = 60_000


def test_a_log_of_five_megabytes_is_shown_in_part_and_downloaded_whole(
    asgi_server: str, chromium: Browser, team: Team
) -> None:
    line = "\x1b[31mE\x1b[0m tally/ledger.py:12: AssertionError \u202e 10%\r100% <b>x</b>\n"
    rows = [
        {
            "position": number,
            "model_call": 1,
            "tool": "run_command",
            "arguments": '{"command": "python3 -m unittest"}',
            "verdict": "ok",
            "code": "",
            "result": line * (LOG_BYTES // 100 // len(line)),
            "kept": "",
        }
        for number in range(1, 101)
    ]
    content = json.dumps(rows).encode()
    assert len(content) > LOG_BYTES
    run = make_run(
        make_task(make_change(team.project)),
        state=RunState.SUCCEEDED,
        end_reason="completed",
        caps={"calls_max": 16, "reads_max": 12},
        tool_log_key=archive.put("logs/long.json", content),
    )
    make_model_call(run_id=run.pk, organization_id=team.organization.pk)
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.member.email)
    measured(page, f"{asgi_server}/runs/{run.pk}", "5 MB log")
    page.locator("#tool-1 > summary").click()
    expect(page.locator("#tool-1 .log")).to_be_visible()
    answer = page.request.get(f"{asgi_server}/runs/{run.pk}/log")
    assert answer.body() == content
    assert complaints == []


def test_a_diff_of_twenty_thousand_lines_is_shown_whole(
    asgi_server: str, chromium: Browser, team: Team
) -> None:
    files = 10
    of_each = PATCH_LINES // files
    patch = "".join(
        f"diff --git a/m{n}.py b/m{n}.py\n--- a/m{n}.py\n+++ b/m{n}.py\n@@ -0,0 +1,{of_each} @@\n"
        + "".join(f'+def f{line}(x: int) -> str: return "<b>{line}</b>"\n' for line in range(of_each))
        for n in range(files)
    )
    candidate = make_candidate(
        make_change(team.project, state=ChangeState.READY),
        state=CandidateState.PASSED,
        patch_key=archive.put("patches/long.patch", patch.encode()),
    )
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.member.email)
    measured(page, f"{asgi_server}/candidates/{candidate.pk}", "20,000-line diff")
    assert page.locator("table.diff tr.add").count() == PATCH_LINES
    assert complaints == []


def measured(page: Page, address: str, name: str) -> None:
    page.goto(address, timeout=PATIENCE_MILLISECONDS)
    figures = page.evaluate("""() => {
      const nav = performance.getEntriesByType("navigation")[0];
      return {answer: nav.responseEnd - nav.requestStart, shown: nav.loadEventEnd || performance.now(),
              bytes: nav.decodedBodySize, elements: document.querySelectorAll("*").length};
    }""")

    assert figures["bytes"] < PAGE_BYTES_MAX, f"{name}: {figures}"
    assert figures["elements"] < ELEMENTS_MAX, f"{name}: {figures}"
    if folder := os.environ.get("FIGURES_TO"):
        Path(folder, f"{name}.json").write_text(json.dumps(figures), encoding="utf-8")
