"""Pure: reads what `git merge-tree -z` and `git diff-tree -z` answer; names stay bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ABSENT = "0" * 40  # the object id that stands for "nothing"


@dataclass(frozen=True, slots=True)
class Conflict:
    """`paths` are all that need a person or an agent; `messages` are git's own, one per conflict kind."""

    paths: tuple[bytes, ...]
    messages: tuple[str, ...]  # "CONFLICT (contents): ..."


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs. `status` is A, M, D or T; an absent side has mode 000000 and id `ABSENT`."""

    status: str
    path: bytes
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str


class History:
    """The commits that a stack is made of, and which of them hold which: asked of git once, then known here.

    Only what the base's parents do not hold is listed; a commit that is not listed is older than the base.
    """

    def __init__(self, listed: bytes) -> None:
        self._time: dict[str, int] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        for line in listed.decode().splitlines():
            commit, time, *parents = line.split()
            self._time[commit] = int(time)
            self._parents[commit] = tuple(parents)

    def add(self, commit: str, time: int, parents: tuple[str, ...]) -> None:
        self._time.setdefault(commit, time)
        self._parents.setdefault(commit, parents)

    def time(self, commit: str) -> int:
        return self._time[commit]

    def holds(self, newer: str, older: str) -> bool:
        """Whether `older` is in the history of `newer`, or is the same."""
        if older not in self._time:
            return True
        seen, left = set(), [newer]
        while left:
            commit = left.pop()
            if commit == older:
                return True
            if commit not in seen:
                seen.add(commit)
                left += self._parents.get(commit, ())
        return False


def read_merge(answer: bytes) -> tuple[str, Conflict]:
    """The tree and the conflict, empty when the merge was clean."""
    fields = answer.split(b"\0")
    tree, position = fields[0].decode(), 1
    paths: dict[bytes, None] = {}
    while position < len(fields) and fields[position]:
        paths[fields[position].split(b"\t", 1)[1]] = None
        position += 1
    position += 1
    messages = []
    while position < len(fields) - 1 and fields[position]:
        count = int(fields[position])
        named = fields[position + 1 : position + 1 + count]
        kind = fields[position + 1 + count].decode("utf-8", "replace")
        text = fields[position + 2 + count].decode("utf-8", "backslashreplace").strip()
        if kind.startswith("CONFLICT"):
            messages.append(text if text.startswith("CONFLICT") else f"{kind}: {text}")
            paths.update(dict.fromkeys(named))
        position += 3 + count
    return tree, Conflict(tuple(sorted(path for path in paths if path)), tuple(messages))


def read_differences(answer: bytes) -> Iterator[Difference]:
    """The lines of `--raw -z --no-renames`."""
    fields = answer.split(b"\0")
    for position in range(0, len(fields) - 1, 2):
        old_mode, new_mode, old_blob, new_blob, status = fields[position].decode()[1:].split(" ")
        yield Difference(status, fields[position + 1], old_mode, new_mode, old_blob, new_blob)
