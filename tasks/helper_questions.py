"""Questions that clients ask a helper under an allowance: a row, a worker that asks once, an answer or the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.complete import thinking_of
from agents.errors import HelperMisconfigured, StopRun
from agents.helpers import Helped, HelperProfile, HelperRole, invoke_helper, validator_of
from agents.spec import HELD, Payers, UnderModelTask
from budgets.meters import payer_meters
from budgets.model_tasks import keep_unsettled
from budgets.models import Invocation, ModelTask
from routing.tiers import model_for_question
from routing.words import Tier
from tasks.asking import HELD_DELAY_SECONDS, holds_end
from tasks.errors import LostRace
from tasks.fence import QUESTION_LEASE_SECONDS
from tasks.helper_failures import INTERNAL, WORKER_LOST, WORKERS_DIED, failure_of
from tasks.models import HelperQuestion
from tasks.owners import is_surely_dead, this_process
from tasks.states import OPEN_QUESTIONS, QuestionState
from tasks.transitions import move_question
from tasks.wake import wake_question
from tenants.apart import apart
from tenants.errors import InvalidInput, NotVisible
from tenants.models import User

if TYPE_CHECKING:
    from tasks.reads import Person

PACKET_CHARACTERS_MAX = 400_000
SCHEMA_CHARACTERS_MAX = 20_000
SCHEMA_DEPTH_MAX = 32
OUTPUT_TOKENS_MAX = 2_000
OPEN_PER_ALLOWANCE_MAX = 100
# What kills its worker each time must not do so for ever.
LOST_MAX = 3
WOKEN_PER_SWEEP_MAX = 100
# Expressions and references can keep a worker busy without end, and nothing could stop it.
UNSAFE_KEYWORDS = frozenset({"pattern", "patternProperties", "$ref", "$dynamicRef"})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedQuestion:
    """A question as a client sent it."""

    role: str
    packet: str
    schema: Any = None
    validation_schema: Any = None


def request_question(
    allowance: ModelTask, wanted: WantedQuestion, *, by: User, now: datetime
) -> HelperQuestion:
    """Queue one. Raises InvalidInput for what could never be asked; whether there is room is seen when it is asked."""
    project = allowance.project
    assert project is not None, "clients see allowances of projects alone"
    if project.archived_at is not None:
        raise InvalidInput("", "the project is archived", "Bring it back first.", code="project_archived")
    _check(wanted)
    if allowance.questions.filter(state__in=OPEN_QUESTIONS).count() >= OPEN_PER_ALLOWANCE_MAX:
        raise InvalidInput(
            "",
            f"{OPEN_PER_ALLOWANCE_MAX} questions of this allowance have not ended",
            "Wait for some of them.",
        )
    with transaction.atomic():
        made: HelperQuestion = HelperQuestion.objects.create(
            project=project,
            allowance=allowance,
            by=by,
            role=wanted.role,
            packet=wanted.packet,
            schema=wanted.schema,
            validation_schema=wanted.validation_schema,
            not_before=now,
            created_at=now,
        )
        wake_question(made.pk)
    return made


def question_for(user: Person, question_id: UUID) -> HelperQuestion:
    """One that this person sees. Raises NotVisible."""
    rows = HelperQuestion.objects.visible_to(user).select_related("by")
    found: HelperQuestion | None = rows.filter(pk=question_id).first()
    if found is None:
        raise NotVisible("question")
    return found


def calls_of(question: HelperQuestion) -> QuerySet[Invocation]:
    """The physical calls of a question, oldest first, as its allowance counts them."""
    calls: QuerySet[Invocation] = Invocation.objects.filter(
        task_id=question.allowance_id, parent=str(question.pk)
    )
    return calls.exclude(state="refunded")


def ask_question(question_id: UUID) -> None:
    """Take it if it is due and nobody has it, and ask. Safe to call twice, late, or by two workers at once."""
    taken = _take(question_id, now=timezone.now())
    if taken is None:
        return
    try:
        with holds_end(taken.row.project.organization_id):
            helped = _ask(taken)
        taken.answer(helped)
    except LostRace as lost:
        log.info("a question is somebody else's now", question=str(question_id), lost=str(lost))
    except Exception as error:
        with apart("end_of_question", question=str(question_id)):
            _end(taken, error)


def due_questions(now: datetime) -> QuerySet[HelperQuestion]:
    """Those that wait, and those whose worker's lease has ended."""
    return HelperQuestion.objects.filter(state__in=OPEN_QUESTIONS, not_before__lte=now)


