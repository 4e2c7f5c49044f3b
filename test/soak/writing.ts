// The producer's end of soak streams: it attaches where it is asked to, sends by plan, and ends in one way.

import { setTimeout as pause } from 'node:timers/promises';
import { rawCodec, StreamAnchorHandle, type StreamSender, typedUnary, type Velo, VeloError } from '../../lib/index.js';
import type { AwakeClock, Watched } from './awake.js';
import { makeItem } from './items.js';
import type { StreamPlan } from './plan.js';
import type { StreamReport } from './protocol.js';

export const GENERATE = 'generate';
/** An anchor takes another sender once its reader has read that the last one left. */
const ATTACH_AGAIN_MS = 5;

export interface GenerateRequest {
  readonly handle: { readonly hi: bigint; readonly lo: bigint };
  readonly plan: StreamPlan;
  readonly reader: string;
}

export class Writing {
  constructor(
    private readonly node: Velo,
    private readonly name: string,
    private readonly clock: AwakeClock,
    private readonly report: (report: StreamReport) => void,
  ) {
    node.registerHandler(
      GENERATE,
      typedUnary(async (request) => await this.generate(request as GenerateRequest)),
    );
  }

  /** Answers once it is attached, and goes on. */
  private async generate({ handle, plan, reader }: GenerateRequest): Promise<null> {
    const from = Date.now();
    const ended = (outcome: string, items: number, wrong?: string) =>
      this.report({ stream: plan.stream, reader, writer: this.name, outcome, from, to: Date.now(), items, wrong });
    let sender: StreamSender<Uint8Array>;
    try {
      sender = await this.node.attachAnchor(StreamAnchorHandle.fromJSON(handle), { codec: rawCodec() });
    } catch (error) {
      ended(`attach ${codeOf(error)}`, 0, uncoded(error));
      throw error;
    }
    void new WritingOne(this.node, this.clock, plan, sender).run().then(
      ({ outcome, items }) => ended(outcome, items),
      (error: unknown) => ended('broken', 0, String(error instanceof Error ? error.stack : error)),
    );
    return null;
  }
}

class WritingOne implements Watched {
  private sent = 0;
  private hasHung = false;
  private attaching = false;

  constructor(
    private readonly node: Velo,
    private readonly clock: AwakeClock,
    private readonly plan: StreamPlan,
    private sender: StreamSender<Uint8Array>,
  ) {}

  /** Nobody takes our items any more, and nobody tells us: the application gives up, as it would by its own timeout. */
  readonly hung = (): void => {
    this.hasHung = true;
    void this.sender.close();
  };

  async run(): Promise<{ outcome: string; items: number }> {
    const { clock } = this;
    clock.progress(this);
    try {
      const outcome = await this.sendAll();
      return { outcome: this.hasHung ? 'hung' : outcome, items: this.sent };
    } catch (error) {
      await this.sender.close();
      if (this.hasHung) return { outcome: 'hung', items: this.sent };
      if (!VeloError.is(error)) throw error;
      if (error.code === 'ERR_CHANNEL_CLOSED' && this.sender.cancelled)
        return { outcome: 'cancelled', items: this.sent };
      return { outcome: `${this.attaching ? 'attach ' : ''}${error.code}`, items: this.sent };
    } finally {
      clock.release(this);
    }
  }

  private async sendAll(): Promise<string> {
    const { plan } = this;
    const detachAt = new Set(plan.detachAt);
    for (let last = false; !last; this.sent += 1) {
      if (detachAt.has(this.sent)) await this.attachAgain();
      if (plan.paceEvery > 0 && this.sent % plan.paceEvery === 0) await pause(plan.paceMs);
      last = this.sent === plan.items - 1 || this.sender.stopped;
      await this.sender.send(makeItem(plan.stream, this.sent, last));
      this.clock.progress(this);
    }
    if (plan.ending === 'drop') {
      await this.sender.close();
      return 'dropped as planned';
    }
    await this.sender.finalize();
    return 'finalized';
  }

  private async attachAgain(): Promise<void> {
    const handle = await this.sender.detach();
    this.attaching = true;
    for (;;) {
      try {
        this.sender = await this.node.attachAnchor(handle, { codec: rawCodec() });
        this.clock.progress(this);
        this.attaching = false;
        if (this.hasHung) await this.sender.close();
        return;
      } catch (error) {
        if (this.hasHung || !(error instanceof Error) || !error.message.includes('already attached')) throw error;
        await pause(ATTACH_AGAIN_MS);
      }
    }
  }
}

export function codeOf(error: unknown): string {
  return VeloError.is(error) ? error.code : 'no code';
}

/** An error that must not be: one without a code. */
export function uncoded(error: unknown): string | undefined {
  return VeloError.is(error) ? undefined : String(error instanceof Error ? error.stack : error);
}
