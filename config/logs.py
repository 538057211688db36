"""Structured logs: one line per event, with the ids of what it is about, and without secrets."""

from __future__ import annotations

import logging.config
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

HIDDEN = "[hidden]"
# Names of fields whose value never belongs in a log, and shapes of keys inside other texts.
SECRET_FIELDS = re.compile(r"(?i)(?:^|[_-])(?:key|secret|token|password|authorization|cookie|credential)s?$")
KEY_SHAPES = re.compile(
    r"(?i)\bbearer\s+[^\s\"']+|\bsk-[\w-]{8,}|\bAIza[\w-]{20,}|\brmt_[\w-]{8,}|//[^/\s:@]+:[^/\s@]+@"
)

EventDict = MutableMapping[str, Any]


def configure(level: str, form: str) -> None:
    """One pipeline for our own lines and for those of Django, Celery and uvicorn."""
    before: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    logging.config.dictConfig(_standard(level, form, before))


def hide_secrets(logger: Any, method: str, event: EventDict) -> EventDict:  # noqa: ARG001  # structlog's signature
    """Whatever looks like a key leaves no trace, wherever it stands in the line."""
    for name, value in event.items():
        event[name] = _hidden(name, value)
    return event


def _hidden(name: str, value: Any) -> Any:
    """A count such as output_tokens is a number; a secret is always text."""
    if isinstance(value, str | bytes) and SECRET_FIELDS.search(name) and name != "idempotency_key":
        return HIDDEN
    return _hidden_in(value)


def _hidden_in(value: Any) -> Any:
    if isinstance(value, str):
        return KEY_SHAPES.sub(HIDDEN, value)
    if isinstance(value, dict):
        return {name: _hidden(str(name), inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden_in(inner) for inner in value]
    return value


def _standard(level: str, form: str, before: list[structlog.typing.Processor]) -> dict[str, Any]:
    """The dictionary for `logging`; nothing of a library is louder than a warning unless we debug."""
    after: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        hide_secrets,  # a second time: a traceback may quote what a line does not
    ]
    if form == "json":
        after.append(structlog.processors.JSONRenderer(default=str))
    else:
        after.append(structlog.dev.ConsoleRenderer(colors=False))
    quiet = "DEBUG" if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": before,
                "processors": after,
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            name: {"level": quiet}
            for name in (
                "httpx",
                "httpcore",
                "botocore",
                "urllib3",
                "asyncio",
                "kombu",
                "amqp",
                "markdown_it",
            )
        }
        | {
            "django.db.backends": {"level": "WARNING"},  # SQL carries people's data
            "uvicorn.access": {"level": "WARNING"},
            "uvicorn.error": {"level": quiet},
            # One line per wake received, done and sent by the clock: the domain's own lines say more.
            "celery.worker.strategy": {"level": quiet},
            "celery.app.trace": {"level": quiet},
            "celery.beat": {"level": quiet},
            "celery.worker.consumer.connection": {"level": quiet},
        },
    }
