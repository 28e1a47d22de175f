import { describe } from '../price/index.mjs';

/** Returns the lines of a receipt. */
export function lines(items) {
  return items.map((item) => {
    const { name, cents } = describe(item);
    return `${name} ${(cents / 100).toFixed(2)}`;
  });
}
