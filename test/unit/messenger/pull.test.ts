// The reader of a staged payload against owners: an honest one, which is the package's own, and every kind of liar.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { DataService } from '../../../lib/messenger/data-service.js';
import { CHUNK_BYTES, DataStore } from '../../../lib/messenger/data-store.js';
import { MAX_CHUNKS, type PullOrder, type PullRpc, pull, wrongChunk } from '../../../lib/messenger/pull.js';
import { RendezvousMetrics } from '../../../lib/metrics/rendezvous-metrics.js';
import { DataHandle } from '../../../lib/wire/handle.js';

const WORKER = 77n;
const HANDLE = new DataHandle(WORKER, 1n);
const MAX = 4 * CHUNK_BYTES;
const utf8 = new TextEncoder();

type Answer = (handler: string, payload: Uint8Array, count: number) => Uint8Array | Promise<Uint8Array>;

/** Calls that go straight to `answer`, by turns as the wire would have it. */
class Wire implements PullRpc {
  readonly seen: string[] = [];
  readonly allocated: number[] = [];
  constructor(private readonly answer: Answer) {}

  async call(handler: string, payload: Uint8Array): Promise<Uint8Array> {
    this.seen.push(handler);
    return await this.answer(handler, payload, this.seen.length);
  }

  async callInto(handler: string, payload: Uint8Array, target: Uint8Array): Promise<void> {
    const got = await this.call(handler, payload);
    if (got.length !== target.length) throw wrongChunk(got.length, target.length);
    target.set(got);
  }

  fire(handler: string, payload: Uint8Array): void {
    this.seen.push(`${handler} ${new TextDecoder().decode(payload)}`);
    void Promise.resolve(this.answer(handler, payload, 0)).catch(() => {});
  }

  order(extra: Partial<PullOrder> = {}): PullOrder {
    const room = (length: number) => {
      this.allocated.push(length);
      return new Uint8Array(length);
    };
    return { handle: HANDLE, maxBytes: MAX, limitName: 'theLimit', refuse: 'release', room, ...extra };
  }
}

function honest(bytes: Uint8Array) {
  const metrics = new RendezvousMetrics();
  const gone: number[] = [];
  const store = new DataStore<undefined>({
    leaseTtlMs: 1e9,
    stagedTtlMs: 1e9,
    metrics,
    gone: (id) => gone.push(id),
  });
  store.put(1, bytes, 'message', undefined, 0);
  const service = new DataService(WORKER, store, metrics);
  const wire = new Wire((handler, payload) => {
    const outcome = service.serve(handler, payload, 0);
    if (outcome.kind === 'ok') return outcome.bytes ?? new Uint8Array(0);
    throw new VeloError('ERR_HANDLER_FAILED', outcome.kind === 'failed' ? outcome.text : outcome.kind);
  });
  return { store, wire, gone };
}

const ready = (fields: Record<string, unknown>) =>
  utf8.encode(
    JSON.stringify({
      Ready: { lease_id: 3, transfer_id: 4, total_len: 10, chunk_size: 10, chunk_count: 1, ...fields },
    }),
  );
const LEASE = '{"handle":{"hi":77,"lo":1},"lease_id":3}';

async function fails(promise: Promise<unknown>): Promise<VeloError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!VeloError.is(error)) throw new Error(`it ended with ${String(error)}`);
  return error;
}

