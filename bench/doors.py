"""The 95th percentile of the heaviest doors over 100,000 Tasks and 1,000,000 events, beside a bare DRF view.

Twenty organizations, one of them with nine tenths of everything. Each door is asked by a member of the large one, in
this process, through every middleware; the bare view serves as many plain rows through the same. Beside the times: the
number of queries, and whether PostgreSQL reads a whole large table for any of them.
"""

# ruff: noqa: E501, S311, S608  # statements as the database reads them; nothing in them comes from outside

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from statistics import quantiles
from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import path
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView

from bench.ledger import postgres
from bench.measured import Measured
from budgets.models import Meter, Reservation
from budgets.money import Usd
from config import urls as product
from tasks.models import (
    Candidate,
    Change,
    Check,
    Criterion,
    DecisionReceipt,
    Dependency,
    Event,
    Task,
    TaskRun,
)
from tenants.members import issue_token
from tenants.models import AuditEntry, Membership, Organization, Project, Role, User

ASKED = 80  # times each of the four with an aim; the bare view as often, in turns
ASKED_OTHERS = 20
WARM = 3
ORGANIZATIONS = 20
LARGE_SHARE = 0.9
PROJECTS_EACH = 10
PEOPLE_EACH = 20
CHANGES = 20_000
TASKS_EACH = 5
EVENTS_EACH = 50
CALLS_EACH = 10
AIM = "at most 5"
BIG_TABLES = frozenset(
    {"tasks_change", "tasks_task", "tasks_taskrun", "tasks_event", "tasks_decisionreceipt", "tasks_criterion"}
    | {
        "tasks_check",
        "tasks_candidate",
        "budgets_reservation",
        "budgets_entry",
        "budgets_meter",
        "tenants_auditentry",
    }
)


class BareChange(ModelSerializer[Change]):
    class Meta:
        model = Change
        fields = ("id", "number", "title", "state", "created_at", "project", "author")


class BareTask(ModelSerializer[Task]):
    class Meta:
        model = Task
        fields = ("id", "key", "title", "objective", "state", "kind", "created_at")


class BareChanges(APIView):
    """What a door costs at least: authentication, one query of so many rows, one serializer, JSON."""

    def get(self, request: Request, rows: int) -> Response:  # noqa: ARG002  # the framework's signature
        return Response(BareChange(Change.objects.order_by("-pk")[:rows], many=True).data)


class BareTasks(APIView):
    def get(self, request: Request, change_id: UUID) -> Response:  # noqa: ARG002  # the same
        return Response(BareTask(Task.objects.filter(change_id=change_id), many=True).data)


urlpatterns = [
    path("api/bare/changes/<int:rows>", BareChanges.as_view()),
    path("api/bare/changes/<uuid:change_id>/tasks", BareTasks.as_view()),
    *product.urlpatterns,
]
handler400, handler403 = product.handler400, product.handler403
handler404, handler500 = product.handler404, product.handler500


@dataclass(frozen=True, slots=True)
class World:
    """Who asks, and for what."""

    admin: User
    token: str
    large: Organization
    small: Organization
    small_admin: User
    changes: tuple[UUID, ...]  # a sample of the large one's
    tasks: tuple[UUID, ...]
    runs: tuple[UUID, ...]
    projects: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Door:
    name: str
    path: Callable[[random.Random], str]
    bare: Callable[[random.Random], str]
    asked: int = ASKED_OTHERS
    aim: str = ""
    person: str = "admin"
    by_token: bool = False


def measure() -> Iterable[Measured]:
    with postgres(), product_with_bare_views():
        begun = time.monotonic()
        world = fill(changes=CHANGES)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM")  # as the server itself leaves tables that were written to
        counts = f"{Task.objects.count():,} Tasks, {_rows_of('tasks_event'):,} events"
        yield Measured(
            what=f"filled: {counts}", ours=f"{time.monotonic() - begun:.0f} s", theirs="", ratio=0.0
        )
        for door in doors(world):
            yield timed(world, door)


