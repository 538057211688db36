"""Pure: the list of a repository's files, short enough for a packet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

OUTLINE_CHARACTERS_MAX = 6_000


def outline(paths: Sequence[str], characters_max: int = OUTLINE_CHARACTERS_MAX) -> tuple[str, ...]:
    """All paths when they fit; otherwise the deepest directories are folded into `dir/ (n files)`, level by level.

    The last resort is the first lines of the shallowest outline and a line that says how many were left out.
    """
    ordered = sorted(set(paths))
    deepest = max((path.count("/") for path in ordered), default=0)
    lines = ordered
    for depth in range(deepest, -1, -1):
        if _length(lines) <= characters_max:
            return tuple(lines)
        lines = _folded(ordered, depth)
    return _cut(lines, characters_max)


def _folded(paths: Sequence[str], depth: int) -> list[str]:
    """Paths with at most `depth` slashes stay; the rest is counted under its first `depth` directories."""
    kept = [path for path in paths if path.count("/") < max(depth, 1)]
    inside = Counter(
        "/".join(path.split("/")[: max(depth, 1)]) for path in paths if path.count("/") >= max(depth, 1)
    )
    return sorted([*kept, *(f"{name}/ ({count} files)" for name, count in inside.items())])


def _cut(lines: Sequence[str], characters_max: int) -> tuple[str, ...]:
    if _length(lines) <= characters_max:
        return tuple(lines)
    last = "… and {} more entries"
    room, kept = characters_max - len(last.format(len(lines))) - 1, []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return (*kept, last.format(len(lines) - len(kept)))


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)
