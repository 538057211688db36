"""The routes of this app's pages."""

from __future__ import annotations

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from tasks.pages import (
    approvals,
    candidates,
    changes,
    inbox,
    limits,
    lists,
    money,
    preflights,
    repository,
    runs,
    spend,
    work,
)


class ActConverter(StringConverter):
    """One of the acts on a Change. Beside it the id keeps its own converter: what is no id is no address."""

    regex = "|".join(lists.ACTS)


register_converter(ActConverter, "act")

urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("changes", lists.change_list, name="changes"),
    path("changes/views", lists.saved_view, name="saved-view"),
    path("changes/act", lists.changes_act, name="changes-act"),
    path("changes/new", changes.change_choose, name="change-choose"),
    path("projects/<uuid:project_id>/changes/new", changes.change_new, name="change-new"),
    path("projects/<uuid:project_id>/repository", repository.repository, name="repository"),
    path("projects/<uuid:project_id>/repository/card", repository.repository_card, name="repository-card"),
    path(
        "projects/<uuid:project_id>/repository/bundle",
        repository.repository_bundle,
        name="repository-bundle",
    ),
    path("imports/<uuid:import_id>/cancel", repository.import_cancel, name="import-cancel"),
    path("projects/<uuid:project_id>/preflights", preflights.preflights, name="preflights"),
    path("preflights/<uuid:preflight_id>", preflights.preflight_detail, name="preflight"),
    path("preflights/<uuid:preflight_id>/cancel", preflights.preflight_cancel, name="preflight-cancel"),
    path("changes/<uuid:change_id>", changes.change_detail, name="change"),
    path("changes/<uuid:change_id>/plan", changes.change_plan, name="change-plan"),
    path("changes/<uuid:change_id>/history", changes.change_history, name="change-history"),
    path("changes/<uuid:change_id>/raise", money.raise_limit, name="change-raise"),
    path("changes/<uuid:change_id>/<act:act>", lists.change_act, name="change-act"),
    path("spend", spend.spend, name="spend"),
    path("organizations/<uuid:organization_id>/ledger.csv", spend.spend_csv, name="spend-csv"),
    path("organizations/<uuid:organization_id>/limits", limits.limits, name="limits"),
    path("organizations/<uuid:organization_id>/unknown", limits.unknown_charges, name="unknown-charges"),
    path("tasks/<uuid:task_id>", work.task_detail, name="task"),
    path("tasks/<uuid:task_id>/reopen", work.task_reopen, name="task-reopen"),
    path("tasks/<uuid:task_id>/send-back", work.task_send_back, name="task-send-back"),
    path("approvals/<uuid:approval_id>", approvals.approval_detail, name="approval"),
    path("approvals/<uuid:approval_id>/decide", approvals.approval_decide, name="approval-decide"),
    path("approvals/<uuid:approval_id>/reconcile", approvals.approval_reconcile, name="approval-reconcile"),
    path("runs/<uuid:run_id>", runs.run_detail, name="run"),
    path("runs/<uuid:run_id>/stop", runs.run_stop, name="run-stop"),
    path("runs/<uuid:run_id>/log", runs.run_log, name="run-log"),
    path("runs/<uuid:run_id>/outputs/<int:position>", runs.run_output, name="run-output"),
    path("runs/<uuid:run_id>/packet", runs.packet_detail, name="packet"),
    path("changesets/<uuid:changeset_id>/patch", candidates.changeset_patch, name="changeset-patch"),
    path("candidates/<uuid:candidate_id>", candidates.candidate_detail, name="candidate"),
    path("candidates/<uuid:candidate_id>/promote", candidates.candidate_promote, name="candidate-promote"),
    path("candidates/<uuid:candidate_id>/patch", candidates.candidate_patch, name="candidate-patch"),
]