@contextmanager
def product_with_bare_views() -> Iterator[None]:
    """The product's own routes and habits; only the hosts of a test client are added."""
    with override_settings(ROOT_URLCONF="bench.doors", ALLOWED_HOSTS=["testserver"]):
        yield


def doors(world: World) -> list[Door]:
    def fixed(path: str) -> Callable[[random.Random], str]:
        return lambda _: path

    def one(pattern: str) -> Callable[[random.Random], str]:
        return lambda chance: pattern.format(
            change=chance.choice(world.changes),
            task=chance.choice(world.tasks),
            run=chance.choice(world.runs),
            project=chance.choice(world.projects),
        )

    thirty, fifty = fixed("/api/bare/changes/30"), fixed("/api/bare/changes/50")
    tasks = one("/api/bare/changes/{change}/tasks")
    large, api = world.large.pk, f"/api/v1/organizations/{world.large.pk}"
    since = f"{timezone.now() - timedelta(days=29):%Y-%m-%d}"
    return [
        Door("Changes list, page", fixed("/changes"), thirty, ASKED, AIM),
        Door("Changes list, REST", fixed("/api/v1/changes"), fifty, ASKED, AIM, by_token=True),
        # Criteria, Tasks, attempts, receipts and events: about thirty rows as well.
        Door("one Change, page", one("/changes/{change}"), thirty, ASKED, AIM),
        Door("one Change, REST", one("/api/v1/changes/{change}"), tasks, ASKED, AIM, by_token=True),
        Door("Changes list of a small organization, page", fixed("/changes"), thirty, person="small"),
        Door("Changes list, board", fixed("/changes?layout=board"), fixed("/api/bare/changes/120")),
        Door("Changes list, a search that finds nothing, page", fixed("/changes?q=zzqqxx"), thirty),
        Door("Changes list, waiting, page", fixed("/changes?group=waiting"), thirty),
        Door("inbox, page", fixed("/"), thirty),
        Door("spend, page", fixed("/spend"), thirty),
        Door("spend of one project, page", one("/spend?project={project}"), thirty),
        Door(
            "spend by day and tier, REST",
            fixed(f"{api}/spend?by=day,tier&since={since}"),
            fifty,
            by_token=True,
        ),
        Door(
            "cost of an accepted Change, REST",
            fixed(f"{api}/spend/accepted?since={since}"),
            fifty,
            by_token=True,
        ),
        Door("limits, page", fixed(f"/organizations/{large}/limits"), thirty),
        Door("audit, page", fixed(f"/organizations/{large}/audit"), fifty),
        Door("audit, REST", fixed(f"/api/v1/organizations/{large}/audit"), fifty, by_token=True),
        Door("history of one Change, page", one("/changes/{change}/history"), tasks),
        Door("events of one Change, REST", one("/api/v1/changes/{change}/events"), fifty, by_token=True),
        Door("Tasks of one Change, REST", one("/api/v1/changes/{change}/tasks"), tasks, by_token=True),
        Door("receipts of one Change, REST", one("/api/v1/changes/{change}/receipts"), tasks, by_token=True),
        Door("one Task, page", one("/tasks/{task}"), tasks),
        Door("one Task, REST", one("/api/v1/tasks/{task}"), tasks, by_token=True),
        Door("one run, page", one("/runs/{run}"), tasks),
        Door("one run, REST", one("/api/v1/runs/{run}"), tasks, by_token=True),
        Door("ledger, REST", fixed(f"/api/v1/organizations/{large}/ledger"), fifty, by_token=True),
    ]


