// The memory that all threads of one node share: the counters of epochs and data handles, the drain gate, the metric cells, the bytes
// that lanes hold per peer, and those they keep in all. One worker writes a word of its own, any thread reads it. It holds no queue
// and wakes nobody.

import { VeloError } from '../errors.js';
import { MAX_LANES } from '../wire/names.js';
import { addToCell, CELL_WORDS, readCell, writeCell } from './cells.js';
import { buryHeldBytes, HeldBytes, heldRowWords, PEER_ROWS } from './held-bytes.js';
import { invariant } from './invariant.js';
import { SharedMemory } from './memory.js';

const LAYOUT_VERSION = 0x766e0007;
const VERSION = 0;
const LANES = 1;
const CELLS = 2;
const EPOCH = 16;
const GATE = 17;
const DATA_ID = 18;
const WATCHED = 19;
/** One word per lane: how often it came round. */
const BEATS = 32;
const BEAT_WORDS = 16;
/** A word per lane. */
const EVENTS_TAKEN = 64;
const EVENT_WORDS = 32;
/** Bytes that each lane has staged. */
const STAGED = 48;
const STAGED_WORDS = 16;
const HEADER_WORDS = EVENTS_TAKEN + EVENT_WORDS;
invariant(
  WATCHED < BEATS && BEATS + BEAT_WORDS <= STAGED && STAGED + STAGED_WORDS <= EVENTS_TAKEN,
  'the words of the node lie before those of its lanes',
);
/** The cells of a lane fill whole cache lines, so that two lanes never share one. */
const CELL_GRAIN = 8;
/** Words of a cache line: what a lane keeps in its queues has one for itself, and the table of held bytes starts with one. */
const LINE_WORDS = 16;

/** What a lane keeps for slots of its own node's senders, and for those of its readers. */
export const BUFFERED_OUT = 0;
export const BUFFERED_IN = 1;
export type BufferedSide = typeof BUFFERED_OUT | typeof BUFFERED_IN;
const MAX_BUFFERED = 0x7fff_ffff;

invariant(MAX_LANES <= BEAT_WORDS, 'every lane has a word to beat in');

function cellsPerLane(cells: number): number {
  return (cells + CELL_GRAIN - 1) & ~(CELL_GRAIN - 1);
}

/** First word behind the cells. */
function bufferedAt(lanes: number, cells: number): number {
  return HEADER_WORDS + lanes * cellsPerLane(cells) * CELL_WORDS;
}

export function createNodeBlock(lanes: number, cells: number): SharedArrayBuffer {
  if (lanes > EVENT_WORDS) throw new VeloError('ERR_INTERNAL', `a node block for ${lanes} lanes`);
  const words = bufferedAt(lanes, cells) + lanes * LINE_WORDS + PEER_ROWS * heldRowWords(lanes);
  const buffer = new SharedArrayBuffer(words * 4);
  const memory = new SharedMemory(buffer);
  memory.store(LANES, lanes);
  memory.store(CELLS, cells);
  memory.store(VERSION, LAYOUT_VERSION);
  return buffer;
}

export class NodeBlock {
  private readonly memory: SharedMemory;
  readonly lanes: number;
  private readonly stride: number;
  private readonly buffered: number;
  private readonly held: number;

  constructor(buffer: SharedArrayBuffer) {
    this.memory = new SharedMemory(buffer);
    if (this.memory.load(VERSION) !== LAYOUT_VERSION)
      throw new VeloError('ERR_CONDUIT_BROKEN', `node block has layout ${this.memory.load(VERSION)}`);
    this.lanes = this.memory.load(LANES);
    const cells = this.memory.load(CELLS);
    this.stride = cellsPerLane(cells) * CELL_WORDS;
    this.buffered = bufferedAt(this.lanes, cells);
    this.held = this.buffered + this.lanes * LINE_WORDS;
  }

  /** A fresh epoch, above every earlier one of this node. First value 1. */
  nextEpoch(): number {
    return (this.memory.add(EPOCH, 1) + 1) >>> 0;
  }

  /** A fresh local id for a data handle. First value 1; after 2^32 staged payloads, a petabyte at the least, ids start over. */
  nextDataId(): number {
    return (this.memory.add(DATA_ID, 1) + 1) >>> 0;
  }

