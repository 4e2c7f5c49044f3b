// From the titles of tests that ran to the state of every acceptance id. Pure: no test runner, no files, no output.

import { allIds } from './groups.js';

/** A test that ran, by its own title. */
export interface RanTest {
  readonly title: string;
  readonly passed: boolean;
}

/** Every known id stands in exactly one of the lists. */
export interface Conformance {
  /** At least one test ran, and none failed. */
  readonly pass: string[];
  /** At least one test failed. */
  readonly fail: string[];
  /** No test ran, and no reason is given. */
  readonly missing: string[];
  /** No test ran; the reason stands in the document. */
  readonly explained: string[];
}

/** A row of the document: an id that does not fit Node. */
export interface Explanation {
  readonly id: string;
  readonly why: string;
  readonly instead: string;
}

/** A few ids may not fit the runtime. More than this, and the document is an excuse. */
export const EXPLANATIONS_MAX = 10;

const ID = '[A-Z]{2}-\\d{2}(?!\\d)';
const LEADING_IDS = new RegExp(`^${ID}(?:(?:\\s*[,/&+]\\s*|\\s+and\\s+|\\s+)${ID})*`);
const EXPLANATION_ROW = new RegExp(`^\\|\\s*(${ID})\\s*\\|(.*)\\|(.*)\\|\\s*$`);
/** A hook that fails keeps the test it ran for from running, and is reported in that test's place. */
const FAILED_HOOK = /^"(?:before|after) (?:all|each)" hook(?:: .*)? (?:for|in) "(.*)"$/;

/** The ids at the start of a title: one, or several as in `AC-15, AC-16 what they have in common`. */
export function idsInTitle(title: string): string[] {
  const subject = FAILED_HOOK.exec(title)?.[1] ?? title;
  const leading = LEADING_IDS.exec(subject)?.[0] ?? '';
  return leading.match(new RegExp(ID, 'g')) ?? [];
}

export function collect(tests: readonly RanTest[], explanations: readonly Explanation[]): Conformance {
  const passed = new Map<string, boolean>();
  for (const test of tests) {
    for (const id of idsInTitle(test.title)) passed.set(id, test.passed && passed.get(id) !== false);
  }
  const excused = new Set(explanations.map((explanation) => explanation.id));
  const state: Conformance = { pass: [], fail: [], missing: [], explained: [] };
  for (const id of allIds()) {
    const result = passed.get(id);
    if (result !== undefined) state[result ? 'pass' : 'fail'].push(id);
    else state[excused.has(id) ? 'explained' : 'missing'].push(id);
  }
  return state;
}

/** Ids that stand in titles but in no group: misspelt, or invented. */
export function unknownIds(tests: readonly RanTest[]): string[] {
  const known = new Set(allIds());
  return [...new Set(tests.flatMap((test) => idsInTitle(test.title)))].filter((id) => !known.has(id)).sort();
}

/** The rows of the table `| id | why | what is tested instead |`. Other text is left alone. */
export function parseExplanations(markdown: string): Explanation[] {
  return markdown.split('\n').flatMap((line) => {
    const row = EXPLANATION_ROW.exec(line);
    return row === null ? [] : [{ id: row[1]!, why: row[2]!.trim(), instead: row[3]!.trim() }];
  });
}

/** What is wrong with the document: too many rows, an unknown or repeated id, an empty cell, a row a test contradicts. */
export function faultsOf(explanations: readonly Explanation[], state: Conformance): string[] {
  const faults: string[] = [];
  if (explanations.length > EXPLANATIONS_MAX) {
    faults.push(`${explanations.length} ids are explained; at most ${EXPLANATIONS_MAX} may be`);
  }
  const explained = new Set(state.explained);
  const tested = new Set([...state.pass, ...state.fail]);
  const seen = new Set<string>();
  for (const { id, why, instead } of explanations) {
    if (seen.has(id)) faults.push(`${id} is explained twice`);
    else if (tested.has(id)) faults.push(`${id} is explained although a test of it ran`);
    else if (!explained.has(id)) faults.push(`${id} is explained but is no known id`);
    if (why === '' || instead === '') faults.push(`${id} lacks a reason or what is tested instead`);
    seen.add(id);
  }
  return faults;
}
