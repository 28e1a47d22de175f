import assert from 'node:assert/strict';
import { test } from 'node:test';

import { report } from '../visits.mjs';

test('a visit has a line', () => {
  assert.deepEqual(report([{ date: '03/04/2026', branch: 'North' }]), ['03/04/2026 North']);
});
