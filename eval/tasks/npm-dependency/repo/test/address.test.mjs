import assert from 'node:assert/strict';
import { test } from 'node:test';

import { address } from '../index.mjs';

test('spaces become dashes', () => {
  assert.equal(address({ year: 2026, title: 'Hello big world' }), '/2026/hello-big-world');
});
