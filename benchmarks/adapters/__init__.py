"""One module for each queue; `load` answers its adapter by the name that the rows use."""

import importlib

MODULES = {
    "arq": "arq_",
    "bullmq": "bullmq_",
    "celery": "celery_",
    "dramatiq": "dramatiq_",
    "echoq": "echoq_",
    "echoq-retain-0": "echoq_",
    "huey": "huey_",
    "rawlua": "rawlua_",
    "rq": "rq_",
    "taskiq": "taskiq_",
    "wakaq": "wakaq_",
}


def load(name):
    return importlib.import_module("adapters." + MODULES[name]).make(name)
