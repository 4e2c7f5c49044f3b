// A foreign node that stages batches by hand: it answers acquires and pulls of payloads that a test gives it, and sends the messages
// that name them. It knows the wire and nothing of the package's lanes.

import { BatchEncoder } from '../../lib/wire/batch.js';
import { u64High, u64Low } from '../../lib/wire/bytes.js';
import { RESPONSE_NONE } from '../../lib/wire/envelope.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { BATCH_HANDLERS, HEADER_MUX_SLOT, HEADER_RENDEZVOUS } from '../../lib/wire/names.js';
import type { WirePeer } from './wire-peer.js';

const CHUNK = 524_288;
const SPARE = 4_096;
const NO_BYTES = new Uint8Array(0);
const utf8 = new TextEncoder();
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** Largest payload of `room` bytes of records, as a batch. */
export function batchBytes(
  epoch: bigint,
  seq: number,
  lane: number,
  room: number,
  fill: (batch: BatchEncoder) => void,
): Uint8Array {
  const buffer = new Uint8Array(room + SPARE);
  const encoder = new BatchEncoder();
  encoder.begin(buffer, 0, lane, u64High(epoch), u64Low(epoch), seq);
  fill(encoder);
  return buffer.slice(0, encoder.finish());
}

export interface StagedMessage {
  /** Value of the header that names the stream; undefined: the message has none. */
  readonly muxSlot?: string | undefined;
  readonly lane?: number;
  readonly port?: number;
  /** The handle, where it is not that of the peer's own payload. */
  readonly handle?: string;
}

export class StagingPeer {
  readonly payloads = new Map<number, Uint8Array>();
  /** What an acquire states in place of the payload's length. */
  readonly stated = new Map<number, number>();
  /** An acquire of this payload waits for it. */
  readonly gates = new Map<number, Promise<void>>();
  /** Payloads, by pull. */
  readonly pulls: number[] = [];

  constructor(readonly peer: WirePeer) {
    peer.services._rv_acquire = async (payload) => {
      const id = Number(/"lo":(\d+)/.exec(text(payload))![1]!);
      await this.gates.get(id);
      const bytes = this.payloads.get(id);
      if (bytes === undefined) return 'rendezvous handle not found';
      const length = this.stated.get(id) ?? bytes.length;
      const ready = { lease_id: id, transfer_id: id, total_len: length, chunk_size: CHUNK };
      return utf8.encode(JSON.stringify({ Ready: { ...ready, chunk_count: Math.ceil(length / CHUNK) } }));
    };
    peer.services._rv_pull = (payload) => {
      const { transfer_id: id, chunk_index: index } = JSON.parse(text(payload));
      this.pulls.push(id);
      return this.payloads.get(id)!.slice(index * CHUNK, (index + 1) * CHUNK);
    };
  }

  /** Sends a message whose batch stands here under `id`; without bytes, nobody has it. */
  async send(id: number, bytes: Uint8Array | undefined, message: StagedMessage = {}): Promise<void> {
    if (bytes !== undefined) this.payloads.set(id, bytes);
    const handle = message.handle ?? new DataHandle(this.peer.workerId, BigInt(id)).toText();
    const headers: Record<string, string> = { [HEADER_RENDEZVOUS]: handle };
    if (message.muxSlot !== undefined) headers[HEADER_MUX_SLOT] = message.muxSlot;
    const handler = BATCH_HANDLERS[message.lane ?? 0]!;
    await this.peer.write(this.peer.request(handler, NO_BYTES, RESPONSE_NONE, 0, headers), message.port);
  }

  /** How often the node gave a lease back by this handler. */
  count(handler: string): number {
    return this.peer.requests.filter((request) => request.handler === handler).length;
  }
}
