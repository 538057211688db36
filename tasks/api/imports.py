"""REST: bring a repository into a project, from an address or as a bundle, and read how far it is."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tasks.api import inputs, outputs
from tasks.imports import (
    WantedImport,
    can_take_one,
    cancel_import,
    import_for,
    imports_of,
    request_bundle_import,
    request_import,
)
from tasks.models import ProjectImport
from tasks.uploads import Upload
from tenants.access import project_for, require_role
from tenants.idempotency import IdempotentPosts, fingerprint_with
from tenants.models import Project, Role, Scope, User

BUNDLE_TYPE = "application/octet-stream"
CHUNK_BYTES = 1024 * 1024


class ImportList(IdempotentPosts, ListAPIView[ProjectImport]):
    serializer_class = outputs.ImportOutput
    write_scope = Scope.ADMIN
    queryset = ProjectImport.objects.none()
    filterset_fields = ("state",)

    def get_queryset(self) -> QuerySet[ProjectImport]:
        return imports_of(project_for(self.request.user, self.kwargs["project_id"], at_least=Role.VIEWER))

    @extend_schema(operation_id="imports_list", tags=["projects"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="imports_create",
        tags=["projects"],
        request=inputs.ImportInput,
        responses={201: outputs.ImportOutput},
        description="Brings the default branch of a repository into a project that has none. A worker does it: "
        "read the import until its state is done, failed or cancelled. One at a time per project.",
    )
    def post(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.ADMIN)
        wanted = WantedImport(**inputs.ImportInput.parse(request))
        made = request_import(project, wanted, by=cast(User, request.user), now=timezone.now())
        return Response(outputs.ImportOutput(made).data, status=201)


class ImportBundle(IdempotentPosts):
    """The body is the file itself, written to disk as it comes."""

    write_scope = Scope.ADMIN
    _upload: Upload | None = None

    @extend_schema(
        operation_id="imports_upload",
        tags=["projects"],
        request={BUNDLE_TYPE: OpenApiTypes.BINARY},
        parameters=[OpenApiParameter("name", str, description="What to call the file where it is shown.")],
        responses={201: outputs.ImportOutput},
        description="The same from a git bundle, which is the body. "
        "Make one with: git bundle create app.bundle --all",
    )
    def post(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.ADMIN)
        self._upload = self._upload or _received(request, project)
        name = request.query_params.get("name", "")
        by = cast(User, request.user)
        made = request_bundle_import(project, self._upload, name, by=by, now=timezone.now())
        return Response(outputs.ImportOutput(made).data, status=201)

    def fingerprint(self, request: Request) -> str:
        """By the file's hash. Whoever may not import sends it for nothing: it is not read."""
        project = project_for(request.user, self.kwargs["project_id"], at_least=Role.ADMIN)
        self._upload = _received(request, project, is_asked_again=True)
        return fingerprint_with(request, cast(User, request.user), self._upload.sha256)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.discard()  # whatever came of it; what an import waits for was kept
        return super().finalize_response(request, response, *args, **kwargs)


class ImportDetail(APIView):
    @extend_schema(operation_id="imports_retrieve", tags=["projects"], responses=outputs.ImportOutput)
    def get(self, request: Request, import_id: UUID) -> Response:
        return Response(outputs.ImportOutput(import_for(request.user, import_id)).data)


class ImportCancel(IdempotentPosts):
    write_scope = Scope.ADMIN

    @extend_schema(
        operation_id="imports_cancel",
        tags=["projects"],
        request=None,
        responses=outputs.ImportOutput,
        description="Ends it; what it runs is killed, and nothing has come in.",
    )
    def post(self, request: Request, import_id: UUID) -> Response:
        found = import_for(request.user, import_id)
        require_role(request.user, found.project.organization_id, Role.ADMIN)
        cancel_import(found, by=cast(User, request.user), now=timezone.now())
        return Response(outputs.ImportOutput(import_for(request.user, import_id)).data)


def _received(request: Request, project: Project, *, is_asked_again: bool = False) -> Upload:
    """The body as a file. `is_asked_again`: an answer may be kept for it, so nothing else is looked at first."""
    if request.content_type.partition(";")[0].strip().lower() != BUNDLE_TYPE:
        raise UnsupportedMediaType(request.content_type)
    if not is_asked_again:
        can_take_one(project)
    upload = Upload()
    try:
        while chunk := request._request.read(CHUNK_BYTES):
            upload.write(chunk)
    except BaseException:
        upload.discard()
        raise
    return upload
