"""Signed tickets: `user:expiry:signature`."""

import hashlib
import hmac


def sign(user, expires, key):
    """Returns a ticket that is valid until `expires`, in seconds."""
    signature = hmac.new(key, f"{user}:{expires}".encode(), hashlib.sha256).hexdigest()
    return f"{user}:{expires}:{signature}"


def verify(ticket, key, now):
    """Tells whether a ticket is genuine."""
    user, expires, signature = ticket.rsplit(":", 2)
    return sign(user, int(expires), key).endswith(signature)
