"""Planted faults are caught. Minutes long, so it runs only when asked: `LEDGER_MUTANTS=1`."""

from __future__ import annotations

import os

import pytest

from tests.budgets.mutants import MUTANTS, ROOT, survivors


def test_every_planted_fault_still_has_its_place() -> None:
    """Quick, and always: a fault that no longer applies would prove nothing."""
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant.what


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("LEDGER_MUTANTS"), reason="takes minutes: set LEDGER_MUTANTS=1")
def test_every_planted_fault_is_caught() -> None:
    assert survivors() == []
