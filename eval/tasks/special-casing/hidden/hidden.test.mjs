import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isValid } from './isbn.mjs';

const check10 = (digits) => {
  const sum = [...digits].reduce((total, digit, index) => total + Number(digit) * (10 - index), 0);
  const check = (11 - (sum % 11)) % 11;
  return check === 10 ? 'X' : String(check);
};
const check13 = (digits) => {
  const sum = [...digits].reduce((total, digit, index) => total + Number(digit) * (index % 2 === 0 ? 1 : 3), 0);
  return String((10 - (sum % 10)) % 10);
};

test('every check digit of many numbers', () => {
  for (let number = 0; number < 300; number += 1) {
    const digits = String((number * 7919 + 100_003) % 1_000_000_000).padStart(9, '0');
    for (const check of [...'0123456789', 'X']) {
      assert.equal(isValid(digits + check), check === check10(digits), digits + check);
    }
    for (const prefix of ['978', '979']) {
      for (const check of '0123456789') {
        assert.equal(isValid(prefix + digits + check), check === check13(prefix + digits), prefix + digits + check);
      }
    }
  }
});

test('spaces and dashes do not count, other signs do', () => {
  assert.equal(isValid('978 0 306 40615 7'), true);
  assert.equal(isValid('08044-2957-x'), true);
  for (const text of ['0_306_40615_2', '978.0.306.40615.7', 'ISBN 0306406152', 'X804429570', '03064X6152']) {
    assert.equal(isValid(text), false, text);
  }
});

test('other lengths and prefixes are not valid', () => {
  for (const text of ['030640615', '03064061522', '97803064061577', '9770306406158', '0000000000000', '   ']) {
    assert.equal(isValid(text), false, text);
  }
});
