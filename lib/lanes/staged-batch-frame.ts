// The frame that announces a staged batch: a `_stream_batch` without payload, whose headers name the bytes and, so that a receiver that
// refuses them knows whose they are, the stream (streaming specification §6.7). It must never hold the batch itself.

import type { Singleton } from '../mux/singletons.js';
import { u64From } from '../wire/bytes.js';
import { RESPONSE_NONE, requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { DataHandle } from '../wire/handle.js';
import { encodeHeaderMap } from '../wire/header-map.js';
import { formatMuxSlot } from '../wire/mux-slot.js';
import { HEADER_MUX_SLOT, HEADER_RENDEZVOUS } from '../wire/names.js';
import { FRAME_MESSAGE, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import type { AdmissionListener } from './frame-pool.js';
import { OutFrame } from './out-frame.js';

/** The whole frame for the batch that is kept under `id`. `name` is the lane's batch handler. */
export function encodeStagedBatch(
  name: Uint8Array,
  workerHi: number,
  workerLo: number,
  generation: number,
  id: number,
  { epoch, slot }: Singleton,
): Uint8Array {
  const session = u64From(slot.sessionHi, slot.sessionLo);
  const map = encodeHeaderMap([
    [HEADER_MUX_SLOT, formatMuxSlot({ epoch: BigInt(epoch), slot: slot.id, session })],
    [HEADER_RENDEZVOUS, new DataHandle(u64From(workerHi, workerLo), BigInt(id)).toText()],
  ]);
  const headerLength = requestHeaderLength(name.length, map.length);
  const frame = new Uint8Array(PREAMBLE_LEN + headerLength);
  writePreamble(frame, 0, FRAME_MESSAGE, headerLength, 0);
  writeRequestHeader(frame, PREAMBLE_LEN, RESPONSE_NONE, workerHi, workerLo, 0, generation, name, map);
  return frame;
}

export class StagedBatchFrame extends OutFrame {
  constructor(
    bytes: Uint8Array,
    private readonly listener: AdmissionListener,
    /** The handle does not reach the peer. */
    private readonly lost: () => void,
    /** The batcher may have work, and nobody else will run it. */
    private readonly resolved: () => void,
  ) {
    super(bytes);
  }

  override onWritten(ok: boolean): void {
    if (ok) return;
    this.lost();
    this.resolved();
  }

  override onAdmitted(ok: boolean): void {
    if (!ok) this.lost();
    this.listener.admission(ok);
    this.resolved();
  }
}
