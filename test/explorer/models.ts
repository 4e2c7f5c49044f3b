// What the owners of the plane's structures do with them, reduced to the accesses that matter: going to sleep on a bell, a
// client that writes a ring, a lane that drains it. The structures themselves are parameters, so that a planted bug runs in the
// same program as what ships.

import { Doorbell } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import { RingConsumer, RingProducer, ringWords } from '../../lib/plane/ring.js';

export const RING_BYTES = 1024;
export const RING = 0;
export const CONSUMER_BELL = RING + ringWords(RING_BYTES);
export const PRODUCER_BELL = CONSUMER_BELL + 16;
/** Words behind this one are the scenario's own. */
export const RING_WORDS = PRODUCER_BELL + 16;

/** Park, look once more, wait. What wakes it cleared the mark already. */
export function sleep(memory: Memory, bell: Doorbell, hasWork: () => boolean): void {
  const value = bell.park();
  if (hasWork()) bell.unpark();
  else memory.wait(bell.bellWord, value, Number.POSITIVE_INFINITY);
}

/** How a client and a lane use a ring. */
export interface RingParts {
  producer: typeof RingProducer;
  consumer: typeof RingConsumer;
  bell: typeof Doorbell;
  sleep: typeof sleep;
  /** A send that fails publishes what stands in front of it first. */
  publishBeforeWaiting: boolean;
  /** After saying that it wants room, the producer looks again. */
  lookAfterWish: boolean;
  /** Between parking and waiting, the producer looks whether room came. */
  lookForRoom: boolean;
  /** Publish first, then ring. */
  ringAfterPublish: boolean;
  /** The consumer gets a turn from somewhere else while its wait stands, and does not park again after it. */
  turnWhileParked: boolean;
}

export const SHIPPED: RingParts = {
  producer: RingProducer,
  consumer: RingConsumer,
  bell: Doorbell,
  sleep,
  publishBeforeWaiting: true,
  lookAfterWish: true,
  lookForRoom: true,
  ringAfterPublish: true,
  turnWhileParked: false,
};

/** A record of so many bytes, a publish, or a kick. What is left at the end is published. */
export type Step = number | 'publish' | 'kick';

/** The bytes of the record with number `n`. */
export function bodyOf(n: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => n * 31 + i + 1);
}

/** The client: writes what the script says, and sleeps on its own bell while the ring is full. */
export function produce(memory: Memory, parts: RingParts, script: readonly Step[], first = 0): string[] {
  const ring = new parts.producer(memory, RING, RING_BYTES);
  const consumerBell = new parts.bell(memory, CONSUMER_BELL);
  const ownBell = new parts.bell(memory, PRODUCER_BELL);
  const publish = (): void => {
    if (!parts.ringAfterPublish && ring.hasUnpublished) consumerBell.ring();
    if (ring.publish() && parts.ringAfterPublish) consumerBell.ring();
  };
  const makeRoom = (n: number, length: number): number => {
    for (;;) {
      const at = ring.reserve(1, n, length);
      if (at >= 0) return at;
      if (parts.publishBeforeWaiting) publish();
      ring.wantRoom();
      const again = parts.lookAfterWish ? ring.reserve(1, n, length) : -1;
      if (again >= 0) return again;
      parts.sleep(memory, ownBell, () => parts.lookForRoom && ring.roomCame());
    }
  };
  let n = first;
  for (const step of script) {
    if (step === 'publish') publish();
    else if (step === 'kick') {
      ring.kick();
      consumerBell.ring();
    } else {
      const at = makeRoom(n, step);
      memory.copyIn(at, bodyOf(n, step), 0, step);
      ring.commit();
      n++;
    }
  }
  publish();
  return [];
}

/** The lane: drains the ring in turns of at most `turn` records, and returns what it saw: record numbers and flushes. */
export function consume(memory: Memory, parts: RingParts, script: readonly Step[], turn: number, first = 0): string[] {
  const ring = new parts.consumer(memory, RING, RING_BYTES);
  const ownBell = new parts.bell(memory, CONSUMER_BELL);
  const producerBell = new parts.bell(memory, PRODUCER_BELL);
  const lengths = script.filter((step) => typeof step === 'number');
  const endsWithKick = script.at(-1) === 'kick';
  const trace: string[] = [];
  let seen = 0;
  let standing: number | undefined;
  const rest = (): void => {
    if (!parts.turnWhileParked) parts.sleep(memory, ownBell, () => ring.hasWork());
    else if (standing === undefined) {
      standing = ownBell.park();
      if (!ring.hasWork()) return;
      ownBell.unpark();
      standing = undefined;
    } else {
      memory.wait(ownBell.bellWord, standing, Number.POSITIVE_INFINITY);
      standing = undefined;
    }
  };
  for (;;) {
    ring.refresh();
    let left = turn;
    while (left > 0 && ring.next()) {
      left--;
      if (ring.kicked) trace.push('flush');
      checkRecord(memory, ring, first + seen, lengths[seen]);
      trace.push(`${seen++}`);
    }
    if (left > 0 && ring.kickAtTail()) trace.push('flush');
    if (ring.release()) producerBell.ring();
    if (seen === lengths.length && (!endsWithKick || trace.at(-1) === 'flush')) return trace;
    if (left > 0) rest();
  }
}

function checkRecord(memory: Memory, ring: RingConsumer, n: number, length: number | undefined): void {
  if (ring.kind !== 1 || ring.tag !== n || ring.length !== length)
    throw new Error(`record ${n} of ${length} bytes came as ${ring.tag}, ${ring.length} bytes, kind ${ring.kind}`);
  const body = new Uint8Array(length);
  memory.copyOut(ring.offset, body, 0, length);
  const expected = bodyOf(n, length);
  for (let i = 0; i < length; i++) if (body[i] !== expected[i]) throw new Error(`record ${n} is torn at byte ${i}`);
}

/**
 * Every record came once and in order, a flush came at every kick with records before it, none came anywhere else, and none
 * came without a kick of its own. Kicks with nothing between them may be one.
 */
export function checkTrace(script: readonly Step[], trace: readonly string[]): void {
  const kicksAt = new Map<number, number>();
  const needed = new Set<number>();
  let records = 0;
  let last = 0;
  for (const step of script) {
    if (typeof step === 'number') records++;
    if (step !== 'kick') continue;
    kicksAt.set(records, (kicksAt.get(records) ?? 0) + 1);
    if (records > last) needed.add(records);
    last = records;
  }
  let seen = 0;
  const wrong = (what: string): Error => new Error(`${what} in ${trace.join(' ')} of ${script.join(' ')}`);
  for (const step of trace) {
    if (step === 'flush') {
      const left = kicksAt.get(seen) ?? 0;
      if (left === 0) throw wrong(`a flush without a kick after ${seen} records`);
      kicksAt.set(seen, left - 1);
      needed.delete(seen);
    } else if (step !== `${seen++}`) throw wrong(`record ${step} in place of ${seen - 1}`);
  }
  if (seen !== records) throw wrong(`${seen} of ${records} records`);
  if (needed.size > 0) throw wrong(`no flush after record ${[...needed].join(', ')}`);
}
