"""Who is signed in."""


def is_signed_in(session):
    return session.get("user") is not None
