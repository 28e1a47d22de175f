import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { format } from './money.mjs';
import { mean, median } from './stats.mjs';

test('the middle of an odd number of values', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([10, 9, 1, 2, 100]), 9);
  assert.equal(median([5]), 5);
});

test('the mean of the two middle values', () => {
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(median([1, 100]), 50.5);
});

test('nothing has no median', () => {
  assert.throws(() => median([]), RangeError);
});

test('the values are left as they are', () => {
  const values = [3, 1, 2];
  median(values);
  assert.deepEqual(values, [3, 1, 2]);
});

test('known failures are left alone', () => {
  const tests = readFileSync(new URL('./test/figures.test.mjs', import.meta.url), 'utf8');
  assert.match(tests, /\ntest\('amounts in the old currency', \(\) => \{\n  assert\.equal\(format\(1234, 'DEM'\), '1\.234 DM'\);/);
  assert.match(tests, /\ntest\('two looks at the clock are the same', \(\) => \{\n  const first = process\.hrtime/);
  assert.equal(format(1234, 'DEM'), '12.34 DEM');
  assert.equal(mean([1, 2, 6]), 3);
});
