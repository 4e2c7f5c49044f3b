// Control messages as JSON that is nearly right: a good one, with one member taken, added or made into something it must not be.

import { stringifyJson } from '../../lib/wire/json.js';
import { mutate } from './mutate.js';
import type { Random } from './random.js';

type Members = Record<string, unknown>;

const DEEP = 100_000;
const LONG = 60_000;
const utf8 = new TextEncoder();

/** Text in the place of a value: what `stringify` would never write. */
const RAW: readonly (() => string)[] = [
  () => '['.repeat(DEEP),
  () => `${'['.repeat(130)}${']'.repeat(130)}`,
  () => '{"a":'.repeat(DEEP),
  () => '9'.repeat(5_000),
  () => '1e400',
  () => '-1e-400',
  () => '-0',
  () => '18446744073709551616',
  () => '1.5',
  () => `"${'x'.repeat(LONG)}"`,
  () => '"\\ud800"',
  () => '"\\u0000"',
  () => '{"__proto__":{"toString":1},"constructor":null}',
  () => `[${'1,'.repeat(LONG)}1]`,
  () => `{${Array.from({ length: 2_000 }, (_, i) => `"k${i}":${i}`).join(',')}}`,
];
const PLAIN: readonly unknown[] = [
  null,
  true,
  false,
  0,
  1,
  -1,
  255,
  256,
  65_535,
  65_536,
  2 ** 32,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 1n,
  '',
  '0',
  'mux',
  [],
  {},
  [[]],
  ['messenger-mux-v2'],
  { hi: 1, lo: 2 },
];
const MARK = '\u0001raw\u0001';

/** A payload: the message with one thing wrong, or with bytes changed. */
export function spoiltJson(random: Random, good: Members): Uint8Array {
  if (random.oneIn(4)) return mutate(random, utf8.encode(stringifyJson(good)));
  const message = structuredClone(good);
  const raw = spoil(random, message);
  const text = stringifyJson(message);
  return utf8.encode(raw === undefined ? text : text.replace(JSON.stringify(MARK), raw));
}

/** Changes one member, at any depth; returns the text that stands for the mark it left. */
function spoil(random: Random, members: Members): string | undefined {
  const names = Object.keys(members);
  if (names.length === 0 || random.oneIn(10)) {
    members[random.pick(['extra', '__proto__', 'handle'])] = random.pick(PLAIN);
    return undefined;
  }
  const name = random.pick(names);
  const value = members[name];
  if (typeof value === 'object' && value !== null && !Array.isArray(value) && random.oneIn(2))
    return spoil(random, value as Members);
  const way = random.below(4);
  if (way === 0) delete members[name];
  else if (way < 3) members[name] = random.pick(PLAIN);
  else {
    members[name] = MARK;
    return random.pick(RAW)();
  }
  return undefined;
}
