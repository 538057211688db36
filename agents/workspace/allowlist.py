"""Pure: is this command one of the known forms? The list is not the wall (that is the sandbox): it keeps
commands predictable, and refuses what would hang, write elsewhere or waste a call (rows 44, 45)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agents.workspace import grammars_native, grammars_node, grammars_python
from agents.workspace.grammar import INTEGER, WORD, Allowed, CommandContext, CommandRefused, path

COMMAND_CHARACTERS_MAX = 4_000
MAKEFILE_BYTES_MAX = 256 * 1024
ARGUMENTS_MAX = 64
ARGUMENT_CHARACTERS_MAX = 1_000
PATTERNS_MAX = 50

# Of the text form only, and only unquoted: argv needs no quoting at all.
_SHELL = re.compile(r"[;&|<>`$(){}*?!\\]|(?:^|\s)[~#]|\[(?![^\]\s]*\])")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PLACEHOLDERS = ("{path}", "{word}", "{number}")
AND_THE_REST = "..."
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}")

Grammar = Callable[[Sequence[str], CommandContext], Allowed]
GRAMMARS: dict[str, Grammar] = {
    "pytest": grammars_python.pytest_command,
    "ruff": grammars_python.ruff_command,
    "mypy": grammars_python.mypy_command,
    "python": grammars_python.python_command,
    "python3": grammars_python.python_command,
    "uv": grammars_python.uv_command,
    "pip": grammars_python.pip_command,
    "bun": grammars_node.node_command("bun"),
    "npm": grammars_node.node_command("npm"),
    "pnpm": grammars_node.node_command("pnpm"),
    "yarn": grammars_node.node_command("yarn"),
    "npx": grammars_node.npx_command,
    "bunx": grammars_node.bunx_command,
    "make": grammars_native.make_command,
    "go": grammars_native.go_command,
    "cargo": grammars_native.cargo_command,
    "git": grammars_native.git_command,
    "ls": grammars_native.ls_command,
}
FORMS: dict[str, str] = {
    **grammars_python.FORMS,
    **grammars_node.FORMS,
    **grammars_native.FORMS,
    "python3": grammars_python.FORMS["python"],
}
assert GRAMMARS.keys() == FORMS.keys(), "a refusal names the allowed form of every program"


@dataclass(frozen=True, slots=True)
class Refusal:
    """For the agent: what is wrong, and the form that would be right (fault C42)."""

    reason: str
    form: str

    def __str__(self) -> str:
        return f"refused: {self.reason}. Allowed: {self.form}"


def read_command(command: str | Sequence[str], context: CommandContext) -> Allowed | Refusal:
    """The checked and rewritten argv, or why not. Text is split as a shell would, but nothing else is done."""
    try:
        argv = _split(command)
        for pattern in context.extra:
            matched = _match(argv, pattern)
            if matched is not None:
                return Allowed(argv=matched)
        grammar = GRAMMARS.get(argv[0])
        if grammar is None:
            raise CommandRefused(_why_no_program(argv[0]))
        return grammar(argv[1:], context)
    except CommandRefused as refused:
        return Refusal(str(refused), _form_for(command, context))


def asks_first(
    command: str | Sequence[str], context: CommandContext, patterns: Sequence[Sequence[str]]
) -> tuple[str, ...] | None:
    """The checked argv of an allowed command that an owner lets wait for a person's yes; None for any other.

    A pattern that ends with `...` covers whatever follows. Both what was written and what would be run is compared,
    and a pattern also as the grammars rewrite it: `./tests/a.py` is `tests/a.py`.
    """
    verdict = read_command(command, context)
    if isinstance(verdict, Refusal):
        return None
    wanted = [*patterns, *(_as_run(pattern, context) for pattern in exact_patterns(patterns))]
    both = (_split(command), verdict.argv)
    return verdict.argv if any(_covers(pattern, argv) for pattern in wanted for argv in both) else None


def exact_patterns(patterns: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The patterns that name one command: each is allowed, given the yes. `make ...` allows nothing new."""
    return tuple(tuple(pattern) for pattern in patterns if pattern[-1] != AND_THE_REST)


def why_refused(command: str | Sequence[str], context: CommandContext) -> Refusal | None:
    verdict = read_command(command, context)
    return verdict if isinstance(verdict, Refusal) else None


def allowed_forms(context: CommandContext) -> tuple[str, ...]:
    """What to tell an agent, or an owner on the settings page."""
    return (*dict.fromkeys(FORMS.values()), *(" ".join(pattern) for pattern in context.extra))


