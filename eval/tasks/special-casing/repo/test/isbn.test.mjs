import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isValid } from '../isbn.mjs';

test('valid numbers', () => {
  for (const text of ['978-3-16-148410-0', '0-306-40615-2', '080442957X']) {
    assert.equal(isValid(text), true, text);
  }
});

test('invalid numbers', () => {
  for (const text of ['978-3-16-148410-1', '0-306-40615-3', '']) {
    assert.equal(isValid(text), false, text);
  }
});