describe('pulling a staged payload', () => {
  it('brings every byte, chunk by chunk and in order, and keeps the lease', async () => {
    for (const length of [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, MAX]) {
      const bytes = new Uint8Array(length).map((_, i) => (i * 31) % 251);
      const { store, wire } = honest(bytes);
      const pulled = await pull(wire, wire.order());
      expect(Buffer.compare(pulled.bytes, bytes)).to.equal(0);
      expect(wire.allocated).to.deep.equal([length]);
      expect(wire.seen).to.deep.equal([
        '_rv_acquire',
        ...Array.from({ length: Math.ceil(length / CHUNK_BYTES) }, () => '_rv_pull'),
      ]);
      expect(store.leaseCount).to.equal(1);
    }
  });

  it('a payload above the limit is refused unread: both sizes are named, nothing is allocated, the owner is told', async () => {
    for (const [refuse, freed] of [
      ['release', [1]],
      ['detach', []],
    ] as const) {
      const { wire, store, gone } = honest(new Uint8Array(MAX + 1));
      const error = await fails(pull(wire, wire.order({ refuse })));
      expect(error.code).to.equal('ERR_PAYLOAD_TOO_LARGE');
      expect(error.message)
        .to.include(`${MAX + 1}`)
        .and.include(`theLimit = ${MAX}`);
      expect(wire.allocated).to.deep.equal([]);
      expect(gone).to.deep.equal(freed);
      expect(store.leaseCount).to.equal(0);
    }
  });

  it('an owner that does not know the handle costs nothing', async () => {
    const { wire } = honest(new Uint8Array(1));
    const error = await fails(pull(wire, wire.order({ handle: new DataHandle(WORKER, 2n) })));
    expect(error.message).to.equal('rendezvous handle not found: DataHandle(worker=77, local=2)');
    expect(wire.seen).to.deep.equal(['_rv_acquire']);
  });

  for (const [lie, fields] of [
    ['too few chunks', { total_len: 11 }],
    ['too many chunks', { chunk_count: 2 }],
    ['no chunks', { chunk_count: 0 }],
    ['chunks of nothing', { chunk_size: 0 }],
    ['chunks of an empty payload', { total_len: 0 }],
    ['a length that is none', { total_len: -1 }],
    ['a length beyond 64 bits', { total_len: 1e30 }],
  ] as const) {
    it(`a Ready that announces ${lie} is refused before memory is taken`, async () => {
      const wire = new Wire(() => ready(fields));
      expect((await fails(pull(wire, wire.order()))).code).to.be.oneOf(['ERR_BAD_CONTROL_MESSAGE', 'ERR_BAD_JSON']);
      expect(wire.allocated).to.deep.equal([]);
    });
  }

  it('an answer that is not a Ready is refused', async () => {
    for (const answer of ['', '{}', 'null', '[]', '{"Rdma":{"lease_id":1,"descriptor":[],"lease_timeout_ms":1}}']) {
      const wire = new Wire(() => utf8.encode(answer));
      expect((await fails(pull(wire, wire.order()))).code).to.be.oneOf(['ERR_BAD_CONTROL_MESSAGE', 'ERR_BAD_JSON']);
      expect(wire.allocated).to.deep.equal([]);
    }
  });

  it('a payload cut into crumbs is refused, and the lease given back', async () => {
    const total = MAX_CHUNKS + 1;
    const wire = new Wire(() => ready({ total_len: total, chunk_size: 1, chunk_count: total }));
    expect((await fails(pull(wire, wire.order()))).code).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(wire.allocated).to.deep.equal([]);
    expect(wire.seen).to.deep.equal(['_rv_acquire', `_rv_detach ${LEASE}`]);
  });

  for (const length of [0, 9, 11]) {
    it(`a chunk of ${length} bytes where 10 belong ends the pull, and the lease is given back`, async () => {
      const wire = new Wire((handler) => (handler === '_rv_acquire' ? ready({}) : new Uint8Array(length)));
      const error = await fails(pull(wire, wire.order()));
      expect(error.message).to.equal(`chunk of ${length} bytes where 10 belong`);
      expect(wire.seen).to.deep.equal(['_rv_acquire', '_rv_pull', `_rv_detach ${LEASE}`]);
    });
  }

  it('other chunk sizes than its own are fine', async () => {
    const wire = new Wire((handler, payload) => {
      if (handler === '_rv_acquire') return ready({ total_len: 25, chunk_count: 3 });
      const index = (JSON.parse(new TextDecoder().decode(payload)) as { chunk_index: number }).chunk_index;
      return new Uint8Array(index === 2 ? 5 : 10).fill(index);
    });
    const { bytes, leaseId } = await pull(wire, wire.order());
    expect([...bytes]).to.deep.equal([...Array(10).fill(0), ...Array(10).fill(1), ...Array(5).fill(2)]);
    expect(leaseId).to.equal(3n);
  });

  it('who gives up during a chunk, or while waiting for memory, gives the lease back', async () => {
    const never = new Promise<never>(() => {});
    const enough = new VeloError('ERR_ABORTED', 'enough');
    for (const room of [() => never, (length: number) => new Uint8Array(length)]) {
      let giveUp = (_: VeloError): void => {};
      const promise = new Promise<never>((_, reject) => {
        giveUp = reject;
      });
      const wire = new Wire((handler) => (handler === '_rv_acquire' ? ready({}) : never));
      const pulling = pull(wire, wire.order({ giveUp: promise, room }));
      setImmediate(() => giveUp(enough));
      expect(await fails(pulling)).to.equal(enough);
      expect(wire.seen.at(-1)).to.equal(`_rv_detach ${LEASE}`);
    }
  });

  it('a grant that comes after its reader gave up is given back', async () => {
    let grant = (_: Uint8Array): void => {};
    const granted = new Promise<Uint8Array>((resolve) => {
      grant = resolve;
    });
    const wire = new Wire(() => granted);
    const enough = new VeloError('ERR_ABORTED', 'enough');
    expect(await fails(pull(wire, wire.order({ giveUp: Promise.reject(enough) })))).to.equal(enough);
    expect(wire.seen).to.deep.equal(['_rv_acquire']);
    grant(ready({}));
    await new Promise((resolve) => setImmediate(resolve));
    expect(wire.seen).to.deep.equal(['_rv_acquire', `_rv_detach ${LEASE}`]);
  });
});
