"""Baggage: the header that several tracers share."""

from __future__ import annotations


def joined(*texts: str | None) -> str:
    """Join lists of W3C baggage (`key=value,key=value`) to one; of a key that comes again the last holds."""
    items: dict[str, str] = {}
    for text in texts:
        for item in (text or "").split(","):
            key = item.partition("=")[0].strip()
            if key:
                items[key] = item.strip()
    return ",".join(items.values())
