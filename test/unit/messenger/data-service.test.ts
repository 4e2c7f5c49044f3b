// What an owner answers, word for word and byte for byte.

import { expect } from 'chai';
import { DataService, encodeReference } from '../../../lib/messenger/data-service.js';
import { DataStore } from '../../../lib/messenger/data-store.js';
import { RendezvousMetrics } from '../../../lib/metrics/rendezvous-metrics.js';
import { DataHandle } from '../../../lib/wire/handle.js';
import { RENDEZVOUS_HANDLERS } from '../../../lib/wire/names.js';

const WORKER = 14_225_989_560_148_541_334n;
const HANDLE = new DataHandle(WORKER, 1n);
const utf8 = new TextEncoder();
const text = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

describe('the answers of an owner of staged payloads', () => {
  let metrics: RendezvousMetrics;
  let service: DataService;
  beforeEach(() => {
    metrics = new RendezvousMetrics();
    const store = new DataStore<undefined>({ leaseTtlMs: 1_000, stagedTtlMs: 1_000, metrics, gone: () => {} });
    store.put(1, new Uint8Array(300_000).fill(7), 'registered', undefined, 0);
    service = new DataService(WORKER, store, metrics);
  });

  const serve = (handler: string, payload: Uint8Array | string) =>
    service.serve(handler, typeof payload === 'string' ? utf8.encode(payload) : payload, 0);
  const ok = (handler: string, payload: Uint8Array | string) => {
    const outcome = serve(handler, payload);
    if (outcome.kind !== 'ok') throw new Error(`${handler}: ${JSON.stringify(outcome)}`);
    return outcome.bytes;
  };

  it('serves the seven names, each in the kind that peers expect', () => {
    const kinds = RENDEZVOUS_HANDLERS.map((name) => [name, service.kindOf(name)]);
    expect(Object.fromEntries(kinds)).to.deep.equal({
      _rv_metadata: 'typedUnary',
      _rv_acquire: 'typedUnary',
      _rv_pull: 'unary',
      _rv_ref: 'unary',
      _rv_detach: 'am',
      _rv_release: 'am',
      _rv_lease_renew: 'am',
    });
    expect(service.kindOf('_rv_other')).to.equal(undefined);
  });

  it('acquire, pull, metadata, ref and release are those of the specification', () => {
    // An acquire as a 0.21 node writes it, with its offer of no RDMA.
    const request = `{"handle":{"hi":${WORKER},"lo":1},"rdma":null}`;
    expect(text(ok('_rv_acquire', request))).to.equal(
      '{"Ready":{"lease_id":1,"transfer_id":1,"total_len":300000,"chunk_size":524288,"chunk_count":1}}',
    );
    const chunk = ok('_rv_pull', '{"transfer_id":1,"chunk_index":0}')!;
    expect([chunk.length, chunk[0], chunk.at(-1)]).to.deep.equal([300_000, 7, 7]);
    expect(text(ok('_rv_metadata', encodeReference(HANDLE)))).to.equal(
      '{"total_len":300000,"refcount":1,"pinned":false}',
    );
    expect(ok('_rv_ref', encodeReference(HANDLE))).to.equal(undefined);
    expect(text(ok('_rv_metadata', encodeReference(HANDLE)))).to.include('"refcount":2');
    const lease = `{"handle":{"hi":${WORKER},"lo":1},"lease_id":1}`;
    expect(ok('_rv_lease_renew', lease)).to.equal(undefined);
    expect(ok('_rv_release', lease)).to.equal(undefined);
    expect(metrics.badLeases).to.equal(0);
    expect(ok('_rv_detach', lease), 'a used lease is no error of the request').to.equal(undefined);
    expect(metrics.badLeases).to.equal(1);
  });

  it('what is not there is named as peers name it', () => {
    const missing = encodeReference(new DataHandle(WORKER, 9n));
    const named = `DataHandle(worker=${WORKER}, local=9)`;
    for (const handler of ['_rv_acquire', '_rv_metadata'])
      expect(serve(handler, missing)).to.deep.equal({ kind: 'failed', text: `rendezvous handle not found: ${named}` });
    expect(serve('_rv_ref', missing)).to.deep.equal({ kind: 'failed', text: `_rv_ref: handle not found: ${named}` });
    expect(serve('_rv_pull', '{"transfer_id":5,"chunk_index":3}')).to.deep.equal({
      kind: 'failed',
      text: 'chunk not found: transfer_id=5, chunk_index=3',
    });
    ok('_rv_acquire', encodeReference(HANDLE));
    expect(serve('_rv_pull', '{"transfer_id":1,"chunk_index":1}')).to.deep.include({ kind: 'failed' });
    // Another node's handle, though the number is one of ours.
    expect(serve('_rv_acquire', encodeReference(new DataHandle(WORKER + 1n, 1n)))).to.deep.include({ kind: 'failed' });
    expect(serve('_rv_acquire', encodeReference(new DataHandle(WORKER, 2n ** 64n - 1n)))).to.deep.include({
      kind: 'failed',
    });
  });

  it('damaged requests fail by their kind, and nothing throws', () => {
    const bad = ['', '[]', '{', '{}', 'null', '{"handle":{"hi":-1,"lo":1}}', '{"handle":7,"transfer_id":"x"}', '\xff'];
    for (const payload of bad) {
      for (const handler of RENDEZVOUS_HANDLERS) {
        const expected = service.kindOf(handler) === 'typedUnary' ? 'badInput' : 'failed';
        expect(serve(handler, payload).kind, `${handler} ${payload}`).to.equal(expected);
      }
    }
  });
});
