// A frame on its way out and the intrusive list it waits in. The caller owns the frame object and its bytes; a list owns
// only the links. It must never allocate: a frame is in at most one list, and its links are fields of the frame itself.

import type { VeloError } from '../errors.js';

/** In no list: it may be submitted. */
export const FRAME_IDLE = 0;
/** Waits for room in the queue; it can still be withdrawn. */
export const FRAME_PENDING = 1;
/** In the queue of the connection. */
export const FRAME_QUEUED = 2;
/** In the write under way. */
export const FRAME_WRITING = 3;

export type FrameState = typeof FRAME_IDLE | typeof FRAME_PENDING | typeof FRAME_QUEUED | typeof FRAME_WRITING;

/**
 * One complete transport frame, `buffer[start..end)`. From `submit` until its last callback the bytes must not change.
 * Callbacks come from the connection, in frame order, and must not throw (what they throw is counted and dropped).
 * After a frame's last callback it may be submitted again, from within that callback too.
 */
export abstract class OutFrame {
  buffer: Uint8Array;
  start: number;
  end: number;
  /** Owned by the connection. */
  state: FrameState = FRAME_IDLE;
  /** Owned by the list that holds the frame. */
  list: FrameList | undefined = undefined;
  previous: OutFrame | undefined = undefined;
  next: OutFrame | undefined = undefined;

  constructor(buffer: Uint8Array, start = 0, end = buffer.length) {
    this.buffer = buffer;
    this.start = start;
    this.end = end;
  }

  /**
   * The last callback of an admitted frame. True: written without error, the buffer may be used again. False: the
   * connection failed or was closed before that; the socket may still hold the buffer, so it must not be used again.
   */
  abstract onWritten(ok: boolean, error?: VeloError): void;

  /**
   * Only for a frame that `submit` answered with PENDING. True: it is in the queue now, `onWritten` follows. False: it
   * never will be, and this was the last callback.
   */
  abstract onAdmitted(ok: boolean, error?: VeloError): void;
}

/** A first-in, first-out list of frames with O(1) removal anywhere. */
export class FrameList {
  head: OutFrame | undefined = undefined;
  count = 0;
  bytes = 0;
  #tail: OutFrame | undefined = undefined;

  push(frame: OutFrame, state: FrameState): void {
    const tail = this.#tail;
    frame.state = state;
    frame.list = this;
    frame.previous = tail;
    frame.next = undefined;
    if (tail === undefined) this.head = frame;
    else tail.next = frame;
    this.#tail = frame;
    this.count += 1;
    this.bytes += frame.end - frame.start;
  }

  remove(frame: OutFrame): void {
    const { previous, next } = frame;
    if (previous === undefined) this.head = next;
    else previous.next = next;
    if (next === undefined) this.#tail = previous;
    else next.previous = previous;
    frame.state = FRAME_IDLE;
    frame.list = undefined;
    frame.previous = undefined;
    frame.next = undefined;
    this.count -= 1;
    this.bytes -= frame.end - frame.start;
  }

  shift(): OutFrame | undefined {
    const frame = this.head;
    if (frame !== undefined) this.remove(frame);
    return frame;
  }
}
