// The command line: names, defaults, bounds, help. Pure: it reads arguments and throws, it prints and exits nothing.

import { parseArgs } from 'node:util';
import type { Workload } from './workload.js';

export type Policy = 'auto' | 'manual';
export type Host = 'piscina' | 'inline';

export interface Options extends Workload {
  readonly policy: Policy;
  readonly host: Host;
  readonly lanes: number;
  readonly passDelayMs: number;
  readonly busyMs: number;
  readonly json: boolean;
  readonly help: boolean;
}

/** A mistake on the command line. The message names the option. */
export class OptionError extends Error {
  override readonly name = 'OptionError';
}

export const HELP = `forward-pass: 2 decode engines stream tokens to 3 frontends, all separate processes

usage: npm run demo -- [options]
       node dist/examples/forward-pass.js [options]

  --policy auto|manual    who decides when a batch is written (manual)
  --engines N             decode engines, 1 to 16 (2)
  --requests N            requests in total, 1 to 10000 (24)
  --max-batch N           requests an engine decodes at once, 1 to 4096 (8)
  --tokens N              budgets cycle through 1 to N tokens, 1 to 10000 (40)
  --pass-delay-ms N       pause after each forward pass, 0 to 1000 (1)
  --busy-ms N             CPU time each pass burns before and between its sends, 0 to 1000 (1)
  --lanes N               connections and worker threads per process, 1 to 16 (1)
  --host piscina|inline   where the lanes run: worker threads, or the main thread (piscina)
  --json                  print one JSON object on standard output and nothing else there
  --help                  print this
`;

const FLAGS = {
  policy: { type: 'string', default: 'manual' },
  engines: { type: 'string', default: '2' },
  requests: { type: 'string', default: '24' },
  'max-batch': { type: 'string', default: '8' },
  tokens: { type: 'string', default: '40' },
  'pass-delay-ms': { type: 'string', default: '1' },
  'busy-ms': { type: 'string', default: '1' },
  lanes: { type: 'string', default: '1' },
  host: { type: 'string', default: 'piscina' },
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
} as const;

export function parseOptions(args: readonly string[]): Options {
  const values = readFlags(args);
  return {
    policy: oneOf('policy', values.policy, ['auto', 'manual']),
    engines: wholeNumber('engines', values.engines, 1, 16),
    requests: wholeNumber('requests', values.requests, 1, 10_000),
    maxBatch: wholeNumber('max-batch', values['max-batch'], 1, 4096),
    tokens: wholeNumber('tokens', values.tokens, 1, 10_000),
    passDelayMs: wholeNumber('pass-delay-ms', values['pass-delay-ms'], 0, 1000),
    busyMs: wholeNumber('busy-ms', values['busy-ms'], 0, 1000),
    lanes: wholeNumber('lanes', values.lanes, 1, 16),
    host: oneOf('host', values.host, ['piscina', 'inline']),
    json: values.json,
    help: values.help,
  };
}

function readFlags(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: FLAGS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw new OptionError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function wholeNumber(name: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < min || value > max) {
    throw new OptionError(`--${name} must be a whole number from ${min} to ${max}, not ${JSON.stringify(text)}`);
  }
  return value;
}

function oneOf<T extends string>(name: string, text: string, allowed: readonly T[]): T {
  const found = allowed.find((candidate) => candidate === text);
  if (found === undefined) {
    throw new OptionError(`--${name} must be ${allowed.join(' or ')}, not ${JSON.stringify(text)}`);
  }
  return found;
}
