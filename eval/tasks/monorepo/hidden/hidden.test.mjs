import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { sum } from './packages/cart/index.mjs';
import { describe, price } from './packages/price/index.mjs';
import { lines } from './packages/receipt/index.mjs';

const item = (discount, cents = 199, quantity = 3) => ({ name: 'pen', cents, quantity, discount });

test('a discount is taken from the price of all pieces and rounded down to cents', () => {
  assert.equal(price(item(10)), 537);
  assert.equal(price(item(33, 100, 1)), 67);
  assert.equal(price(item(50, 5, 1)), 2);
  assert.equal(price(item(50, 5, 3)), 7);
  assert.equal(price(item(100)), 0);
});

test('no discount is the full price', () => {
  assert.equal(price(item(undefined)), 597);
  assert.equal(price(item(0)), 597);
});

test('a discount outside of 0 to 100 is refused', () => {
  for (const discount of [-1, 101, Number.NaN]) {
    assert.throws(() => price(item(discount)), RangeError);
  }
});

test('cart and receipt get it from the package', () => {
  assert.equal(sum([item(10), item(0)]), 1134);
  assert.deepEqual(lines([item(10)]), ['pen 5.37']);
  assert.deepEqual(describe(item(10)), { name: 'pen', cents: 537 });
});

test('the other packages are not touched', () => {
  const digests = {
    './package.json': '5895eef440df692a96f6867b053e30954cfd2fb2e24b1cfe269819c9b7b83aab',
    './packages/cart/package.json': '8947fd7d4d136135520b103338885d45d2e4ba1a9749b27454d84736aec93a10',
    './packages/receipt/package.json': '807b1991ef2b0e24f88cd03b15eb362ef46e97aff6fc59851ad88e9584ca8fc5',
    './packages/cart/index.mjs': '2eac3ba2754aa8f27bfc94c72b155990ba9432e7dcb0281e7bc11f93dff326b5',
    './packages/cart/test/cart.test.mjs': '0230626960d3bfb5fbb09d40c68d481b08b7d6a5d69e24fb12fa9460e51087fc',
    './packages/receipt/index.mjs': '2dc6baba8d17fa4004975549a9c9cb8385ba35e35327eda5eec77aca6c32adf8',
    './packages/receipt/test/receipt.test.mjs': '69c26d15591a5ebefdfdb90422cb2315afbb358ccf16f4fc2e07c6bf0cda4818',
  };
  for (const [path, digest] of Object.entries(digests)) {
    const text = readFileSync(new URL(path, import.meta.url));
    assert.equal(createHash('sha256').update(text).digest('hex'), digest, path);
  }
  assert.deepEqual(readdirSync(new URL('./packages', import.meta.url)).sort(), ['cart', 'price', 'receipt']);
});
