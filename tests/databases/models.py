"""What jobs write down in a database."""

from __future__ import annotations

from django.db import models


class Entry(models.Model):
    word = models.CharField(max_length=100)
    job = models.CharField(max_length=100, default="")
    number = models.IntegerField(default=0)

    class Meta:
        app_label = "databases"
        db_table = "entries"

    def __str__(self) -> str:
        return self.word
