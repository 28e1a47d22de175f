import assert from 'node:assert/strict';
import { test } from 'node:test';

import { describe, price } from '../index.mjs';

test('a price is for all pieces', () => {
  assert.equal(price({ name: 'pen', cents: 150, quantity: 2 }), 300);
});

test('a description has name and price', () => {
  assert.deepEqual(describe({ name: 'pen', cents: 150, quantity: 2 }), { name: 'pen', cents: 300 });
});
