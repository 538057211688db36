"""Pure: the files that prove work. Who edits them to get green is shown first (fault C93)."""

from __future__ import annotations

import re
from collections.abc import Iterable

# A path is protected when one of these matches a whole folder name, or its file name.
TEST_FOLDERS = frozenset(
    {"test", "tests", "testing", "spec", "specs", "__tests__", "e2e", "testdata", "fixtures"}
)
CI_FOLDERS = frozenset({".github", ".gitlab", ".circleci", ".ci", ".buildkite", ".woodpecker"})
TEST_FILE = re.compile(
    r"(test_.+|.+_test|.+_spec|conftest|tests)\.(py|go|rb|js|jsx|ts|tsx|rs|java|kt|cs|php|ex|exs)"
    r"|.+\.(test|spec)\.(js|jsx|ts|tsx|mjs|cjs|mts|cts)"
    r"|.+Tests?\.(java|kt|cs|swift|php)"
)
# What decides which checks run and how strict they are.
CHECK_FILES = frozenset(
    {
        ".gitlab-ci.yml",
        ".travis.yml",
        "azure-pipelines.yml",
        "jenkinsfile",
        "makefile",
        "gnumakefile",
        "justfile",
        "tox.ini",
        "noxfile.py",
        "pytest.ini",
        ".coveragerc",
        ".pre-commit-config.yaml",
        "setup.cfg",
        "pyproject.toml",
        "package.json",
        "mypy.ini",
        "ruff.toml",
        ".ruff.toml",
        ".flake8",
        ".pylintrc",
        "phpunit.xml",
        "cargo.toml",
        "bunfig.toml",
    }
)
CHECK_FILE = re.compile(
    r"tsconfig.*\.json|(jest|vitest|playwright|cypress|karma|eslint|biome|babel)\.config\..+|\.eslintrc(\..+)?"
)


def is_protected(path: str) -> bool:
    """Whether this repository path is a test, a CI file, or a setting of the checks."""
    *folders, name = path.split("/")
    lowered = {folder.lower() for folder in folders}
    if lowered & (TEST_FOLDERS | CI_FOLDERS):
        return True
    plain = name.lower()
    return bool(plain in CHECK_FILES or CHECK_FILE.fullmatch(plain) or TEST_FILE.fullmatch(name))


def protected_among(paths: Iterable[str]) -> tuple[str, ...]:
    """The protected ones of these paths, in their order."""
    return tuple(path for path in paths if is_protected(path))
