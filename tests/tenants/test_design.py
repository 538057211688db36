"""The stylesheet keeps its promises: contrast in both schemes, nothing inline, nothing from another origin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from tests.tenants.conftest import House, browser

CSS = (Path(settings.BASE_DIR) / "static" / "remit.css").read_text(encoding="utf-8")
TEMPLATES = sorted((Path(settings.BASE_DIR) / "templates").rglob("*.html"))
GROUNDS = ("paper", "card", "sunken", "raised")
# Text and the grounds on which it stands.
TEXT = [(ink, ground) for ink in ("ink", "soft", "accent", "accent-strong", "bad") for ground in GROUNDS]
TEXT += [(tone, f"{tone}-wash") for tone in ("good", "warn", "bad", "info", "haiku", "sonnet", "opus")]
TEXT += [
    ("soft", "mute-wash"),
    ("ink", "accent-wash"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
]
TEXT += [("ink", f"{tone}-wash") for tone in ("good", "warn", "bad", "info")]
TEXT += [("ink", name) for name in ("add", "add-mark", "del", "del-mark")]
TEXT += [
    (f"syn-{name}", ground)
    for name in ("key", "str", "num", "com", "name")
    for ground in ("card", "add", "del")
]
TEXT += [("warn", "card"), ("warn", "paper"), ("accent-strong", "accent-wash")]
# Borders of controls, and marks that carry a meaning.
MARKS = [("edge", ground) for ground in GROUNDS] + [
    ("spent", "mute-wash"),
    ("spent", "card"),
    ("over", "mute-wash"),
]


def _tokens(dark: bool) -> dict[str, str]:
    light_block, dark_block = re.findall(r":root \{(.*?)\}", CSS, re.S)[:2]
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light_block))
    return found | dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", dark_block)) if dark else found


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_pair_of_text_and_ground_passes_aa(dark: bool) -> None:
    tokens = _tokens(dark)
    weak = {pair: round(_contrast(tokens[pair[0]], tokens[pair[1]]), 2) for pair in TEXT}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    marks = {pair: round(_contrast(tokens[pair[0]], tokens[pair[1]]), 2) for pair in MARKS}
    assert {pair: ratio for pair, ratio in marks.items() if ratio < 3} == {}


def test_no_template_has_inline_code_or_another_origin() -> None:
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), path
        assert not re.search(r"<script(?![^>]*\ssrc=)(?![^>]*application/json)", text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), path
        assert "|safe" not in text, path
    assert not re.search(r"url\((?!#)|@import", CSS)


def test_pages_come_with_a_strict_policy(house: House) -> None:
    answer = browser(house.owner).get("/projects")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