  /** Adds to what a lane has staged, unless all lanes together would be above `limit`. Only the lane's own thread may call it. */
  reserveStaged(lane: number, bytes: number, limit: number): boolean {
    this.memory.add(STAGED + lane, bytes);
    let sum = 0;
    for (let i = 0; i < this.lanes; i++) sum += this.memory.load(STAGED + i) >>> 0;
    if (sum <= limit) return true;
    this.memory.add(STAGED + lane, -bytes);
    return false;
  }

  releaseStaged(lane: number, bytes: number): void {
    this.memory.add(STAGED + lane, -bytes);
  }

  clearStaged(lane: number): void {
    this.memory.store(STAGED + lane, 0);
  }

  /** From now on every lane refuses new requests, except those that let open work end. There is no way back. */
  closeGate(): void {
    this.memory.store(GATE, 1);
  }

  /** The node drains. */
  get isGateClosed(): boolean {
    return this.memory.load(GATE) !== 0;
  }

  /** The lane came round: whoever watches it sees that it lives. Only the lane itself may call it. */
  beat(lane: number): void {
    this.memory.add(BEATS + lane, 1);
  }

  /** Moves whenever the lane comes round. */
  beats(lane: number): number {
    return this.memory.load(BEATS + lane);
  }

  /** Kinds of events that main has subscribers for; lanes tell it of no other. Only main writes it. */
  watch(kinds: number): void {
    this.memory.store(WATCHED, kinds);
  }

  get watched(): number {
    return this.memory.load(WATCHED);
  }

  /** Main took an event of the lane. */
  takeEvent(lane: number): void {
    this.memory.add(EVENTS_TAKEN + lane, 1);
  }

  /** Events of the lane that main took since the start, modulo 2^32. */
  eventsTaken(lane: number): number {
    return this.memory.load(EVENTS_TAKEN + lane);
  }

  /** Adds to a cell. Only the lane's own thread may call it. */
  addCell(lane: number, cell: number, n: number): void {
    addToCell(this.memory, this.at(lane, cell), n);
  }

  /** Sets a gauge cell. Only the lane's own thread may call it, or whoever buried that thread. */
  setCell(lane: number, cell: number, value: number): void {
    writeCell(this.memory, this.at(lane, cell), value);
  }

  /** Reads a cell of one lane, from any thread. */
  readCell(lane: number, cell: number): number {
    return readCell(this.memory, this.at(lane, cell));
  }

  /** The sum of a cell over all lanes. */
  total(cell: number): number {
    let sum = 0;
    for (let lane = 0; lane < this.lanes; lane++) sum += this.readCell(lane, cell);
    return sum;
  }

  /** The share of `lane` in what all lanes may hold for a peer. */
  heldBytes(peer: number, lane: number, limit: number): HeldBytes {
    if (!(peer >= 0 && peer < PEER_ROWS)) throw new VeloError('ERR_CONDUIT_BROKEN', `there is no row for peer ${peer}`);
    return new HeldBytes(this.memory, this.held + peer * heldRowWords(this.lanes), this.lanes, lane, limit);
  }

  /** What a lane keeps in queues of its slots. Only the lane's own thread may call it. */
  setBuffered(lane: number, side: BufferedSide, bytes: number): void {
    this.memory.store(this.buffered + lane * LINE_WORDS + side, Math.min(bytes, MAX_BUFFERED));
  }

  /** What all lanes keep in queues of their slots. */
  bufferedBytes(side: BufferedSide): number {
    let sum = 0;
    for (let lane = 0; lane < this.lanes; lane++) sum += this.memory.load(this.buffered + lane * LINE_WORDS + side);
    return sum;
  }

  /** A lane is dead, its thread has ended, and none has taken its place yet: it keeps nothing any more. */
  buryBytes(lane: number): void {
    buryHeldBytes(this.memory, this.held, this.lanes, lane);
    this.setBuffered(lane, BUFFERED_OUT, 0);
    this.setBuffered(lane, BUFFERED_IN, 0);
    this.clearStaged(lane);
  }

  private at(lane: number, cell: number): number {
    return HEADER_WORDS + lane * this.stride + cell * CELL_WORDS;
  }
}