def timed(world: World, door: Door) -> Measured:
    """Ours and the bare view in turns, so that a busy moment of the machine falls on both."""
    client = client_of(world, door)
    chance = random.Random(door.name)
    queries, scans = looked_into(client, door.path(chance))
    ours, bare = [], []
    for number in range(WARM + door.asked):
        if number % 50 == 0:
            cache.clear()  # the rate limits
        a, b = _seconds(client, door.path(chance)), _seconds(client, door.bare(chance))
        if number >= WARM:
            ours.append(a)
            bare.append(b)
    mine, other = _p95(ours), _p95(bare)
    said = f"; reads all of {', '.join(sorted(scans))}" if scans else ""
    return Measured(
        what=f"{door.name} ({queries} queries{said})",
        ours=f"{mine * 1000:.1f} ms",
        theirs=f"{other * 1000:.1f} ms",
        ratio=mine / other,
        aim=door.aim,
    )


def client_of(world: World, door: Door) -> Client:
    client = Client()
    if door.by_token:
        client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {world.token}"
    else:
        client.force_login(world.admin if door.person == "admin" else world.small_admin)
    return client


def looked_into(client: Client, address: str) -> tuple[int, set[str]]:
    """How many queries it takes once warm, and which large tables PostgreSQL reads as a whole for any of them."""
    client.get(address)
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(address)
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    scans: set[str] = set()
    for query in seen.captured_queries:
        scans |= scanned(query["sql"])
    return len(seen), scans & BIG_TABLES


