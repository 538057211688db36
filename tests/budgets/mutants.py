"""Do the tests notice? Plants one fault after another into a copy of the tree and expects them to fail.

`python -m tests.budgets.mutants [numbers]`; with TEST_DATABASE_URL also the faults in the PostgreSQL functions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SQLITE, RULES = "budgets/ledger/sqlite.py", "budgets/decisions.py"
POSTGRES, LIMITS = "budgets/migrations/0002_ledger_functions.py", "budgets/limits.py"
MACHINE = ("tests/budgets/test_reservations.py", "tests/budgets/test_state_machine.py")
SECONDS_MAX = 300


@dataclass(frozen=True)
class Mutant:
    """One planted fault: `old` becomes `new`, once, and `tests` must fail."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = MACHINE

    @property
    def on_postgres(self) -> bool:
        return self.file == POSTGRES


MUTANTS = (
    Mutant(
        "limit off by one",
        RULES,
        "spent + held + wanted > limit",
        "spent + held + wanted > limit + 1",
    ),
    Mutant(
        "held money is not counted",
        RULES,
        "spent + held + wanted >",
        "spent + wanted >",
    ),
    Mutant("a limit of 0 is no limit", RULES, "return limit == 0 or", "return"),
    Mutant("unknown price passes", RULES, "wanted is None or spent", "wanted is not None and spent"),
    Mutant("spent money is waited for", RULES, "_count(spent) + _count(wanted) <= _count(limit),", "True,"),
    Mutant(
        "an unknown charge is refunded",
        SQLITE,
        "charge, known = row.held, None",
        "charge, known = _NOTHING, None",
    ),
    Mutant(
        "a second settlement counts",
        SQLITE,
        '    if row.state == "held" and to != "released":\n        return',
        '    if row.state in ("held", "settled") and to != "released":\n        return',
    ),
    Mutant(
        "any second report is the same report",
        SQLITE,
        "if same_end and (row.usd, row.tokens, row.calls, row.cost) == (*charge, known):",
        "if same_end:",
    ),
    Mutant(
        "a late report adds instead of correcting",
        SQLITE,
        "spent = (charge[0] - before[0], charge[1] - before[1], charge[2] - before[2])",
        "spent = charge",
    ),
    Mutant("the hold is not given back", SQLITE, "held = (-row.hold_usd,", "held = (-charge[0],"),
    Mutant(
        "settling gives the call's slot back",
        SQLITE,
        "closing.tokens, row.hold_calls), closing.usd",
        "closing.tokens, 0), closing.usd",
    ),
    Mutant(
        "another request's key is accepted",
        SQLITE,
        '"exists" if fingerprint == wanted.fingerprint else "conflict"',
        '"exists"',
    ),
    Mutant(
        "the reaper takes living holds",
        SQLITE,
        "state = 'held' AND lease_until < ?",
        "state = 'held' AND ? IS NOT NULL",
    ),
    Mutant(
        "only the first refusing meter is named",
        SQLITE,
        "pk__in=refusing)",
        "pk__in=refusing[:1])",
    ),
    Mutant(
        "a limit is set without its rule",
        LIMITS,
        "    rule.save(update_fields=[_COLUMN[unit]])\n",
        "",
        ("tests/budgets/test_limits.py", *MACHINE),
    ),
    Mutant(
        "a key sets its limit again",
        LIMITS,
        "if earlier is not None:",
        "if earlier is not None and earlier.after != after:",
        ("tests/budgets/test_limits.py",),
    ),
    Mutant(
        "wrong lock order",
        POSTGRES,
        "WHERE name = ANY (p_names) ORDER BY id FOR NO KEY UPDATE",
        "WHERE name = ANY (p_names) ORDER BY (p_names[1] < p_names[2]) = (id % 2 = 0), id FOR NO KEY UPDATE",
        ("tests/budgets/test_races.py::test_two_meters_taken_in_opposite_order_never_deadlock",),
    ),
    Mutant(
        "no lock at all",
        POSTGRES,
        "WHERE name = ANY (p_names) ORDER BY id FOR NO KEY UPDATE",
        "WHERE name = ANY (p_names) ORDER BY id",
        ("tests/budgets/test_races.py::test_exactly_ten_pass_in_two_processes_on_any_database",),
    ),
    Mutant(
        "limit off by one in the function",
        POSTGRES,
        "l.limit_usd - l.spent_usd - l.held_usd < p_usd",
        "l.limit_usd - l.spent_usd - l.held_usd < p_usd - 1",
    ),
    Mutant(
        "unknown is free in the function",
        POSTGRES,
        "WHEN 'unknown'  THEN u := v.hold_usd;",
        "WHEN 'unknown'  THEN u := 0;",
    ),
    Mutant(
        "a redelivery may be refused",
        POSTGRES,
        "  IF FOUND THEN\n    result := CASE WHEN v.fing",
        "  IF FOUND AND refusing IS NULL THEN\n    result := CASE WHEN v.fing",
        (
            "tests/budgets/test_races.py::test_a_storm_of_redeliveries_holds_each_key_once_and_is_never_refused",
            *MACHINE,
        ),
    ),
)


def survivors(numbers: Iterable[int] = ()) -> list[str]:
    """The faults that no test noticed; those in PostgreSQL's functions only when there is a PostgreSQL."""
    with_postgres = os.environ.get("TEST_DATABASE_URL", "").startswith("postgres")
    wanted = set(numbers) or set(range(len(MUTANTS)))
    found = []
    for number, mutant in enumerate(MUTANTS):
        if number in wanted and (with_postgres or not mutant.on_postgres):
            lives = _survives(mutant)
            sys.stdout.write(f"{'SURVIVED' if lives else 'killed  '} {number:2} {mutant.what}\n")
            sys.stdout.flush()
            found += [mutant.what] if lives else []
    return found


def _survives(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="remit-mutant-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            ROOT, tree, ignore=shutil.ignore_patterns(".git", "var", ".venv", "*_cache", "__pycache__")
        )
        path = tree / mutant.file
        text = path.read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.what}: its place is not there exactly once"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        environment = {
            **os.environ,
            "REMIT_DATA_DIR": f"{folder}/var",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LEDGER_SHRINK": "0",
        }
        if not mutant.on_postgres:
            environment.pop("TEST_DATABASE_URL", None)
        else:
            environment["TEST_DATABASE_URL"] += "_mutant"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            *mutant.tests,
        ]
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS_MAX, check=False
        )
        assert done.returncode in (0, 1), done.stdout.decode()[-2_000:] + done.stderr.decode()[-2_000:]
        return done.returncode == 0


if __name__ == "__main__":
    sys.exit(1 if survivors(int(number) for number in sys.argv[1:]) else 0)
