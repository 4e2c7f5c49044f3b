// The producer's side of an attach: asks the anchor's node for a way in, reads the answer, and opens the slot on the lane that was
// named. Every failure has a code; a row that was taken is given back.

import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { SCHEME_UNKNOWN, type StreamingMetrics } from '../metrics/streaming-metrics.js';
import { heartbeatPace } from '../mux/heartbeats.js';
import { ridingLane } from '../mux/lane-choice.js';
import { DEFAULT_SLOT_BYTE_BUDGET, MAX_INITIAL_CREDIT, MAX_PEER_SLOT_BYTES } from '../mux/mux-config.js';
import { ENDING_DROPPED } from '../plane/rows.js';
import { u64High, u64Low } from '../wire/bytes.js';
import {
  type AnchorAttachResponse,
  type AttachAccepted,
  abortAttach,
  anchorAttachRequest,
  anchorAttachResponse,
} from '../wire/control.js';
import { RESPONSE_UNARY } from '../wire/envelope.js';
import { type StreamAnchorHandle, StreamCancelHandle } from '../wire/handle.js';
import { HANDLER_ANCHOR_ABORT_ATTACH, HANDLER_ANCHOR_ATTACH, MESSENGER_MUX_KEY } from '../wire/names.js';
import type { Calls } from './calls.js';
import type { Messenger } from './messenger.js';
import type { Peer } from './peer-book.js';
import { SenderCore } from './sender-core.js';

/** How long an abort may wait for its answer. */
const ABORT_TIMEOUT_MS = 1_000;

export interface AttachOptions {
  /** Placement hint: streams with one key to one receiver share a lane. */
  key?: bigint | undefined;
  signal?: AbortSignal | undefined;
}

export class Attacher {
  constructor(
    private readonly workerId: bigint,
    private readonly lanes: number,
    private readonly plane: ClientPlane,
    private readonly messenger: Messenger,
    private readonly calls: Calls,
    private readonly metrics: StreamingMetrics,
  ) {}

  /**
   * Attaches to an anchor of another node.
   *
   * @throws VeloError `ERR_WRONG_HANDLE_KIND`, `ERR_UNKNOWN_PEER`, `ERR_ATTACH_REFUSED` (the receiver's reason), `ERR_NO_WINDOW`,
   * `ERR_UNSUPPORTED_TRANSPORT`, `ERR_LIMIT`, `ERR_ABORTED`, `ERR_CHANNEL_CLOSED`, and what a call may reject with.
   */
  async attach(handle: StreamAnchorHandle, options: AttachOptions): Promise<SenderCore> {
    if (handle.kind === 'mpsc') throw new VeloError('ERR_WRONG_HANDLE_KIND', `${handle} is an MPSC anchor`);
    const { signal } = options;
    if (signal?.aborted) throw aborted(signal);
    const attaching = this.begin(handle, options);
    if (signal === undefined) return await attaching;
    return await abortable(attaching, signal);
  }

  private async begin(handle: StreamAnchorHandle, { key, signal }: AttachOptions): Promise<SenderCore> {
    const { peer } = await this.messenger.locate(handle.worker, HANDLER_ANCHOR_ATTACH, { signal });
    await this.messenger.introduce(peer);
    if (signal?.aborted) throw aborted(signal);
    return await this.negotiate(handle, peer, new SenderCore(this.plane), key);
  }

  private async negotiate(
    handle: StreamAnchorHandle,
    peer: Peer,
    core: SenderCore,
    key: bigint | undefined,
  ): Promise<SenderCore> {
    try {
      const streamId = BigInt(core.row.identity);
      const request = anchorAttachRequest.encodeJson({
        handle,
        sessionId: streamId,
        streamCancelHandle: new StreamCancelHandle(this.workerId, streamId),
        supportedTransportKeys: [MESSENGER_MUX_KEY],
        laneKey: key,
      });
      const answer = await this.ask(peer, request);
      if (!answer.ok) throw new VeloError('ERR_ATTACH_REFUSED', answer.reason);
      await this.open(handle, peer, core, answer.value, streamId).catch((error: unknown) => {
        this.abort(handle, peer, streamId);
        throw error;
      });
      return core;
    } catch (error) {
      core.abandon();
      core.end(ENDING_DROPPED);
      throw error;
    }
  }

