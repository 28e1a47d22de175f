"""Sums of invoices, in cents."""

from decimal import ROUND_HALF_UP, Decimal


def cents(amount):
    """Rounds an amount to whole cents."""
    return int(amount.quantize(Decimal(1), rounding=ROUND_HALF_UP))


def total(lines):
    """Returns the sum of lines with a price in cents and a quantity. Each line is rounded."""
    return sum(cents(Decimal(price) * Decimal(quantity)) for price, quantity in lines)
