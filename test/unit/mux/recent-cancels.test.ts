// Cancels that are said again when a connection is lost: which, how often, and what is not.

import { expect } from 'chai';
import { MAX_RECENT_CANCELS, RECENT_CANCEL_MS, RecentCancels } from '../../../lib/mux/recent-cancels.js';
import { CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL, LIFECYCLE_STOP } from '../../../lib/wire/batch.js';
import { CoreNode } from '../../support/core-pair.js';

function sent(node: CoreNode): string[] {
  node.turn();
  node.batcher.kick();
  return node.port
    .take()
    .flatMap(({ records }) =>
      records.map(({ type, index, action, session }) => `${type} ${index} ${session}:${action}`),
    );
}

describe('mux: cancels said again', () => {
  it('remembers cancels in their order, for a time, up to a number, once', () => {
    const cancels = new RecentCancels<number>();
    cancels.note(1, 0);
    cancels.note(3, 5);
    expect([cancels.any(RECENT_CANCEL_MS + 5), cancels.any(RECENT_CANCEL_MS + 6)]).to.deep.equal([true, false]);
    expect(cancels.take(RECENT_CANCEL_MS + 1)).to.deep.equal([3]);
    expect(cancels.take(5)).to.deep.equal([]);
    expect(cancels.any(5)).to.equal(false);
    for (let i = 0; i < MAX_RECENT_CANCELS + 10; i += 1) cancels.note(i, 9);
    expect([cancels.any(9), cancels.any(RECENT_CANCEL_MS + 10)]).to.deep.equal([true, false]);
    expect(cancels.take(9)).to.deep.equal(Array.from({ length: MAX_RECENT_CANCELS }, (_, i) => i + 10));
  });

  it('a lost connection says the cancels again that had been written, and closes as cancels, neither stops nor credit', () => {
    const node = new CoreNode({ mux: { replyLingerMs: 0 } });
    const { control } = node.batcher;
    control.replyLifecycle(0x100, 0, 7, LIFECYCLE_CANCEL);
    control.replyLifecycle(0x200, 0, 8, LIFECYCLE_STOP);
    control.replyCredit(0x300, 3);
    control.replyClose(0x400, 0, 9, CLOSE_UNKNOWN_SLOT);
    expect(sent(node)).to.have.length(4);
    node.batcher.repeatCancels();
    // A close names no session: the slot may be another one by the time it is said again.
    expect(sent(node)).to.deep.equal([`lifecycle 4 9:${LIFECYCLE_CANCEL}`, `lifecycle 1 7:${LIFECYCLE_CANCEL}`]);
    // They were written again, and may be lost again.
    node.batcher.repeatCancels();
    expect(sent(node)).to.have.length(2);
    node.advance(RECENT_CANCEL_MS + 1);
    node.batcher.repeatCancels();
    expect(sent(node)).to.deep.equal([]);
  });
});
