"""Sums of a sheet."""

from timesheet.duration import parse


def total(entries):
    """Returns the minutes of all entries."""
    return sum(parse(entry) for entry in entries)
