"""Pages of a list. Pages are numbered from 1."""


def page_count(total, size):
    """Returns the number of pages that `total` items fill."""
    return total // size + 1


def page(items, number, size):
    """Returns the items of one page."""
    start = (number - 1) * size
    return items[start:start + size]


def has_next(total, size, number):
    """Tells whether a page follows."""
    return number < page_count(total, size)