def wake_due_questions(now: datetime) -> int:
    """The sweep's share: lost wakes, and questions of dead workers. How many were woken."""
    running = HelperQuestion.objects.filter(state=QuestionState.RUNNING, not_before__gt=now)
    for pk, key in running.values_list("pk", "work_key"):
        if is_surely_dead(key.rpartition(":")[0]):
            HelperQuestion.objects.filter(pk=pk, work_key=key).update(not_before=now)
    due = list(due_questions(now).values_list("pk", flat=True)[:WOKEN_PER_SWEEP_MAX])
    for question_id in due:
        wake_question(question_id)
    return len(due)


class _Taken:
    """One worker's hold on a question, and the engine's supervisor of it. Whoever lost it gets `LostRace`."""

    def __init__(self, row: HelperQuestion) -> None:
        self.row = row

    def beat(self) -> None:
        """Before each call: the lease outlives it; a worker that lost it sends nothing."""
        until = timezone.now() + timedelta(seconds=QUESTION_LEASE_SECONDS)
        mine = HelperQuestion.objects.filter(
            pk=self.row.pk, state=QuestionState.RUNNING, work_key=self.row.work_key
        )
        if not mine.update(not_before=until):
            raise LostRace(self.row)

    def seconds_left(self) -> float:
        """A question has its own time alone; the allowance's deadline is asked before each call."""
        return math.inf

    def answer(self, helped: Helped) -> None:
        also = {"text": _plain(helped.text), "value": _storable(helped.value)}
        move_question(self.row, QuestionState.ANSWERED, now=timezone.now(), also=also)

    def wait_for_held_money(self) -> None:
        now = timezone.now()
        again_at = now + timedelta(seconds=HELD_DELAY_SECONDS)
        also = {"work_key": "", "not_before": again_at}
        move_question(self.row, QuestionState.QUEUED, now=now, also=also)


def _take(question_id: UUID, *, now: datetime) -> _Taken | None:
    """A question is sent once: taken over from a worker that died only while nothing of it has left."""
    row: HelperQuestion | None = (
        due_questions(now).select_related("project", "allowance").filter(pk=question_id).first()
    )
    if row is None:
        return None
    lost = row.lost + (row.state == QuestionState.RUNNING)
    key = f"{this_process()}:{uuid4().hex}"
    also = {
        "work_key": key,
        "not_before": now + timedelta(seconds=QUESTION_LEASE_SECONDS),
        "tries": row.tries + 1,
        "lost": lost,
        "started_at": now,
    }
    try:
        # Ours first: then the worker before us sends nothing more, and what it has sent is all there is.
        move_question(row, QuestionState.RUNNING, now=now, also=also)
        if calls_of(row).exists():
            keep_unsettled(str(row.pk), now=now)
            move_question(row, QuestionState.FAILED, now=now, also={"failure": WORKER_LOST})
        elif lost >= LOST_MAX:
            move_question(row, QuestionState.FAILED, now=now, also={"failure": WORKERS_DIED})
    except LostRace:
        return None
    return _Taken(row) if row.state == QuestionState.RUNNING else None


def _ask(taken: _Taken) -> Helped:
    row = taken.row
    return invoke_helper(
        row.role,
        row.packet,
        _payers_of(row, now=timezone.now()),
        profile=_profile_of(row),
        schema=row.schema,
        validation_schema=row.validation_schema,
        supervisor=taken,
    )


