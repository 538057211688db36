"""Each state column has one writer (examples.md 4): nobody else assigns or updates it."""

from __future__ import annotations

import ast

from tests.architecture.sources import calls, code

# The files that may write a column called `state`, by app, and why there.
WRITERS = {
    "tasks": {"tasks/transitions.py": "the mover of Change, Task, TaskRun and Candidate"},
    "agents": {
        "agents/metered.py": "the metered door closes the call that it opened",
        "agents/continuation.py": "the mover of continuations and approvals",
    },
    "webhooks": {"webhooks/deliveries.py": "the mover of deliveries"},
    "budgets": {
        "budgets/ledger/sqlite.py": "the twin of the ledger's functions in PostgreSQL",
        "budgets/model_tasks.py": "the one ledger of Invocations",
    },
}


def _writes_state(tree: ast.AST) -> list[int]:
    """Lines that assign `x.state` (not on self), or update or bulk_update the column."""
    lines = []
    for node in ast.walk(tree):
        targets = list(node.targets) if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        lines += [
            target.lineno
            for target in targets
            if isinstance(target, ast.Attribute)
            and target.attr == "state"
            and not (isinstance(target.value, ast.Name) and target.value.id == "self")
        ]
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            lines += [call.lineno for keyword in call.keywords if keyword.arg == "state"]
        if isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) > 1:
            name = call.args[1]
            lines += [call.lineno] if isinstance(name, ast.Constant) and name.value == "state" else []
    return lines


def test_only_the_movers_write_a_state() -> None:
    strangers = [
        f"{source.path}:{line}"
        for source in code()
        if source.path not in WRITERS.get(source.app, {})
        for line in _writes_state(source.tree)
    ]
    assert strangers == []


def test_the_search_sees_each_way_of_writing() -> None:
    """The test that nobody else writes must not pass because it is blind."""
    writes = ["task.state = 1", "q.filter(pk=1).update(state=2)", "setattr(task, 'state', 3)"]
    others = ["self.state = 4", "q.create(state=5)", "task.start = 6"]
    assert sorted(_writes_state(ast.parse("\n".join(writes + others)))) == [1, 2, 3]
