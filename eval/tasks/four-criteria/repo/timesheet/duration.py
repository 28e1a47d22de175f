"""Durations, in minutes."""


def parse(text):
    """Returns the minutes that a text such as `90` stands for."""
    return int(text)
