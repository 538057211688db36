"""`make bench`: runs every measurement in this folder, each as a ratio within one run, and prints one table per file.

A measurement is a module with `measure() -> Iterable[Measured]`. `make bench` takes names to run only some:
`.venv/bin/python -m bench ledger`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
import time

import django

import bench
from bench.measured import Measured, Skipped


def main(wanted: list[str]) -> int:
    names = [
        found.name
        for found in pkgutil.iter_modules(bench.__path__)
        if found.name not in ("__main__", "measured")
    ]
    unknown = set(wanted) - set(names)
    if unknown:
        sys.stderr.write(f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(names)}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        # Never over somebody's data: a folder and a database of its own.
        os.environ.setdefault("REMIT_DATA_DIR", folder)
        os.environ.setdefault("REMIT_LOG_LEVEL", "error")
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        django.setup()
        return sum(_run(name) for name in names if not wanted or name in wanted)


def _run(name: str) -> int:
    module = importlib.import_module(f"bench.{name}")
    sys.stdout.write(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}\n")
    started = time.monotonic()
    try:
        for row in module.measure():
            sys.stdout.write(_line(row))
            sys.stdout.flush()
    except Skipped as reason:
        sys.stdout.write(f"  skipped: {reason}\n")
    sys.stdout.write(f"  ({time.monotonic() - started:.0f} s)\n")
    return 0


def _line(row: Measured) -> str:
    aim = f"   aim {row.aim}" if row.aim else ""
    return f"  {row.what:<58} {row.ours:>12} {row.theirs:>12} {row.ratio:>8.2f}{aim}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
