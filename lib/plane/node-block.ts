// The memory that all threads of one node share: the counters of epochs and data handles, the drain gate, and the metric cells.
// One worker writes a metric cell, any thread reads it. It holds no queue and wakes nobody.

import { VeloError } from '../errors.js';
import { MAX_LANES } from '../wire/names.js';
import { addToCell, CELL_WORDS, readCell, writeCell } from './cells.js';
import { invariant } from './invariant.js';
import { SharedMemory } from './memory.js';

const LAYOUT_VERSION = 0x766e0004;
const VERSION = 0;
const LANES = 1;
const CELLS = 2;
const EPOCH = 16;
const GATE = 17;
const DATA_ID = 18;
/** One word per lane: how often it came round. */
const BEATS = 32;
const BEAT_WORDS = 16;
const HEADER_WORDS = BEATS + BEAT_WORDS;
/** The cells of a lane fill whole cache lines, so that two lanes never share one. */
const CELL_GRAIN = 8;

invariant(MAX_LANES <= BEAT_WORDS, 'every lane has a word to beat in');

function cellsPerLane(cells: number): number {
  return (cells + CELL_GRAIN - 1) & ~(CELL_GRAIN - 1);
}

export function createNodeBlock(lanes: number, cells: number): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer((HEADER_WORDS + lanes * cellsPerLane(cells) * CELL_WORDS) * 4);
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

  constructor(buffer: SharedArrayBuffer) {
    this.memory = new SharedMemory(buffer);
    if (this.memory.load(VERSION) !== LAYOUT_VERSION)
      throw new VeloError('ERR_CONDUIT_BROKEN', `node block has layout ${this.memory.load(VERSION)}`);
    this.lanes = this.memory.load(LANES);
    this.stride = cellsPerLane(this.memory.load(CELLS)) * CELL_WORDS;
  }

  /** A fresh epoch, above every earlier one of this node. First value 1. */
  nextEpoch(): number {
    return (this.memory.add(EPOCH, 1) + 1) >>> 0;
  }

  /** A fresh local id for a data handle. First value 1; after 2^32 staged payloads, a petabyte at the least, ids start over. */
  nextDataId(): number {
    return (this.memory.add(DATA_ID, 1) + 1) >>> 0;
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

  private at(lane: number, cell: number): number {
    return HEADER_WORDS + lane * this.stride + cell * CELL_WORDS;
  }
}
