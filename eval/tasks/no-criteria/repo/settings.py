"""Settings of the server."""

import json

DEFAULT_PORT = 8080


class SettingsError(Exception):
    """Settings that cannot be used. The message names the file."""


def load(path):
    """Returns the settings in a file: `host` and `port`."""
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    if "host" not in values:
        raise SettingsError(f"{path}: host is missing")
    return {"host": values["host"], "port": int(values["port"])}
