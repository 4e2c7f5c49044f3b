// The whole run, from the parent: forks the processes, introduces them, starts them, collects what they measured.

import { Child } from './child.js';
import type { Options } from './options.js';
import type { Progress } from './progress.js';
import type { Measured } from './report.js';
import { stopped } from './stop.js';
import { tokenise } from './tokens.js';
import { FRONTENDS, longestRequest, predict } from './workload.js';

/** However large the run, it has failed by then. */
const DEADLINE_MS = 120_000;

export interface Outcome {
  readonly measured: Measured;
  /** The text of the longest request, as its frontend assembled it. */
  readonly showcase: { readonly request: number; readonly text: string };
}

/** Rejects with `Stopped` when `stop` aborts and every process has ended, and when any process fails, when the deadline passes, or when the engines' count of tokens is not the frontends'. */
export async function runForwardPass(options: Options, progress: Progress, stop: AbortSignal): Promise<Outcome> {
  const received = new Array<number>(FRONTENDS).fill(0);
  const frontends = received.map(
    (_, index) =>
      new Child(`frontend ${index}`, new URL('./frontend.js', import.meta.url), (tokens) => {
        received[index] = tokens;
        progress.tokens(sum(received));
      }),
  );
  const engines = Array.from(
    { length: options.engines },
    (_, index) => new Child(`engine ${index}`, new URL('./engine.js', import.meta.url)),
  );
  const children = [...frontends, ...engines];
  const deadline = startDeadline();
  try {
    const work = conduct(options, frontends, engines);
    work.catch(() => {});
    const ended = stopped(stop).catch(async (reason) => {
      await Promise.all(children.map((child) => child.terminate()));
      throw reason;
    });
    return await Promise.race([work, ended, deadline.passed, ...children.map((child) => child.failure)]);
  } finally {
    deadline.cancel();
    for (const child of children) child.kill();
    progress.clear();
    for (const child of children) {
      if (child.stderr !== '') progress.note(`${child.name} wrote:\n${child.stderr}`);
    }
  }
}

async function conduct(options: Options, frontends: Child[], engines: Child[]): Promise<Outcome> {
  const children = [...frontends, ...engines];
  const showcase = longestRequest(options);
  const pieces = tokenise();
  for (const group of [frontends, engines]) {
    group.forEach((child, index) => {
      child.send({ kind: 'start', index, options, pieces, showcase });
    });
  }
  await introduce(frontends, engines);

  const startedAt = performance.now();
  for (const child of children) child.send({ kind: 'go' });
  const results = await Promise.all(frontends.map((frontend) => frontend.receive('received')));
  const wallMs = performance.now() - startedAt;

  const counts = engines.map((engine) => engine.receive('sent'));
  await Promise.all(children.map((child) => child.stop()));
  const sent = await Promise.all(counts);
  const measured = {
    tokens: sum(results.map((result) => result.tokens)),
    passes: sum(sent.map((engine) => engine.passes)),
    writes: sum(sent.map((engine) => engine.writes)),
    wallMs,
    firstTokenMs: results.flatMap((result) => result.firstTokenMs),
    interTokenMs: results.flatMap((result) => result.interTokenMs),
  };
  const due = predict(options).tokens;
  const tokensSent = sum(sent.map((engine) => engine.tokens));
  if (measured.tokens !== due || tokensSent !== due) {
    throw new Error(`${due} tokens were due, ${tokensSent} sent, ${measured.tokens} received`);
  }
  return { measured, showcase: { request: showcase, text: results.map((result) => result.showcaseText).join('') } };
}

/** Makes every frontend known to every engine and the other way around. */
async function introduce(frontends: Child[], engines: Child[]): Promise<void> {
  const addresses = (group: Child[]) => Promise.all(group.map(async (child) => (await child.receive('ready')).peer));
  const [frontendPeers, enginePeers] = await Promise.all([addresses(frontends), addresses(engines)]);
  for (const frontend of frontends) frontend.send({ kind: 'peers', peers: enginePeers });
  for (const engine of engines) engine.send({ kind: 'peers', peers: frontendPeers });
  await Promise.all([...frontends, ...engines].map((child) => child.receive('joined')));
}

function startDeadline(): { passed: Promise<never>; cancel: () => void } {
  let timer: NodeJS.Timeout | undefined;
  const passed = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not finished after ${DEADLINE_MS / 1000} seconds`)), DEADLINE_MS);
  });
  return { passed, cancel: () => clearTimeout(timer) };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
