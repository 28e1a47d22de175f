/** Writes an amount in cents with its currency. */
export function format(cents, currency) {
  return `${(cents / 100).toFixed(2)} ${currency}`;
}