  /** The round trip of an attach; how long it took is counted, whatever came of it. */
  private async ask(peer: Peer, request: Uint8Array): Promise<AnchorAttachResponse> {
    const startedAt = this.metrics.now();
    try {
      const answer = anchorAttachResponse.decodeJson(
        await this.calls.call(peer, HANDLER_ANCHOR_ATTACH, RESPONSE_UNARY, request),
      );
      // A key that this node did not offer is none that it knows.
      const agreed = answer.ok && answer.value.streamingTransportKey === MESSENGER_MUX_KEY;
      this.metrics.attachAnswered(
        answer.ok ? 'success' : 'error',
        agreed ? MESSENGER_MUX_KEY : SCHEME_UNKNOWN,
        startedAt,
      );
      return answer;
    } catch (error) {
      this.metrics.attachAnswered('error', SCHEME_UNKNOWN, startedAt);
      throw error;
    }
  }

  /** Gives back the place that the anchor keeps for us. Nobody waits for the answer: without it, a watchdog ends the stream. */
  private abort(handle: StreamAnchorHandle, peer: Peer, streamId: bigint): void {
    const streamCancelHandle = new StreamCancelHandle(this.workerId, streamId);
    const request = abortAttach.encodeJson({ handle, streamCancelHandle });
    const options = { timeoutMs: ABORT_TIMEOUT_MS };
    this.calls.call(peer, HANDLER_ANCHOR_ABORT_ATTACH, RESPONSE_UNARY, request, options).catch(() => {});
  }

  private async open(
    handle: StreamAnchorHandle,
    peer: Peer,
    core: SenderCore,
    terms: AttachAccepted,
    streamId: bigint,
  ): Promise<void> {
    if (terms.streamingTransportKey !== MESSENGER_MUX_KEY)
      throw new VeloError(
        'ERR_UNSUPPORTED_TRANSPORT',
        `${handle} answered with transport "${terms.streamingTransportKey}", this node speaks ${MESSENGER_MUX_KEY}`,
      );
    if (terms.initialCredit === 0)
      throw new VeloError('ERR_NO_WINDOW', `${handle} answered ${MESSENGER_MUX_KEY} with initial_credit = 0`);
    const lane = ridingLane(terms.lane, this.lanes);
    const session = terms.routingSessionId === 0n ? streamId : terms.routingSessionId;
    await core.open(peer.route.lanePorts.length > 0 ? lane % this.lanes : 0, {
      peer: peer.number,
      lane,
      anchorHi: u64High(handle.local),
      anchorLo: u64Low(handle.local),
      sessionHi: u64High(session),
      sessionLo: u64Low(session),
      // What stands and waits here is bounded by these two: a peer must not set them as it likes. It need not have all it offers used.
      credit: Math.min(terms.initialCredit, MAX_INITIAL_CREDIT),
      byteBudget: Math.min(terms.slotByteBudget || DEFAULT_SLOT_BYTE_BUDGET, MAX_PEER_SLOT_BYTES),
      heartbeatMs: heartbeatPace(terms.heartbeatIntervalMs),
    });
  }
}

function aborted(signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', 'attach was aborted', { cause: signal.reason });
}

/** An abort gives up waiting. The attach goes on behind it: if it succeeds, its stream ends as dropped at once. */
function abortable(attaching: Promise<SenderCore>, signal: AbortSignal): Promise<SenderCore> {
  return new Promise((resolve, reject) => {
    let given = false;
    const onAbort = () => {
      given = true;
      reject(aborted(signal));
    };
    signal.addEventListener('abort', onAbort, { once: true });
    attaching.then(
      (core) => {
        signal.removeEventListener('abort', onAbort);
        if (given) core.end(ENDING_DROPPED);
        else resolve(core);
      },
      (error: unknown) => {
        signal.removeEventListener('abort', onAbort);
        reject(error);
      },
    );
  });
}
