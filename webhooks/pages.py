"""Webhooks in the browser: endpoints with their deliveries, and the incoming hooks of a project."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tenants.access import organization_for, project_for, require_role
from tenants.errors import InvalidInput
from tenants.forms import attempt
from tenants.idempotency import Shown, once, once_shown
from tenants.models import Organization, Project, Role
from tenants.pages.people import person_of
from webhooks import endpoints as services
from webhooks import hooks as hook_services
from webhooks.forms import EndpointForm, NewHookForm, SinceForm, form_of
from webhooks.kinds import KINDS
from webhooks.models import Delivery, DeliveryState, Endpoint, HookKind, IncomingHook

FORM = require_http_methods(["GET", "HEAD", "POST"])
DELIVERY_ROWS = 50
RECEIVED_ROWS = 50
SOON_SECONDS = 90


@never_cache
@FORM
@login_required
def webhooks(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """All endpoints, and a form for a new one. A new secret is in this one answer and nowhere else."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    form = EndpointForm(request.POST or None)
    fresh: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _made_endpoint(request, organization, form))
        if made is not None:
            fresh, form = {"made": made}, EndpointForm()
    rows = Endpoint.objects.of_organization(organization.pk).order_by("pk")
    return _page(request, "webhooks/endpoints.html", organization, form=form, endpoints=rows, **fresh)


@never_cache
@FORM
@login_required
def webhook(request: HttpRequest, organization_id: UUID, webhook_id: UUID) -> HttpResponse:
    endpoint = _endpoint(request, organization_id, webhook_id)
    form = EndpointForm.of(endpoint, request.POST or None)
    if request.method == "POST" and form.is_valid():
        saved = attempt(
            form,
            lambda: services.change_endpoint(
                endpoint, form.wanted(enabled=endpoint.enabled), by=person_of(request), now=timezone.now()
            ),
        )
        if saved is not None:
            messages.success(request, "Saved. The next event goes by it.")
            return redirect("webhook", endpoint.organization_id, endpoint.pk)
    return _endpoint_page(request, endpoint, form=form)


@never_cache
@require_POST
@login_required
def webhook_act(request: HttpRequest, organization_id: UUID, webhook_id: UUID) -> HttpResponse:
    """Test, resend what failed, rotate, switch or remove, as the form's field `act` says."""
    endpoint = _endpoint(request, organization_id, webhook_id)
    person, now, act = person_of(request), timezone.now(), request.POST.get("act", "")
    try:
        match act:
            case "rotate":
                made = once_shown(
                    person,
                    request.POST,
                    where=request.path,
                    act=lambda: (act, services.rotate_secret(endpoint, by=person, now=now)[1]),
                )
                return _endpoint_page(
                    request, services.endpoint_of(endpoint.organization, endpoint.pk), made=made
                )
            case "remove":
                services.remove_endpoint(endpoint, by=person)
                messages.success(request, f"{endpoint} is removed. Nothing is sent there any more.")
                return redirect("webhooks", organization_id)
            case "test":
                sent = once(
                    person,
                    request.POST,
                    where=request.path,
                    act=lambda: str(services.send_test(endpoint, by=person, now=now).pk),
                )
                return redirect("webhook-delivery", organization_id, webhook_id, sent)
            case "resend":
                messages.success(request, _resend_failed(request, endpoint))
            case "enable" | "disable":
                on = services.switch_endpoint(endpoint, enabled=act == "enable", by=person, now=now).enabled
                messages.success(request, "It is on." if on else "It is off: nothing is sent there.")
            case _:
                raise InvalidInput("act", "is none of this page", "Press one of its buttons.")
    except InvalidInput as refused:
        messages.error(request, str(refused))
    return redirect("webhook", organization_id, webhook_id)


@require_safe
@login_required
def webhook_delivery(
    request: HttpRequest, organization_id: UUID, webhook_id: UUID, delivery_id: UUID
) -> HttpResponse:
    endpoint = _endpoint(request, organization_id, webhook_id)
    delivery = services.delivery_of(endpoint, delivery_id)
    attempts = list(delivery.attempts.all())
    context = {
        "endpoint": endpoint,
        "delivery": delivery,
        "attempts": attempts,
        "payload": _indented(delivery),
        "on_its_way": bool(attempts) and attempts[-1].ended_at is None,
        "moves": delivery.state == DeliveryState.PENDING,
        # Only then is it worth looking again by itself.
        "soon": delivery.state == DeliveryState.PENDING
        and delivery.not_before <= timezone.now() + timedelta(seconds=SOON_SECONDS),
    }
    return _page(request, "webhooks/delivery.html", endpoint.organization, **context)


