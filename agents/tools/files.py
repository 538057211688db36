"""list_files, read_file, write_file, edit_file, delete_file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

from agents.context.fence import fence
from agents.context.outline import outline
from agents.tools.tool import NO_WORKSPACE_RESULT, Arguments, Bench, Tool, ToolResult, object_of
from agents.workspace.edits import EDITS_MAX, Edit, EditRefused, apply_edits, text_of, whole_characters
from agents.workspace.names import PathRefused, name_text, path_parts
from agents.workspace.paths import FILE_BYTES_MAX, Root
from agents.workspace.window import window

LIST_CHARACTERS_MAX = 12_000
FILES_LISTED_MAX = 20_000
PATH = {"type": "string", "minLength": 1, "maxLength": 4_096, "description": "relative to the repository"}
_ONLY_THE_FIRST = f"[only the first {FILE_BYTES_MAX:,} bytes are read]"
LINE = {"type": "integer", "minimum": 1}


def list_files(bench: Bench, arguments: Arguments) -> ToolResult:
    """Every file beneath a directory, folded when they are many."""
    path = str(arguments.get("path", "."))
    try:
        paths, whole = _paths_beneath(bench, path)
    except PathRefused as refused:
        return ToolResult.refused("path", str(refused))
    if not paths:
        return ToolResult.error("empty", f"{path}: no files here")
    count = f"{len(paths)} files" if whole else f"the first {len(paths)} files"
    return ToolResult(
        f"{count} beneath {path}\n{fence('files', chr(10).join(outline(paths, LIST_CHARACTERS_MAX)))}"
    )


def read_file(bench: Bench, arguments: Arguments) -> ToolResult:
    """A window of a file (row 40). Every read counts, a failed one too (row 54)."""
    caps, path = bench.spec.caps, str(arguments["path"])
    if bench.reads >= caps.reads_max:
        return ToolResult.refused("reads_used_up", f"all {caps.reads_max} file reads of this run are used")
    bench.reads += 1
    try:
        data, notes = _content(bench, path)
    except PathRefused as refused:
        return ToolResult.refused("path", str(refused))
    text = text_of(data)
    if isinstance(text, EditRefused):
        return ToolResult.error(text.problem, f"{path}: {text}")
    seen = window(
        text,
        from_line=int(arguments.get("fromLine", 1)),
        from_column=int(arguments.get("fromColumn", 1)),
        characters_max=caps.read_characters_max,
    )
    if seen.lines == 0 and seen.total_lines:
        return ToolResult.error("past_end", f"{path} has {seen.total_lines} lines")
    last = seen.first_line + max(seen.lines, 1) - 1
    head = (
        f"{path}, lines {seen.first_line} to {last} of {seen.total_lines}"
        if seen.lines
        else f"{path} is empty"
    )
    shown = [head, fence(path, seen.text), seen.note, *notes]
    return ToolResult("\n".join(line for line in shown if line))


def _in_workspace(use: Any) -> Any:
    """Only kinds with a workspace get as far as the tool (row 37); a path that no tool opens is its answer."""

    @wraps(use)
    def guarded(bench: Bench, arguments: Arguments) -> ToolResult:
        if bench.workspace is None:
            return NO_WORKSPACE_RESULT
        try:
            result: ToolResult = use(bench.workspace.files, arguments)
        except PathRefused as refused:
            return ToolResult.refused("path", str(refused))
        return result

    return guarded


@_in_workspace
def write_file(files: Root, arguments: Arguments) -> ToolResult:
    path, content = str(arguments["path"]), str(arguments["content"])
    new = files.write(path, content.encode())
    return ToolResult(f"{path} {'created' if new else 'replaced'}: {len(content)} characters")


@_in_workspace
def edit_file(files: Root, arguments: Arguments) -> ToolResult:
    """All edits or none (rows 41, 42)."""
    path = str(arguments["path"])
    opened = files.read(path)
    if not opened.whole:
        return ToolResult.refused("too_large", f"{path} is larger than {FILE_BYTES_MAX:,} bytes")
    edits = [Edit(str(edit["oldText"]), str(edit["newText"])) for edit in arguments["edits"]]
    edited = apply_edits(opened.data, edits)
    if isinstance(edited, EditRefused):
        return ToolResult.error(edited.problem, f"{path} was not changed. {edited}")
    if not edited.changed:
        return ToolResult.error("nothing_changed", f"{path}: the edits match and change nothing")
    files.write(path, edited.data)
    return ToolResult(f"{path} edited at line {', '.join(map(str, edited.lines))}")


@_in_workspace
def delete_file(files: Root, arguments: Arguments) -> ToolResult:
    path = str(arguments["path"])
    files.delete(path)
    return ToolResult(f"{path} deleted")


def _content(bench: Bench, path: str) -> tuple[bytes, list[str]]:
    """The bytes of a file, from the workspace or, for kinds without one, from the start commit."""
    if bench.workspace is not None:
        opened = bench.workspace.files.read(path)
        notes = [] if opened.whole else [_ONLY_THE_FIRST]
        if opened.resolved != name_text(b"/".join(path_parts(path))):
            notes.append(f"[this is {opened.resolved}, behind a link]")
        return opened.data if opened.whole else whole_characters(opened.data), notes
    assert bench.store is not None, "a project without source is offered no file tool"
    assert bench.spec.source is not None
    data = bench.store.read(bench.spec.source.start_commit, name_text(b"/".join(path_parts(path))))
    if data is None:
        raise PathRefused(f"{path} does not exist")
    if len(data) > FILE_BYTES_MAX:
        return whole_characters(data[:FILE_BYTES_MAX]), [_ONLY_THE_FIRST]
    return data, []


def _paths_beneath(bench: Bench, path: str) -> tuple[list[str], bool]:
    if bench.workspace is not None:
        found: list[str] = []
        for name in _walk(bench.workspace.files, path):
            if len(found) == FILES_LISTED_MAX:
                return found, False
            found.append(name)
        return found, True
    assert bench.store is not None, "a project without source is offered no file tool"
    assert bench.spec.source is not None
    beneath = path.removeprefix("./").rstrip("/")
    prefix = "" if beneath in ("", ".") else f"{beneath}/"
    files = [file.path for file in bench.store.tree_files(bench.spec.source.start_commit)]
    inside = [name for name in files if name.startswith(prefix)]
    return inside[:FILES_LISTED_MAX], len(inside) <= FILES_LISTED_MAX


def _walk(files: Root, path: str) -> Iterator[str]:
    """Every file beneath `path`, depth first, by name. Links are listed and not followed."""
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        prefix = "" if directory in (".", "./") else f"{directory.removeprefix('./').rstrip('/')}/"
        entries, _ = files.entries(directory)
        yield from (f"{prefix}{entry.name}" for entry in entries if entry.kind in ("file", "link"))
        waiting += [f"{prefix}{entry.name}" for entry in reversed(entries) if entry.kind == "directory"]


FILE_TOOLS = (
    Tool(
        name="list_files",
        description="Lists every file beneath a directory. Directories with many files are folded to a count.",
        schema=object_of({}, {"path": PATH}),
        use=list_files,
    ),
    Tool(
        name="read_file",
        description=(
            "Reads a text file from a line on. A long file ends with a note that names the next line: "
            "read on from there with fromLine."
        ),
        schema=object_of({"path": PATH}, {"fromLine": LINE, "fromColumn": LINE}),
        use=read_file,
    ),
    Tool(
        name="write_file",
        description="Writes a whole file, making its directories. Replaces what was there.",
        schema=object_of({"path": PATH, "content": {"type": "string", "maxLength": FILE_BYTES_MAX}}),
        use=write_file,
        needs_workspace=True,
    ),
    Tool(
        name="edit_file",
        description=(
            "Changes a file by exact replacements, in order. Each oldText must occur exactly once in the file as it "
            "is after the edits before it. When one does not match, nothing is written and the result names it."
        ),
        schema=object_of(
            {
                "path": PATH,
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": EDITS_MAX,
                    "items": object_of({"oldText": {"type": "string"}, "newText": {"type": "string"}}),
                },
            }
        ),
        use=edit_file,
        needs_workspace=True,
    ),
    Tool(
        name="delete_file",
        description="Deletes one file.",
        schema=object_of({"path": PATH}),
        use=delete_file,
        needs_workspace=True,
    ),
)
