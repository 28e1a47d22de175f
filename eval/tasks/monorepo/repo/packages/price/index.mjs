/** Returns the price of an item in cents, with its discount in percent. */
export function price(item) {
  return item.cents * item.quantity;
}

/** Describes a price. */
export function describe(item) {
  return { name: item.name, cents: price(item) };
}
