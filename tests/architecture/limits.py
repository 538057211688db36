"""The page of limits, straight from the code: `python -m tests.architecture.limits > docs/limits.md`."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass

from tests.architecture.sources import Source, code

# A limit is a constant with its unit or its bound in the name, at the top of a module.
LIMIT = re.compile(
    r"_(MAX|MIN|SECONDS|DAYS|HOURS|MINUTES|BYTES|CHARACTERS|TOKENS|LINES|ROWS|DEPTH|PERCENT|MICRO|USD)(_|$)|^CALLS_"
)
HEAD = """# Limits

Every limit of Remit, with its unit at the end of its name, as it stands in the code. A test compares this page with the
code; `make limits` writes it anew. What an owner may change per project or organization says so on its page; the rest
changes with the code.
"""


@dataclass(frozen=True)
class Limit:
    module: str
    name: str
    value: str
    meaning: str


def limits() -> list[Limit]:
    return [limit for source in code() for limit in _limits_of(source)]


def page() -> str:
    """The Markdown of docs/limits.md."""
    parts = [HEAD]
    by_module: dict[str, list[Limit]] = {}
    for limit in limits():
        by_module.setdefault(limit.module, []).append(limit)
    for module, found in sorted(by_module.items()):
        parts += [f"\n## {module}\n", "| limit | value | |", "|---|---|---|"]
        parts += [f"| `{limit.name}` | {limit.value} | {limit.meaning} |" for limit in found]
    return "\n".join(parts) + "\n"


def _limits_of(source: Source) -> list[Limit]:
    lines = source.text.splitlines()
    found = []
    for node in source.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not (isinstance(target, ast.Name) and value is not None and target.id.isupper()):
            continue
        if LIMIT.search(target.id) and _is_amount(value):
            meaning = _comment_of(lines, node.lineno, node.end_lineno or node.lineno)
            found.append(Limit(source.module, target.id, f"`{ast.unparse(value)}`", meaning))
    return found


def _is_amount(node: ast.expr) -> bool:
    """Numbers, sums of numbers, amounts of money, and tables of these."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return _is_amount(node.left) and _is_amount(node.right)
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "Usd" and all(map(_is_amount, node.args))
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(_is_amount, node.values))
    return False


def _comment_of(lines: list[str], first: int, last: int) -> str:
    """The comment behind the constant, or the block right above it."""
    behind = re.search(r"  # (?!noqa)(.*)$", lines[last - 1])
    if behind:
        return _cell(behind.group(1))
    above: list[str] = []
    for line in reversed(lines[: first - 1]):
        if not line.startswith("# "):
            break
        above.insert(0, line[2:])
    return _cell(" ".join(above))


def _cell(text: str) -> str:
    return text.split("  # noqa")[0].replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.stdout.write(page())
