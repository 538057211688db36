"""REST: Changes, Tasks, runs, receipts, events, candidates, raises and reopenings."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID, uuid4

from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import archive
from budgets.keys import MeterKind
from budgets.limits import Limit, read_limit
from tasks import reads
from tasks.api import inputs, outputs
from tasks.changes import cancel_change, pause_change, resume_change, retry_change, start_draft, submit_change
from tasks.models import Candidate, Change, ChangeSet, DecisionReceipt, Event, Task, TaskRun
from tasks.planning import approve_plan
from tasks.promotion import promote
from tasks.raises import RAISABLE, preview_raise, raise_budget
from tasks.reopening import send_back
from tasks.states import ChangeState
from tasks.stopping import stop_run
from tasks.wanted import read_wanted
from tasks.windows import reopen_task
from tenants.access import project_for, require_role
from tenants.errors import InvalidInput, NotVisible
from tenants.idempotency import KEY_HEADER, IdempotentPosts
from tenants.models import Role, Scope, User
from tenants.paging import ByKey
from tenants.saved_views import forget_view, save_view
from tenants.shapes import body_of

UNLIMITED = "unlimited"
TO_OF_A_PREVIEW = "as in a raise; unlimited: that word"
PATCH_TYPE = "text/x-diff; charset=utf-8"


class OldestFirst(ByKey):
    """Tables that grow by appending are read from the start."""

    page_size = 100
    ordering = "pk"


class ProjectChanges(IdempotentPosts):
    """Hand over a Change."""

    @extend_schema(
        operation_id="changes_create",
        tags=["changes"],
        request=inputs.ChangeInput,
        responses={201: outputs.ChangeDetailOutput},
    )
    def post(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.MEMBER)
        change = submit_change(
            project, read_wanted(body_of(request)), by=_person(request), now=timezone.now()
        )
        return Response(_detail(request, change.pk), status=201)


class ChangeList(ListAPIView[Change]):
    serializer_class = outputs.ChangeOutput
    queryset = Change.objects.none()

    def get_queryset(self) -> QuerySet[Change]:
        return reads.listed_changes(self.request.user, reads.ChangeFilter.parse(self.request.query_params))

    @extend_schema(
        operation_id="changes_list",
        tags=["changes"],
        parameters=[
            OpenApiParameter("state", str, enum=list(ChangeState), description="only in this state"),
            OpenApiParameter(
                "group",
                str,
                enum=list(reads.GROUPS),
                description="only what waits for a person, is worked on, or has ended",
            ),
            OpenApiParameter(
                "stop", str, enum=list(reads.STOPS), description="only what this kind of stop holds up"
            ),
            OpenApiParameter("author", str, description="only of this email address; me: only my own"),
            OpenApiParameter("project", UUID, description="only of this project"),
            OpenApiParameter("q", str, description="part of the title, or the number"),
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        page: list[Any] | None = super().paginate_queryset(queryset)
        assert page is not None
        return with_money(page)


class SavedViews(IdempotentPosts):
    """The filters of the Changes list that the token's person has given a name."""

    @extend_schema(
        operation_id="changes_views_list",
        tags=["changes"],
        responses=outputs.SavedViewOutput(many=True),
        filters=False,
    )
    def get(self, request: Request) -> Response:
        return Response(outputs.SavedViewOutput(_person(request).saved_views, many=True).data)

    @extend_schema(
        operation_id="changes_views_save",
        tags=["changes"],
        request=inputs.SavedViewInput,
        responses={201: outputs.SavedViewOutput(many=True)},
        description="Keeps filters of the list under a name; the same name again is replaced.",
    )
    def post(self, request: Request) -> Response:
        said = inputs.SavedViewInput.parse(request)
        save_view(_person(request), said["name"], reads.ChangeFilter.parse(said).as_query())
        return Response(outputs.SavedViewOutput(_person(request).saved_views, many=True).data, status=201)

    @extend_schema(
        operation_id="changes_views_forget",
        tags=["changes"],
        parameters=[OpenApiParameter("name", str, required=True)],
        responses={204: None},
        description="Forgetting a name that is not there changes nothing.",
    )
    def delete(self, request: Request) -> Response:
        forget_view(_person(request), request.query_params.get("name", ""))
        return Response(status=204)


class ChangeDetail(APIView):
    @extend_schema(operation_id="changes_retrieve", tags=["changes"], responses=outputs.ChangeDetailOutput)
    def get(self, request: Request, change_id: UUID) -> Response:
        return Response(_detail(request, change_id))