@require_POST
@login_required
def webhook_resend(
    request: HttpRequest, organization_id: UUID, webhook_id: UUID, delivery_id: UUID
) -> HttpResponse:
    endpoint = _endpoint(request, organization_id, webhook_id)
    delivery = services.delivery_of(endpoint, delivery_id)
    try:
        services.resend(delivery, by=person_of(request), now=timezone.now())
        messages.success(request, "It is sent once more, under the same id.")
    except InvalidInput as refused:
        messages.error(request, str(refused))
    return redirect("webhook-delivery", organization_id, webhook_id, delivery_id)


@never_cache
@FORM
@login_required
def hooks(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """The incoming hooks of a project, and a form for a new one, with its secret shown this once."""
    project = project_for(request.user, project_id, at_least=Role.ADMIN)
    authors = hook_services.possible_authors(project)
    form = NewHookForm(request.POST or None, authors=authors, initial={"author": str(person_of(request).pk)})
    fresh: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _made_hook(request, project, form))
        if made is not None:
            fresh = {
                "made": made,
                "address": _address(request, hook_services.hook_of(project, UUID(made.id))),
            }
            form = NewHookForm(authors=authors, initial={"author": str(person_of(request).pk)})
    context = {"project": project, "hooks": hook_services.hooks_of(project), "form": form, **fresh}
    return render(request, "webhooks/hooks.html", context)


@never_cache
@FORM
@login_required
def hook(request: HttpRequest, project_id: UUID, hook_id: UUID) -> HttpResponse:
    project, known = _hook(request, project_id, hook_id)
    form = form_of(known, request.POST or None, authors=hook_services.possible_authors(project))
    if request.method == "POST" and form.is_valid():
        saved = attempt(
            form,
            lambda: hook_services.change_hook(
                known, form.wanted(enabled=known.enabled), by=person_of(request)
            ),
        )
        if saved is not None:
            messages.success(request, "Saved. The next delivery goes by it.")
            return redirect("hook", project.pk, known.pk)
    return _hook_page(request, known, form=form)


@never_cache
@require_POST
@login_required
def hook_act(request: HttpRequest, project_id: UUID, hook_id: UUID) -> HttpResponse:
    """Rotate, switch or remove, as the form's field `act` says."""
    project, known = _hook(request, project_id, hook_id)
    person, act = person_of(request), request.POST.get("act", "")
    match act:
        case "rotate":
            made = once_shown(
                person,
                request.POST,
                where=request.path,
                act=lambda: (act, hook_services.rotate_hook(known, by=person, now=timezone.now())[1]),
            )
            return _hook_page(request, hook_services.hook_of(project, known.pk), made=made)
        case "remove":
            hook_services.remove_hook(known, by=person)
            messages.success(request, f"{known.name} is removed. Its address takes nothing any more.")
            return redirect("hooks", project.pk)
        case "enable" | "disable":
            on = hook_services.switch_hook(known, enabled=act == "enable", by=person).enabled
            messages.success(request, "It is on." if on else "It is off: it takes nothing.")
        case _:
            messages.error(request, "Press one of the page's buttons.")
    return redirect("hook", project.pk, known.pk)


def _made_endpoint(request: HttpRequest, organization: Organization, form: EndpointForm) -> Shown:
    person = person_of(request)

    def make() -> tuple[str, str]:
        made, secret = services.make_endpoint(organization, form.wanted(), by=person, now=timezone.now())
        return str(made.pk), secret

    return once_shown(person, request.POST, where=request.path, act=make)


def _made_hook(request: HttpRequest, project: Project, form: NewHookForm) -> Shown:
    person, kind = person_of(request), HookKind(form.cleaned_data["kind"])

    def make() -> tuple[str, str]:
        made, secret = hook_services.make_hook(project, kind, form.wanted(), by=person)
        return str(made.pk), secret

    return once_shown(person, request.POST, where=request.path, act=make)


