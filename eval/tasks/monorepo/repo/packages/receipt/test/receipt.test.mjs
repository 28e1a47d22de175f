import assert from 'node:assert/strict';
import { test } from 'node:test';

import { lines } from '../index.mjs';

test('a receipt has a line per item', () => {
  assert.deepEqual(lines([{ name: 'pen', cents: 150, quantity: 2 }]), ['pen 3.00']);
});