class ChangeAct(IdempotentPosts):
    """A POST that moves a Change, by a member."""

    def change(self, request: Request, change_id: UUID, at_least: Role = Role.MEMBER) -> Change:
        change = reads.named_change(request.user, change_id)
        require_role(request.user, change.organization_id, at_least)
        return change


class ChangeStart(ChangeAct):
    @extend_schema(
        operation_id="changes_start",
        tags=["changes"],
        request=None,
        responses=outputs.ChangeDetailOutput,
        description="Hands a draft over.",
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        start_draft(self.change(request, change_id), by=_person(request), now=timezone.now())
        return Response(_detail(request, change_id))


class ChangeCancel(ChangeAct):
    @extend_schema(
        operation_id="changes_cancel",
        tags=["changes"],
        request=None,
        responses=outputs.ChangeDetailOutput,
        description="Ends the Change and every Task that is not done.",
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        cancel_change(self.change(request, change_id), by=_person(request), now=timezone.now())
        return Response(_detail(request, change_id))


class ChangePause(ChangeAct):
    @extend_schema(
        operation_id="changes_pause",
        tags=["changes"],
        request=None,
        responses=outputs.ChangeDetailOutput,
        description="Starts nothing new; what runs goes on.",
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        pause_change(self.change(request, change_id), by=_person(request), now=timezone.now())
        return Response(_detail(request, change_id))


class ChangeResume(ChangeAct):
    @extend_schema(
        operation_id="changes_resume",
        tags=["changes"],
        request=None,
        responses=outputs.ChangeDetailOutput,
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        resume_change(self.change(request, change_id), by=_person(request), now=timezone.now())
        return Response(_detail(request, change_id))


class ChangeRetry(ChangeAct):
    @extend_schema(
        operation_id="changes_retry",
        tags=["changes"],
        request=inputs.ReasonInput,
        responses=outputs.ChangeDetailOutput,
        description="Tries a failed Change again: its plan, its failed Tasks or its composition.",
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        change = self.change(request, change_id)
        reason = inputs.ReasonInput.parse(request)["reason"]
        retry_change(change, by=_person(request), reason=reason, key=key_of(request), now=timezone.now())
        return Response(_detail(request, change_id))


class PlanApproval(ChangeAct):
    @extend_schema(
        operation_id="changes_approve_plan",
        tags=["changes"],
        request=inputs.PlanInput,
        responses=outputs.ChangeDetailOutput,
        description="Approves the plan as it is, or as edited.",
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        change = self.change(request, change_id, Role.ADMIN)
        edited = inputs.PlanInput.parse(request)["plan"]
        approve_plan(change, by=_person(request), edited=edited, now=timezone.now())
        return Response(_detail(request, change_id))


class RaiseList(ChangeAct):
    """Raise one of the limits that pay for a Change; what it had stopped goes on."""

    write_scope = Scope.BUDGETS_WRITE

    @extend_schema(
        operation_id="raises_create",
        tags=["budgets"],
        request=inputs.RaiseInput,
        responses={201: outputs.RaisedOutput},
    )
    def post(self, request: Request, change_id: UUID) -> Response:
        change = self.change(request, change_id, Role.ADMIN)
        wanted = inputs.RaiseInput.parse(request)
        kind = MeterKind(wanted["meter"])
        raised = raise_budget(
            change=change,
            kind=kind,
            to=inputs.limit_in(wanted),
            by=_person(request),
            reason=wanted["reason"],
            key=key_of(request),
            expires_at=wanted["expires_at"],
            now=timezone.now(),
        )
        answer = {"reopened": raised.reopened, "money": reads.money_of([change])[change.pk]}
        return Response(outputs.RaisedOutput(answer).data, status=201)


class RaisePreview(APIView):
    @extend_schema(
        operation_id="raises_preview",
        tags=["budgets"],
        parameters=[
            OpenApiParameter("meter", str, enum=[kind.value for kind in RAISABLE], required=True),
            OpenApiParameter("to", str, required=True, description=TO_OF_A_PREVIEW),
        ],
        responses=outputs.PreviewOutput,
        description="What a raise would reopen; changes nothing.",
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        change = reads.named_change(request.user, change_id)
        kind = raisable(request.query_params.get("meter"))
        to = limit_asked(request, kind)
        return Response(outputs.PreviewOutput(preview_raise(change, kind, to, now=timezone.now())).data)


class MeterList(APIView):
    @extend_schema(
        operation_id="changes_meters",
        tags=["budgets"],
        responses=outputs.PayingMeterOutput(many=True),
        description="Every meter that pays for this Change, in the order in which a refusal is named.",
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        change = reads.named_change(request.user, change_id)
        meters = reads.meters_of(change, now=timezone.now())
        return Response(outputs.PayingMeterOutput(meters, many=True).data)


class Below(GenericAPIView[Any]):
    """A list that hangs on one Change, Task or Candidate of the address, narrowed by `filterset_fields`."""

    pagination_class = OldestFirst

    def page(self, rows: QuerySet[Any]) -> Response:
        page = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class TaskList(Below):
    serializer_class = outputs.TaskOutput
    queryset = Task.objects.none()
    filterset_fields = ("state", "kind")

    @extend_schema(operation_id="changes_tasks", tags=["tasks"], responses=outputs.TaskOutput(many=True))
    def get(self, request: Request, change_id: UUID) -> Response:
        return self.page(reads.tasks_of(reads.named_change(request.user, change_id)))


class ReceiptList(Below):
    serializer_class = outputs.ReceiptOutput
    queryset = DecisionReceipt.objects.none()
    filterset_fields = ("kind",)

    @extend_schema(
        operation_id="changes_receipts", tags=["changes"], responses=outputs.ReceiptOutput(many=True)
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        return self.page(reads.receipts_of(reads.named_change(request.user, change_id)))


class EventList(Below):
    serializer_class = outputs.EventOutput
    queryset = Event.objects.none()
    filterset_fields = ("kind",)

    @extend_schema(
        operation_id="changes_events",
        tags=["changes"],
        parameters=[OpenApiParameter("after", int, description="only events with a greater id")],
        responses=outputs.EventOutput(many=True),
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        change = reads.named_change(request.user, change_id)
        return self.page(reads.events_of(change, after=reads.event_id(request.query_params.get("after"))))


class CandidateList(Below):
    serializer_class = outputs.CandidateOutput
    queryset = Candidate.objects.none()
    filterset_fields = ("state",)

    @extend_schema(
        operation_id="changes_candidates", tags=["candidates"], responses=outputs.CandidateOutput(many=True)
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        change = reads.named_change(request.user, change_id)
        return self.page(change.candidates.prefetch_related("checks__criterion"))


class CandidateDetail(APIView):
    @extend_schema(operation_id="candidates_retrieve", tags=["candidates"], responses=outputs.CandidateOutput)
    def get(self, request: Request, candidate_id: UUID) -> Response:
        return Response(outputs.CandidateOutput(reads.candidate_for(request.user, candidate_id)).data)


class CandidatePatch(APIView):
    @extend_schema(
        operation_id="candidates_patch",
        tags=["candidates"],
        responses={(200, "text/x-diff"): OpenApiTypes.STR},
    )
    def get(self, request: Request, candidate_id: UUID) -> HttpResponse:
        return patch_of(reads.candidate_for(request.user, candidate_id).patch_key)


class CandidatePromotion(IdempotentPosts):
    @extend_schema(
        operation_id="candidates_promote",
        tags=["candidates"],
        request=None,
        responses=outputs.CandidateOutput,
        description="Moves main by compare-and-swap. When main moved meanwhile the Candidate becomes stale "
        "and the Change is composed anew.",
    )
    def post(self, request: Request, candidate_id: UUID) -> Response:
        candidate = reads.candidate_for(request.user, candidate_id)
        require_role(request.user, candidate.change.organization_id, Role.ADMIN)
        promote(candidate, by=_person(request), now=timezone.now())
        return Response(outputs.CandidateOutput(reads.candidate_for(request.user, candidate_id)).data)


class TaskDetail(APIView):
    @extend_schema(operation_id="tasks_retrieve", tags=["tasks"], responses=outputs.TaskOutput)
    def get(self, request: Request, task_id: UUID) -> Response:
        return Response(outputs.TaskOutput(reads.task_for(request.user, task_id)).data)


class TaskReopening(IdempotentPosts):
    @extend_schema(
        operation_id="tasks_reopen",
        tags=["tasks"],
        request=inputs.ReasonInput,
        responses=outputs.TaskOutput,
        description="Opens a fresh attempt window without raising a limit: after replan, or after a failure.",
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        task = reads.task_for(request.user, task_id)
        require_role(request.user, task.change.organization_id, Role.MEMBER)
        reason = inputs.ReasonInput.parse(request)["reason"]
        reopen_task(task, by=_person(request), reason=reason, key=key_of(request), now=timezone.now())
        return Response(outputs.TaskOutput(reads.task_for(request.user, task_id)).data)


class TaskComment(IdempotentPosts):
    @extend_schema(
        operation_id="tasks_send_back",
        tags=["tasks"],
        request=inputs.CommentInput,
        responses=outputs.TaskOutput,
        description="Sends finished work back with a comment: the Task, and what stands on it, is done again.",
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        task = reads.task_for(request.user, task_id)
        require_role(request.user, task.change.organization_id, Role.MEMBER)
        comment = inputs.CommentInput.parse(request)["comment"]
        send_back(task, comment, by=_person(request), key=key_of(request), now=timezone.now())
        return Response(outputs.TaskOutput(reads.task_for(request.user, task_id)).data)


class RunList(Below):
    serializer_class = outputs.RunOutput
    queryset = TaskRun.objects.none()
    filterset_fields = ("state",)

    @extend_schema(operation_id="tasks_runs", tags=["tasks"], responses=outputs.RunOutput(many=True))
    def get(self, request: Request, task_id: UUID) -> Response:
        return self.page(reads.runs_of(reads.task_for(request.user, task_id)))


class TaskReceipts(Below):
    serializer_class = outputs.ReceiptOutput
    queryset = DecisionReceipt.objects.none()
    filterset_fields = ("kind",)

    @extend_schema(operation_id="tasks_receipts", tags=["tasks"], responses=outputs.ReceiptOutput(many=True))
    def get(self, request: Request, task_id: UUID) -> Response:
        task = reads.task_for(request.user, task_id)
        return self.page(reads.receipts_of(task.change, task))


class RunDetail(APIView):
    @extend_schema(operation_id="runs_retrieve", tags=["runs"], responses=outputs.RunOutput)
    def get(self, request: Request, run_id: UUID) -> Response:
        return Response(outputs.RunOutput(reads.run_for(request.user, run_id)).data)


class RunStop(IdempotentPosts):
    @extend_schema(
        operation_id="runs_stop",
        tags=["tasks"],
        request=inputs.ReasonInput,
        responses=outputs.RunOutput,
        description="Asks this one attempt to end before its next call or tool; its Task then waits to be reopened. "
        "A call that is on its way is paid. Asking twice changes nothing.",
    )
    def post(self, request: Request, run_id: UUID) -> Response:
        run = reads.run_for(request.user, run_id)
        require_role(request.user, run.task.change.organization_id, Role.MEMBER)
        reason = inputs.ReasonInput.parse(request)["reason"]
        stop_run(run, by=_person(request), reason=reason, now=timezone.now())
        return Response(outputs.RunOutput(reads.run_for(request.user, run_id)).data)


class RunChangeSet(APIView):
    @extend_schema(operation_id="runs_changeset", tags=["runs"], responses=outputs.ChangeSetOutput)
    def get(self, request: Request, run_id: UUID) -> Response:
        run = reads.run_for(request.user, run_id)
        return Response(outputs.ChangeSetOutput(reads.changeset_of(run)).data)


class ChangeSetPatch(APIView):
    @extend_schema(
        operation_id="changesets_patch", tags=["runs"], responses={(200, "text/x-diff"): OpenApiTypes.STR}
    )
    def get(self, request: Request, changeset_id: UUID) -> HttpResponse:
        changeset: ChangeSet = reads.changeset_for(request.user, changeset_id)
        return patch_of(changeset.patch_key)


def with_money(changes: list[Change]) -> list[Change]:
    """Each Change with its budget as `money`, read in one go."""
    money = reads.money_of(changes)
    for change in changes:
        change.money = money[change.pk]  # type: ignore[attr-defined]  # carried to the output only
    return changes


def patch_of(key: str) -> HttpResponse:
    """A stored git patch as it is. Its bytes are hostile: a browser must never take them for a page."""
    content = archive.find(key) if key else b""
    if content is None:
        raise NotVisible("patch")
    answer = HttpResponse(content, content_type=PATCH_TYPE)
    answer["Content-Disposition"] = "attachment; filename=changes.patch"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def raisable(said: object) -> MeterKind:
    """The meter of an address. Raises `InvalidInput` that names those that people may raise."""
    for kind in RAISABLE:
        if said == kind.value:
            return kind
    names = ", ".join(RAISABLE)
    raise InvalidInput("meter", "is none that can be raised here", f"Name one of {names}.")


def _detail(request: Request, change_id: UUID) -> Any:
    change = reads.change_for(request.user, change_id)
    return outputs.ChangeDetailOutput(with_money([change])[0]).data


def _person(request: Request) -> User:
    return cast(User, request.user)


def key_of(request: Request) -> str:
    """The client's own key, so that its repetition is known to the ledger too; else a fresh one."""
    return request.headers.get(KEY_HEADER) or f"api-{uuid4()}"


def limit_asked(request: Request, kind: MeterKind) -> Limit:
    """The amount in the address of a preview, where null is the word `unlimited`."""
    said = request.query_params.get("to", "")
    return None if said == UNLIMITED else read_limit(kind, said, field="to")
