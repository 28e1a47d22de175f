import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { address } from './index.mjs';

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url)));

test('addresses have no accents and no punctuation', () => {
  const slugs = { 'Crème brûlée': 'creme-brulee', 'Straße': 'strasse', ' a  b ': 'a-b', 'What? No!': 'what-no', 'C++ & Rust': 'c-rust' };
  for (const [title, slug] of Object.entries(slugs)) {
    assert.equal(address({ year: 2026, title }), `/2026/${slug}`);
  }
});

test('the package is a dependency that npm has installed', () => {
  assert.equal(read('./package.json').dependencies['tiny-slug'], 'file:vendor/tiny-slug');
  assert.equal(read('./node_modules/tiny-slug/package.json').version, '2.1.0');
  assert.ok(read('./package-lock.json').packages['node_modules/tiny-slug']);
});

test('the package is used as it is', () => {
  assert.match(readFileSync(new URL('./index.mjs', import.meta.url), 'utf8'), /from ['"]tiny-slug['"]/);
  assert.equal(read('./vendor/tiny-slug/package.json').version, '2.1.0');
});
