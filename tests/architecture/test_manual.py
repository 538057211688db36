"""The manual's pages are all in its index, and its links lead somewhere."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT, tracked

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)|<img [^>]*src=\"([^\"]+)\"")


def test_every_page_of_the_manual_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.removeprefix("docs/") for path in tracked() if re.fullmatch(r"docs/[\w-]+\.md", path)}
    assert {page for page in pages - {"README.md"} if f"({page})" not in index} == set()


def test_every_link_between_files_leads_somewhere() -> None:
    broken = []
    for path in tracked():
        if not path.endswith(".md") or path.startswith("tasks/demo/"):
            continue
        for found in LINK.finditer((ROOT / path).read_text(encoding="utf-8")):
            target = found.group(1) or found.group(2)
            if "://" not in target and not ((ROOT / path).parent / target).exists():
                broken.append(f"{path}: {target}")
    assert broken == []
