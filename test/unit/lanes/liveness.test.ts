// That the streams of a lane leave its heartbeats and its watchdog when they are over: a stream that stayed would stay for an
// interval that a peer chooses.

import { expect } from 'chai';
import type { ClientLink } from '../../../lib/lanes/client-link.js';
import { EgressStream } from '../../../lib/lanes/egress-stream.js';
import { IngressStream } from '../../../lib/lanes/ingress-stream.js';
import type { ClosedReason } from '../../../lib/mux/batcher-types.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import { Heartbeats, MAX_HEARTBEAT_MS } from '../../../lib/mux/heartbeats.js';
import type { IngressSlot } from '../../../lib/mux/ingress-slot.js';
import type { IngressTable } from '../../../lib/mux/ingress-table.js';
import { MuxMetrics } from '../../../lib/mux/mux-metrics.js';
import type { PeerBatcher } from '../../../lib/mux/peer-batcher.js';
import { Watchdog } from '../../../lib/mux/watchdog.js';
import { SENDER_CANCELLED } from '../../../lib/plane/rows.js';

/** A link that takes everything, with one sender row. */
function linkWith(row: { flags: number }): ClientLink {
  return {
    rows: { senders: { flags: () => row.flags }, receivers: { setSlot: () => {} } },
    flagSender: () => true,
    writeRecord: () => true,
    dropReceiver: () => {},
  } as unknown as ClientLink;
}

describe('streams of a lane: heartbeats and windows', () => {
  it('a sender beats until its slot is over, in whatever way', () => {
    const reasons: ClosedReason[] = [
      'terminal',
      'abandoned',
      'unknownSlot',
      'protocolError',
      'cancelled',
      'epochDeath',
    ];
    for (const reason of reasons) {
      const heartbeats = new Heartbeats();
      const stream = new EgressStream(linkWith({ flags: 0 }), 0, 1, {} as PeerBatcher, 32);
      stream.beat = heartbeats.start(stream, MAX_HEARTBEAT_MS, 0);
      stream.closed({} as EgressSlot, reason);
      expect(heartbeats.size, reason).to.equal(0);
    }
  });

  it('a sender that was cancelled by message leaves at its next beat', () => {
    const row = { flags: 0 };
    let beats = 0;
    const heartbeat = () => {
      beats += 1;
      return true;
    };
    const batcher = { heartbeat } as unknown as PeerBatcher;
    const heartbeats = new Heartbeats();
    const stream = new EgressStream(linkWith(row), 0, 1, batcher, 32);
    stream.beat = heartbeats.start(stream, 100, 0);
    heartbeats.run(100);
    row.flags = SENDER_CANCELLED;
    heartbeats.run(200);
    expect([beats, heartbeats.size]).to.deep.equal([1, 0]);
  });

  it('a receiver is watched from the opening of its slot to its end', () => {
    const watchdog = new Watchdog(new MuxMetrics());
    const bind = { row: 0, generation: 1, credit: 32, byteBudget: 0, heartbeatMs: MAX_HEARTBEAT_MS };
    const table = {} as IngressTable;
    const stream = new IngressStream(linkWith({ flags: 0 }), table, bind, 0, 0, 0, ({ heartbeatMs }, slot) =>
      watchdog.watch(table, slot, heartbeatMs, 0),
    );
    expect(watchdog.size).to.equal(0);
    stream.opened({ next: 1 } as IngressSlot);
    expect(watchdog.deadline()).to.equal(MAX_HEARTBEAT_MS);
    stream.slotClosed();
    expect(watchdog.size).to.equal(0);
  });
});
