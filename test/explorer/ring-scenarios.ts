// The programs around one ring: a producer, a sleeping consumer, records that wrap, a ring that is full, kicks.

import type { Memory } from '../../lib/plane/memory.js';
import { RingProducer } from '../../lib/plane/ring.js';
import type { Scenario } from './explorer.js';
import { checkTrace, consume, produce, RING, RING_BYTES, RING_WORDS, type RingParts, type Step } from './models.js';

export interface RingProgram {
  script: readonly Step[];
  /** Where head and tail stand before the threads start. Default 0. */
  start?: number;
  /** Unread records of `FILL_BYTES` that stand in the ring already. */
  filled?: number;
  /** Records per turn of the consumer. */
  turn?: number;
}

/** A body whose record takes an eighth of the ring. */
export const FILL_BYTES = RING_BYTES / 8 - 8;
const HEAD_WORD = RING;
const TAIL_WORD = RING + 16;

/** Head and tail near the end of the data area, and of the range of a 32-bit counter. */
export const BEFORE_BOTH_ENDS = -24;

/** One producer, one consumer, one ring. */
export function ringScenario(program: RingProgram, parts: RingParts): Scenario<string[]> {
  const { script, start = 0, filled = 0, turn = Number.POSITIVE_INFINITY } = program;
  const fill = new Array<Step>(filled).fill(FILL_BYTES);
  const whole = [...fill, ...script];
  return {
    words: RING_WORDS,
    setup: (memory) => {
      memory.store(HEAD_WORD, start);
      memory.store(TAIL_WORD, start);
      if (filled > 0) fillRing(memory, filled);
    },
    threads: [(memory) => produce(memory, parts, script, filled), (memory) => consume(memory, parts, whole, turn)],
    check: ([, trace]) => checkTrace(whole, trace!),
  };
}

function fillRing(memory: Memory, records: number): void {
  const ring = new RingProducer(memory, RING, RING_BYTES);
  for (let n = 0; n < records; n++) {
    const at = ring.reserve(1, n, FILL_BYTES);
    const body = Uint8Array.from({ length: FILL_BYTES }, (_, i) => n * 31 + i + 1);
    memory.copyIn(at, body, 0, FILL_BYTES);
    ring.commit();
  }
  ring.publish();
}

/** A wish for room in a ring that is drained by a consumer which sleeps only on its own bell. */
export const ROOM: RingProgram = { script: [FILL_BYTES, FILL_BYTES], filled: 7, turn: 3 };
export const UNPUBLISHED: RingProgram = { script: new Array<Step>(9).fill(FILL_BYTES) };
export const WRAP: RingProgram = { script: [0, 9, 'publish', 17, 4], start: BEFORE_BOTH_ENDS };
export const SLEEP: RingProgram = { script: [4, 'publish', 0, 8] };
export const KICKS: RingProgram = { script: [0, 'kick', 4, 0, 'kick', 'kick', 0, 'kick'] };
export const KICKS_IN_TURNS: RingProgram = { script: [0, 0, 'kick', 0, 'publish', 0, 'kick'], turn: 1 };
export const KICK_FIRST: RingProgram = { script: ['kick', 0, 'publish', 0, 'kick', 'kick'] };
export const KICKS_AND_WRAP: RingProgram = { script: [9, 'kick', 17, 'kick'], start: BEFORE_BOTH_ENDS };
