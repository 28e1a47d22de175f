"""Cache whose entries expire."""


class Cache:
    """Values by key, each for `seconds`. `clock` returns the time in seconds."""

    def __init__(self, seconds, clock):
        self.seconds = seconds
        self.clock = clock
        self.values = {}

    def put(self, key, value):
        """Stores a value."""
        self.values.setdefault(key, (value, self.clock()))

    def get(self, key):
        """Returns a value, or `None` if there is none or it has expired."""
        if key not in self.values:
            return None
        value, stored = self.values[key]
        if self.clock() - stored > self.seconds:
            return None
        return value

    def __len__(self):
        return len(self.values)
