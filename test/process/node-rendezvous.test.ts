// Payloads too large for a frame between two real nodes: staged by one, pulled by the other, gone afterwards. And data by handle.

import { expect } from 'chai';
import {
  amHandler,
  DataHandle,
  type DataLease,
  parseJson,
  stringifyJson,
  unaryHandler,
  type Velo,
  type VeloOptions,
} from '../../lib/index.js';
import { failure, pause, provesAlive, range, streamSuite, until } from '../support/nodes.js';

const THRESHOLD = 262_144;
const CHUNK = 524_288;
const MIB = 1024 * 1024;

const pattern = (length: number, seed = 0) => {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i += 4_093) bytes[i] = i + seed;
  if (length > 0) bytes[length - 1] = 99 + seed;
  return bytes;
};
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const same = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0;

/** Nothing staged, nothing being pulled. */
async function empty(...nodes: Velo[]): Promise<void> {
  await until('nothing is staged', () => nodes.every((node) => node.stats().rendezvousSlots === 0));
  for (const node of nodes) expect(node.stats().rendezvousSlotBytes).to.equal(0);
}

streamSuite('large payloads between nodes', (host, nodes) => {
  const pair = (consumer: VeloOptions = {}, producer: VeloOptions = {}) => nodes.pair(host, consumer, producer);

  it('up to 262,144 bytes travel in the frame, one more is staged; every size arrives whole and is gone afterwards', async () => {
    const { consumer, producer } = await pair();
    let seen: { length: number; rv: string | undefined; user: string | undefined } | undefined;
    consumer.registerHandler(
      'mirror',
      unaryHandler((payload, { headers }) => {
        seen = { length: payload.length, rv: headers?.get('_rv'), user: headers?.get('k') };
        return payload.subarray(0, Math.min(payload.length, MIB));
      }),
    );
    for (const length of [THRESHOLD, THRESHOLD + 1, CHUNK, 2 * MIB + 1, 16 * MIB, 64 * MIB]) {
      const before = producer.stats();
      const sent = pattern(length);
      const got = await producer.unary(consumer.instanceId, 'mirror', sent, { headers: { k: 'v' } });
      expect(same(got, sent.subarray(0, got.length))).to.equal(true);
      expect(seen?.length).to.equal(length);
      expect(seen?.user).to.equal('v');
      const staged = length > THRESHOLD;
      expect(producer.stats().rendezvousRegister - before.rendezvousRegister).to.equal(staged ? 1 : 0);
      expect(seen?.rv === undefined, `${length} bytes`).to.equal(!staged);
      if (staged) {
        await empty(producer);
        const handle = DataHandle.fromText(seen!.rv!);
        expect(handle.worker).to.equal(producer.workerId);
        await failure('ERR_UNKNOWN_DATA', consumer.metadata(handle));
      }
    }
    await provesAlive({ consumer, producer });
  });

  it('fire, sync, unary and typed calls are staged alike', async () => {
    const { consumer, producer } = await pair();
    const got: number[] = [];
    consumer.registerHandler(
      'am',
      amHandler((payload) => got.push(payload.length)),
    );
    consumer.registerHandler(
      'json',
      unaryHandler((payload) => new TextEncoder().encode(`${payload.length}`)),
    );
    const long = 'x'.repeat(THRESHOLD);
    await producer.send(consumer.instanceId, 'am', pattern(THRESHOLD + 1));
    await producer.sync(consumer.instanceId, 'am', pattern(THRESHOLD + 2));
    expect(await producer.typedUnary(consumer.instanceId, 'json', long)).to.equal(THRESHOLD + 2);
    await until('all came', () => got.length === 2);
    expect(got.sort()).to.deep.equal([THRESHOLD + 1, THRESHOLD + 2]);
    expect(producer.stats().rendezvousRegister).to.equal(3);
    await empty(producer);
  });

  it('what the sender does with its buffer afterwards changes nothing', async () => {
    const { consumer, producer } = await pair();
    let got: Uint8Array | undefined;
    consumer.registerHandler(
      'keep',
      amHandler((payload) => {
        got = payload;
      }),
    );
    await producer.sync(consumer.instanceId, 'keep');
    const mine = pattern(3 * MIB);
    const kept = mine.slice();
    const sent = producer.sync(consumer.instanceId, 'keep', mine.subarray(1));
    mine.fill(255);
    await sent;
    expect(same(got!, kept.subarray(1))).to.equal(true);
  });

  it('a small message overtakes a large one, also in front of an ordered handler', async () => {
    const { consumer, producer } = await pair();
    const got: number[] = [];
    consumer.registerHandler(
      'ordered',
      amHandler((payload) => got.push(payload.length), { ordered: true }),
    );
    await producer.sync(consumer.instanceId, 'ordered');
    const large = producer.sync(consumer.instanceId, 'ordered', pattern(8 * MIB));
    const small = producer.sync(consumer.instanceId, 'ordered', pattern(8));
    await Promise.all([large, small]);
    expect(got).to.deep.equal([0, 8, 8 * MIB]);
  });

  it('a payload above the receiver’s limit is refused with both sizes, and its sender is rid of it', async () => {
    const { consumer, producer } = await pair({ stagedPayloadMax: MIB });
    const got: number[] = [];
    consumer.registerHandler(
      'take',
      amHandler((payload) => got.push(payload.length)),
    );
    await producer.sync(consumer.instanceId, 'take', pattern(MIB));
    for (const call of ['sync', 'unary'] as const) {
      const error = await failure('ERR_HANDLER_FAILED', producer[call](consumer.instanceId, 'take', pattern(MIB + 1)));
      expect(error.message).to.equal(
        `Failed to resolve large payload: payload of ${MIB + 1} bytes is larger than stagedPayloadMax = ${MIB}`,
      );
    }
    await producer.send(consumer.instanceId, 'take', pattern(MIB + 1));
    await until('the third was refused', () => consumer.stats().rendezvousGetError === 3);
    await empty(producer);
    expect(got).to.deep.equal([MIB]);
  });

  it('stagedBytesMax: one byte too many is ERR_LIMIT, what can never fit is told apart, and awaitCapacity waits its turn', async () => {
    const { consumer, producer } = await pair({}, { stagedBytesMax: 2 * MIB, callTimeoutMs: 10_000 });
    const order: number[] = [];
    consumer.registerHandler(
      'take',
      amHandler((payload) => void order.push(payload.length)),
    );
    await producer.sync(consumer.instanceId, 'take');
    const held = producer.registerData(pattern(MIB));
    await failure('ERR_PAYLOAD_TOO_LARGE', producer.sync(consumer.instanceId, 'take', pattern(2 * MIB + 1)));
    await failure('ERR_LIMIT', producer.sync(consumer.instanceId, 'take', pattern(MIB + 1)));
    await failure('ERR_LIMIT', producer.send(consumer.instanceId, 'take', pattern(MIB + 1)));
    await failure('ERR_LIMIT', () => producer.registerData(pattern(MIB + 1)));
    await producer.sync(consumer.instanceId, 'take', pattern(MIB));
    const late = [MIB + 1, MIB + 2, MIB + 3].map((length) =>
      producer.sync(consumer.instanceId, 'take', pattern(length), { awaitCapacity: true }),
    );
    const abort = new AbortController();
    const { signal } = abort;
    const aborted = producer.send(consumer.instanceId, 'take', pattern(MIB + 4), { awaitCapacity: true, signal });
    const timed = producer.sync(consumer.instanceId, 'take', pattern(MIB + 5), { awaitCapacity: true, timeoutMs: 20 });
    await failure('ERR_TIMEOUT', timed);
    abort.abort();
    await failure('ERR_ABORTED', aborted);
    await failure('ERR_LIMIT', producer.sync(consumer.instanceId, 'take', pattern(THRESHOLD + 1)));
    await producer.sync(consumer.instanceId, 'take', pattern(10));
    await producer.releaseData(held);
    await Promise.all(late);
    expect(order).to.deep.equal([0, MIB, 10, MIB + 1, MIB + 2, MIB + 3]);
    await empty(producer);
    await producer.sync(consumer.instanceId, 'take', pattern(2 * MIB));
  });

  it('more at a time than may be pulled at a time all arrive, within the bytes that may be pulled', async () => {
    const { consumer, producer } = await pair({ maxPulls: 2, pullBytesMax: MIB });
    const got: number[] = [];
    consumer.registerHandler(
      'take',
      amHandler((payload) => void got.push(payload.length)),
    );
    const lengths = range(0, 20).map((i) => 600_000 + i);
    await Promise.all(lengths.map((length) => producer.sync(consumer.instanceId, 'take', pattern(length))));
    expect(got.sort()).to.deep.equal(lengths);
    await empty(producer);
  });

  it('both ends at once, each way', async () => {
    const { consumer, producer } = await pair();
    for (const node of [consumer, producer])
      node.registerHandler(
        'length',
        unaryHandler((payload) => new TextEncoder().encode(`${payload.length}`)),
      );
    const calls = range(0, 8).flatMap((i) => [
      producer.unary(consumer.instanceId, 'length', pattern(MIB + i)),
      consumer.unary(producer.instanceId, 'length', pattern(MIB + 100 + i)),
    ]);
    const answers = (await Promise.all(calls)).map(text);
    expect(answers).to.deep.equal(range(0, 8).flatMap((i) => [`${MIB + i}`, `${MIB + 100 + i}`]));
    await empty(consumer, producer);
  });

  it('AY-07 a staged request that came counts as in flight: a close waits until it is pulled, run and answered', async () => {
    const { consumer, producer } = await pair();
    let taken = 0;
    consumer.registerHandler(
      'take',
      amHandler((payload) => {
        if (payload.length > 0) taken += 1;
      }),
    );
    await producer.sync(consumer.instanceId, 'take');
    const calls = range(0, 4).map(() => producer.sync(consumer.instanceId, 'take', pattern(16 * MIB)));
    await until('they are being pulled', () => consumer.stats().rendezvousGetBytes > 0);
    const { drained } = await consumer.close({ timeoutMs: 20_000 });
    expect({ drained, taken }).to.deep.equal({ drained: true, taken: 4 });
    await Promise.all(calls);
  });

  it('a node that closes in the middle of a pull, at either end, leaves nobody waiting', async () => {
    const first = await pair({ callTimeoutMs: 500 });
    first.consumer.registerHandler(
      'take',
      amHandler(() => {}),
    );
    await first.producer.sync(first.consumer.instanceId, 'take');
    const closing = range(0, 4).map(() => first.producer.sync(first.consumer.instanceId, 'take', pattern(32 * MIB)));
    const outcomes = Promise.allSettled(closing);
    await until('it pulls', () => first.producer.stats().rendezvousSlots > 0);
    await first.producer.close({ timeoutMs: 0 });
    // One that had just been pulled may still have been answered.
    const lost = (await outcomes).filter(({ status }) => status === 'rejected').length;
    expect(lost).to.be.greaterThan(0);
    const consumer = first.consumer;
    await until('the reader has given up', () => consumer.stats().rendezvousGetError >= lost);

    const second = await pair({}, { callTimeoutMs: 1_000, leaseTtlMs: 300 });
    second.consumer.registerHandler(
      'take',
      amHandler(() => {}),
    );
    await second.producer.sync(second.consumer.instanceId, 'take');
    const refused = range(0, 4).map(() => second.producer.sync(second.consumer.instanceId, 'take', pattern(32 * MIB)));
    const ends = Promise.allSettled(refused);
    await until('it pulls', () => second.producer.stats().rendezvousSlots > 0);
    await second.consumer.close({ timeoutMs: 0 });
    expect((await ends).some(({ status }) => status === 'rejected')).to.equal(true);
    // A lease that was granted to the closing node, and that it never heard of, lapses.
    await empty(second.producer);
  });
});

