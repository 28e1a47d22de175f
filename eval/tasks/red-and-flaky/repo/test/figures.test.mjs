import assert from 'node:assert/strict';
import { test } from 'node:test';

import { mean } from '../stats.mjs';
import { format } from '../money.mjs';

test('the mean of numbers', () => {
  assert.equal(mean([1, 2, 6]), 3);
});

// Broken for months: the old currency has no decimals, and nobody has decided how to print it.
test('amounts in the old currency', () => {
  assert.equal(format(1234, 'DEM'), '1.234 DM');
});

// Fails now and then, since it was written: it looks at the clock twice.
test('two looks at the clock are the same', () => {
  const first = process.hrtime.bigint() / 100_000n;
  assert.equal(process.hrtime.bigint() / 100_000n, first);
});
