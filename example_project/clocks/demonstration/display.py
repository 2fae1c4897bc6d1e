"""What the demo says, and how far it is: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_SECONDS = 1.0


class Display:
    """Writes to the standard output."""

    def __init__(self) -> None:
        self._console = Console()
        self._bar = Progress(
            TextColumn("Jobs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[retries]} retries, {task.fields[recovered]} recovered"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._total = 0
        self._said = ""
        self._say_at = 0.0

    def say(self, text: str) -> None:
        """Write lines as they are."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, total: int) -> Iterator[None]:
        """Show progress within this block."""
        self._total = total
        if not self._console.is_terminal:
            yield
            return
        self._bar.add_task("jobs", total=total, retries=0, recovered=0)
        with self._bar:
            yield

    def show(self, completed: int, retries: int, recovered: int) -> None:
        """Show the numbers of now; as lines at most one each second, and the last."""
        if self._console.is_terminal:
            task = self._bar.task_ids[-1]
            self._bar.update(task, completed=completed, retries=retries, recovered=recovered)
            return
        line = f"  {completed} of {self._total} jobs, {retries} retries, {recovered} recovered"
        if line != self._said and (time.monotonic() >= self._say_at or completed == self._total):
            self.say(line)
            self._said, self._say_at = line, time.monotonic() + LINE_SECONDS
