"""Recordings of the terminal."""


def write_all(world, pictures):
    pass
