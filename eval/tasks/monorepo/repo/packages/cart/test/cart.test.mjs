import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sum } from '../index.mjs';

test('a cart adds up', () => {
  assert.equal(sum([{ name: 'pen', cents: 150, quantity: 2 }, { name: 'ink', cents: 50, quantity: 1 }]), 350);
});
