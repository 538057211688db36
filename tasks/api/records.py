"""REST: what an attempt was told and what it did, as it is kept: its packet and its log of tools."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from agents import archive
from tasks import reads
from tenants.errors import NotVisible

JSON_TYPE = "application/json"


class LoggedTool(serializers.Serializer[Any]):
    """One call of a tool; further members as the tool has them."""

    position = serializers.IntegerField()
    tool = serializers.CharField()


class RunLog(APIView):
    @extend_schema(
        operation_id="runs_log",
        tags=["tasks"],
        responses=LoggedTool(many=True),
        description="Every call of a tool with its arguments and result, once the attempt has ended; 404 before.",
    )
    def get(self, request: Request, run_id: UUID) -> HttpResponse:
        return _kept(reads.run_for(request.user, run_id).tool_log_key, "log")


class RunPacket(APIView):
    @extend_schema(
        operation_id="runs_packet",
        tags=["tasks"],
        responses=inline_serializer("Packet", {}),
        description="What the attempt was told: its context packet, named by the hash of its content.",
    )
    def get(self, request: Request, run_id: UUID) -> HttpResponse:
        return _kept(reads.run_for(request.user, run_id).packet_key, "packet")


def _kept(key: str, what: str) -> HttpResponse:
    content = archive.find(key)
    if not content:
        raise NotVisible(what)
    return HttpResponse(content, content_type=JSON_TYPE)