def _profile_of(row: HelperQuestion) -> HelperProfile:
    """The project's connector at the haiku tier, as the compaction has it."""
    allowed = row.allowance.output_tokens_per_call_max
    choice = model_for_question(
        Tier.HAIKU,
        allow_opus=settings.PLANE.allow_opus,
        output_tokens_max=OUTPUT_TOKENS_MAX if allowed is None else min(OUTPUT_TOKENS_MAX, allowed),
    )
    return HelperProfile(
        connector=row.project.connector,
        model=choice.name,
        output_tokens_max=choice.output_tokens_max,
        thinking=thinking_of(choice),
    )


def _payers_of(row: HelperQuestion, *, now: datetime) -> Payers:
    """The project, whoever asked, the month and the day; no Change (row 147)."""
    project = row.project
    meters = payer_meters(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=row.by_id,
        change_id=None,
        connector=project.connector,
        counts_daily=True,
        now=now,
    )
    return Payers(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=row.by_id,
        connector=project.connector,
        meters=meters,
        purpose=row.role,
        key=f"helper:{row.pk}:{row.tries}",
        allowance=UnderModelTask(model_task_id=row.allowance_id, parent=str(row.pk)),
    )


def _end(taken: _Taken, error: Exception) -> None:
    now = timezone.now()
    held = isinstance(error, StopRun) and error.note == HELD
    if held and not calls_of(taken.row).exists():
        taken.wait_for_held_money()
        return
    failure = failure_of(error, now=now)
    if failure["code"] == INTERNAL["code"]:
        log.error("a question broke", question=str(taken.row.pk), exc_info=error)
    move_question(taken.row, QuestionState.FAILED, now=now, also={"failure": failure})


def _check(wanted: WantedQuestion) -> None:
    if wanted.role not in set(HelperRole):
        raise InvalidInput("role", "is no helper", f"Use one of {', '.join(HelperRole)}.")
    if len(wanted.packet) > PACKET_CHARACTERS_MAX:
        raise InvalidInput("packet", "is too long", f"Use at most {PACKET_CHARACTERS_MAX:,} characters.")
    for field, schema in (("schema", wanted.schema), ("validation_schema", wanted.validation_schema)):
        if schema is not None:
            _check_schema(field, schema)


def _check_schema(field: str, schema: object) -> None:
    remedy = f"Send a JSON schema of an object with up to {SCHEMA_CHARACTERS_MAX:,} characters."
    if not isinstance(schema, Mapping) or not _fits(schema):
        raise InvalidInput(field, "is no JSON schema that can be kept", remedy)
    unsafe = UNSAFE_KEYWORDS & set(_keys(schema))
    if unsafe:
        raise InvalidInput(
            field,
            f"uses {', '.join(sorted(unsafe))}",
            "Write out what is referred to; instead of a pattern use enum, format or maxLength.",
            code="unsafe_schema",
        )
    try:
        validator_of(schema)
    except HelperMisconfigured as wrong:
        raise InvalidInput(field, str(wrong), remedy, code=wrong.code) from None


def _fits(schema: Mapping[str, Any]) -> bool:
    """Small, shallow, and such that every database keeps it."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return len(text) <= SCHEMA_CHARACTERS_MAX and "\\u0000" not in text and _depth(schema) <= SCHEMA_DEPTH_MAX


def _depth(value: Any) -> int:
    """How deep it is nested; what is deeper than the limit is not looked into."""
    level, depth = [value], 0
    while level and depth <= SCHEMA_DEPTH_MAX:
        depth += 1
        level = [child for each in level for child in _children(each)]
    return depth


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
    for child in _children(value):
        yield from _keys(child)


def _plain(said: str) -> str:
    """No NUL and no half of a character: no database keeps one."""
    return said.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def _storable(value: Any) -> Any:
    """A model's object, cleaned likewise."""
    match value:
        case str():
            return _plain(value)
        case Mapping():
            return {_plain(key): _storable(each) for key, each in value.items()}
        case list():
            return [_storable(each) for each in value]
        case _:
            return value
