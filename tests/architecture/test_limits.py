"""The manual's page of limits equals the constants in the code."""

from __future__ import annotations

import importlib

from budgets.money import Usd
from tests.architecture.limits import limits, page
from tests.architecture.sources import ROOT


def test_the_manual_and_the_code_name_the_same_limits() -> None:
    written = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    assert written == page(), "run `make limits`"


def test_each_limit_is_what_its_module_says() -> None:
    """The page is read from the text of the code; this reads the running value."""
    for limit in limits():
        value = getattr(importlib.import_module(limit.module), limit.name)
        assert isinstance(value, int | float | Usd | dict), f"{limit.module}.{limit.name}"
