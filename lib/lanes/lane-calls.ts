// A lane's own calls to peers: what it asks without troubling a client thread. Each ends by its answer, by a failed write, or by
// its timeout. It must never keep bytes of an answer beyond the turn they came in.

import { VeloError } from '../errors.js';
import { SHUTTING_DOWN_TEXT } from '../messenger/dispatch-plan.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import { wrongChunk } from '../messenger/pull.js';
import { decodeErrorText } from '../messenger/replies.js';
import { GENERATION_BITS, workerOrigin } from '../messenger/response-origin.js';
import { type ResponseSlot, ResponseTable } from '../messenger/response-table.js';
import { RESPONSE_NONE, RESPONSE_UNARY, requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { FRAME_MESSAGE, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { OutFrame } from './out-frame.js';
import type { PeerLink } from './peer-link.js';

/** A lane makes one call per pull, and a few that nobody answers. */
const SLOTS = 2_048;
/** Bytes of a peer's refusal that are kept: it becomes the end of a stream, and may wait until that one is opened. */
export const MAX_REFUSAL_BYTES = 1_024;
/** Batches carry ids of this slot: a peer that refuses one must not end a call, so no call ever has it. */
const BATCH_SLOT = 0;
/** Lives of a lane whose calls cannot be mistaken for each other's, and the generations that each has. */
const LIVES = 256;
const GENERATIONS_PER_LIFE = 2 ** GENERATION_BITS / LIVES;

/** Bytes of UTF-8 that begin no character. */
const CONTINUATION_MASK = 0xc0;
const CONTINUATION = 0x80;

interface LaneCall {
  /** Where the answer belongs, if its place and length are known. */
  readonly target: Uint8Array | undefined;
  readonly resolve: (answer: Uint8Array) => void;
  readonly reject: (error: VeloError) => void;
  timer: NodeJS.Timeout | undefined;
}

const NOBODY: LaneCall = { target: undefined, resolve: () => {}, reject: () => {}, timer: undefined };

export class LaneCalls {
  private readonly table: ResponseTable<LaneCall>;
  private closedBy: VeloError | undefined;

  constructor(
    lane: number,
    life: number,
    private readonly workerHi: number,
    private readonly workerLo: number,
  ) {
    // What is answered to the lane that died before this one must find no call here.
    const firstGeneration = (life % LIVES) * GENERATIONS_PER_LIFE;
    this.table = new ResponseTable({ origin: workerOrigin(lane), capacity: SLOTS, firstGeneration });
    // Never given back: see BATCH_SLOT.
    this.table.allocate(NOBODY);
  }

  /** Calls in flight. */
  get pending(): number {
    return this.table.size - 1;
  }

  /**
   * Calls a peer's handler. The answer is written to `target`, which it must fill exactly; without one it comes in memory of its own.
   * Rejects with `ERR_TIMEOUT`, `ERR_HANDLER_FAILED` (the peer's text), `ERR_PEER_SHUTTING_DOWN`, `ERR_CONNECT_FAILED`,
   * `ERR_CONNECTION_CLOSED`, `ERR_LIMIT`, `ERR_RESPONSE_SLOTS_EXHAUSTED` or `ERR_BAD_CONTROL_MESSAGE`.
   */
  call(
    peer: PeerLink,
    handler: string,
    payload: Uint8Array,
    timeoutMs: number,
    target?: Uint8Array,
  ): Promise<Uint8Array> {
    if (this.closedBy !== undefined) return Promise.reject(this.closedBy);
    return new Promise((resolve, reject) => {
      const call: LaneCall = { target, resolve, reject, timer: undefined };
      const slot = this.table.allocate(call);
      const late = `no answer from ${peer.label} to '${handler}' in ${timeoutMs} ms`;
      call.timer = setTimeout(() => this.fail(slot, new VeloError('ERR_TIMEOUT', late)), timeoutMs);
      const bytes = this.encode(slot, handler, RESPONSE_UNARY, payload);
      peer.send(new LaneCallFrame(bytes, (error) => this.fail(slot, error)));
    });
  }

  /** Sends a message that nobody answers. Its loss is noticed by nobody here. */
  fire(peer: PeerLink, handler: string, payload: Uint8Array): void {
    const bytes = this.encode(this.table.issue(NOBODY), handler, RESPONSE_NONE, payload);
    peer.send(new LaneCallFrame(bytes, () => {}));
  }

  private encode(slot: ResponseSlot, handler: string, responseType: number, payload: Uint8Array): Uint8Array {
    const name = encodeUtf8(handler);
    const headerLength = requestHeaderLength(name.length, 0);
    const frame = new Uint8Array(PREAMBLE_LEN + headerLength + payload.length);
    writePreamble(frame, 0, FRAME_MESSAGE, headerLength, payload.length);
    const { workerHi, workerLo } = this;
    writeRequestHeader(frame, PREAMBLE_LEN, responseType, workerHi, workerLo, slot.slot, slot.generation, name);
    frame.set(payload, PREAMBLE_LEN + headerLength);
    return frame;
  }

  /** An answer to one of these calls; the bytes are lent. False when nobody waits for it. */
  answered(answer: InboundAnswer, buffer: Uint8Array): boolean {
    const call = this.end(answer);
    if (call === undefined) return false;
    const { payloadOffset, payloadLength } = answer;
    const { target } = call;
    if (!answer.ok) call.reject(new VeloError('ERR_HANDLER_FAILED', refusalText(buffer, payloadOffset, payloadLength)));
    else if (target === undefined)
      // Not `slice`: what comes from a socket is a Buffer, whose slices share its memory.
      call.resolve(new Uint8Array(buffer.subarray(payloadOffset, payloadOffset + payloadLength)));
    else if (payloadLength !== target.length) call.reject(wrongChunk(payloadLength, target.length));
    else {
      target.set(buffer.subarray(payloadOffset, payloadOffset + payloadLength));
      call.resolve(target);
    }
    return true;
  }

  /** The peer refused one of these calls. False when nobody waits. */
  refused(refusal: InboundRefusal): boolean {
    return this.fail(refusal, new VeloError('ERR_PEER_SHUTTING_DOWN', SHUTTING_DOWN_TEXT));
  }

  private fail(slot: ResponseSlot, error: VeloError): boolean {
    const call = this.end(slot);
    call?.reject(error);
    return call !== undefined;
  }

  /** The call that waits there, which waits no longer. */
  private end({ slot, generation }: ResponseSlot): LaneCall | undefined {
    if (slot === BATCH_SLOT) return undefined;
    const call = this.table.complete(slot, generation);
    clearTimeout(call?.timer);
    return call;
  }

  /** Ends every call, and those that are made from now on. */
  close(error: VeloError): void {
    this.closedBy = error;
    this.table.failAll(error, (call) => {
      clearTimeout(call.timer);
      call.reject(error);
    });
  }
}

/** What a peer says of its refusal, cut between two characters where it says too much. */
function refusalText(buffer: Uint8Array, offset: number, length: number): string {
  if (length <= MAX_REFUSAL_BYTES) return decodeErrorText(buffer, offset, length);
  let cut = MAX_REFUSAL_BYTES;
  while (cut > 0 && (buffer[offset + cut]! & CONTINUATION_MASK) === CONTINUATION) cut -= 1;
  return `${decodeErrorText(buffer, offset, cut)}…`;
}

class LaneCallFrame extends OutFrame {
  constructor(
    bytes: Uint8Array,
    private readonly failed: (error: VeloError) => void,
  ) {
    super(bytes);
  }

  override onAdmitted(ok: boolean, error?: VeloError): void {
    if (!ok) this.lost(error);
  }

  override onWritten(ok: boolean, error?: VeloError): void {
    if (!ok) this.lost(error);
  }

  private lost(error: VeloError | undefined): void {
    this.failed(error ?? new VeloError('ERR_CONNECTION_CLOSED', 'the frame was not written'));
  }
}
