// Configuration of the mux: option names, defaults, ranges, and the values derived from them. Owns validation and
// nothing else; it must never read an environment variable or a clock.

import { VeloError } from '../errors.js';
import { BATCH_HEADER_LEN, CLOSE_SLOT_BODY_LEN, MAX_RECORDS_PER_BATCH, RECORD_HEADER_LEN } from '../wire/batch.js';
import { MAX_FRAME_BODY } from '../wire/transport-frame.js';

/** Bytes kept free before a batch in every buffer, so that the frame's preamble and envelope go right before it. */
export const BATCH_HEADROOM = 64;
/**
 * A frame larger than this is not packed into one write by a Rust peer's coalescing writer; no packed batch exceeds it.
 */
export const COALESCE_THRESHOLD = 65_536;
/** A batch must hold at least its header and one empty record, whatever was configured. */
export const MIN_BATCH_CAP = BATCH_HEADER_LEN + RECORD_HEADER_LEN;
/** Slot indices of one (peer, lane) table. A peer refuses any higher index, so a batcher never hands one out. */
export const MAX_TABLE_SLOTS = 65_536;
/**
 * Header of a batch, of a record and of a terminal's close: what a frame costs beside its own bytes when it goes alone.
 */
export const SINGLETON_OVERHEAD = BATCH_HEADER_LEN + 2 * RECORD_HEADER_LEN + CLOSE_SLOT_BODY_LEN;
/** Records a withheld queue may hold whatever their size: the byte budget alone would not bound empty ones. */
export const MAX_WITHHELD_RECORDS = 65_536;
/** Distinct refusals of slots never admitted that may wait; more are dropped, which costs no credit. */
export const REJECT_LANE_LIMIT = 8_192;
/**
 * Credit and closes owed to a peer's slots, and stops and cancels of its sessions, that may each wait: a slot and one before it at every
 * index. Streams come and go while a peer reads nothing; beyond the limit the oldest is dropped, whose stream is long over.
 */
export const REPLY_LIMIT = 2 * MAX_TABLE_SLOTS;

// A packed batch can never run out of its u16 record count before it runs out of bytes: the hot path counts bytes only.
if (COALESCE_THRESHOLD / RECORD_HEADER_LEN >= MAX_RECORDS_PER_BATCH) {
  throw new VeloError('ERR_INTERNAL', 'the record count of a packed batch could overflow');
}

const HOUR_MS = 3_600_000;
/**
 * Largest window this node advertises, and the most it uses of a peer's. The wire has room for a u32; buffers are sized from it.
 */
export const MAX_INITIAL_CREDIT = 65_536;
const MAX_U32 = 0xffff_ffff;

const DEFAULT_INITIAL_CREDIT = 32;
/** What a byte budget of 0 stands for, in a configuration and in a peer's answer. */
export const DEFAULT_SLOT_BYTE_BUDGET = 1_048_576;
/** A peer's answer may name any byte budget; a sender withholds no more than this for it: one of the largest frames. */
export const MAX_PEER_SLOT_BYTES = MAX_FRAME_BODY;
/** What a receiver holds for one peer, over all its lanes. */
export const DEFAULT_PEER_BYTE_BUDGET = 8_388_608;
const DEFAULT_MAX_BATCH_BYTES = 61_440;
const DEFAULT_CREDIT_SWEEP_INTERVAL_MS = 200;
const DEFAULT_DRAIN_VISIT_FLOOR_MS = 2;
const DEFAULT_REPLY_LINGER_MS = 1;
const DEFAULT_BATCHER_IDLE_TTL_MS = 60_000;
/** A whole batch of it is just below the 64 MiB that a node of this project pulls by default. */
export const DEFAULT_MAX_RECORD_BYTES = 67_108_864 - BATCH_HEADROOM;
/** A record must be able to hold its own frame. */
const MIN_MAX_RECORD_BYTES = 1_024;
const MAX_MAX_RECORD_BYTES = 2 ** 31 - 1 - BATCH_HEADROOM - SINGLETON_OVERHEAD;

