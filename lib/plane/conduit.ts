// The layout of the memory that one client thread shares with one worker (a conduit), and of the memory that one client thread
// shares with all workers of its node (its rows). Both sides build their view from the same constants; the version word is
// checked at hand-over. Nothing here decides anything.

import { VeloError } from '../errors.js';
import { DOORBELL_WORDS, Doorbell, MUTE_WORDS, Mute } from './doorbell.js';
import { invariant } from './invariant.js';
import { SharedMemory } from './memory.js';
import { checkRingCapacity, RING_HEADER_WORDS, RingConsumer, RingProducer, ringWords } from './ring.js';
import { ROW_SET_GRAIN, RowSet, rowSetWords } from './row-set.js';
import { ReceiverRows, ROW_WORDS, SenderRows } from './rows.js';

/** Raised with every change of a layout: two copies of the package in one process must not share memory by accident. */
const LAYOUT_VERSION = 0x766d0001;

const VERSION = 0;
const RING_BYTES = 1;
const ROWS = 2;
const HEADER_WORDS = 16;
const CACHE_LINE_WORDS = 16;

invariant(
  HEADER_WORDS % CACHE_LINE_WORDS === 0 && DOORBELL_WORDS % CACHE_LINE_WORDS === 0,
  'parts start on cache lines',
);
invariant(
  RING_HEADER_WORDS % CACHE_LINE_WORDS === 0 && ROW_WORDS % CACHE_LINE_WORDS === 0,
  'rings and rows fill cache lines',
);

/** Sizes both sides must agree on. */
export interface PlaneSizes {
  /** Capacity of each ring, a power of two. Default 256 KiB. */
  ringBytes: number;
  /** Sender rows and receiver rows per client thread, a multiple of 1,024, at most 65,536. */
  rows: number;
}

export const DEFAULT_RING_BYTES = 256 * 1024;
export const MAX_ROWS = 65_536;

export function checkPlaneSizes(sizes: PlaneSizes): void {
  checkRingCapacity(sizes.ringBytes);
  if (
    !Number.isInteger(sizes.rows) ||
    sizes.rows < ROW_SET_GRAIN ||
    sizes.rows > MAX_ROWS ||
    sizes.rows % ROW_SET_GRAIN
  )
    throw new VeloError(
      'ERR_INVALID_ARGUMENT',
      `rows must be a multiple of ${ROW_SET_GRAIN} up to ${MAX_ROWS}, got ${sizes.rows}`,
    );
}

/** What one side laid out, the other side checks: version, sizes, and that nothing is missing. */
function checkLayout(memory: SharedMemory, words: number, sizes: PlaneSizes, what: string): void {
  if (memory.load(VERSION) !== LAYOUT_VERSION)
    throw new VeloError('ERR_CONDUIT_BROKEN', `${what} has layout ${memory.load(VERSION)}, expected ${LAYOUT_VERSION}`);
  const sameSizes = memory.load(ROWS) === sizes.rows && memory.load(RING_BYTES) === sizes.ringBytes;
  if (!sameSizes || memory.words.length !== words)
    throw new VeloError('ERR_CONDUIT_BROKEN', `${what} was laid out with other sizes`);
}

function create(words: number, sizes: PlaneSizes): SharedArrayBuffer {
  checkPlaneSizes(sizes);
  const buffer = new SharedArrayBuffer(words * 4);
  const memory = new SharedMemory(buffer);
  memory.store(RING_BYTES, sizes.ringBytes);
  memory.store(ROWS, sizes.rows);
  memory.store(VERSION, LAYOUT_VERSION);
  return buffer;
}

// ---- rows of a client thread -----------------------------------------------------------------------------------------

function clientRowsWords(sizes: PlaneSizes): number {
  return HEADER_WORDS + 2 * sizes.rows * ROW_WORDS;
}

export function createClientRows(sizes: PlaneSizes): SharedArrayBuffer {
  return create(clientRowsWords(sizes), sizes);
}

