"""Browser: where a project's repository comes from, and how one is brought in."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeVar, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from tasks.errors import StillOpen
from tasks.imports import (
    KEPT_MAX,
    PASSWORD_CHARACTERS_MAX,
    USERNAME_CHARACTERS_MAX,
    WantedImport,
    cancel_import,
    import_for,
    imports_of,
    is_shared_with,
    repository_of,
    request_bundle_import,
    request_import,
)
from tasks.pages.live import mark_of, show
from tasks.states import ImportState
from tasks.uploads import Upload, bundle_bytes_max
from tenants.access import project_for, require_role
from tenants.bodies import large_body
from tenants.errors import InvalidInput
from tenants.forms import attempt
from tenants.idempotency import once
from tenants.models import Project, Role, User

Made = TypeVar("Made")


class AddressForm(forms.Form):
    source = forms.CharField(
        label="Address",
        max_length=2_000,
        help_text="Such as https://git.example.org/team/app.git. Its default branch becomes main here.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocapitalize": "none"}),
    )
    username = forms.CharField(
        label="User name", required=False, max_length=USERNAME_CHARACTERS_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )  # fmt: skip
    password = forms.CharField(
        label="Password or token",
        required=False,
        strip=False,
        max_length=PASSWORD_CHARACTERS_MAX,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Used for this import, then erased.",
    )


class BundleForm(forms.Form):
    bundle = forms.FileField(
        label="Git bundle",
        widget=forms.FileInput(attrs={"accept": ".bundle"}),
        help_text="Made with: git bundle create app.bundle --all",
    )


class ToDisk(FileUploadHandler):
    """Writes the one file of the form to where imports look for it; nothing of it is held in memory."""

    def __init__(self, request: HttpRequest, upload: Upload) -> None:
        super().__init__(request)
        self.upload = upload
        self.refused: InvalidInput | None = None

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if start != self.upload.bytes:  # a second file
            raise StopUpload(connection_reset=True)
        try:
            self.upload.write(raw_data)
        except InvalidInput as refused:
            self.refused = refused
            raise StopUpload(connection_reset=True) from None

    def file_complete(self, file_size: int) -> UploadedFile[bytes]:
        return UploadedFile(file=BytesIO(), name=self.file_name, size=file_size)


@require_http_methods(["GET", "POST"])
@login_required
@sensitive_post_parameters("password")
def repository(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """What the project has, what is on its way, and for admins the ways to bring one in."""
    at_least = Role.ADMIN if request.method == "POST" else Role.VIEWER
    project = project_for(request.user, project_id, at_least=at_least)
    form = AddressForm(request.POST or None, initial={"source": _tried_last(project)})
    if request.method == "POST" and form.is_valid():
        wanted = WantedImport(**form.cleaned_data)
        if _tried(form, lambda: _requested(request, project, wanted)):
            return redirect("repository", project.pk)
    return _page(request, project, form, BundleForm())


def _requested(request: HttpRequest, project: Project, wanted: WantedImport) -> str:
    person = _person(request)
    return once(
        person,
        request.POST,
        where=request.path,
        act=lambda: str(request_import(project, wanted, by=person, now=timezone.now()).pk),
    )


@require_GET
@login_required
def repository_card(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """The same as it stands on the project's page, and asks for what is new."""
    project = project_for(request.user, project_id, at_least=Role.VIEWER)
    role = require_role(request.user, project.organization_id, Role.VIEWER)
    context = card_of(project, is_admin=role >= Role.ADMIN)
    return show(request, "tasks/_repository_card.html", context, mark=str(context["mark"]))


def card_of(project: Project, *, is_admin: bool) -> dict[str, Any]:
    found = repository_of(project)
    return {
        "project": project,
        "repository": found,
        "is_admin": is_admin,
        "mark": mark_of(*found.facts),
    }


@large_body
@csrf_exempt  # the inner one looks, once it is known where the file goes
@require_POST
@login_required
def repository_bundle(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """Nothing of the body is read before it is known that this person may send it."""
    project = project_for(request.user, project_id, at_least=Role.ADMIN)
    upload = Upload()
    handler = ToDisk(request, upload)
    request.upload_handlers = [handler]
    try:
        return _take_bundle(request, project, handler)
    finally:
        upload.discard()


@csrf_protect
def _take_bundle(request: HttpRequest, project: Project, handler: ToDisk) -> HttpResponse:
    form = BundleForm(request.POST, request.FILES)
    if handler.refused is not None:
        form.add_error("bundle", f"It {handler.refused.problem}. {handler.refused.remedy}")
    elif form.is_valid():
        name = form.cleaned_data["bundle"].name
        made = _tried(
            form,
            lambda: request_bundle_import(
                project, handler.upload, name, by=_person(request), now=timezone.now()
            ),
        )
        if made is not None:
            return redirect("repository", project.pk)
    return _page(request, project, AddressForm(), form)


@require_POST
@login_required
def import_cancel(request: HttpRequest, import_id: UUID) -> HttpResponse:
    found = import_for(request.user, import_id)
    require_role(request.user, found.project.organization_id, Role.ADMIN)
    cancel_import(found, by=_person(request), now=timezone.now())
    messages.success(request, "The import is cancelled.")
    return redirect("repository", found.project_id)


def _page(request: HttpRequest, project: Project, form: AddressForm, bundle_form: BundleForm) -> HttpResponse:
    role = require_role(request.user, project.organization_id, Role.VIEWER)
    found = repository_of(project)
    wrong = bool(form.errors or bundle_form.errors)
    context: dict[str, Any] = {
        "project": project,
        "organization": project.organization,
        "repository": found,
        "rows": list(imports_of(project)[:KEPT_MAX]),
        "form": form,
        "bundle_form": bundle_form,
        "is_admin": role >= Role.ADMIN,
        "takes_one": found.trunk is None and not found.is_live and project.archived_at is None,
        "bytes_max": bundle_bytes_max(),
        "ssh": is_shared_with(project.organization),
    }
    mark = mark_of(*found.facts)
    if wrong:
        return render(request, "tasks/repository.html", context | {"mark": mark}, status=400)
    return show(request, "tasks/repository.html", context, mark=mark)


def _tried_last(project: Project) -> str:
    """The address that failed, so that a wrong password does not cost typing it again."""
    newest = repository_of(project).newest
    failed = newest is not None and newest.state == ImportState.FAILED and not newest.is_bundle
    return newest.source if newest is not None and failed else ""


def _tried(form: forms.Form, act: Callable[[], Made]) -> Made | None:
    try:
        return attempt(form, act)
    except StillOpen as open_one:
        form.add_error(None, str(open_one))
        return None


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)
