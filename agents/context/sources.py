"""Pure: what a source file defines and imports, for Python and JavaScript/TypeScript."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

SOURCE_CHARACTERS_MAX = 400_000
SYMBOLS_MAX = 200
WANTS_MAX = 200
NAME_CHARACTERS_MAX = 200

_LANGUAGES = {
    ".py": "python",
    ".pyi": "python",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
}
# Where the packages of a repository may begin.
_PYTHON_ROOTS = ("", "src/", "lib/", "python/")
_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".d.ts", ".vue", ".json")
_SCRIPT_IMPORT = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*|\bexport\s*\*\s*from\s*)["']([^"'\n]{1,200})["']"""
)
_SCRIPT_SYMBOL = re.compile(
    r"^[ \t]*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?"
    r"(?:function\*?|class|interface|enum|type|const|let|var)\s+([A-Za-z_$][\w$]{0,199})",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """`symbols` are names that the file defines, `wants` what it imports, both in order and bounded."""

    language: str = ""
    symbols: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()


def facts_of(path: str, content: bytes) -> SourceFacts:
    """What can be said of a file. A file that does not parse has a language and nothing else."""
    language = _LANGUAGES.get(posixpath.splitext(path)[1].lower(), "")
    if not language or len(content) > SOURCE_CHARACTERS_MAX:
        return SourceFacts(language)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return SourceFacts(language)
    symbols, wants = _python(text) if language == "python" else _script(text)
    return SourceFacts(language, _bounded(symbols, SYMBOLS_MAX), _bounded(wants, WANTS_MAX))


def resolve(path: str, facts: SourceFacts, paths: Set[str]) -> tuple[str, ...]:
    """The files of this tree that a file imports, in order, itself left out. What is not in the tree is not named."""
    one = _python_file if facts.language == "python" else _script_file
    found = (one(path, want, paths) for want in facts.wants)
    return tuple(dict.fromkeys(name for name in found if name is not None and name != path))


def _python(text: str) -> tuple[Iterable[str], Iterable[str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a hostile file's odd escapes are not our log's business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (), ()
    return _python_symbols(tree), _python_wants(tree)


def _python_symbols(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def _python_wants(tree: ast.Module) -> Iterator[str]:
    """`a.b` for `import a.b`, `..a.b` for relative ones; `from a import b` wants a.b first, then a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            yield from (f"{module}{joint}{alias.name}|{module}" for alias in node.names)


def _python_file(path: str, want: str, paths: Set[str]) -> str | None:
    for module in want.split("|"):
        bare = module.lstrip(".")
        level = len(module) - len(bare)
        tail = bare.replace(".", "/")
        folder = posixpath.dirname(path)
        if level:
            for _ in range(level - 1):
                folder = posixpath.dirname(folder)
            starts: tuple[str, ...] = (f"{folder}/" if folder else "",)
        else:
            starts = (*_PYTHON_ROOTS, f"{folder}/") if folder else _PYTHON_ROOTS
        for start in starts:
            for candidate in (f"{start}{tail}.py", f"{start}{tail}/__init__.py", f"{start}{tail}.pyi"):
                if candidate.replace("//", "/") in paths:
                    return candidate.replace("//", "/")
    return None


def _script(text: str) -> tuple[Iterable[str], Iterable[str]]:
    return (
        (match[1] for match in _SCRIPT_SYMBOL.finditer(text)),
        (match[1] for match in _SCRIPT_IMPORT.finditer(text) if match[1].startswith((".", "@/", "~/"))),
    )


def _script_file(path: str, want: str, paths: Set[str]) -> str | None:
    if want.startswith(("@/", "~/")):  # what bundlers take for the source root
        starts = [f"src/{want[2:]}", want[2:]]
    else:
        starts = [posixpath.normpath(posixpath.join(posixpath.dirname(path), want))]
    for start in starts:
        bare = re.sub(r"\.(js|jsx|mjs|cjs)$", "", start)  # TypeScript names the file it will become
        names = [
            start,
            *(f"{each}{ending}" for each in dict.fromkeys((start, bare)) for ending in _SCRIPT_ENDINGS),
        ]
        names += [f"{start}/index{ending}" for ending in _SCRIPT_ENDINGS]
        for name in names:
            if name in paths:
                return name
    return None


def _bounded(names: Iterable[str], limit: int) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for name in names:
        if len(name) <= NAME_CHARACTERS_MAX:
            kept[name] = None
        if len(kept) == limit:
            break
    return tuple(kept)
