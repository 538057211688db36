"""Hostile text and patches on their way to a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.display.diff import SHOWN_LINES_MAX, LineKind, read_patch
from tasks.display.hostile import one_line, readable, revealed

UNSEEN = [
    "\u115f", "\u1160", "\u3164", "\uffa0", "\u2800",
    "\u180b", "\u180f", "\u2028", "\u2029",
    "\ufe00", "\ufe0d", "\U000e0041", "\U000e007f", "\U000e0100", "\U000e01ef",
    "\U0001d173", "\U0001bca0",
]  # fmt: skip

PATCH = """\
diff --git a/app.py b/app.py
index 1..2 100644
--- a/app.py
+++ b/app.py
@@ -1,3 +1,3 @@ def f():
 def f():
-    return 1
+    return "<script>alert(1)</script>"
 # end
diff --git a/tests/test_app.py b/tests/test_app.py
new file mode 100644
--- /dev/null
+++ b/tests/test_app.py
@@ -0,0 +1 @@
+assert True
\\ No newline at end of file
diff --git "a/\\303\\244 b/x.txt" "b/\\303\\244 b/x.txt"
deleted file mode 100644
--- "a/\\303\\244 b/x.txt"
+++ /dev/null
@@ -1 +0,0 @@
--- looks like a header
"""


def test_progress_bars_fold_to_their_last_state() -> None:
    """Fault C91."""
    assert readable("10%\r 50%\r100%\ndone\r\n") == "100%\ndone\n"
    assert readable("a long line\rshort\r\rX") == "Xhortg line"


def test_terminal_codes_go_and_deceiving_characters_are_written_out() -> None:
    assert readable("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07") == "red link"
    assert revealed("user\u202etxt.exe\u200b\x00") == "user⟨U+202E⟩txt.exe⟨U+200B⟩⟨U+0000⟩"


@pytest.mark.parametrize("blank", UNSEEN, ids=lambda blank: f"U+{ord(blank):04X}")
def test_what_is_drawn_as_nothing_is_written_out(blank: str) -> None:
    """Faults C41 and C89: fillers, tags (which spell words that only a model reads), separators, selectors."""
    assert revealed(f"a{blank}b") == f"a⟨U+{ord(blank):04X}⟩b"
    assert readable(f"a{blank}b") == f"a⟨U+{ord(blank):04X}⟩b"


def test_an_emoji_keeps_its_look() -> None:
    assert revealed("\u2764\ufe0f done") == "\u2764\ufe0f done"


def test_a_title_is_one_short_line() -> None:
    assert one_line("  a\n\tb  c", 10) == "a b c"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


@given(st.text())
def test_nothing_that_hides_or_reorders_survives(text: str) -> None:
    shown = readable(text)
    assert not any(char in shown for char in "\x1b\r\x00\u202e\u200b\ufeff\u2066")
    shown.encode()  # no lone surrogate either


def test_a_patch_keeps_line_numbers_counts_and_names() -> None:
    """Faults C69 (names) and C89 (a script in a diff is text)."""
    patch = read_patch(PATCH.encode())
    app, tests, gone = patch.files
    assert (app.path, app.added, app.removed) == ("app.py", 1, 1)
    assert [(line.kind, line.old, line.new) for line in app.hunks[0].lines] == [
        (LineKind.CONTEXT, 1, 1),
        (LineKind.REMOVED, 2, None),
        (LineKind.ADDED, None, 2),
        (LineKind.CONTEXT, 3, 3),
    ]
    assert "".join(piece.text for piece in app.hunks[0].lines[2].pieces) == app.hunks[0].lines[2].text
    assert tests.facts == ["new file mode 100644"]
    assert tests.hunks[0].lines[-1].kind is LineKind.NOTE
    assert (gone.path, gone.removed) == ("ä b/x.txt", 1)
    assert gone.hunks[0].lines[0].text == "-- looks like a header"


def test_flagged_files_come_first() -> None:
    """Fault C93."""
    patch = read_patch(PATCH.encode(), first=frozenset({"tests/test_app.py"}))
    assert patch.files[0].path == "tests/test_app.py"


def test_a_very_long_patch_is_cut_and_says_so() -> None:
    count = SHOWN_LINES_MAX + 1
    raw = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,{count} @@\n" + "+x\n" * count
    patch = read_patch(raw.encode())
    assert (patch.cut, patch.added, patch.files[0].hunks) == (True, count, [])


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    read_patch(b"diff --git a/x.py b/x.py\n+++ b/x.py\n@@ -1 +1 @@\n" + raw)
    read_patch(b"diff --git \n@@ -x @@\n@@ -1,2 +3 @@\n" + raw)
