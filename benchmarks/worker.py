"""One worker process of a queue: `python -m worker ADAPTER CONFIG`."""

import sys

import adapters

if __name__ == "__main__":
    adapter = adapters.load(sys.argv[1])
    settings = {key: value for key, value in adapter.configs[sys.argv[2]].items() if key not in ("procs", "jobs")}
    if settings.pop("uvloop", False):
        import uvloop

        uvloop.install()
    adapter.run_worker(**settings)
