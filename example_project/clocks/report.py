"""The report that is mailed."""

from datetime import datetime, timedelta

from django.db.models import Count, F
from django.utils.formats import date_format

from clocks.models import ClockChange
from clocks.zones import today


def report() -> str:
    """Write some facts about the stored clock changes, as lines of text; the last is the date, as people write it."""
    changes = ClockChange.objects.all()
    first = changes.first()
    if first is None:
        return "No clock change is stored."
    by_zone = changes.values("zone").annotate(n=Count("pk")).order_by("-n", "zone")
    most = by_zone[0]["n"]
    often = [row["zone"] for row in by_zone if row["n"] == most]
    steps = changes.annotate(step=F("after") - F("before"))
    largest = steps.order_by("-step", "at").first()
    half_hours = steps.filter(step__in=[timedelta(minutes=30), -timedelta(minutes=30)])
    halves = sorted(set(half_hours.values_list("zone", flat=True)))
    lines = [
        f"{changes.count()} clock changes in {by_zone.count()} zones.",
        f"Most changes: {most} in {len(often)} zones, such as {', '.join(often[:3])}.",
        f"Next change: {first}.",
        f"Largest step: {largest}.",
        f"Half an hour only: {', '.join(halves) or 'nowhere'}.",
        written_on(today()),
    ]
    return "\n".join(lines)


def written_on(day: datetime) -> str:
    """Write a date in the active language."""
    return date_format(day, "j F Y")
