// The conformance report: runs every test, tells which acceptance ids passed, failed, are missing or explained.
// `--json` prints one object on standard output and nothing else there. It never decides a state itself.

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Conformance, collect, faultsOf, parseExplanations, type RanTest, unknownIds } from './collect.js';
import { allIds, GROUPS, idsOf } from './groups.js';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const DOCUMENT = join(ROOT, 'docs', 'conformance.md');

const EXIT_FAILED = 1;
const EXIT_NO_REPORT = 2;

/** The part of the runner's JSON report that is read. A test with an error in it failed. */
interface MochaReport {
  passes: { title: string }[];
  failures: { title: string }[];
}

/** Runs the compiled tests in a process of their own; their output goes to standard error. */
async function runTests(): Promise<RanTest[]> {
  const directory = await mkdtemp(join(tmpdir(), 'velomux-conformance-'));
  try {
    const file = join(directory, 'tests.json');
    const mocha = createRequire(import.meta.url).resolve('mocha/bin/mocha.js');
    // A test that leaves a handle open must not keep the report from ending; `npm test` is where that shows.
    const args = [mocha, '--exit', '--reporter', 'json', '--reporter-option', `output=${file}`];
    const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', process.stderr, process.stderr] });
    const code = await new Promise<number | null>((resolve, reject) => {
      child.on('error', reject);
      child.on('exit', resolve);
    });
    const text = await readFile(file, 'utf8').catch((cause: unknown) => {
      throw new Error(`the tests ended with exit code ${code} and left no report`, { cause });
    });
    const report = JSON.parse(text) as MochaReport;
    return [
      ...report.passes.map(({ title }) => ({ title, passed: true })),
      ...report.failures.map(({ title }) => ({ title, passed: false })),
    ];
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function formatState(state: Conformance): string {
  const passed = new Set(state.pass);
  const lines = GROUPS.map((group) => {
    const ids = idsOf(group);
    const count = ids.filter((id) => passed.has(id)).length;
    return `${group.prefix}  ${String(count).padStart(3)} of ${String(ids.length).padStart(3)}  ${group.title}`;
  });
  lines.push('', `passed     ${state.pass.length} of ${allIds().length}`);
  for (const key of ['fail', 'missing', 'explained'] as const) {
    const ids = state[key];
    lines.push(
      `${(key === 'fail' ? 'failed' : key).padEnd(9)}  ${ids.length}${ids.length > 0 ? `: ${ids.join(' ')}` : ''}`,
    );
  }
  return `${lines.join('\n')}\n`;
}

async function main(): Promise<number> {
  const json = process.argv.includes('--json');
  if (!json) process.stderr.write('running every test; this takes a while\n');
  const tests = await runTests();
  const explanations = parseExplanations(await readFile(DOCUMENT, 'utf8'));
  const state = collect(tests, explanations);
  process.stdout.write(json ? `${JSON.stringify(state)}\n` : formatState(state));

  const faults = faultsOf(explanations, state).map((fault) => `docs/conformance.md: ${fault}`);
  const warnings = unknownIds(tests).map((id) => `a test's title starts with ${id}, which is no known id`);
  for (const line of [...faults, ...warnings]) process.stderr.write(`${line}\n`);
  return state.fail.length > 0 || faults.length > 0 ? EXIT_FAILED : 0;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`conformance: ${error instanceof Error ? error.message : String(error)}\n`);
  return EXIT_NO_REPORT;
});