def _endpoint(request: HttpRequest, organization_id: UUID, webhook_id: UUID) -> Endpoint:
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    return services.endpoint_of(organization, webhook_id)


def _endpoint_page(
    request: HttpRequest, endpoint: Endpoint, *, form: EndpointForm | None = None, made: Shown | None = None
) -> HttpResponse:
    """Settings, health and the last deliveries; `state` filters them, `before` is the last id of the page before."""
    state = request.GET.get("state", "")
    state = state if state in DeliveryState.values else ""
    rows = services.deliveries_of(endpoint, state=state)
    before = _uuid(request.GET.get("before", ""))
    page = list((rows.filter(pk__lt=before) if before else rows)[: DELIVERY_ROWS + 1])
    context = {
        "endpoint": endpoint,
        "form": form or EndpointForm.of(endpoint, None),
        "made": made,
        "since": SinceForm(),
        "kinds": KINDS,
        "state": state,
        "states": DeliveryState.values,
        "deliveries": page[:DELIVERY_ROWS],
        "more": page[DELIVERY_ROWS - 1].pk if len(page) > DELIVERY_ROWS else None,
        "now": timezone.now(),
    }
    return _page(request, "webhooks/endpoint.html", endpoint.organization, **context)


def _resend_failed(request: HttpRequest, endpoint: Endpoint) -> str:
    form, now = SinceForm(request.POST), timezone.now()
    if not form.is_valid():
        raise InvalidInput("hours", "is no such time", "Choose one of the list.")
    since = now - timedelta(hours=form.cleaned_data["hours"])
    count = services.resend_failed(endpoint, since=since, by=person_of(request), now=now)
    return f"{count} {'delivery is' if count == 1 else 'deliveries are'} sent once more."


def _hook(request: HttpRequest, project_id: UUID, hook_id: UUID) -> tuple[Project, IncomingHook]:
    project = project_for(request.user, project_id, at_least=Role.ADMIN)
    return project, hook_services.hook_of(project, hook_id)


def _hook_page(
    request: HttpRequest, known: IncomingHook, *, form: Any = None, made: Shown | None = None
) -> HttpResponse:
    project = known.project
    authors = hook_services.possible_authors(project)
    context = {
        "project": project,
        "hook": known,
        "form": form or form_of(known, None, authors=authors),
        "made": made,
        "address": _address(request, known),
        "author_gone": known.author_id not in {one.pk for one in authors},
        "received": hook_services.received_by(known)[:RECEIVED_ROWS],
        "now": timezone.now(),
    }
    return render(request, "webhooks/hook.html", context)


def _address(request: HttpRequest, known: IncomingHook) -> str:
    return request.build_absolute_uri(reverse("incoming-hook", args=[known.pk]))


def _indented(delivery: Delivery) -> str:
    return json.dumps(json.loads(delivery.payload), indent=2, ensure_ascii=False)


def _uuid(said: str) -> UUID | None:
    try:
        return UUID(said)
    except ValueError:
        return None


def _page(request: HttpRequest, template: str, organization: Organization, **facts: Any) -> HttpResponse:
    role = require_role(request.user, organization.pk, Role.ADMIN)
    more = {"organization": organization, "my_role": role, "is_admin": True}
    return render(request, template, more | facts)


_ALL = "organizations/<uuid:organization_id>/webhooks"
_ONE = _ALL + "/<uuid:webhook_id>"
_HOOKS = "projects/<uuid:project_id>/hooks"
urlpatterns = [
    path(_ALL, webhooks, name="webhooks"),
    path(_ONE, webhook, name="webhook"),
    path(_ONE + "/act", webhook_act, name="webhook-act"),
    path(_ONE + "/deliveries/<uuid:delivery_id>", webhook_delivery, name="webhook-delivery"),
    path(_ONE + "/deliveries/<uuid:delivery_id>/resend", webhook_resend, name="webhook-delivery-resend"),
    path(_HOOKS, hooks, name="hooks"),
    path(_HOOKS + "/<uuid:hook_id>", hook, name="hook"),
    path(_HOOKS + "/<uuid:hook_id>/act", hook_act, name="hook-act"),
]
