"""Where the programs of a sandbox come from: this host's, read-only, at the paths they have here."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Everything below these is visible anyway.
_SYSTEM_TREES = (Path("/usr"),)
_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`trees` are mounted read-only where they lie; `links` are (path, target); `path` is searched in order."""

    trees: tuple[Path, ...]
    links: tuple[tuple[str, str], ...]
    path: tuple[str, ...]
    python: Path


@functools.cache
def toolchain(system_path: tuple[str, ...] = SYSTEM_PATH) -> Toolchain:
    """The host's own programs, and a python3: the system's, or else the worker's own where it lies."""
    trees = [tree for tree in (*_SYSTEM_TREES, Path("/nix/store")) if tree.is_dir()]
    links = []
    for name in _TOP_LEVEL:
        place = Path("/") / name
        if place.is_symlink():
            links.append((str(place), str(place.readlink())))
        elif place.is_dir():
            trees.append(place)
    path = list(system_path)
    python = next((Path(top) / "python3" for top in system_path if (Path(top) / "python3").exists()), None)
    if python is None:
        prefix = Path(sys.base_prefix).resolve()
        trees.append(prefix)
        path.insert(0, str(prefix / "bin"))
        python = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Toolchain(tuple(trees), tuple(links), tuple(path), python)
