// Owns the reading of CPU time: of this process, of its main thread alone, and of the whole machine.
// Must never start anything or keep state; every reading is a plain number that the caller subtracts from a later one.

import { readFileSync } from 'node:fs';

/** One reading of a process. Times are totals since its start; `hrNs` is CLOCK_MONOTONIC, one clock for all processes. */
export interface CpuSnapshot {
  /** User and system time of all threads, microseconds. */
  readonly processUs: number;
  /** CPU time of the main thread alone, nanoseconds; null where the system does not tell (anything but Linux). */
  readonly mainThreadNs: number | null;
  readonly hrNs: bigint;
}

/** One reading of the machine: CPU seconds that were not idle, over all cores. */
export interface MachineSnapshot {
  readonly busySeconds: number;
  readonly hrNs: bigint;
}

/** Unit of /proc/stat (USER_HZ), the same on every Linux that Node supports. */
const TICKS_PER_SECOND = 100;

/**
 * The main thread's own CPU time in nanoseconds: first field of its `schedstat`. The main thread's id is the process's id.
 * The kernel adds the running slice at a tick or a switch, so a reading may lag by a few milliseconds.
 */
export function mainThreadCpuNs(): number | null {
  if (process.platform !== 'linux') return null;
  try {
    const first = readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ', 1)[0];
    const value = Number(first);
    return Number.isFinite(value) && value > 0 ? value : null;
  } catch {
    return null; // a kernel without schedstats, or a hidden /proc
  }
}

export function snapshotCpu(): CpuSnapshot {
  const { user, system } = process.cpuUsage();
  return { processUs: user + system, mainThreadNs: mainThreadCpuNs(), hrNs: process.hrtime.bigint() };
}

/** Null where /proc/stat is missing. Steal counts as busy: it is time that the measured processes could not have. */
export function snapshotMachine(): MachineSnapshot | null {
  try {
    const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0]!;
    const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = line
      .trim()
      .split(/\s+/)
      .slice(1)
      .map(Number);
    const ticks = user + nice + system + irq + softirq + steal;
    return { busySeconds: ticks / TICKS_PER_SECOND, hrNs: process.hrtime.bigint() };
  } catch {
    return null;
  }
}

/** Cores that others kept busy between two readings, `ownSeconds` being the CPU seconds of the measured processes. */
export function othersCores(
  before: MachineSnapshot | null,
  after: MachineSnapshot | null,
  ownSeconds: number,
): number | null {
  if (before === null || after === null) return null;
  const wallSeconds = Number(after.hrNs - before.hrNs) / 1e9;
  return wallSeconds <= 0 ? null : Math.max(0, after.busySeconds - before.busySeconds - ownSeconds) / wallSeconds;
}
