"""Browser: the Changes as a list or a board, and acts on one or many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from tasks import reads
from tasks.changes import cancel_change, pause_change, resume_change, retry_change, start_draft
from tasks.errors import IllegalMove, LostRace, NotStopped
from tasks.models import Change
from tasks.pages.live import mark_of, show
from tasks.pages.panels import criteria_strip
from tasks.states import ChangeState
from tenants.access import require_role
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import Project, Role, User
from tenants.saved_views import forget_view, save_view

ROWS_PER_PAGE = 30
CARDS_MAX = 120
MANY_MAX = 100
S = ChangeState
COLUMNS: Sequence[tuple[str, tuple[ChangeState, ...]]] = (
    ("Draft", (S.DRAFT,)),
    ("Planning", (S.PLANNING, S.AWAITING_APPROVAL)),
    ("Running", (S.RUNNING,)),
    ("Blocked", (S.BUDGET_BLOCKED, S.FAILED)),
    ("Candidate", (S.COMPOSING, S.READY)),
    ("Promoted", (S.PROMOTED,)),
)
ACTS: dict[str, Callable[[Change, User, datetime], object]] = {
    "start": lambda change, by, now: start_draft(change, by=by, now=now),
    "pause": lambda change, by, now: pause_change(change, by=by, now=now),
    "resume": lambda change, by, now: resume_change(change, by=by, now=now),
    "cancel": lambda change, by, now: cancel_change(change, by=by, now=now),
    "retry": lambda change, by, now: retry_change(
        change, by=by, key=f"page-{change.pk}-{now.timestamp()}", now=now
    ),
}
DONE_WORDS = {
    "start": "handed over",
    "pause": "paused; what runs goes on to its end",
    "resume": "goes on",
    "cancel": "cancelled",
    "retry": "is tried again",
}
MANY_ACTS = ("pause", "resume", "cancel")
assert set(MANY_ACTS) < set(ACTS) == set(DONE_WORDS)


@dataclass(frozen=True, slots=True)
class ListRow:
    change: Change
    money: reads.Money
    strip: list[str]


@require_GET
@login_required
def change_list(request: HttpRequest) -> HttpResponse:
    """All Changes that a person may see, with filters in the address."""
    wanted = reads.ChangeFilter.parse(request.GET)
    board = request.GET.get("layout") == "board"
    found = reads.listed_changes(request.user, wanted)
    page = Paginator(found, CARDS_MAX if board else ROWS_PER_PAGE).get_page(request.GET.get("page"))
    changes = list(page.object_list)
    money, verdicts = reads.money_of(changes), reads.latest_verdicts(changes)
    rows = [ListRow(change, money[change.pk], criteria_strip(change, verdicts)) for change in changes]
    context = {
        "rows": rows,
        "columns": _columns(rows) if board else (),
        "board": board,
        "page": page,
        "wanted": wanted,
        "filtered": wanted != reads.ChangeFilter(),
        "query": _query(wanted, board=board),
        "views": cast(User, request.user).saved_views,
        "states": list(ChangeState),
        "groups": [("", "All"), ("waiting", "Needs a person"), ("working", "At work"), ("ended", "Ended")],
        "projects": projects_of(request),
    }
    facts = [
        (
            each.change.pk,
            each.change.state,
            each.change.paused_at,
            each.change.updated_at,
            each.money,
            each.strip,
        )
        for each in rows
    ]
    return show(request, "tasks/change_list.html", context, mark=mark_of(*facts))


@require_POST
@login_required
def saved_view(request: HttpRequest) -> HttpResponseRedirect:
    """Name the filters of now, or forget a name."""
    person, name = cast(User, request.user), request.POST.get("name", "")
    query = _query(reads.ChangeFilter.parse(request.POST), board=request.POST.get("layout") == "board")
    try:
        if request.POST.get("act") == "forget":
            forget_view(person, name)
        else:
            save_view(person, name, query)
    except InvalidInput as wrong:
        messages.error(request, f"The view was not saved: its {wrong.field} {wrong.problem}. {wrong.remedy}")
    return redirect(f"{reverse('changes')}?{query}" if query else "changes")


def _query(wanted: reads.ChangeFilter, *, board: bool) -> str:
    return "&".join(filter(None, (wanted.as_query(), "layout=board" if board else "")))


@require_POST
@login_required
def change_act(request: HttpRequest, change_id: UUID, act: str) -> HttpResponseRedirect:
    """Start, pause, resume, cancel or retry. The address names the act; the service knows its rules."""
    change = reads.named_change(request.user, change_id)
    require_role(request.user, change.organization_id, Role.MEMBER)
    _act(request, change, act)
    return redirect("change", change.pk)


@require_POST
@login_required
def changes_act(request: HttpRequest) -> HttpResponse:
    """The same act on many, after a page that says on which. One that cannot is named and hinders no other."""
    act = request.POST.get("act", "")
    if act not in MANY_ACTS:
        raise InvalidInput("act", "is no act for many", f"Use one of {', '.join(MANY_ACTS)}.")
    changes = _chosen(request)
    if not changes:
        messages.info(request, "Choose the changes first.")
        return redirect("changes")
    if "confirmed" not in request.POST:
        return render(request, "tasks/changes_act.html", {"changes": changes, "act": act})
    for change in changes:
        try:
            require_role(request.user, change.organization_id, Role.MEMBER)
        except RoleTooLow:
            messages.warning(request, f"{change.key}: a member may do this, not a viewer.")
        else:
            _act(request, change, act)
    return redirect("changes")


def _act(request: HttpRequest, change: Change, act: str) -> None:
    """Does it, and says so; what the state of now does not allow is said as well."""
    try:
        ACTS[act](change, cast(User, request.user), timezone.now())
    except (IllegalMove, LostRace, NotStopped):
        change.refresh_from_db()
        state = change.state.replace("_", " ")
        messages.warning(request, f"{change.key} is {state}: nothing to {act} there.")
    else:
        messages.success(request, f"{change.key}: {DONE_WORDS[act]}.")


def projects_of(request: HttpRequest) -> list[Project]:
    found = Project.objects.visible_to(request.user).filter(archived_at__isnull=True)
    return list(found.select_related("organization").order_by("name"))


def _columns(rows: Sequence[ListRow]) -> list[tuple[str, list[ListRow]]]:
    return [(name, [row for row in rows if row.change.state in states]) for name, states in COLUMNS]


def _chosen(request: HttpRequest) -> list[Change]:
    """The ticked ones that this person may see; a foreign id is as if it were not there (C80)."""
    ids = []
    for said in request.POST.getlist("change")[:MANY_MAX]:
        try:
            ids.append(UUID(said))
        except ValueError:
            raise InvalidInput("change", "is no id", "Load the list again.") from None
    return list(reads.changes_for(request.user).filter(pk__in=ids))