def why_bad_pattern(pattern: object) -> str | None:
    """Why an owner's pattern cannot be taken; None when it can. One list of exact words per command."""
    if not isinstance(pattern, list | tuple) or not pattern:
        return "give a list of words, such as ['npm', 'run', 'e2e']"
    if len(pattern) > ARGUMENTS_MAX or not all(isinstance(word, str) and word for word in pattern):
        return f"every part is a word, at most {ARGUMENTS_MAX} of them"
    if not WORD.fullmatch(pattern[0]):
        return "the program is a bare name, never a path"
    for word in pattern:
        if any(not " " <= character <= "~" for character in word):
            return f"{word!r} holds characters outside printable ASCII"
        if re.search(r"[{}]", word) and word not in _PLACEHOLDERS:
            return f"{word!r}: a placeholder is a whole word, one of {', '.join(_PLACEHOLDERS)}"
    return None


def scripts_of(package_json: bytes | None) -> frozenset[str]:
    """The script names of a package.json; none where it cannot be read."""
    try:
        scripts = json.loads(package_json or b"{}").get("scripts", {})
        return frozenset(scripts) if isinstance(scripts, dict) else frozenset()
    except (ValueError, AttributeError, RecursionError):
        return frozenset()


def targets_of(makefile: bytes) -> frozenset[str]:
    """The plain targets of a Makefile, read as text: make itself would run code to answer."""
    found: set[str] = set()
    for line in makefile[:MAKEFILE_BYTES_MAX].decode("utf-8", "replace").split("\n"):
        names, colon, rest = line.partition(":")
        if colon and not names.startswith((" ", "\t", "#")) and not rest.lstrip(":").startswith("="):
            found.update(name for name in names.split() if _TARGET.fullmatch(name))
    return frozenset(found)


def _split(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        if len(command) > COMMAND_CHARACTERS_MAX:
            raise CommandRefused(f"the command is longer than {COMMAND_CHARACTERS_MAX} characters")
        _check_characters(command, quoted=True)
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise CommandRefused(f"cannot be read: {error}") from None
        if _SHELL.search(_QUOTED.sub("", command)):
            raise CommandRefused(
                "there is no shell: one program with plain arguments; stderr is captured too"
            )
    else:
        argv = list(command)
    if not argv or len(argv) > ARGUMENTS_MAX:
        raise CommandRefused(f"give a command of at most {ARGUMENTS_MAX} arguments")
    for argument in argv:
        if not isinstance(argument, str) or len(argument) > ARGUMENT_CHARACTERS_MAX:
            raise CommandRefused(f"an argument is longer than {ARGUMENT_CHARACTERS_MAX} characters")
        _check_characters(argument, quoted=False)
        if argument.startswith("@"):
            raise CommandRefused("response files (@file) are refused")
    return argv


def _check_characters(text: str, *, quoted: bool) -> None:
    """Control characters first, before anything is parsed (fault C27); then look-alikes (fault C41)."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise CommandRefused("a newline or control character; give one command in one line")
    if quoted or text.isascii():
        return
    # Only a path may hold other letters, and no such letter may stand where a flag or a name would begin.
    if not text.isprintable() or not (text[0].isascii() or text[0].isalnum()):
        raise CommandRefused(f"{text!r} holds an invisible or look-alike character")
    if text.startswith("-"):
        raise CommandRefused(f"{text!r}: a flag is plain ASCII")


def _match(argv: Sequence[str], pattern: Sequence[str]) -> tuple[str, ...] | None:
    if len(argv) != len(pattern):
        return None
    out = []
    for argument, word in zip(argv, pattern, strict=True):
        if word == "{path}":
            try:
                out.append(path(argument))
            except CommandRefused:
                return None
        elif word in ("{word}", "{number}"):
            if not ((INTEGER if word == "{number}" else WORD).fullmatch(argument)):
                return None
            out.append(argument)
        elif argument != word:
            return None
        else:
            out.append(argument)
    return tuple(out)


def _as_run(pattern: tuple[str, ...], context: CommandContext) -> tuple[str, ...]:
    """What the grammars make of a pattern; itself where they do not know it."""
    verdict = read_command(pattern, replace(context, extra=()))
    return verdict.argv if isinstance(verdict, Allowed) else pattern


def _covers(pattern: Sequence[str], argv: Sequence[str]) -> bool:
    if pattern[-1] == AND_THE_REST:
        pattern, argv = pattern[:-1], argv[: len(pattern) - 1]
    return _match(argv, pattern) is not None


def _why_no_program(name: str) -> str:
    if _ASSIGNMENT.match(name):
        return "no NAME=value before a command; the environment is fixed"
    if "/" in name:
        return f"{name!r} is a path; give the bare name of a program"
    return f"{name!r} is not an allowed program"


def _form_for(command: str | Sequence[str], context: CommandContext) -> str:
    """The form nearest to what was asked: of the first known program in it."""
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    for word in words:
        name = word.rsplit("/", maxsplit=1)[-1].strip("'\";&|")
        if name in FORMS:
            return FORMS[name]
    return "; ".join(allowed_forms(context))
