import { expect } from 'chai';
import { DEFAULT_MAX_QUEUE_DEPTH, GLOBAL_LANE, OrderedDispatch } from '../../../lib/messenger/ordered-dispatch.js';

/** A job that ends when told to. */
function gate(): { job: () => Promise<void>; open: () => void; fail: () => void; started: boolean } {
  let resolve: () => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  const handle = {
    started: false,
    job: () => {
      handle.started = true;
      return promise;
    },
    open: resolve,
    fail: () => reject(new Error('job failed')),
  };
  return handle;
}

async function settle(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

describe('ordered dispatch', () => {
  it('AR-19 keeps 500 jobs of one sender in order, one at a time', async () => {
    const dispatch = new OrderedDispatch();
    const order: number[] = [];
    let running = 0;
    let most = 0;
    for (let i = 0; i < 500; i += 1) {
      dispatch.enqueue('h', 1n, 0, async () => {
        running += 1;
        most = Math.max(most, running);
        if (i % 3 === 0) await settle();
        else if (i % 3 === 1) await Promise.resolve();
        order.push(i);
        running -= 1;
      });
    }
    while (dispatch.lanes > 0) await settle();
    expect(order).to.deep.equal(Array.from({ length: 500 }, (_, i) => i));
    expect(most).to.equal(1);
  });

  it('AR-19 runs different senders, and different handlers, side by side', async () => {
    const dispatch = new OrderedDispatch();
    const [a, b, c, d] = [gate(), gate(), gate(), gate()];
    expect(dispatch.enqueue('h', 1n, 0, a.job)).to.equal('started');
    expect(dispatch.enqueue('h', 2n ** 64n - 1n, 0, b.job)).to.equal('started');
    expect(dispatch.enqueue('other', 1n, 0, c.job)).to.equal('started');
    expect(dispatch.enqueue('h', 1n, 0, d.job)).to.equal('queued');
    expect([a.started, b.started, c.started, d.started]).to.deep.equal([true, true, true, false]);
    expect([dispatch.lanes, dispatch.queued]).to.deep.equal([3, 1]);
    expect(dispatch.describe('h')).to.deep.equal({ lanes: 2, queued: 1, created: 2 });
    b.open();
    await settle();
    expect(d.started).to.equal(false);
    a.open();
    await settle();
    expect(d.started).to.equal(true);
    c.open();
    d.open();
    await settle();
    expect([dispatch.lanes, dispatch.queued, dispatch.describe('h').lanes]).to.deep.equal([0, 0, 0]);
  });

  it('AR-19 a job that throws, at once or later, does not stop its lane', async () => {
    const dispatch = new OrderedDispatch();
    const seen: string[] = [];
    const failing = gate();
    dispatch.enqueue('h', 1n, 0, failing.job);
    dispatch.enqueue('h', 1n, 0, () => {
      seen.push('throws');
      throw new Error('at once');
    });
    dispatch.enqueue('h', 1n, 0, () => {
      seen.push('after');
    });
    failing.fail();
    await settle();
    expect(seen).to.deep.equal(['throws', 'after']);
    expect(dispatch.counts.failed).to.equal(2);
    expect(dispatch.lanes).to.equal(0);
  });

  it('rejects above the depth limit, and takes jobs again when there is room', async () => {
    const dispatch = new OrderedDispatch();
    const first = gate();
    const ran: number[] = [];
    const push = (i: number) => dispatch.enqueue('h', GLOBAL_LANE, 0, () => void ran.push(i), 2);
    dispatch.enqueue('h', GLOBAL_LANE, 0, first.job, 2);
    expect([push(1), push(2), push(3)]).to.deep.equal(['queued', 'queued', 'rejected']);
    expect(dispatch.counts.rejected).to.equal(1);
    first.open();
    await settle();
    expect(ran).to.deep.equal([1, 2]);
    expect(push(4)).to.equal('started');
    expect(ran).to.deep.equal([1, 2, 4]);
  });

  it('a depth of 0 runs one job and queues none', async () => {
    const dispatch = new OrderedDispatch();
    const first = gate();
    expect(dispatch.enqueue('h', 1n, 0, first.job, 0)).to.equal('started');
    expect(dispatch.enqueue('h', 1n, 0, () => {}, 0)).to.equal('rejected');
    first.open();
    await settle();
    expect(dispatch.lanes).to.equal(0);
  });

  it('bounds the bytes that wait, but lets one large job wait alone', async () => {
    const dispatch = new OrderedDispatch();
    const first = gate();
    const add = (bytes: number) => dispatch.enqueue('h', 1n, bytes, () => {}, DEFAULT_MAX_QUEUE_DEPTH, 100);
    dispatch.enqueue('h', 1n, 1_000, first.job, DEFAULT_MAX_QUEUE_DEPTH, 100);
    expect([add(500), add(1)]).to.deep.equal(['queued', 'rejected']);
    first.open();
    await settle();
    const second = gate();
    dispatch.enqueue('h', 1n, 0, second.job);
    expect([add(60), add(40), add(1)]).to.deep.equal(['queued', 'queued', 'rejected']);
    second.open();
    await settle();
    expect(dispatch.queued).to.equal(0);
  });

  it('a job that has started no longer counts against the bytes that wait', async () => {
    const dispatch = new OrderedDispatch();
    const [first, second] = [gate(), gate()];
    const add = (bytes: number, job: () => void | Promise<void>) =>
      dispatch.enqueue('h', 1n, bytes, job, DEFAULT_MAX_QUEUE_DEPTH, 100);
    add(0, first.job);
    expect([add(60, second.job), add(40, () => {}), add(1, () => {})]).to.deep.equal(['queued', 'queued', 'rejected']);
    first.open();
    await settle();
    expect([second.started, add(60, () => {}), add(1, () => {})]).to.deep.equal([true, 'queued', 'rejected']);
    second.open();
    await settle();
    expect(dispatch.lanes).to.equal(0);
  });

  it('has a depth limit when none is given', () => {
    const dispatch = new OrderedDispatch();
    dispatch.enqueue('h', 1n, 0, gate().job);
    for (let i = 0; i < DEFAULT_MAX_QUEUE_DEPTH; i += 1) {
      expect(dispatch.enqueue('h', 1n, 0, () => {})).to.equal('queued');
    }
    expect(dispatch.enqueue('h', 1n, 0, () => {})).to.equal('rejected');
  });

  it('a lane of width 3 runs three jobs at once, the others in order as places come free', async () => {
    const dispatch = new OrderedDispatch();
    const gates = [gate(), gate(), gate(), gate(), gate()];
    const add = (job: () => Promise<void>) =>
      dispatch.enqueue('h', GLOBAL_LANE, 0, job, DEFAULT_MAX_QUEUE_DEPTH, Number.POSITIVE_INFINITY, 3);
    const started = () => gates.map((each) => each.started);
    expect(gates.map(({ job }) => add(job))).to.deep.equal(['started', 'started', 'started', 'queued', 'queued']);
    expect(started()).to.deep.equal([true, true, true, false, false]);
    expect([dispatch.depth('h', GLOBAL_LANE), dispatch.lanes, dispatch.queued]).to.deep.equal([5, 1, 2]);
    gates[1]!.open();
    await settle();
    expect(started()).to.deep.equal([true, true, true, true, false]);
    gates[0]!.fail();
    gates[2]!.open();
    await settle();
    expect(started()).to.deep.equal([true, true, true, true, true]);
    const late = gate();
    expect(add(late.job), 'one place is free').to.equal('started');
    for (const each of [gates[3]!, gates[4]!, late]) each.open();
    await settle();
    expect([dispatch.lanes, dispatch.depth('h', GLOBAL_LANE), dispatch.counts.lanesCreated]).to.deep.equal([0, 0, 1]);
  });

  it('a job may enqueue for its own lane and for others', async () => {
    const dispatch = new OrderedDispatch();
    const seen: string[] = [];
    dispatch.enqueue('h', 1n, 0, () => {
      seen.push('outer');
      expect(dispatch.enqueue('h', 1n, 0, () => void seen.push('inner'))).to.equal('queued');
      expect(dispatch.enqueue('h', 2n, 0, () => void seen.push('other'))).to.equal('started');
    });
    expect(seen).to.deep.equal(['outer', 'other']);
    await settle();
    expect(seen).to.deep.equal(['outer', 'other', 'inner']);
    expect(dispatch.lanes).to.equal(0);
  });
});