/** Write when any of its conditions holds. */
export interface AutoFlush {
  readonly kind: 'auto';
  /** Write at the end of every wake (as soon as the peer took the last batch). */
  readonly onAdmission: boolean;
  /** Window in milliseconds from the oldest staged record; undefined: no window. */
  readonly maxLingerMs: number | undefined;
  /**
   * Write when every live slot of the lane has a data record in the batch, but not before `maxLingerMs` have passed since the last
   * write that carried data.
   */
  readonly onComplete: boolean;
  /** Write when the batch has reached so many bytes; undefined: never for that. Raises no cap. */
  readonly atBytes: number | undefined;
}

/** Write when the application says so, at a clamp, and for records that carry liveness. */
export interface ManualFlush {
  readonly kind: 'manual';
}

export type FlushPolicy = AutoFlush | ManualFlush;

/** What a user may write for a flush policy. */
export type FlushPolicyOption =
  | 'auto'
  | 'manual'
  | {
      readonly onAdmission?: boolean | undefined;
      readonly maxLingerMs?: number | undefined;
      readonly onComplete?: boolean | undefined;
      readonly atBytes?: number | undefined;
    };

/** What a user may write. Every field is optional; the defaults stand beside the fields of {@link MuxConfig}. */
export interface MuxOptions {
  readonly initialCredit?: number | undefined;
  readonly slotByteBudget?: number | undefined;
  readonly peerByteBudget?: number | undefined;
  readonly maxBatchBytes?: number | undefined;
  readonly creditSweepIntervalMs?: number | undefined;
  readonly drainVisitFloorMs?: number | undefined;
  readonly replyLingerMs?: number | undefined;
  readonly batcherIdleTtlMs?: number | undefined;
  readonly maxRecordBytes?: number | undefined;
  readonly asyncOpenAck?: boolean | undefined;
  readonly flushPolicy?: FlushPolicyOption | undefined;
}

/** A validated configuration. Times in milliseconds, sizes in bytes. */
export interface MuxConfig {
  /** Window C this node advertises for its anchors, in records. Default 32, 1..65,536. */
  readonly initialCredit: number;
  /**
   * Pause level of a withheld queue, watermark of a slot's buffer, and hold budget of a slot. Default 1 MiB; 0 means
   * the default.
   */
  readonly slotByteBudget: number;
  /** Bytes all holds of one peer may keep, all lanes together. Default 8 MiB. */
  readonly peerByteBudget: number;
  /** Configured cap of a batch. Default 60 KiB; the effective cap is {@link effectiveBatchCap}. */
  readonly maxBatchBytes: number;
  /** Period of the credit walk. Default 200, above 0. */
  readonly creditSweepIntervalMs: number;
  /** Least time between two doorbell visits of one (peer, lane). Default 2; 0: no floor; above 1 h: 1 h. */
  readonly drainVisitFloorMs: number;
  /** How long a credit reply may wait for company. Default 1; 0: it is due at once. */
  readonly replyLingerMs: number;
  /** How long a batcher may do nothing, with no slot either way, before it is let go. Default 60,000; counted in credit walks. */
  readonly batcherIdleTtlMs: number;
  /**
   * Largest record a sender may send, in bytes of its frame. One above about 256 KiB is staged, and its receiver pulls it if that is
   * not above its own `stagedPayloadMax`. Default 64 MiB less 64 bytes.
   */
  readonly maxRecordBytes: number;
  /**
   * An attach resolves when its OpenSlot was handed over, not when the transport took it; the stream's records wait for that. Default
   * false.
   */
  readonly asyncOpenAck: boolean;
  /** Default: auto, on admission. */
  readonly flushPolicy: FlushPolicy;
}

/**
 * Fills in the defaults and checks every field.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT`; the message names the field.
 */
