"""Nothing in the tree ties it to one machine or one package registry."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import ROOT, tracked

# Spelled in pieces, so that this file names none itself.
REGISTRIES = re.compile(
    "|".join(["py" + r"pi\.org", "python" + "hosted", "registry\\.np" + "mjs", "deb\\.deb" + "ian\\.org"])
)
INDEX = re.compile("--(extra-)?" + "index-url|--find-" + "links")
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home)/(?:[\w.-]+/)*[\w.-]+")
# Where a path of a machine is the subject itself.
ABOUT_PATHS = ("tests/", "agents/workspace/", "docs/", "Dockerfile", "docker-compose.yml")


def _texts() -> list[tuple[str, str]]:
    found = []
    for path in tracked():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data[:8000]:
            found.append((path, data.decode("utf-8", "replace")))
    return found


@pytest.mark.parametrize("pattern", [REGISTRIES, INDEX], ids=["registry", "index"])
def test_no_package_registry_is_named(pattern: re.Pattern[str]) -> None:
    assert [path for path, text in _texts() if not path.endswith(".md") and pattern.search(text)] == []


def test_no_path_of_one_machine_stands_in_the_tree() -> None:
    named = [path for path, text in _texts() if not path.startswith(ABOUT_PATHS) and MACHINE.search(text)]
    assert named == []
    assert [path for path, text in _texts() if f"{ROOT}/" in text] == []


def test_every_pin_has_a_hash() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        pins = re.findall(r"^[A-Za-z0-9][^\n]*(?:\n[ ]+[^\n]*)*", text, re.MULTILINE)
        assert len(pins) > 20
        assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []
