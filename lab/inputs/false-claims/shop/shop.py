"""What a basket costs."""


def total(prices, discount=0):
    """The sum of the prices, with a discount in percent taken off."""
    return sum(prices)
