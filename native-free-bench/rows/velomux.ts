// Owns the project's own rows: `velomux` (credit 32, one lane, piscina host) and its variants, by the public API alone.
// Must never reach below lib/index.

import {
  type HandleJson,
  PeerInfo,
  type PeerInfoJson,
  type StreamAnchor,
  StreamAnchorHandle,
  type StreamSender,
  Velo,
  type VeloOptions,
} from '../../lib/index.js';
import { isProfiled, writeLaneProfiles } from '../profile-env.js';
import type { Sink, Token } from '../workload.js';
import type { ConsumerSide, ProducerSide, Row, RowContext } from './row.js';

/** What each variant changes; everything else is the library's default. */
const VARIANTS: Readonly<Record<string, VeloOptions>> = {
  velomux: {},
  'velomux-256': { mux: { initialCredit: 256 } },
  'velomux-2': { lanes: 2 },
  'velomux-inline': { host: 'inline' },
};

/** How often a producer that rests goes on flushing, as the next passes of a decode loop would. */
const REST_FLUSH_MS = 1;

interface Hello {
  readonly peer: PeerInfoJson;
  readonly handles: readonly HandleJson[];
}

/** The busy loop is what the Auto policy is for; a producer that knows its passes says when they end. */
function createVelo(context: RowContext): Promise<Velo> {
  const variant = VARIANTS[context.name];
  if (variant === undefined) throw new Error(`no variant named ${context.name}`);
  const profiled = isProfiled() ? { worker: new URL('../lane-profile.js', import.meta.url) } : {};
  return Velo.create({ ...variant, ...profiled, flushPolicy: context.mode === 'busy' ? 'auto' : 'manual' });
}

async function closeVelo(velo: Velo, context: RowContext): Promise<void> {
  const { host, lanes = 1 } = VARIANTS[context.name]!;
  if (isProfiled() && host !== 'inline') await writeLaneProfiles(lanes);
  await velo.close();
}

async function readBatches(anchor: StreamAnchor<Token>, stream: number, sink: Sink): Promise<void> {
  for await (const items of anchor.batches()) {
    for (let i = 0; i < items.length; i++) sink.token(stream, items[i]!);
  }
}

async function readItems(anchor: StreamAnchor<Token>, stream: number, sink: Sink): Promise<void> {
  for await (const item of anchor) sink.token(stream, item);
}

async function openConsumer(context: RowContext, sink: Sink): Promise<ConsumerSide> {
  const velo = await createVelo(context);
  const anchors = Array.from({ length: context.streams }, () => velo.createAnchor<Token>());
  const read = context.mode === 'throughput-items' ? readItems : readBatches;
  const readers = anchors.map((anchor, stream) => read(anchor, stream, sink).catch((error: Error) => sink.fail(error)));
  const hello: Hello = { peer: velo.peerInfo.toJSON(), handles: anchors.map((anchor) => anchor.handle.toJSON()) };
  return {
    hello,
    join: async (reply) => velo.registerPeer(PeerInfo.fromJSON(reply as PeerInfoJson)),
    ended: async () => {
      await Promise.all(readers);
    },
    close: () => closeVelo(velo, context),
  };
}

/** Sends with `trySend`. What a full stream refuses waits here, in order, and goes when `ready` says so. */
class VeloProducer implements ProducerSide {
  readonly reply: unknown;
  private readonly manual: boolean;
  private senders: StreamSender<Token>[] = [];
  private readonly refused: Token[][];
  private readonly refusing: number[] = [];
  private settling: Promise<void> | undefined;
  private resting: NodeJS.Timeout | undefined;

  constructor(
    private readonly velo: Velo,
    private readonly context: RowContext,
    private readonly handles: readonly HandleJson[],
  ) {
    this.manual = context.mode !== 'busy';
    this.reply = velo.peerInfo.toJSON();
    this.refused = handles.map(() => []);
  }

  async attach(): Promise<void> {
    const attachOne = (handle: HandleJson) => this.velo.attachAnchor<Token>(StreamAnchorHandle.fromJSON(handle));
    this.senders = await Promise.all(this.handles.map(attachOne));
  }

  send(stream: number, token: Token): void {
    if (this.resting !== undefined) this.stopResting();
    const waiting = this.refused[stream]!;
    if (waiting.length === 0) {
      if (this.senders[stream]!.trySend(token)) return;
      this.refusing.push(stream);
    }
    waiting.push(token);
  }

  endPass(): Promise<void> | undefined {
    if (this.manual) this.velo.flushBatch();
    if (this.refusing.length === 0) return undefined;
    this.settling ??= this.settle().finally(() => {
      this.settling = undefined;
    });
    return this.settling;
  }

  /**
   * Under the manual policy what a grant releases after the last flush waits for the next one. A decode loop has a next pass; the
   * end of a phase has none.
   */
  rest(): void {
    if (this.manual) this.resting ??= setInterval(() => this.velo.flushBatch(), REST_FLUSH_MS);
  }

  async finish(): Promise<void> {
    this.stopResting();
    await Promise.all(this.senders.map((sender) => sender.finalize()));
  }

  close(): Promise<void> {
    return closeVelo(this.velo, this.context);
  }

  private stopResting(): void {
    clearInterval(this.resting);
    this.resting = undefined;
  }

  /** Sends what was refused, stream by stream. A stream that refuses again meanwhile joins the end of the list. */
  private async settle(): Promise<void> {
    for (let i = 0; i < this.refusing.length; i++) {
      const stream = this.refusing[i]!;
      await this.settleStream(this.senders[stream]!, this.refused[stream]!);
    }
    this.refusing.length = 0;
    if (this.manual) this.velo.flushBatch();
  }

  private async settleStream(sender: StreamSender<Token>, waiting: Token[]): Promise<void> {
    while (waiting.length > 0) {
      if (sender.trySend(waiting[0]!)) {
        waiting.shift();
        continue;
      }
      await sender.ready();
      if (this.manual && waiting.length > 1) this.velo.flushBatch(); // a second one needs the credit of the first
    }
  }
}

async function openProducer(context: RowContext, hello: unknown): Promise<ProducerSide> {
  const { peer, handles } = hello as Hello;
  const velo = await createVelo(context);
  velo.registerPeer(PeerInfo.fromJSON(peer));
  return new VeloProducer(velo, context, handles);
}

export const velomuxRow: Row = { openConsumer, openProducer };