def scanned(sql: str) -> set[str]:
    """The tables that the planner would read from end to end for this query."""
    if not sql.lstrip("( ").upper().startswith("SELECT"):
        return set()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        found = cursor.fetchone()
    plan = found[0] if found else []
    return set(_scans((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


def _scans(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan":
        yield str(node["Relation Name"])
    for below in node.get("Plans", ()):
        yield from _scans(below)


def _seconds(client: Client, address: str) -> float:
    started = time.perf_counter()
    answer = client.get(address)
    seconds = time.perf_counter() - started
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    return seconds


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def _rows_of(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        found = cursor.fetchone()
    return int(found[0]) if found else 0


# ---- the rows


def fill(*, changes: int) -> World:
    """Organizations and people through the ORM, the rest in one statement a table."""
    now = timezone.now()
    organizations = [
        Organization.objects.create(slug=f"bench-{n}", name=f"Bench {n}") for n in range(ORGANIZATIONS)
    ]
    people = [
        [
            User.objects.create_user(f"person{n}-{place}@bench.example", first_name=f"Person {n}")
            for n in range(PEOPLE_EACH)
        ]
        for place in range(ORGANIZATIONS)
    ]
    Membership.objects.bulk_create(
        Membership(organization=organization, user=person, role=Role.ADMIN if number == 0 else Role.MEMBER)
        for organization, staff in zip(organizations, people, strict=True)
        for number, person in enumerate(staff)
    )
    Project.objects.bulk_create(
        Project(organization=organization, slug=f"project-{n}", name=f"Project {n}")
        for organization in organizations
        for n in range(PROJECTS_EACH)
    )
    month = f"{now:%Y-%m}"
    figures: dict[str, Any] = {
        "changes": changes,
        "large": int(changes * LARGE_SHARE),
        "organizations": ORGANIZATIONS,
        "projects": PROJECTS_EACH,
        "people": PEOPLE_EACH,
        "tasks": TASKS_EACH,
        "events": EVENTS_EACH,
        "calls": CALLS_EACH,
        "since": now - timedelta(days=60),
        "month": month,
    }
    with connection.cursor() as cursor:
        for model in _FILLED:
            for statement in _defaults_of(model):
                cursor.execute(statement)
        # Their keys hold by how they are made, and to look each one up takes longer than to write it.
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone() == (True,):
            cursor.execute("SET session_replication_role = replica")
        for statement in _STATEMENTS:
            cursor.execute(statement, figures)
        cursor.execute("RESET session_replication_role")
        cursor.execute("ANALYZE")
    large, small = organizations[0], organizations[1]
    _, token = issue_token(people[0][0], large, name="bench", scopes=["read"], by=people[0][0])
    sample = tuple(Change.objects.filter(organization=large).order_by("?").values_list("pk", flat=True)[:200])
    tasks = Task.objects.filter(change__in=sample).values_list("pk", flat=True)
    runs = TaskRun.objects.filter(task__in=tasks).values_list("pk", flat=True)
    projects = Project.objects.filter(organization=large).values_list("pk", flat=True)
    return World(
        people[0][0], token, large, small, people[1][0], sample, tuple(tasks), tuple(runs), tuple(projects)
    )


_FILLED = (
    Change,
    Criterion,
    Task,
    Dependency,
    TaskRun,
    Event,
    DecisionReceipt,
    Candidate,
    Check,
    Meter,
    Reservation,
    AuditEntry,
)


def _defaults_of(model: type[Model]) -> Iterator[str]:
    """The defaults of the code as defaults of the database, so that a column added later breaks no statement below."""
    for field in model._meta.concrete_fields:
        written = not (field.null or field.primary_key or field.generated)
        value = field.get_default() if written else None
        if value is not None:
            plain = value.micro if isinstance(value, Usd) else value
            text = json.dumps(plain) if isinstance(plain, dict | list) else str(plain)
            quoted = text.replace("'", "''")
            yield f"ALTER TABLE {model._meta.db_table} ALTER COLUMN \"{field.column}\" SET DEFAULT '{quoted}'"


# Ids in the order of time, as version 7 has them, so that a number names its row in every statement.
_ID = "('{kind}' || lpad(to_hex({number}), 12, '0'))::uuid"


def _id(kind: int, number: str) -> str:
    return _ID.format(kind=f"01900000-{kind:04d}-7000-8000-", number=number)


_STATE = """CASE WHEN n %% 100 = 0 THEN 'planning' WHEN n %% 100 = 1 THEN 'awaiting_approval' ELSE
            (ARRAY['promoted','promoted','promoted','promoted','promoted','cancelled','running','budget_blocked',
            'ready','failed'])[1 + n %% 10] END"""
_TASK_STATE = """CASE WHEN n %% 10 = 5 THEN 'cancelled' WHEN n %% 10 = 6 AND t = 1 THEN 'running'
                 WHEN n %% 10 = 7 AND t = 1 THEN 'blocked' ELSE 'done' END"""
_USAGE = """'{"input_uncached": 600, "cache_read": 5200, "cache_write_5m": 900, "cache_write_1h": 0, "output": 420,
            "candidates": 0}'"""
_RATES = """'{"model": "claude-haiku-5-5", "source": "table", "since": "2026-01-01", "input": "1.00", "output": "5.00",
            "cache_read": "0.10", "cache_write_5m": "1.25", "cache_write_1h": "2.00"}'"""
_STATEMENTS = (
    # Which organization, project and person each Change belongs to, once for all statements.
    """CREATE TEMPORARY TABLE home AS
       SELECT n, o.id AS organization_id, p.id AS project_id, m.user_id
       FROM generate_series(1, %(changes)s) n
       JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM tenants_organization) o
         ON o.place = CASE WHEN n %% 10 < 9 THEN 0 ELSE 1 + (n / 10) %% (%(organizations)s - 1) END
       JOIN (SELECT id, organization_id, row_number() OVER (PARTITION BY organization_id ORDER BY id) - 1 AS place
             FROM tenants_project) p ON p.organization_id = o.id AND p.place = (n / 10) %% %(projects)s
       JOIN (SELECT user_id, organization_id,
                    row_number() OVER (PARTITION BY organization_id ORDER BY id) - 1 AS place
             FROM tenants_membership) m ON m.organization_id = o.id AND m.place = (n / 10) %% %(people)s""",
    f"""INSERT INTO tasks_change (id, organization_id, project_id, number, author_id, title, goal, invariants, state,
          plan_problem, stop_limit, stop_detail, failure, work_key, work_delays, created_at, updated_at, ended_at)
       SELECT {_id(1, "n")}, organization_id, project_id, n, user_id, 'Change ' || n || ' of the bench',
         repeat('What it is for, in a sentence or two. ', 8), '[]', {_STATE}, '',
         CASE WHEN n %% 10 <> 7 THEN '' ELSE (ARRAY['change_budget', 'max_attempts_per_tier', 'stopped_by_person',
           'change_budget'])[1 + n / 10 %% 4] END, '{{}}', '', '', 0,
         %(since)s + n * interval '4 minutes', %(since)s + n * interval '4 minutes',
         CASE WHEN n %% 10 < 6 THEN %(since)s + n * interval '4 minutes' END
       FROM home""",
    """INSERT INTO tasks_criterion (change_id, position, text, command)
       SELECT """
    + _id(1, "n")
    + """, c, 'Criterion ' || c, 'python -m pytest'
       FROM home, generate_series(1, 3) c""",
    f"""INSERT INTO tasks_task (id, change_id, key, position, title, objective, kind, size, risk, area,
          destructive_migration, design_conflicts, resources, notes, state, waiting_for, owner, index_waits, stop_limit,
          stop_detail, failure, created_at)
       SELECT {_id(2, "n * 10 + t")}, {_id(1, "n")}, 'T' || t, t, 'Task ' || t || ' of ' || n,
         repeat('Do this part. ', 20), 'feature', 'small', 'low', 'general', false, 0, '[]', '[]', {_TASK_STATE},
         '', '', 0, CASE WHEN n %% 10 = 7 AND t = 1 THEN 'change_budget' ELSE '' END, '{{}}', '', %(since)s + n * interval '4 minutes'
       FROM home, generate_series(1, %(tasks)s) t""",
    f"""INSERT INTO tasks_dependency (task_id, on_id, added_by)
       SELECT {_id(2, "n * 10 + t")}, {_id(2, "n * 10 + t - 1")}, 'plan'
       FROM home, generate_series(2, %(tasks)s) t""",
    f"""INSERT INTO tasks_taskrun (id, task_id, attempt, tier, model, state, end_reason, failure_class, note, intent,
          failure_log, detail, context_hash, packet_key, tool_log_key, caps, cost, unknown_calls, calls, reads,
          base_commit, start_commit, stacked_on, compaction, owner, fence, lease_until, started_at, ended_at)
       SELECT {_id(3, "n * 10 + t")}, {_id(2, "n * 10 + t")}, 1, 1, 'claude-haiku-5-5',
         CASE WHEN n %% 10 = 6 AND t = 1 THEN 'running' WHEN n %% 10 = 9 THEN 'failed' ELSE 'succeeded' END,
         CASE WHEN n %% 10 = 6 AND t = 1 THEN '' WHEN n %% 10 = 9 THEN 'stuck' ELSE 'completed' END,
         CASE WHEN n %% 10 = 9 THEN 'intelligence' ELSE '' END, '',
         'done', '', '{{}}', repeat('a', 64), 'packets/x', '', '{{"calls_max": 16}}', 12000, 0, 7, 3, '', '', '[]', '', '', 1,
         %(since)s, %(since)s + n * interval '4 minutes',
         CASE WHEN n %% 10 <> 6 OR t > 1 THEN %(since)s + n * interval '4 minutes' END
       FROM home, generate_series(1, %(tasks)s) t""",
    f"""INSERT INTO tasks_event (organization_id, change_id, task_id, kind, data, at)
       SELECT organization_id, {_id(1, "n")}, CASE WHEN e %% 3 > 0 THEN {_id(2, "n * 10 + 1 + e %% 5")} END,
         CASE WHEN e = 4 AND n %% 10 = 7 THEN 'spend_limited'
           ELSE (ARRAY['change.submitted','task.started','run.ended','task.done','task.waiting'])[1 + e %% 5] END,
         '{{"attempt": 1, "limit": "change_budget"}}', %(since)s + n * interval '4 minutes' + e * interval '1 second'
       FROM home, generate_series(1, %(events)s) e ORDER BY e, n""",
    f"""INSERT INTO tasks_decisionreceipt (change_id, task_id, kind, decision, reasons, detail, at)
       SELECT {_id(1, "n")}, {_id(2, "n * 10 + t")}, 'route', 'haiku', '["R7"]', '{{}}', %(since)s
       FROM home, generate_series(1, %(tasks)s) t""",
    f"""INSERT INTO tasks_candidate (id, change_id, number, state, base_commit, generation, commit, changesets, conflicts,
          files, flagged_files, patch_key, problem, judgement, created_at)
       SELECT {_id(4, "n")}, {_id(1, "n")}, 1, CASE WHEN n %% 10 < 5 THEN 'promoted' ELSE 'passed' END, repeat('b', 40), 1,
         repeat('c', 40), '[]', '[]', '[]', '[]', '', '', '', %(since)s FROM home WHERE n %% 10 IN (0,1,2,3,4,8)""",
    f"""INSERT INTO tasks_check (candidate_id, criterion_id, commit, command, verdict, exit_code, output, output_key,
          base_verdict, base_output, base_output_key, asked, started_at, ended_at)
       SELECT {_id(4, "h.n")}, c.id, repeat('c', 40), c.command, 'passed', 0, 'ok', '', '', '', '', '', %(since)s, %(since)s
       FROM home h JOIN tasks_criterion c ON c.change_id = {_id(1, "h.n")} WHERE h.n %% 10 IN (0,1,2,3,4,8)""",
    f"""INSERT INTO budgets_meter (name, organization_id, kind, subject, period, limit_usd, held_usd, held_tokens,
          held_calls, spent_usd, spent_tokens, spent_calls, created_at)
       SELECT 'bench-change-' || n, organization_id, 'change', {_id(1, "n")}::text, '', 5000000, 0, 0, 0, 420000, 9000, 10,
         %(since)s FROM home""",
    # One in a hundred at 90 percent: noted when it happened, also of what has ended since.
    """INSERT INTO budgets_thresholdcrossing (organization_id, meter_id, unit, percent, "limit", spent, at, told_at)
       SELECT organization_id, id, 'usd', p, limit_usd, limit_usd * 9 / 10, created_at, created_at
       FROM budgets_meter, unnest(ARRAY[50, 80]) p WHERE kind = 'change' AND id %% 100 = 0""",
    """UPDATE budgets_meter SET spent_usd = limit_usd * 9 / 10 WHERE kind = 'change' AND id %% 100 = 0""",
    f"""INSERT INTO budgets_reservation (key, fingerprint, state, meters, priced, hold_usd, hold_tokens, hold_calls, usd,
          tokens, calls, cost, overrun, usage_quality, organization_id, project_id, user_id, change_id, task_id, run_id,
          usage, rates, purpose, tier, model, connector, owner, lease_until, created_at, closed_at)
       SELECT 'bench-' || n || '-' || c, repeat('f', 64), 'settled', '[1, 2, 3, 4, 5, 6]', true,
         60000, 9000, 1, 42000, 900, 1, 42000, false, 'reported', organization_id, project_id, user_id, {_id(1, "n")}, {_id(2, "n * 10 + 1 + c %% 5")},
         {_id(3, "n * 10 + 1 + c %% 5")}, {_USAGE}, {_RATES},
         (ARRAY['agent', 'agent', 'agent', 'planner', 'acceptance_check'])[1 + c %% 5],
         (ARRAY['haiku', 'haiku', 'sonnet', 'haiku', 'opus'])[1 + c %% 5],
         'claude-haiku-5-5', 'main', 'w', %(since)s, %(since)s + n * interval '4 minutes' + c * interval '5 seconds',
         %(since)s + n * interval '4 minutes' + c * interval '9 seconds'
       FROM home, generate_series(1, %(calls)s) c""",
    """INSERT INTO tenants_auditentry (organization_id, actor_id, action, subject, reason, request_id, remote, at)
       SELECT organization_id, user_id, 'budget.raised', 'CH-' || n, 'more to do', '', '', %(since)s + n * interval '4 minutes'
       FROM home""",
)
