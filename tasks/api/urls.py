"""The routes of this app under /api/v1/."""

from __future__ import annotations

from django.urls import path

from tasks.api import approvals, imports, limits, preflights, records, streams, views
from tenants.bodies import large_body

urlpatterns = [
    path("projects/<uuid:project_id>/changes", views.ProjectChanges.as_view()),
    path("projects/<uuid:project_id>/imports", imports.ImportList.as_view()),
    path("projects/<uuid:project_id>/imports/bundle", large_body(imports.ImportBundle.as_view())),
    path("imports/<uuid:import_id>", imports.ImportDetail.as_view()),
    path("imports/<uuid:import_id>/cancel", imports.ImportCancel.as_view()),
    path("projects/<uuid:project_id>/preflights", preflights.PreflightList.as_view()),
    path("preflights/<uuid:preflight_id>", preflights.PreflightDetail.as_view()),
    path("preflights/<uuid:preflight_id>/cancel", preflights.PreflightCancel.as_view()),
    path("changes", views.ChangeList.as_view()),
    path("changes/views", views.SavedViews.as_view()),
    path("changes/<uuid:change_id>", views.ChangeDetail.as_view()),
    path("changes/<uuid:change_id>/start", views.ChangeStart.as_view()),
    path("changes/<uuid:change_id>/cancel", views.ChangeCancel.as_view()),
    path("changes/<uuid:change_id>/pause", views.ChangePause.as_view()),
    path("changes/<uuid:change_id>/resume", views.ChangeResume.as_view()),
    path("changes/<uuid:change_id>/retry", views.ChangeRetry.as_view()),
    path("changes/<uuid:change_id>/plan/approve", views.PlanApproval.as_view()),
    path("changes/<uuid:change_id>/tasks", views.TaskList.as_view()),
    path("changes/<uuid:change_id>/receipts", views.ReceiptList.as_view()),
    path("changes/<uuid:change_id>/events", views.EventList.as_view()),
    path("changes/<uuid:change_id>/events/stream", streams.ChangeStream.as_view()),
    path("changes/<uuid:change_id>/approvals", approvals.ApprovalList.as_view()),
    path("approvals/<uuid:approval_id>", approvals.ApprovalDetail.as_view()),
    path("approvals/<uuid:approval_id>/patch", approvals.ApprovalPatch.as_view()),
    path("approvals/<uuid:approval_id>/decide", approvals.ApprovalDecision.as_view()),
    path("approvals/<uuid:approval_id>/reconcile", approvals.ApprovalReconciliation.as_view()),
    path("organizations/<uuid:organization_id>/events/stream", streams.OrganizationStream.as_view()),
    path("changes/<uuid:change_id>/candidates", views.CandidateList.as_view()),
    path("changes/<uuid:change_id>/meters", views.MeterList.as_view()),
    path("changes/<uuid:change_id>/raises", views.RaiseList.as_view()),
    path("changes/<uuid:change_id>/raises/preview", views.RaisePreview.as_view()),
    path("organizations/<uuid:organization_id>/limits", limits.LimitList.as_view()),
    path("organizations/<uuid:organization_id>/limits/preview", limits.LimitPreview.as_view()),
    path("organizations/<uuid:organization_id>/spend/accepted", limits.AcceptedCost.as_view()),
    path("candidates/<uuid:candidate_id>", views.CandidateDetail.as_view()),
    path("candidates/<uuid:candidate_id>/patch", views.CandidatePatch.as_view()),
    path("candidates/<uuid:candidate_id>/promote", views.CandidatePromotion.as_view()),
    path("tasks/<uuid:task_id>", views.TaskDetail.as_view()),
    path("tasks/<uuid:task_id>/runs", views.RunList.as_view()),
    path("tasks/<uuid:task_id>/receipts", views.TaskReceipts.as_view()),
    path("tasks/<uuid:task_id>/reopen", views.TaskReopening.as_view()),
    path("tasks/<uuid:task_id>/send-back", views.TaskComment.as_view()),
    path("runs/<uuid:run_id>", views.RunDetail.as_view()),
    path("runs/<uuid:run_id>/stop", views.RunStop.as_view()),
    path("runs/<uuid:run_id>/log", records.RunLog.as_view()),
    path("runs/<uuid:run_id>/packet", records.RunPacket.as_view()),
    path("runs/<uuid:run_id>/changeset", views.RunChangeSet.as_view()),
    path("changesets/<uuid:changeset_id>/patch", views.ChangeSetPatch.as_view()),
]
