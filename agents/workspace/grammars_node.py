"""Pure: bun, bunx, npm, npx, pnpm and yarn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.workspace.grammar import (
    INTEGER,
    PATH,
    TEXT,
    WORD,
    Allowed,
    CommandContext,
    CommandRefused,
    Shape,
    path,
    switches,
    take,
)

FORMS = {
    "bun": "bun install [--frozen-lockfile], bun test [paths], bun run SCRIPT (a script of package.json)",
    "npm": "npm test, npm run SCRIPT [-- arguments] (a script of package.json), npm ci",
    "pnpm": "pnpm test, pnpm run SCRIPT, pnpm install --frozen-lockfile",
    "yarn": "yarn test, yarn run SCRIPT, yarn install --frozen-lockfile",
    "npx": "npx tsc --noEmit or npx eslint [--fix] PATHS",
    "bunx": "bunx tsc --noEmit",
}
# Row 44 names these; the others have to be in package.json.
_BUN_SCRIPTS = frozenset({"typecheck", "test", "bench", "contract", "build"})
_BUN_TEST = Shape(flags={"-t": TEXT, "--timeout": INTEGER, **switches("--bail")}, positional=PATH)
_ESLINT = Shape(flags=switches("--fix", "--quiet"), positional=PATH)
_SCRIPT_FLAGS = frozenset(
    {"--watch=false", "--run", "--ci", "--coverage=false", "--verbose", "--noEmit", "--watchAll=false"}
)
_START = {
    "npm": ("npm", "--offline", "--no-update-notifier", "--no-audit", "--no-fund"),
    "pnpm": ("pnpm", "--offline"),
    "yarn": ("yarn",),
    "bun": ("bun",),
}
_INSTALLS = {
    "bun": (["install"], ["install", "--frozen-lockfile"], ["i"]),
    "npm": (["ci"], ["install"], ["i"], ["ci", "--ignore-scripts"]),
    "pnpm": (["install"], ["install", "--frozen-lockfile"], ["i"]),
    "yarn": ([], ["install"], ["install", "--frozen-lockfile"], ["install", "--immutable"]),
}


def node_command(tool: str) -> Callable[[Sequence[str], CommandContext], Allowed]:
    """The grammar of one package manager."""

    def command(arguments: Sequence[str], context: CommandContext) -> Allowed:
        given = list(arguments)
        if given in _INSTALLS[tool]:
            return Allowed(argv=(tool, *(given or ["install"])), prepares="node")
        if tool == "bun" and given[:1] == ["test"]:
            return Allowed(argv=("bun", "test", *take(given[1:], _BUN_TEST)))
        name, rest = _script(tool, given)
        _check_script(tool, name, context)
        extra = _script_arguments(tool, rest)
        argv = (*_START[tool], "run", name, *(["--", *extra] if extra else []))
        return Allowed(argv=argv, builds=name == "build" or name.startswith("build:"))

    return command


def npx_command(arguments: Sequence[str], context: CommandContext) -> Allowed:
    return _installed(("npx", "--no-install", "--offline"), arguments, context)


def bunx_command(arguments: Sequence[str], context: CommandContext) -> Allowed:
    """Bun's own: a machine with Bun need not have npm."""
    return _installed(("bunx", "--no-install"), arguments, context)


def _installed(start: tuple[str, ...], arguments: Sequence[str], _context: CommandContext) -> Allowed:
    given = [each for each in arguments if each not in ("--no-install", "--no")]
    if given == ["tsc", "--noEmit"]:
        return Allowed(argv=(*start, "tsc", "--noEmit"))
    if given[:1] == ["eslint"]:
        return Allowed(argv=(*start, "eslint", *take(given[1:], _ESLINT)))
    raise CommandRefused("only tsc --noEmit and eslint are run this way")


def _script(tool: str, given: list[str]) -> tuple[str, list[str]]:
    if given[:1] in (["test"], ["t"]) and tool != "bun":
        return "test", given[1:]
    if given[:1] in (["run"], ["run-script"]) and len(given) > 1:
        return given[1], given[2:]
    raise CommandRefused(f"{tool} runs only tests and scripts of package.json")


def _check_script(tool: str, name: str, context: CommandContext) -> None:
    if not WORD.fullmatch(name):  # also a name that starts with a dash (row 45)
        raise CommandRefused(f"{name!r} is no script name")
    if name in context.scripts or (tool == "bun" and name in _BUN_SCRIPTS):
        return
    known = ", ".join(sorted(context.scripts))[:300] or "none"
    raise CommandRefused(f"package.json has no script {name!r}; it has: {known}")


def _script_arguments(tool: str, rest: list[str]) -> list[str]:
    if not rest:
        return []
    if rest[0] == "--":
        rest = rest[1:]
    elif tool != "bun":
        raise CommandRefused("give the arguments of a script after '--'")
    return [_script_argument(each) for each in rest]


def _script_argument(argument: str) -> str:
    if not argument.startswith("-"):
        return path(argument)
    if argument not in _SCRIPT_FLAGS:
        raise CommandRefused(f"the script argument {argument!r} is not allowed")
    return argument
