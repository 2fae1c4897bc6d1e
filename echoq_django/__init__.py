"""EchoQ for Django: background jobs on Redis or Valkey. These are the public names."""

from echoq_django.backoff import Exponential, Fixed, Jitter, Polynomial, delay_ms
from echoq_django.errors import (
    Cancel,
    ConfigurationError,
    EchoQError,
    EnqueueFailed,
    Fail,
    JobCancelled,
    JobFailed,
    JobGone,
    JobNotFinished,
    JobNotFound,
    JobTimeout,
    LeaseLost,
    PayloadTooLarge,
    Retry,
    Snooze,
    UnknownTask,
    WrongState,
)
from echoq_django.jobs import Job, Queue, RunningJob, aget_job, current_job, get_job
from echoq_django.states import JobState
from echoq_django.tasks import Call, Task, aenqueue_many, enqueue_many, task
from echoq_django.uniques import Unique

__all__ = [
    "Call",
    "Cancel",
    "ConfigurationError",
    "EchoQError",
    "EnqueueFailed",
    "Exponential",
    "Fail",
    "Fixed",
    "Jitter",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobGone",
    "JobNotFinished",
    "JobNotFound",
    "JobState",
    "JobTimeout",
    "LeaseLost",
    "PayloadTooLarge",
    "Polynomial",
    "Queue",
    "Retry",
    "RunningJob",
    "Snooze",
    "Task",
    "Unique",
    "UnknownTask",
    "WrongState",
    "aenqueue_many",
    "aget_job",
    "current_job",
    "delay_ms",
    "enqueue_many",
    "get_job",
    "task",
]
