import { price } from '../price/index.mjs';

/** Returns the sum of a cart in cents. */
export function sum(items) {
  return items.reduce((cents, item) => cents + price(item), 0);
}
