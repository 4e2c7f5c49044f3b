// The payloads a node keeps: references, leases, and the clock that ends what nobody ends. Plus a naive model that every
// random history must agree with.

import { expect } from 'chai';
import fc from 'fast-check';
import { CHUNK_BYTES, type DataKind, DataStore } from '../../../lib/messenger/data-store.js';
import { RendezvousMetrics } from '../../../lib/metrics/rendezvous-metrics.js';
import { errorCode } from '../plane/errors.js';

const LEASE_MS = 600;
const STAGED_MS = 1_000;

function makeStore(maxLeases = 1_000) {
  const metrics = new RendezvousMetrics();
  const gone: string[] = [];
  const store = new DataStore<string>({
    leaseTtlMs: LEASE_MS,
    stagedTtlMs: STAGED_MS,
    metrics,
    maxLeases,
    gone: (id, owner) => gone.push(`${id}/${owner}`),
  });
  const put = (id: number, length: number, kind: DataKind = 'registered', now = 0) =>
    store.put(id, new Uint8Array(length).fill(id), kind, 'me', now);
  const acquire = (id: number, now = 0) => Number(store.acquire(id, now)!.leaseId);
  return { store, metrics, gone, put, acquire };
}

describe('the store of staged payloads', () => {
  it('cuts a payload into chunks of 524,288 bytes, the last one short, any of them as often as asked', () => {
    const { store, put } = makeStore();
    for (const [id, length, chunks] of [
      [1, 0, []],
      [2, 1, [1]],
      [3, CHUNK_BYTES, [CHUNK_BYTES]],
      [4, 2 * CHUNK_BYTES + 7, [CHUNK_BYTES, CHUNK_BYTES, 7]],
    ] as const) {
      put(id, length);
      const ready = store.acquire(id, 0)!;
      expect([ready.totalLength, ready.chunkSize, ready.chunkCount]).to.deep.equal([
        BigInt(length),
        CHUNK_BYTES,
        chunks.length,
      ]);
      const transfer = Number(ready.transferId);
      const lengths = chunks.map((_, index) => store.chunk(transfer, index, 0)!.length);
      expect(lengths).to.deep.equal(chunks);
      for (let index = chunks.length - 1; index >= 0; index--)
        expect(store.chunk(transfer, index, 0)!.length).to.equal(chunks[index]);
      expect(store.chunk(transfer, chunks.length, 0)).to.equal(undefined);
    }
  });

  it('a release gives up the reference, a detach keeps it; bytes and slots are counted', () => {
    const { store, metrics, gone, put, acquire } = makeStore();
    put(1, 100);
    expect([metrics.activeSlots, metrics.activeBytes]).to.deep.equal([1, 100]);
    expect(store.detach(1, acquire(1), 0)).to.equal('ended');
    expect(store.facts(1)).to.deep.equal({ totalLength: 100, refcount: 1 });
    expect(store.ref(1)).to.equal(true);
    expect(store.release(1, acquire(1), 0)).to.equal('ended');
    expect(store.facts(1)?.refcount).to.equal(1);
    expect(store.release(1, acquire(1), 0)).to.equal('ended');
    expect(gone).to.deep.equal(['1/me']);
    expect([store.size, store.leaseCount, metrics.activeSlots, metrics.activeBytes]).to.deep.equal([0, 0, 0, 0]);
    expect([store.acquire(1, 0), store.facts(1), store.ref(1)]).to.deep.equal([undefined, undefined, false]);
  });

  it('a lease ends once, and only with the payload that it is on', () => {
    const { store, put, acquire } = makeStore();
    put(1, 1);
    put(2, 1);
    const lease = acquire(1);
    expect(store.release(2, lease, 0)).to.equal('mismatch');
    expect(store.detach(1, 99, 0)).to.equal('unknown');
    expect(store.chunk(lease, 0, 0)?.[0], 'the mismatch kept it').to.equal(1);
    expect(store.detach(1, lease, 0)).to.equal('ended');
    expect(store.detach(1, lease, 0)).to.equal('unknown');
    expect(store.chunk(lease, 0, 0)).to.equal(undefined);
  });

  it('a payload without a reference stays for those that read it, and goes with the last of them, detached or released', () => {
    for (const last of ['detach', 'release'] as const) {
      const { store, gone, put, acquire } = makeStore();
      put(1, 1);
      const [reader, releaser] = [acquire(1), acquire(1)];
      store.release(1, releaser, 0);
      expect([gone.length, store.facts(1)?.refcount]).to.deep.equal([0, 0]);
      expect(store.chunk(reader, 0, 0)).to.have.length(1);
      const late = acquire(1);
      store[last](1, reader, 0);
      expect(gone).to.deep.equal([]);
      store[last](1, late, 0);
      expect(gone).to.deep.equal(['1/me']);
    }
  });

  it('the end of a message frees its payload, but not under its reader, and not what somebody else took a reference on', () => {
    const { store, gone, put, acquire } = makeStore();
    put(1, 1, 'message');
    store.over(1);
    expect(gone).to.deep.equal(['1/me']);
    put(2, 1, 'message');
    const lease = acquire(2);
    store.over(2);
    expect(store.chunk(lease, 0, 0)).to.have.length(1);
    store.detach(2, lease, 0);
    expect(gone).to.deep.equal(['1/me', '2/me']);
    put(3, 1, 'message');
    store.ref(3);
    store.over(3);
    put(4, 1, 'registered');
    store.over(4);
    expect(gone).to.have.length(2);
  });

  it('a reference that was added to a message stays, whichever of the two ends is first', () => {
    for (const overFirst of [true, false]) {
      const { store, gone, put, acquire } = makeStore();
      put(1, 1, 'message');
      const lease = acquire(1);
      store.ref(1);
      if (overFirst) store.over(1);
      store.release(1, lease, 0);
      if (!overFirst) store.over(1);
      expect([gone.length, store.facts(1)?.refcount]).to.deep.equal([0, 1]);
      store.release(1, acquire(1), 0);
      expect(gone).to.deep.equal(['1/me']);
    }
  });

  it('an idle lease lapses: it holds nothing, may be taken up again, and its release still counts', () => {
    const { store, metrics, gone, put, acquire } = makeStore();
    put(1, 1);
    const lease = acquire(1, 0);
    store.sweep(LEASE_MS - 1);
    expect(metrics.reapedLeases).to.equal(0);
    store.sweep(LEASE_MS);
    expect(metrics.reapedLeases).to.equal(1);
    // Somebody else gives up the last reference: nothing holds the payload now.
    const other = acquire(1, LEASE_MS);
    expect(store.chunk(lease, 0, LEASE_MS), 'taken up again').to.have.length(1);
    store.release(1, other, LEASE_MS);
    expect(gone).to.deep.equal([]);
    store.sweep(2 * LEASE_MS);
    expect(gone, 'it lapsed once more').to.deep.equal(['1/me']);
    expect(store.leaseCount).to.equal(0);

    put(2, 1);
    const late = acquire(2, 0);
    store.sweep(LEASE_MS);
    expect(store.release(2, late, 5 * LEASE_MS)).to.equal('ended');
    expect(gone).to.deep.equal(['1/me', '2/me']);
  });

  it('use, and a renewal, keep a lease from lapsing', () => {
    const { store, metrics, put, acquire } = makeStore();
    put(1, 1);
    const lease = acquire(1, 0);
    for (let now = LEASE_MS / 2; now < 4 * LEASE_MS; now += LEASE_MS / 2) {
      if (now % LEASE_MS === 0) store.chunk(lease, 0, now);
      else expect(store.renew(1, lease, now)).to.equal('ended');
      store.sweep(now);
    }
    expect(metrics.reapedLeases).to.equal(0);
    expect(store.renew(2, lease, 0)).to.equal('mismatch');
    expect(store.renew(1, lease + 1, 0)).to.equal('unknown');
  });

  it('a staged message that nobody fetches expires; one that is read, and registered data, do not', () => {
    const { store, metrics, gone, put, acquire } = makeStore();
    put(1, 1, 'message', 0);
    put(2, 1, 'message', 0);
    put(3, 1, 'registered', 0);
    const lease = acquire(2, 0);
    store.chunk(lease, 0, STAGED_MS - 1);
    store.sweep(STAGED_MS - 1);
    expect(gone).to.deep.equal([]);
    store.sweep(STAGED_MS);
    expect(gone).to.deep.equal(['1/me']);
    store.sweep(2 * STAGED_MS);
    expect(gone, 'the reader of 2 was not heard of').to.deep.equal(['1/me', '2/me']);
    expect(metrics.expiredSlots).to.equal(2);
    store.sweep(1_000 * STAGED_MS);
    expect(store.size).to.equal(1);
  });

  it('asks to be swept only while it holds something', () => {
    const { store, put, acquire } = makeStore();
    expect(store.deadline()).to.equal(Number.POSITIVE_INFINITY);
    put(1, 1, 'message', 500);
    expect(store.deadline()).to.be.within(501, 500 + LEASE_MS);
    store.release(1, acquire(1, 500), 500);
    expect(store.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('leases have a bound; lapsed ones make way', () => {
    const { store, put, acquire } = makeStore(3);
    put(1, 1);
    const first = acquire(1, 0);
    acquire(1, LEASE_MS);
    acquire(1, LEASE_MS);
    expect(errorCode(() => store.acquire(1, LEASE_MS))).to.equal('ERR_LIMIT');
    store.sweep(LEASE_MS);
    expect(acquire(1, LEASE_MS)).to.be.greaterThan(first);
    expect(store.release(1, first, LEASE_MS), 'forgotten').to.equal('unknown');
    expect(store.leaseCount).to.equal(3);
  });

  it('agrees with a naive model over random histories', () => {
    const id = fc.integer({ min: 1, max: 4 });
    const lease = fc.integer({ min: 1, max: 12 });
    const step = fc.oneof(
      fc.record({ kind: fc.constant('put' as const), id, message: fc.boolean() }),
      fc.record({ kind: fc.constant('acquire' as const), id }),
      fc.record({ kind: fc.constantFrom('release' as const, 'detach' as const, 'renew' as const), id, lease }),
      fc.record({ kind: fc.constant('chunk' as const), lease }),
      fc.record({ kind: fc.constantFrom('ref' as const, 'over' as const), id }),
      fc.record({ kind: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 700 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const real = makeStore();
        const model = new Model();
        for (const each of steps) {
          switch (each.kind) {
            case 'put':
              if (!model.data.has(each.id)) {
                real.put(each.id, each.id, each.message ? 'message' : 'registered', model.now);
                model.put(each.id, each.message);
              }
              break;
            case 'acquire':
              expect(Number(real.store.acquire(each.id, model.now)?.leaseId ?? 0)).to.equal(model.acquire(each.id));
              break;
            case 'chunk':
              expect(real.store.chunk(each.lease, 0, model.now)?.[0]).to.equal(model.chunk(each.lease));
              break;
            case 'ref':
              expect(real.store.ref(each.id)).to.equal(model.ref(each.id));
              break;
            case 'over':
              real.store.over(each.id);
              model.over(each.id);
              break;
            case 'wait':
              model.wait(each.ms);
              real.store.sweep(model.now);
              break;
            default:
              expect(real.store[each.kind](each.id, each.lease, model.now)).to.equal(
                model.end(each.kind, each.id, each.lease),
              );
          }
          expect(real.gone).to.deep.equal(model.gone);
          expect(real.store.leaseCount).to.equal(model.leases.size);
          expect(real.metrics.activeBytes).to.equal([...model.data.keys()].reduce((sum, each) => sum + each, 0));
          for (const [each, { refcount }] of model.data) expect(real.store.facts(each)?.refcount).to.equal(refcount);
        }
      }),
      { numRuns: 300 },
    );
  });
});

interface ModelData {
  message: boolean;
  refcount: number;
  over: boolean;
  /** Nobody released it yet, and its message did not give it up. */
  own: boolean;
  usedAt: number;
}

/** The rules once more, without any bookkeeping: whatever is asked is counted anew. */
class Model {
  now = 0;
  readonly data = new Map<number, ModelData>();
  readonly leases = new Map<number, { id: number; usedAt: number; holds: boolean }>();
  readonly gone: string[] = [];
  private next = 1;

  put(id: number, message: boolean): void {
    this.data.set(id, { message, refcount: 1, over: false, own: true, usedAt: this.now });
  }

  acquire(id: number): number {
    const data = this.data.get(id);
    if (data === undefined) return 0;
    data.usedAt = this.now;
    this.leases.set(this.next, { id, usedAt: this.now, holds: true });
    return this.next++;
  }

  chunk(lease: number): number | undefined {
    const held = this.leases.get(lease);
    if (held === undefined) return undefined;
    this.touch(lease);
    return held.id;
  }

  ref(id: number): boolean {
    const data = this.data.get(id);
    if (data !== undefined) data.refcount += 1;
    return data !== undefined;
  }

  over(id: number): void {
    const data = this.data.get(id);
    if (data?.message) data.over = true;
    this.collect(id);
  }

  end(kind: 'release' | 'detach' | 'renew', id: number, lease: number): string {
    const held = this.leases.get(lease);
    if (held === undefined) return 'unknown';
    if (held.id !== id) return 'mismatch';
    this.touch(lease);
    if (kind === 'renew') return 'ended';
    this.leases.delete(lease);
    const data = this.data.get(id)!;
    if (kind === 'release') {
      data.refcount = Math.max(0, data.refcount - 1);
      data.own = false;
    }
    this.collect(id);
    return 'ended';
  }

  wait(ms: number): void {
    this.now += ms;
    for (const lease of this.leases.values()) {
      if (!lease.holds || this.now - lease.usedAt < LEASE_MS) continue;
      lease.holds = false;
      this.collect(lease.id);
    }
    for (const [id, data] of this.data)
      if (data.message && !this.isHeld(id) && this.now - data.usedAt >= STAGED_MS) this.drop(id);
  }

  private touch(lease: number): void {
    const held = this.leases.get(lease)!;
    held.holds = true;
    held.usedAt = this.now;
    this.data.get(held.id)!.usedAt = this.now;
  }

  private isHeld(id: number): boolean {
    return [...this.leases.values()].some((lease) => lease.id === id && lease.holds);
  }

  private collect(id: number): void {
    const data = this.data.get(id);
    if (data === undefined || this.isHeld(id)) return;
    if (data.over && data.own) {
      data.own = false;
      data.refcount -= 1;
    }
    if (data.refcount === 0) this.drop(id);
  }

  private drop(id: number): void {
    this.data.delete(id);
    for (const [number, lease] of this.leases) if (lease.id === id) this.leases.delete(number);
    this.gone.push(`${id}/me`);
  }
}
