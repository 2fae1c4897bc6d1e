"""What the jobs find out."""

from django.db import models


class ClockChange(models.Model):
    """One change of a zone's clocks: at the instant `at` they go from one distance to UTC to another."""

    zone = models.CharField(max_length=64)
    at = models.DateTimeField()
    before = models.DurationField()
    after = models.DurationField()
    abbreviation = models.CharField(max_length=16)

    class Meta:
        ordering = ("at", "zone")
        constraints = (models.UniqueConstraint(fields=["zone", "at"], name="one_change_at_an_instant"),)

    def __str__(self) -> str:
        step = self.after - self.before
        return f"{self.zone} at {self.at:%Y-%m-%d %H:%M:%S} UTC: {step} ({self.abbreviation})"
