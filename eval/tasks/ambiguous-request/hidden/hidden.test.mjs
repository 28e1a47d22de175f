import assert from 'node:assert/strict';
import { test } from 'node:test';

import { report } from './visits.mjs';

const dates = (list) => report(list.map((date) => ({ date, branch: 'x' }))).map((line) => line.slice(0, 10));

test('days come first, and the newest visit too', () => {
  assert.deepEqual(dates(['03/04/2026', '01/05/2026', '02/01/2026']), ['01/05/2026', '03/04/2026', '02/01/2026']);
});

test('years count before months', () => {
  assert.deepEqual(dates(['31/12/2025', '01/01/2026', '30/11/2025']), ['01/01/2026', '31/12/2025', '30/11/2025']);
});

test('days above twelve do not change the rule', () => {
  assert.deepEqual(dates(['13/02/2026', '12/03/2026', '25/01/2026']), ['12/03/2026', '13/02/2026', '25/01/2026']);
});

test('the list that came in is not touched', () => {
  const visits = [{ date: '01/01/2026', branch: 'a' }, { date: '01/02/2026', branch: 'b' }];
  report(visits);
  assert.equal(visits[0].branch, 'a');
});
