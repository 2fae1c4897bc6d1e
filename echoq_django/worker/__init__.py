"""The worker: a supervisor that runs no task, and children whose threads claim and run jobs."""