/** A view of a client thread's rows. */
export class ClientRows {
  readonly senders: SenderRows;
  readonly receivers: ReceiverRows;

  constructor(buffer: SharedArrayBuffer, sizes: PlaneSizes) {
    const memory = new SharedMemory(buffer);
    checkLayout(memory, clientRowsWords(sizes), sizes, 'client rows');
    this.senders = new SenderRows(memory, HEADER_WORDS, sizes.rows);
    this.receivers = new ReceiverRows(memory, HEADER_WORDS + sizes.rows * ROW_WORDS, sizes.rows);
  }
}

// ---- conduit ---------------------------------------------------------------------------------------------------------

function layout(sizes: PlaneSizes) {
  const egress = HEADER_WORDS;
  const ingress = egress + ringWords(sizes.ringBytes);
  const workerBell = ingress + ringWords(sizes.ringBytes);
  const clientBell = workerBell + DOORBELL_WORDS;
  const drainMute = clientBell + DOORBELL_WORDS;
  const drains = drainMute + MUTE_WORDS;
  const endings = drains + rowSetWords(sizes.rows);
  const attention = endings + rowSetWords(sizes.rows);
  const words = attention + rowSetWords(sizes.rows);
  return { egress, ingress, workerBell, clientBell, drainMute, drains, endings, attention, words };
}

export function createConduit(sizes: PlaneSizes): SharedArrayBuffer {
  return create(layout(sizes).words, sizes);
}

/** What either end of a conduit sees, whichever ends of the rings it holds. */
class ConduitView {
  readonly memory: SharedMemory;
  /** Wakes the worker. */
  readonly workerBell: Doorbell;
  /** Wakes the client. */
  readonly clientBell: Doorbell;
  /** Receiver rows with drains or requests, client → worker. */
  readonly drains: RowSet;
  /** Set by the worker while a visit to the drained rows is queued: nobody needs to ring for them. */
  readonly drainMute: Mute;
  /** Sender rows with an ending, client → worker. */
  readonly endings: RowSet;
  /** Sender rows with new flags or room, worker → client. */
  readonly attention: RowSet;
  protected readonly at: ReturnType<typeof layout>;

  constructor(buffer: SharedArrayBuffer, sizes: PlaneSizes) {
    this.memory = new SharedMemory(buffer);
    this.at = layout(sizes);
    checkLayout(this.memory, this.at.words, sizes, 'conduit');
    this.workerBell = new Doorbell(this.memory, this.at.workerBell);
    this.clientBell = new Doorbell(this.memory, this.at.clientBell);
    this.drains = new RowSet(this.memory, this.at.drains, sizes.rows);
    this.drainMute = new Mute(this.memory, this.at.drainMute);
    this.endings = new RowSet(this.memory, this.at.endings, sizes.rows);
    this.attention = new RowSet(this.memory, this.at.attention, sizes.rows);
  }
}

/** The client's end: it writes the egress ring and reads the ingress ring. */
export class ClientConduit extends ConduitView {
  readonly egress: RingProducer;
  readonly ingress: RingConsumer;

  constructor(buffer: SharedArrayBuffer, sizes: PlaneSizes) {
    super(buffer, sizes);
    this.egress = new RingProducer(this.memory, this.at.egress, sizes.ringBytes);
    this.ingress = new RingConsumer(this.memory, this.at.ingress, sizes.ringBytes);
  }
}

/** The worker's end: it reads the egress ring and writes the ingress ring. */
export class WorkerConduit extends ConduitView {
  readonly egress: RingConsumer;
  readonly ingress: RingProducer;

  constructor(buffer: SharedArrayBuffer, sizes: PlaneSizes) {
    super(buffer, sizes);
    this.egress = new RingConsumer(this.memory, this.at.egress, sizes.ringBytes);
    this.ingress = new RingProducer(this.memory, this.at.ingress, sizes.ringBytes);
  }
}
