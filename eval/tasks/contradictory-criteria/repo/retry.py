"""Repeats calls that fail."""


def call(function):
    """Calls a function once."""
    return function()
