// Which sends count as having waited: each call once, and no `trySend` by itself, however often a loop tries.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { type Outlet, StreamSender } from '../../../lib/streaming/stream-sender.js';
import { StreamAnchorHandle } from '../../../lib/wire/handle.js';
import { failure } from '../../support/nodes.js';

/** An outlet that refuses so many times before it takes something. */
class Reluctant implements Outlet<number> {
  readonly transport = undefined;
  readonly cancelled = false;
  readonly stopped = false;
  readonly over = false;
  taken = 0;

  constructor(public refusals = 0) {}

  overError(): VeloError {
    return new VeloError('ERR_CHANNEL_CLOSED', 'over');
  }

  trySend(): boolean {
    if (this.refusals > 0) {
      this.refusals -= 1;
      return false;
    }
    this.taken += 1;
    return true;
  }

  trySendFrame(): boolean {
    return this.trySend();
  }

  async roomAgain(): Promise<void> {}
  block(): void {}
  end(): boolean {
    return true;
  }
  onSignals(): void {}
  async retired(): Promise<'sent'> {
    return 'sent';
  }
}

describe('sends that wait', () => {
  let waits: { count: number };
  let outlet: Reluctant;
  let sender: StreamSender<number>;
  beforeEach(() => {
    waits = { count: 0 };
    outlet = new Reluctant();
    const handle = StreamAnchorHandle.pack(1n, 2n, 'spsc');
    sender = new StreamSender<number>(outlet, handle, () => new Uint8Array(1), waits);
  });

  it('a send that finds room is none', async () => {
    await sender.send(1);
    await sender.sendErr('no');
    sender.sendBlocking(2);
    expect(sender.trySend(3)).to.equal(true);
    await sender.ready();
    expect([outlet.taken, waits.count]).to.deep.equal([4, 0]);
  });

  for (const [what, act] of [
    ['send', () => sender.send(1)],
    ['sendErr', () => sender.sendErr('no')],
    ['sendBlocking', () => sender.sendBlocking(1)],
  ] as const) {
    it(`${what} counts once, however often it has to try again`, async () => {
      outlet.refusals = 5;
      await act();
      expect([outlet.taken, waits.count]).to.deep.equal([1, 1]);
    });
  }

  it('a loop of trySend and ready counts once for each wait, and not for its tries', async () => {
    outlet.refusals = 3;
    while (!sender.trySend(1));
    expect(waits.count, 'nobody waited').to.equal(0);
    await sender.ready();
    expect(waits.count).to.equal(1);
    await sender.ready();
    expect(waits.count, 'there was room').to.equal(1);
    outlet.refusals = 1;
    expect(sender.trySend(2)).to.equal(false);
    await sender.ready();
    expect(sender.trySend(2)).to.equal(true);
    expect(waits.count).to.equal(2);
  });

  it('one that gives up has waited too', async () => {
    outlet.refusals = 1;
    const signal = AbortSignal.abort();
    await failure('ERR_ABORTED', sender.send(1, { signal }));
    expect([outlet.taken, waits.count]).to.deep.equal([0, 1]);
  });
});
