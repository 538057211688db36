"""The Celery application: where jobs wait, how they are taken, and what happens by the clock.

The database is the queue; a message is only a nudge (rows 13 and 30). So messages are small, late
acknowledgement is safe, results are not kept, and a lost message costs one beat.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from functools import partial
from typing import Any

import structlog
from billiard.pool import Pool as BlockingPool
from celery import Celery, signals
from celery.schedules import crontab
from django.conf import settings

from config.broker import Transport
from config.env import Plane
from config.processes import die_with_parent
from webhooks.wake import WAKE_SECONDS_MAX

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# An attempt takes up to 15 minutes; a job that Redis hands out again before that would only find the lease.
VISIBILITY_SECONDS = 3600
FOLDER_POLL_SECONDS = 0.05  # the default of 1.0 was measured to be 40 times slower
SWEEP_SECONDS = 5
WATCH_SECONDS = 60
HOLDS_SWEEP_SECONDS = 30
LEAKS_SWEEP_SECONDS = 300
DEPENDENCIES_SWEEP_SECONDS = 300
# A worker told to stop gives its jobs this long; what is cut then is found by its lease.
SHUTDOWN_SECONDS = 5.0

ATTEMPTS_QUEUE = "agent-wakeups"
CHANGES_QUEUE = "changes"
HOOKS_QUEUE = "webhooks"  # requests to strangers' servers: slow ones must hold up nobody else
UPKEEP_QUEUE = "upkeep"  # short jobs; a process of their own, so that no long attempt delays them

HOOK_THREADS = 8  # requests that wait at a time

app = Celery("remit")


def _broker(plane: Plane) -> dict[str, Any]:
    if plane.redis_url:
        return {
            "broker_url": plane.redis_url,
            "broker_transport_options": {"visibility_timeout": VISIBILITY_SECONDS},
        }
    folder = plane.data_dir / "broker"
    for name in ("messages", "control", "taken"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {
        "broker_url": "filesystem://localhost//",
        "broker_transport": "config.broker:Transport",
        "broker_transport_options": {
            "data_folder_in": str(folder / "messages"),
            "data_folder_out": str(folder / "messages"),
            "control_folder": str(folder / "control"),
            "processed_folder": str(folder / "taken"),
            "polling_interval": FOLDER_POLL_SECONDS,
        },
        "worker_enable_remote_control": False,
    }


app.config_from_object(
    {
        **_broker(settings.PLANE),
        "broker_connection_retry_on_startup": True,
        "task_default_queue": UPKEEP_QUEUE,
        "task_routes": {
            "tasks.wake": ATTEMPTS_QUEUE,
            "tasks.work_on_change": CHANGES_QUEUE,
            "tasks.run_preflight": CHANGES_QUEUE,
            "tasks.run_import": CHANGES_QUEUE,
            "tasks.ask_helper": CHANGES_QUEUE,
            "webhooks.deliver": HOOKS_QUEUE,
            "agents.build_index": CHANGES_QUEUE,
            "agents.prepare_dependencies": CHANGES_QUEUE,
            "agents.maintain_stores": CHANGES_QUEUE,
        },
        "task_acks_late": True,
        "task_reject_on_worker_lost": False,  # the lease and the sweep bring lost work back
        "task_ignore_result": True,
        "worker_prefetch_multiplier": 1,
        "worker_soft_shutdown_timeout": SHUTDOWN_SECONDS,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "enable_utc": True,
        "timezone": "UTC",
        "beat_schedule_filename": str(settings.PLANE.data_dir / "beat-schedule"),
        "beat_schedule": {
            "sweep": {"task": "tasks.sweep", "schedule": SWEEP_SECONDS},
            "watch-runs": {"task": "tasks.watch_runs", "schedule": WATCH_SECONDS},
            "reap-holds": {"task": "budgets.reap", "schedule": HOLDS_SWEEP_SECONDS},
            "close-leaked-workspaces": {
                "task": "agents.close_leaked_workspaces",
                "schedule": LEAKS_SWEEP_SECONDS,
            },
            "forget-old-requests": {
                "task": "tenants.forget_old_requests",
                "schedule": crontab(hour="3", minute="15"),
            },
            "prepare-dependencies": {
                "task": "agents.prepare_dependencies",
                "schedule": DEPENDENCIES_SWEEP_SECONDS,
            },
            "deliver-webhooks": {
                "task": "webhooks.deliver",
                "schedule": SWEEP_SECONDS,
                "options": {"expires": WAKE_SECONDS_MAX},  # none may pile up where nobody takes them
            },
            "forget-old-webhooks": {
                "task": "webhooks.forget_old",
                "schedule": crontab(hour="3", minute="45"),
            },
            "maintain-stores": {"task": "agents.maintain_stores", "schedule": crontab(hour="1", minute="45")},
            "audit-ledger": {"task": "budgets.audit", "schedule": crontab(hour="2", minute="30")},
        },
    }
)
app.conf.update({"CELERY_DB_REUSE_MAX": settings.PLANE.database_reuse_max})
app.autodiscover_tasks(related_name="jobs")


@signals.setup_logging.connect
def keep_our_logging(**_: Any) -> None:
    """Settings configured it; a receiver here stops Celery from doing it again."""
    logging.captureWarnings(True)


@signals.task_prerun.connect
def bind_job(task_id: str = "", task: Any = None, **_: Any) -> None:
    """Every line of a job carries its id; the domain binds change, task and run."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(job=getattr(task, "name", ""), job_id=task_id)


@signals.task_postrun.connect
def unbind_job(**_: Any) -> None:
    structlog.contextvars.clear_contextvars()


@signals.worker_ready.connect
def end_quickly(**_: Any) -> None:
    """What is loaded lives to the end: looking through it for garbage was half of a worker's way out."""
    gc.freeze()


@signals.worker_ready.connect
def watch_children(sender: Any, **_: Any) -> None:
    """On the folder broker children take their jobs in turn, under one lock of the system."""
    pool: Any = getattr(sender.pool, "_pool", False)  # there is none where children are threads
    takes_turns = type(pool) is BlockingPool  # with Redis each child has a pipe of its own
    if takes_turns:
        pool.on_process_down = partial(_end_with_the_lock, pool)


def _end_with_the_lock(pool: Any, child: Any) -> None:
    """A child that was killed while it waited has taken the lock along: no other would ever get a job again.

    The supervisor starts a new worker, and leases bring back what the others were doing. One that was killed at work
    had given the lock back: it is replaced, and nothing else ends.
    """
    at_work = any(child.pid in job.worker_pids() for job in list(pool._cache.values()))
    if not at_work and (child.exitcode or 0) < 0:
        os.kill(os.getpid(), signal.SIGKILL)  # gentler ways wait for the children, which wait for the lock


@signals.worker_shutting_down.connect
def stop_waiting(**_: Any) -> None:
    """Sent by the handler of the signal, which may interrupt a wait for the next message."""
    Transport.stopping = True


@signals.worker_process_init.connect
@signals.beat_embedded_init.connect
def die_with_the_worker(**_: Any) -> None:
    """A child of a worker that was killed with -9 must not work on as an orphan."""
    die_with_parent()
