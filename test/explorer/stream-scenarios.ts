// One sender row from its open command to its ending: the records travel in the ring, the ending stands in the row and is only
// named by a row set. And the cells of the metrics, read while they are written.

import { CELL_WORDS } from '../../lib/plane/cells.js';
import { Doorbell } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import { RingConsumer, RingProducer } from '../../lib/plane/ring.js';
import { RowSet } from '../../lib/plane/row-set.js';
import { ENDING_FINALIZED, ENDING_NONE, ROW_WORDS, SenderRows } from '../../lib/plane/rows.js';
import type { Scenario } from './explorer.js';
import { CONSUMER_BELL, RING, RING_BYTES, RING_WORDS, sleep } from './models.js';
import type { CellParts } from './mutants.js';

export interface StreamParts {
  /** An open looks at the row: its ending may have been named before the open was read. */
  lookAtOpen: boolean;
  /** At a kick, endings are taken once more before the flush. */
  endingsAtKick: boolean;
}

export const SHIPPED_STREAM: StreamParts = { lookAtOpen: true, endingsAtKick: true };

const ENDINGS = RING_WORDS;
const TABLE = ENDINGS + 64;
const ROWS = 2;
const ROW = 1;
const SET_ROWS = 1024;
const OPEN = 2;
const DATA = 1;

export interface StreamProgram {
  records: number;
  /** What the client does after the ending: nothing, or a flush that must cover it. */
  kick: boolean;
}

function client(memory: Memory, program: StreamProgram): string[] {
  const ring = new RingProducer(memory, RING, RING_BYTES);
  const rows = new SenderRows(memory, TABLE, ROWS);
  const endings = new RowSet(memory, ENDINGS, SET_ROWS);
  const bell = new Doorbell(memory, CONSUMER_BELL);
  const send = (kind: number): void => {
    ring.reserve(kind, ROW, 0);
    ring.commit();
  };
  rows.allocate(ROW);
  send(OPEN);
  ring.publish();
  bell.ring();
  for (let n = 0; n < program.records; n++) send(DATA);
  rows.end(ROW, ENDING_FINALIZED, program.records);
  // Behind unpublished records the ending goes with them; their publish rings.
  if (endings.add(ROW) && !ring.hasUnpublished) bell.ring();
  if (program.kick) ring.kick();
  else ring.publish();
  bell.ring();
  return [];
}

class LaneModel {
  readonly trace: string[] = [];
  private readonly ring: RingConsumer;
  private readonly rows: SenderRows;
  private readonly endings: RowSet;
  private readonly taken = new Int32Array(SET_ROWS);
  private open = false;
  private accepted = 0;
  private endsAt = -1;

  constructor(
    memory: Memory,
    private readonly parts: StreamParts,
  ) {
    this.ring = new RingConsumer(memory, RING, RING_BYTES);
    this.rows = new SenderRows(memory, TABLE, ROWS);
    this.endings = new RowSet(memory, ENDINGS, SET_ROWS);
  }

  drain(): void {
    const any = this.ring.refresh();
    this.takeEndings();
    while (any && this.ring.next()) {
      if (this.ring.kicked) this.trace.push('flush');
      if (this.ring.kind === OPEN) {
        this.trace.push('open');
        this.open = true;
        if (this.parts.lookAtOpen) this.lookAtRow();
      } else {
        this.trace.push('record');
        this.accepted++;
        this.endIfReached();
      }
    }
    if (this.ring.kickAtTail()) {
      if (this.parts.endingsAtKick) this.takeEndings();
      this.trace.push('flush');
    }
    this.ring.release();
  }

  hasWork(): boolean {
    return this.ring.hasWork() || !this.endings.isEmpty();
  }

  private takeEndings(): void {
    if (this.endings.take(this.taken) > 0 && this.open) this.lookAtRow();
  }

  private lookAtRow(): void {
    if (this.rows.ending(ROW) === ENDING_NONE) return;
    this.endsAt = this.rows.endingCount(ROW);
    this.endIfReached();
  }

  private endIfReached(): void {
    if (this.accepted === this.endsAt && !this.trace.includes('end')) this.trace.push('end');
  }
}

/** The ending comes once, after the last record, and before the flush that was asked for behind it. */
export function endingScenario(program: StreamProgram, parts: StreamParts): Scenario<string[]> {
  const expected = ['open', ...new Array<string>(program.records).fill('record'), 'end'];
  if (program.kick) expected.push('flush');
  return {
    words: TABLE + ROWS * ROW_WORDS,
    threads: [
      (memory) => client(memory, program),
      (memory) => {
        const lane = new LaneModel(memory, parts);
        const bell = new Doorbell(memory, CONSUMER_BELL);
        while (lane.trace.length < expected.length) {
          lane.drain();
          if (lane.trace.length < expected.length) sleep(memory, bell, () => lane.hasWork());
        }
        return lane.trace;
      },
    ],
    check: ([, trace]) => {
      if (trace!.join() !== expected.join()) throw new Error(`${trace!.join(' ')} in place of ${expected.join(' ')}`);
    },
  };
}

const JUST_BELOW = 0xffff_fffe;

/** A cell crosses 2^32 while somebody reads it twice: every value read is one that it had. */
export function cellScenario(adds: readonly number[], parts: CellParts): Scenario<number[]> {
  const had = [JUST_BELOW];
  for (const n of adds) had.push(had.at(-1)! + n);
  return {
    words: CELL_WORDS,
    setup: (memory) => memory.store(0, JUST_BELOW | 0),
    threads: [
      (memory) => {
        for (const n of adds) parts.add(memory, 0, n);
        return [];
      },
      (memory) => [parts.read(memory, 0), parts.read(memory, 0)],
    ],
    check: ([, values], memory) => {
      if (parts.read(memory, 0) !== had.at(-1)) throw new Error(`the cell ends at ${parts.read(memory, 0)}`);
      for (const value of values!) if (!had.includes(value)) throw new Error(`the cell never was ${value}`);
    },
  };
}
