// One process of a benchmark run, seen from outside: which program it is, and how it is ended.

import { fileURLToPath } from 'node:url';
import type { PeerInfoJson } from '../../../lib/index.js';
import { PROFILE_ENV } from '../../../native-free-bench/profile-env.js';
import { LineProcess } from '../line-process.js';

const NODE_SIDE = fileURLToPath(new URL('./node-side.js', import.meta.url));
const EXIT_GRACE_MS = 3_000;

/** `velo` is the real one; the others are this project's, by the host of its lane. */
export type SideKind = 'velo' | 'velomux' | 'inline';

/** A handle's halves as decimal text: JSON numbers do not hold them. */
export interface HandleText {
  readonly hi: string;
  readonly lo: string;
}

/** What a sink saw of one phase. Times are CLOCK_MONOTONIC. */
export interface Receipt {
  readonly total: number;
  readonly wrong: number;
  readonly firstNs: number;
  readonly lastNs: number;
  readonly p50Us: number | null;
  readonly p99Us: number | null;
}

export class Side {
  private readonly line: LineProcess;

  constructor(
    readonly kind: SideKind,
    /** The velo side's program. */
    rustProgram: string,
    profiled: boolean,
  ) {
    const env = { ...process.env, ...(profiled ? { [PROFILE_ENV]: '1' } : {}) };
    const profiling = profiled ? ['--cpu-prof', '--cpu-prof-dir=.'] : [];
    this.line =
      kind === 'velo'
        ? new LineProcess(kind, rustProgram, ['bench'])
        : new LineProcess(kind, process.execPath, [...profiling, NODE_SIDE], { env });
  }

  start(credit: number): Promise<PeerInfoJson> {
    return this.ask<PeerInfoJson>('start', { credit, host: this.kind === 'inline' ? 'inline' : 'piscina' });
  }

  ask<T = unknown>(op: string, args: unknown = {}): Promise<T> {
    return this.line.ask<T>(op, args);
  }

  /** Ends the process, if it does not end by itself once nothing more is asked. */
  async end(): Promise<void> {
    const { child, exited } = this.line;
    child.stdin!.end();
    const timer = setTimeout(() => child.kill('SIGKILL'), EXIT_GRACE_MS);
    await exited;
    clearTimeout(timer);
  }
}