export function resolveMuxConfig(options: MuxOptions = {}): MuxConfig {
  const slotByteBudget = integer('slotByteBudget', options.slotByteBudget ?? 0, 0, MAX_U32);
  const floor = options.drainVisitFloorMs ?? DEFAULT_DRAIN_VISIT_FLOOR_MS;
  return {
    initialCredit: integer('initialCredit', options.initialCredit ?? DEFAULT_INITIAL_CREDIT, 1, MAX_INITIAL_CREDIT),
    slotByteBudget: slotByteBudget === 0 ? DEFAULT_SLOT_BYTE_BUDGET : slotByteBudget,
    peerByteBudget: integer(
      'peerByteBudget',
      options.peerByteBudget ?? DEFAULT_PEER_BYTE_BUDGET,
      0,
      Number.MAX_SAFE_INTEGER,
    ),
    maxBatchBytes: integer('maxBatchBytes', options.maxBatchBytes ?? DEFAULT_MAX_BATCH_BYTES, 0, MAX_FRAME_BODY),
    creditSweepIntervalMs: positive(
      'creditSweepIntervalMs',
      options.creditSweepIntervalMs ?? DEFAULT_CREDIT_SWEEP_INTERVAL_MS,
    ),
    drainVisitFloorMs: Math.min(duration('drainVisitFloorMs', floor, Number.POSITIVE_INFINITY), HOUR_MS),
    replyLingerMs: duration('replyLingerMs', options.replyLingerMs ?? DEFAULT_REPLY_LINGER_MS, HOUR_MS),
    batcherIdleTtlMs: duration('batcherIdleTtlMs', options.batcherIdleTtlMs ?? DEFAULT_BATCHER_IDLE_TTL_MS, HOUR_MS),
    maxRecordBytes: integer(
      'maxRecordBytes',
      options.maxRecordBytes ?? DEFAULT_MAX_RECORD_BYTES,
      MIN_MAX_RECORD_BYTES,
      MAX_MAX_RECORD_BYTES,
    ),
    asyncOpenAck: boolean('asyncOpenAck', options.asyncOpenAck, false),
    flushPolicy: resolveFlushPolicy(options.flushPolicy ?? 'auto'),
  };
}

/**
 * Turns the short spellings into a policy.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` naming `flushPolicy`.
 */
export function resolveFlushPolicy(option: FlushPolicyOption): FlushPolicy {
  if (option === 'manual') return { kind: 'manual' };
  if (option === 'auto') return resolveFlushPolicy({});
  if (typeof option !== 'object' || option === null) {
    throw invalid('flushPolicy', option, "'auto', 'manual' or an object");
  }
  const { maxLingerMs, atBytes } = option;
  return {
    kind: 'auto',
    onAdmission: boolean('flushPolicy.onAdmission', option.onAdmission, true),
    maxLingerMs: maxLingerMs === undefined ? undefined : duration('flushPolicy.maxLingerMs', maxLingerMs, HOUR_MS),
    onComplete: boolean('flushPolicy.onComplete', option.onComplete, false),
    atBytes: atBytes === undefined ? undefined : integer('flushPolicy.atBytes', atBytes, 1, MAX_FRAME_BODY),
  };
}

/** The largest packed batch: the smallest of three clamps, but never less than one header and one empty record. */
export function effectiveBatchCap(maxBatchBytes: number, eagerBudget: number): number {
  return Math.max(MIN_BATCH_CAP, Math.min(maxBatchBytes, eagerBudget, COALESCE_THRESHOLD));
}

function boolean(field: string, given: boolean | undefined, fallback: boolean): boolean {
  const value = given ?? fallback;
  if (typeof value !== 'boolean') throw invalid(field, value, 'a boolean');
  return value;
}

function integer(field: string, value: number, low: number, high: number): number {
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    throw invalid(field, value, `an integer from ${low} to ${high}`);
  }
  return value;
}

function duration(field: string, value: number, high: number): number {
  if (typeof value !== 'number' || !(value >= 0) || value > high) {
    throw invalid(field, value, `milliseconds from 0 to ${high}`);
  }
  return value;
}

function positive(field: string, value: number): number {
  if (duration(field, value, HOUR_MS) === 0) throw invalid(field, value, 'more than 0 milliseconds');
  return value;
}

function invalid(field: string, value: unknown, expected: string): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `${field} = ${String(value)}: expected ${expected}`);
}