streamSuite('data by handle', (host, nodes) => {
  /** Through JSON, as an application would send it. */
  const sent = (handle: DataHandle) => DataHandle.fromJSON(parseJson(stringifyJson(handle.toJSON())));

  it('is fetched, referenced and released by its owner and by others alike', async () => {
    const { consumer, producer } = await nodes.pair(host);
    for (const reader of [consumer, producer]) {
      for (const length of [0, 5, CHUNK + 1]) {
        const bytes = pattern(length);
        const handle = sent(producer.registerData(bytes));
        const lease = await reader.get(handle);
        expect(same(lease.bytes, bytes)).to.equal(true);
        expect(await reader.metadata(handle)).to.deep.equal({ totalLength: length, refcount: 1, pinned: false });
        await lease.detach();
        await reader.refHandle(handle);
        expect((await reader.metadata(handle)).refcount).to.equal(2);
        await (await reader.get(handle)).release();
        await until('the release came', () => producer.stats().rendezvousSlots === 1);
        await reader.releaseData(handle);
        await empty(producer);
        for (const ask of ['get', 'metadata', 'refHandle', 'releaseData'] as const)
          expect((await failure('ERR_UNKNOWN_DATA', reader[ask](handle))).message).to.include(`${handle}`);
      }
    }
  });

  it('a lease ends once; disposing of it is a release, unless it was ended', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const handle = producer.registerData(pattern(10));
    const lease = await consumer.get(handle);
    await lease.detach();
    await failure('ERR_LEASE_USED', lease.detach());
    await failure('ERR_LEASE_USED', lease.release());
    await lease[Symbol.asyncDispose]();
    await consumer.refHandle(handle);
    await (await consumer.get(handle))[Symbol.asyncDispose]();
    expect((await consumer.metadata(handle)).refcount).to.equal(1);
    (await consumer.get(handle))[Symbol.dispose]();
    await empty(producer);
    expect(lease.bytes[9]).to.equal(99);
  });

  it('the copy is the owner’s own, and each reader has its own', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const mine = pattern(100);
    const handle = producer.registerData(mine.subarray(0, 50));
    mine.fill(1);
    const leases: DataLease[] = [await producer.get(handle), await consumer.get(handle)];
    leases[0]!.bytes.fill(2);
    leases.push(await producer.get(handle));
    expect(leases[1]!.bytes).to.deep.equal(pattern(100).subarray(0, 50));
    expect(leases[2]!.bytes).to.deep.equal(leases[1]!.bytes);
  });

  it('what is not known, too large, aborted or too late has a code, and holds no lease', async () => {
    const { consumer, producer } = await nodes.pair(host, { stagedPayloadMax: 1_000 }, { leaseTtlMs: 100_000 });
    const handle = producer.registerData(pattern(1_001));
    await failure('ERR_UNKNOWN_PEER', consumer.get(new DataHandle(12345n, 1n)));
    await failure('ERR_UNKNOWN_DATA', consumer.get(new DataHandle(producer.workerId, 0n)));
    const large = await failure('ERR_PAYLOAD_TOO_LARGE', consumer.get(handle));
    expect(large.message).to.include('1001').and.include('stagedPayloadMax = 1000');
    await failure('ERR_PAYLOAD_TOO_LARGE', consumer.get(handle, { maxBytes: 10 }));
    expect((await consumer.get(handle, { maxBytes: 1_001 })).bytes).to.have.length(1_001);
    await failure('ERR_ABORTED', consumer.get(handle, { signal: AbortSignal.abort() }));
    for (const bad of [-1, Number.NaN, 2 ** 31]) {
      await failure('ERR_INVALID_ARGUMENT', consumer.get(handle, { timeoutMs: bad }));
    }
    await failure('ERR_INVALID_ARGUMENT', consumer.get(handle, { maxBytes: Number.NaN }));
    expect((await consumer.metadata(handle)).refcount, 'a refusal takes no reference').to.equal(1);
    const big = producer.registerData(pattern(32 * MIB));
    const abort = new AbortController();
    const slow = consumer.get(big, { maxBytes: 64 * MIB, signal: abort.signal });
    abort.abort();
    await failure('ERR_ABORTED', slow);
    await failure('ERR_TIMEOUT', consumer.get(big, { maxBytes: 64 * MIB, timeoutMs: 0 }));
    await producer.releaseData(big);
    await until('no lease holds it', () => producer.stats().rendezvousSlots === 1);
    await consumer.close();
    await failure('ERR_CLOSED', consumer.get(handle));
    expect(() => consumer.registerData(pattern(1))).to.throw();
  });

  it('a lease that outlives its node ends with the code of a closed node', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const lease = await consumer.get(producer.registerData(pattern(10)));
    const other = await consumer.get(producer.registerData(pattern(10)));
    await consumer.close();
    await failure('ERR_CLOSED', lease.release());
    await failure('ERR_CLOSED', other.detach());
  });

  it('a lease that is not used lapses, and its release still counts', async () => {
    const { consumer, producer } = await nodes.pair(host, {}, { leaseTtlMs: 40 });
    const handle = producer.registerData(pattern(10));
    const lease = await consumer.get(handle);
    await until('it lapsed', () => producer.stats().rendezvousReapedLeases === 1);
    await lease.release();
    await empty(producer);
  });

  it('registered data outlives every time limit, staged messages do not', async () => {
    const { producer } = await nodes.pair(host, {}, { stagedTtlMs: 30, leaseTtlMs: 30 });
    const handle = producer.registerData(pattern(10));
    await pause(200);
    expect((await producer.metadata(handle)).totalLength).to.equal(10);
  });
});
