// The rendezvous byte by byte, against a foreign node: as the reader of what a node stages, and as the owner of what it must pull,
// honest or not.

import { expect } from 'chai';
import { unaryHandler, type Velo, type VeloOptions } from '../../lib/index.js';
import { u64From } from '../../lib/wire/bytes.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { decodeHandlerList } from '../../lib/wire/hello.js';
import { RENDEZVOUS_HANDLERS } from '../../lib/wire/names.js';
import { failure, pause, range, streamSuite, until } from '../support/nodes.js';
import { type SeenRequest, type ServiceAnswer, WirePeer } from '../support/wire-peer.js';

const THRESHOLD = 262_144;
const CHUNK = 524_288;
const MIB = 1024 * 1024;
const FIVE_CHUNKS = 2 * MIB + 1;
const SHORT_MS = 100;
const LATER_MS = 60;

const utf8 = new TextEncoder();
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const pattern = (length: number) => new Uint8Array(length).map((_, i) => (i >>> 9) + i);
const reference = ({ worker, local }: DataHandle) => `{"handle":{"hi":${worker},"lo":${local}}}`;
const leaseOn = ({ worker, local }: DataHandle, lease: number) =>
  `{"handle":{"hi":${worker},"lo":${local}},"lease_id":${lease}}`;

streamSuite('a node that stages, read by a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  const start = async (options: VeloOptions = {}) => {
    node = await nodes.make({ host, ...options });
    peer = await WirePeer.listen();
    peer.handlers = ['big'];
    node.registerPeer(peer.info);
    peer.faces(node);
    await peer.hello();
  };
  afterEach(() => peer.close());

  /** The request that announces the next staged payload, and the handle in it. */
  async function announced(count = 1): Promise<{ request: SeenRequest; handle: DataHandle }> {
    const bigs = () => peer.requests.filter(({ handler }) => handler === 'big');
    await until('the request came', () => bigs().length >= count);
    const request = bigs()[count - 1]!;
    return { request, handle: DataHandle.fromText(request.headers!.get('_rv')!) };
  }

  const isEmpty = () => until('nothing is staged', () => node.stats().rendezvousSlots === 0);

  it('announces an empty payload and a handle, serves five chunks in any order, and frees them at the release', async () => {
    await start();
    expect(decodeHandlerList((await peer.hello()).payload)).to.include.members([...RENDEZVOUS_HANDLERS]);
    const bytes = pattern(FIVE_CHUNKS);
    let answer = (_: ServiceAnswer): void => {};
    peer.services.big = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    const answered = node.unary(peer.info.instanceId, 'big', bytes, { headers: { k: 'v', _rv: 'the caller’s' } });
    const { request, handle } = await announced();
    expect([...request.headers!]).to.deep.equal([
      ['k', 'v'],
      ['_rv', handle.toText()],
    ]);
    expect([request.payload.length, request.responseType]).to.deep.equal([0, RESPONSE_UNARY]);
    expect(handle).to.deep.equal(new DataHandle(node.workerId, 1n));

    const metadata = await peer.call('_rv_metadata', utf8.encode(reference(handle)));
    expect(metadata.text).to.equal(`{"total_len":${FIVE_CHUNKS},"refcount":1,"pinned":false}`);
    const ready = await peer.call('_rv_acquire', utf8.encode(reference(handle)));
    expect([ready.via, ready.ok, ready.text]).to.deep.equal([
      'response',
      true,
      `{"Ready":{"lease_id":1,"transfer_id":1,"total_len":${FIVE_CHUNKS},"chunk_size":${CHUNK},"chunk_count":5}}`,
    ]);
    const chunk = (index: number) => peer.call('_rv_pull', utf8.encode(`{"transfer_id":1,"chunk_index":${index}}`));
    const chunks = await Promise.all([4, 0, 3, 1, 2, 4].map(chunk));
    expect(chunks.map(({ payload }) => payload.length)).to.deep.equal([1, CHUNK, CHUNK, CHUNK, CHUNK, 1]);
    const whole = Buffer.concat([1, 3, 4, 2, 0].map((i) => chunks[i]!.payload));
    expect(Buffer.compare(whole, bytes)).to.equal(0);
    const beyond = await chunk(5);
    expect([beyond.via, beyond.ok, beyond.text]).to.deep.equal([
      'response',
      false,
      'chunk not found: transfer_id=1, chunk_index=5',
    ]);
    await peer.fire('_rv_lease_renew', leaseOn(handle, 1));
    await peer.fire('_rv_release', leaseOn(handle, 1));
    await isEmpty();
    const gone = await peer.call('_rv_acquire', utf8.encode(reference(handle)));
    expect([gone.ok, gone.text]).to.deep.equal([false, `rendezvous handle not found: ${handle}`]);
    answer(utf8.encode('done'));
    expect(text(await answered)).to.equal('done');
  });

  it('262,144 bytes carry no handle', async () => {
    await start();
    peer.services.big = (payload) => utf8.encode(`${payload.length}`);
    expect(text(await node.unary(peer.info.instanceId, 'big', new Uint8Array(THRESHOLD)))).to.equal(`${THRESHOLD}`);
    expect(peer.requests.at(-1)!.headers).to.equal(undefined);
  });

  it('every kind of request gets the reply of its handler’s kind', async () => {
    await start();
    const handle = node.registerData(pattern(10));
    const ref = utf8.encode(reference(handle));
    const lease = utf8.encode(leaseOn(handle, 1));
    const reply = async (handler: string, payload: Uint8Array, type: number) => {
      const { via, ok, text: said } = await peer.call(handler, payload, type);
      return `${via} ${ok} ${said}`;
    };
    expect(await reply('_rv_acquire', ref, RESPONSE_ACK)).to.equal('ack true ');
    expect(await reply('_rv_ref', ref, RESPONSE_UNARY)).to.equal('response true ');
    expect(await reply('_rv_ref', ref, RESPONSE_ACK)).to.equal('ack true ');
    expect(await reply('_rv_detach', lease, RESPONSE_ACK)).to.equal('ack true ');
    expect(await reply('_rv_release', lease, RESPONSE_UNARY)).to.equal(
      "response false Unary message incorrectly routed to AM handler '_rv_release'",
    );
    for (const handler of ['_rv_acquire', '_rv_metadata'])
      expect(await reply(handler, utf8.encode('{'), RESPONSE_UNARY)).to.match(
        /^response false Failed to deserialize input: /,
      );
    for (const handler of ['_rv_pull', '_rv_ref'])
      expect(await reply(handler, utf8.encode('[7]'), RESPONSE_UNARY)).to.match(/^response false (?!Failed)/);
    expect((await node.metadata(handle)).refcount).to.equal(3);
  });

  it('a stranger gets neither an answer nor a lease', async () => {
    await start({ leaseTtlMs: 20 });
    const handle = node.registerData(pattern(10));
    const stranger = (await WirePeer.listen()).faces(node);
    await stranger.fire('_rv_release', leaseOn(handle, 1));
    void stranger.call('_rv_acquire', utf8.encode(reference(handle)));
    await until('it was dropped', () => node.stats().droppedReplyToNobody === 1);
    await stranger.fire('_rv_acquire', reference(handle));
    await stranger.fire('_rv_ref', reference(handle));
    await until('all three were dropped', () => node.stats().droppedUnknownPeer === 3);
    await pause(LATER_MS);
    expect(node.stats().rendezvousReapedLeases).to.equal(0);
    expect((await node.metadata(handle)).refcount).to.equal(1);
    await stranger.close();
  });

  it('drops what nobody needs any longer at once: answered unread, refused, timed out, aborted, not sent', async () => {
    await start();
    const to = peer.info.instanceId;
    const big = new Uint8Array(THRESHOLD + 1);
    const staged = () => until('it is staged', () => node.stats().rendezvousSlots === 1);
    // Nobody pulls; the answers come all the same.
    peer.services.big = () => 'no';
    await failure('ERR_HANDLER_FAILED', node.unary(to, 'big', big));
    await failure('ERR_HANDLER_FAILED', node.sync(to, 'big', big));
    await isEmpty();

    peer.services.big = () => undefined;
    for (const send of [() => node.unary(to, 'big', big), () => node.send(to, 'big', big)]) {
      const before = peer.requests.length;
      const sent = send();
      await until('it came', () => peer.requests.length > before);
      await staged();
      const settled = sent.then(
        () => undefined,
        (error: { code: string }) => error.code,
      );
      await peer.refuse(peer.requests.at(-1)!);
      await isEmpty();
      expect(await settled).to.be.oneOf([undefined, 'ERR_PEER_SHUTTING_DOWN']);
    }

    await failure('ERR_TIMEOUT', node.unary(to, 'big', big, { timeoutMs: 30 }));
    await isEmpty();
    const abort = new AbortController();
    const aborted = node.unary(to, 'big', big, { signal: abort.signal });
    await staged();
    abort.abort();
    await failure('ERR_ABORTED', aborted);
    await isEmpty();

    await peer.close();
    await until('the connection is gone', () => node.stats().connectionsClosed > 0);
    for (const send of [() => node.unary(to, 'big', big), () => node.send(to, 'big', big)]) {
      const code = await send().then(
        () => 'none',
        (error: { code: string }) => error.code,
      );
      expect(code).to.be.oneOf(['ERR_CONNECT_FAILED', 'none']);
      await isEmpty();
    }
  });

  it('a call that gives up while its payload is read lets the reader finish', async () => {
    await start();
    peer.services.big = () => undefined;
    const abort = new AbortController();
    const bytes = pattern(THRESHOLD + 1);
    const call = node.unary(peer.info.instanceId, 'big', bytes, { signal: abort.signal });
    const { handle } = await announced();
    await peer.call('_rv_acquire', utf8.encode(reference(handle)));
    abort.abort();
    await failure('ERR_ABORTED', call);
    const { payload } = await peer.call('_rv_pull', utf8.encode('{"transfer_id":1,"chunk_index":0}'));
    expect(Buffer.compare(payload, bytes)).to.equal(0);
    expect(node.stats().rendezvousSlots).to.equal(1);
    // A reader that failed detaches; nobody else will come.
    await peer.fire('_rv_detach', leaseOn(handle, 1));
    await isEmpty();
  });

  it('a message that nobody fetches expires, and a reader that vanishes does not keep it for ever', async () => {
    await start({ stagedTtlMs: 120, leaseTtlMs: 60 });
    await node.send(peer.info.instanceId, 'big', new Uint8Array(THRESHOLD + 1));
    await node.send(peer.info.instanceId, 'big', new Uint8Array(THRESHOLD + 2));
    const { handle } = await announced(2);
    await peer.call('_rv_acquire', utf8.encode(reference(handle)));
    expect(node.stats().rendezvousSlots).to.be.greaterThan(0);
    await isEmpty();
    expect(node.stats()).to.deep.include({ rendezvousExpired: 2, rendezvousReapedLeases: 1 });
  });

  it('a storm of damaged and idle requests leaves the node as it was', async () => {
    await start();
    const handle = node.registerData(pattern(10));
    const unknown = leaseOn(new DataHandle(node.workerId, 99n), 7);
    for (const payload of ['', '{', 'null', '{"handle":{"hi":1}}', unknown, '{"transfer_id":-1}'])
      for (const handler of RENDEZVOUS_HANDLERS) await peer.fire(handler, payload);
    // Its answer comes behind everything that was sent before.
    expect((await peer.call('_rv_metadata', utf8.encode(reference(handle)))).text).to.include('"refcount":1');
    expect((await node.get(handle)).bytes.length).to.equal(10);
    expect(node.stats().rendezvousBadLeases).to.equal(3);
  });
});

/** What the foreign owner does with each request; everything honest unless said otherwise. */
interface Lies {
  acquire?: (handle: DataHandle) => ServiceAnswer | Promise<ServiceAnswer>;
  pull?: (index: number, bytes: Uint8Array, transfer: number) => ServiceAnswer | Promise<ServiceAnswer>;
}

streamSuite('a node that pulls, from a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let got: { payload: Uint8Array; rv: string | undefined }[];
  const start = async (options: VeloOptions = {}) => {
    node = await nodes.make({ host, ...options });
    peer = await WirePeer.listen();
    node.registerPeer(peer.info);
    peer.faces(node);
    got = [];
    node.registerHandler(
      'take',
      unaryHandler((payload, { headers }) => {
        got.push({ payload, rv: headers?.get('_rv') });
        return utf8.encode(`took ${payload.length}`);
      }),
    );
  };
  afterEach(() => peer.close());

  const ready = (fields: Record<string, unknown>) =>
    utf8.encode(
      JSON.stringify({
        Ready: { lease_id: 31, transfer_id: 41, total_len: 10, chunk_size: 4, chunk_count: 3, ...fields },
      }),
    );

  /** The peer owns `bytes` under every local id, and cuts them into chunks of `size`. */
  function own(bytes: Uint8Array, size: number, lies: Lies = {}): void {
    const chunk_count = Math.ceil(bytes.length / size);
    peer.services._rv_acquire = (payload) => {
      const handle = new DataHandle(peer.workerId, BigInt(/"lo":(\d+)/.exec(text(payload))![1]!));
      const id = Number(handle.local);
      const honest = ready({ lease_id: id, transfer_id: id, total_len: bytes.length, chunk_size: size, chunk_count });
      return lies.acquire === undefined ? honest : lies.acquire(handle);
    };
    peer.services._rv_pull = (payload) => {
      const { transfer_id, chunk_index } = JSON.parse(text(payload)) as { transfer_id: number; chunk_index: number };
      const chunk = bytes.subarray(chunk_index * size, (chunk_index + 1) * size);
      return lies.pull === undefined ? chunk : lies.pull(chunk_index, chunk, transfer_id);
    };
  }

  const staged = (local: number, handler = 'take', type: number = RESPONSE_UNARY) =>
    peer.call(handler, new Uint8Array(0), type, { _rv: new DataHandle(peer.workerId, BigInt(local)).toText() });
  const seen = (handler: string) => peer.requests.filter((request) => request.handler === handler);
  const rendezvous = () => peer.requests.filter(({ handler }) => handler.startsWith('_rv_'));
  const PREFIX = 'Failed to resolve large payload: ';

  it('acquires, asks for chunk after chunk, releases, and then hands on an ordinary request', async () => {
    await start();
    const bytes = pattern(10);
    own(bytes, 4);
    const answer = await staged(7);
    expect([answer.via, answer.ok, answer.text]).to.deep.equal(['response', true, 'took 10']);
    const handle = new DataHandle(peer.workerId, 7n);
    expect(got).to.deep.equal([{ payload: bytes, rv: handle.toText() }]);
    expect(
      rendezvous().map(({ handler, payload, responseType }) => [handler, responseType, text(payload)]),
    ).to.deep.equal([
      ['_rv_acquire', RESPONSE_UNARY, reference(handle)],
      ...range(0, 3).map((i) => ['_rv_pull', RESPONSE_UNARY, `{"transfer_id":7,"chunk_index":${i}}`]),
      ['_rv_release', RESPONSE_NONE, leaseOn(handle, 7)],
    ]);
    for (const { id } of rendezvous()) expect(u64From(id.workerHi, id.workerLo)).to.equal(node.workerId);
  });

  it('an empty payload, and one of five chunks of 512 KiB, come whole; all three kinds of request are resolved', async () => {
    await start();
    own(new Uint8Array(0), CHUNK);
    expect((await staged(1)).text).to.equal('took 0');
    expect(seen('_rv_pull')).to.have.length(0);
    const bytes = pattern(FIVE_CHUNKS);
    own(bytes, CHUNK);
    expect((await staged(2)).text).to.equal(`took ${FIVE_CHUNKS}`);
    expect(Buffer.compare(got.at(-1)!.payload, bytes)).to.equal(0);
    expect(seen('_rv_pull')).to.have.length(5);
    expect(await staged(3, 'take', RESPONSE_ACK)).to.deep.include({ via: 'ack', ok: true });
    await peer.fire('take', '', { _rv: new DataHandle(peer.workerId, 4n).toText() });
    await until('the third came', () => got.length === 4);
    const missing = await staged(5, 'nobody');
    expect([missing.via, missing.text]).to.deep.equal(['ack', "Handler 'nobody' not found"]);
  });

  it('an application’s own system handlers are no way around: `_hello` may be staged too', async () => {
    await start();
    own(utf8.encode('{"peer_info":7}'), 100);
    const answer = await staged(1, '_hello');
    expect(answer.ok).to.equal(false);
  });

  for (const [what, header, pattern_] of [
    ['no number', 'abc', /^invalid rendezvous handle: /],
    ['an empty text', '', /^invalid rendezvous handle: /],
    ['a negative number', '-1', /^invalid rendezvous handle: /],
    ['more than 128 bits', '9'.repeat(40), /^invalid rendezvous handle: /],
    ['a node that nobody knows', new DataHandle(4711n, 1n).toText(), /4711.* is not registered/],
  ] as const) {
    it(`a handle that is ${what} is refused, and its sender told`, async () => {
      await start();
      for (const type of [RESPONSE_UNARY, RESPONSE_ACK]) {
        const answer = await peer.call('take', new Uint8Array(0), type, { _rv: header });
        expect([answer.via, answer.ok]).to.deep.equal(['ack', false]);
        expect(answer.text.slice(0, PREFIX.length)).to.equal(PREFIX);
        expect(answer.text.slice(PREFIX.length)).to.match(pattern_);
      }
      await peer.fire('take', '', { _rv: header });
      await until('all were counted', () => node.stats().rendezvousGetError === 3);
      expect([rendezvous(), got]).to.deep.equal([[], []]);
    });
  }

  for (const [what, lies, expected, last] of [
    [
      'knows no such payload',
      { acquire: () => 'rendezvous handle not found: it' },
      /^rendezvous handle not found: it$/,
      '',
    ],
    ['answers nonsense', { acquire: () => utf8.encode('{}') }, /not Ready/, ''],
    [
      'offers RDMA',
      { acquire: () => utf8.encode('{"Rdma":{"lease_id":1,"descriptor":[],"lease_timeout_ms":1}}') },
      /not Ready/,
      '',
    ],
    [
      'states chunks that do not cover the length',
      { acquire: () => ready({ chunk_count: 2 }) },
      /chunks and length differ/,
      '',
    ],
    [
      'cuts it into crumbs',
      { acquire: () => ready({ total_len: 70_000, chunk_size: 1, chunk_count: 70_000 }) },
      /70000 chunks/,
      '_rv_detach',
    ],
    ['sends a chunk too short', { pull: () => new Uint8Array(3) }, /^chunk of 3 bytes where 4 belong$/, '_rv_detach'],
    [
      'sends a chunk too long',
      { pull: (i: number, chunk: Uint8Array) => (i === 1 ? new Uint8Array(5) : chunk) },
      /^chunk of 5 bytes where 4 belong$/,
      '_rv_detach',
    ],
    ['sends an empty chunk', { pull: () => new Uint8Array(0) }, /^chunk of 0 bytes where 4 belong$/, '_rv_detach'],
    [
      'loses a chunk',
      { pull: (i: number, chunk: Uint8Array) => (i === 2 ? 'chunk not found: 2' : chunk) },
      /^chunk not found: 2$/,
      '_rv_detach',
    ],
    ['never answers the acquire', { acquire: () => undefined }, /no answer .* '_rv_acquire' in 100 ms/, ''],
    ['never answers a pull', { pull: () => undefined }, /no answer .* '_rv_pull' in 100 ms/, '_rv_detach'],
  ] as [string, Lies, RegExp, string][]) {
    it(`an owner that ${what} fails this request alone`, async () => {
      await start({ callTimeoutMs: SHORT_MS });
      own(pattern(10), 4, lies);
      for (const type of [RESPONSE_UNARY, RESPONSE_ACK]) {
        const answer = await staged(31, 'take', type);
        expect([answer.via, answer.ok]).to.deep.equal(['ack', false]);
        expect(answer.text.slice(0, PREFIX.length)).to.equal(PREFIX);
        expect(answer.text.slice(PREFIX.length)).to.match(expected);
      }
      if (last !== '') {
        expect(seen(last).map(({ payload }) => text(payload))[0]).to.equal(
          leaseOn(new DataHandle(peer.workerId, 31n), 31),
        );
      }
      expect([seen('_rv_release').length, seen('_rv_detach').length]).to.deep.equal([0, last === '' ? 0 : 2]);
      own(pattern(10), 4);
      expect((await staged(32)).text).to.equal('took 10');
      expect(node.stats()).to.deep.include({ rendezvousGet: 1, rendezvousGetError: 2 });
    });
  }

  it('a grant that comes after the call timed out is dropped, and so is a late chunk', async () => {
    await start({ callTimeoutMs: SHORT_MS });
    const late = async (answer: Uint8Array) => {
      await pause(2 * SHORT_MS);
      return answer;
    };
    own(pattern(10), 4, { pull: (_, chunk) => late(chunk) });
    expect((await staged(1)).text).to.include('_rv_pull');
    await pause(3 * SHORT_MS);
    own(pattern(10), 4);
    expect((await staged(2)).text).to.equal('took 10');
  });

  it('the longest call timeout leaves a pull its time', async () => {
    await start({ callTimeoutMs: 2 ** 31 - 1 });
    own(pattern(10), 4, { pull: (_, chunk) => pause(LATER_MS).then(() => chunk) });
    expect((await staged(1)).text).to.equal('took 10');
  });

  it('a payload that no memory holds has a code, and its lease is given back', async () => {
    await start();
    const total_len = 2 ** 47;
    const chunk_size = 2 ** 32 - 1;
    own(pattern(1), 1, {
      acquire: () => ready({ total_len, chunk_size, chunk_count: Math.ceil(total_len / chunk_size) }),
    });
    const handle = new DataHandle(peer.workerId, 5n);
    await failure('ERR_LIMIT', node.get(handle, { maxBytes: Number.MAX_SAFE_INTEGER }));
    await until('the lease came back', () => seen('_rv_detach').length === 1);
    expect(text(seen('_rv_detach')[0]!.payload)).to.equal(leaseOn(handle, 31));
  });

  it('a payload above the limit is refused by its announcement alone, naming both sizes, and released', async () => {
    await start({ stagedPayloadMax: 1_000 });
    own(pattern(1_000), CHUNK);
    expect((await staged(1)).text).to.equal('took 1000');
    own(pattern(1_001), CHUNK);
    expect((await staged(2)).text).to.equal(`${PREFIX}payload of 1001 bytes is larger than stagedPayloadMax = 1000`);
    own(pattern(1), 1, {
      acquire: () =>
        utf8.encode(
          `{"Ready":{"lease_id":3,"transfer_id":3,"total_len":18446744073709551615,"chunk_size":4294967295,"chunk_count":4294967295}}`,
        ),
    });
    expect((await staged(3)).text).to.match(/18446744073709551615|chunks and length differ/);
    expect(seen('_rv_pull')).to.have.length(1);
    expect(
      seen('_rv_release')
        .slice(0, 2)
        .map(({ payload }) => text(payload)),
    ).to.deep.equal([1, 2].map((id) => leaseOn(new DataHandle(peer.workerId, BigInt(id)), id)));
  });

  it('no more than half of maxPulls at a time for one peer; the others wait in order, and those beyond its half of the queue are refused', async () => {
    await start({ maxPulls: 6 });
    // The connection stands: from here on requests arrive in the order of their calls.
    await peer.hello();
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    own(pattern(10), 10, { pull: (_, chunk) => gate.then(() => chunk) });
    const waiting = 512;
    const answers = range(1, 4 + waiting).map((local) => staged(local));
    await until('three are pulled', () => seen('_rv_pull').length === 3);
    const refused = await staged(5_000);
    expect(refused.text)
      .to.include(`${PREFIX}512 of this peer, and 512 in all, already wait`)
      .and.include('maxPulls = 6');
    await pause(LATER_MS);
    expect(seen('_rv_acquire')).to.have.length(3);
    open();
    for (const answer of await Promise.all(answers)) expect(answer.text).to.equal('took 10');
    const order = got.map(({ rv }) => Number(DataHandle.fromText(rv!).local));
    expect(order).to.deep.equal([...order].sort((a, b) => a - b));
    expect(order).to.have.length(3 + waiting);
  });

  it('an owner that never answers keeps its own half of the places, of the queue and of the bytes only', async () => {
    await start({ maxPulls: 4, pullBytesMax: 4_000 });
    await peer.hello();
    own(pattern(1_500), 1_500, { pull: () => new Promise<ServiceAnswer>(() => {}) });
    // More than its half of all three.
    for (const local of range(1, 700)) void staged(local);
    await until('it has taken what it may', () => seen('_rv_acquire').length === 2 && seen('_rv_pull').length === 1);
    const silent = peer;
    try {
      const other = await WirePeer.listen();
      node.registerPeer(other.info);
      peer = other.faces(node);
      own(pattern(1_500), 500);
      for (const answer of await Promise.all(range(1, 21).map((local) => staged(local))))
        expect(answer.text).to.equal('took 1500');
    } finally {
      await silent.close();
    }
  });

  it('pullBytesMax delays the chunks of a payload, whatever the number of pulls; a lone one always fits', async () => {
    await start({ pullBytesMax: 1_000 });
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    own(pattern(600), 600, { pull: (_, chunk) => gate.then(() => chunk) });
    const both = [staged(1), staged(2)];
    await until('both were acquired', () => seen('_rv_acquire').length === 2);
    await pause(LATER_MS);
    expect(seen('_rv_pull')).to.have.length(1);
    open();
    for (const answer of await Promise.all(both)) expect(answer.text).to.equal('took 600');
    own(pattern(5_000), 5_000);
    expect((await staged(3)).text).to.equal('took 5000');
  });

  it('an owner that dies in the middle of a pull costs its own request and nobody else’s', async () => {
    await start({ callTimeoutMs: SHORT_MS });
    own(pattern(10), 4, { pull: () => undefined });
    void staged(1);
    await until('it pulls', () => seen('_rv_pull').length === 1);
    await peer.close();
    await until('it gave up', () => node.stats().rendezvousGetError === 1);
    const other = await WirePeer.listen();
    node.registerPeer(other.info);
    peer = other.faces(node);
    own(pattern(10), 4);
    expect((await staged(1)).text).to.equal('took 10');
  });

  it('a node that closes in the middle of a pull gives the lease back and tells the sender', async () => {
    await start();
    own(pattern(10), 4, { pull: (i, chunk) => (i === 1 ? undefined : chunk) });
    const answer = staged(9);
    const waiting = staged(10);
    await until('both pull', () => seen('_rv_pull').length === 4);
    await node.close();
    expect((await answer).text).to.equal(`${PREFIX}the node was closed`);
    expect((await waiting).ok).to.equal(false);
    const detached = () => seen('_rv_detach').map(({ payload }) => text(payload));
    await until('both leases came back', () => detached().length === 2);
    expect(detached()).to.include(leaseOn(new DataHandle(peer.workerId, 9n), 9));
  });

  it('answers that nobody waits for end nothing', async () => {
    await start();
    own(pattern(10), 4);
    expect((await staged(1)).text).to.equal('took 10');
    const pulled = seen('_rv_pull')[0]!;
    const dropped = node.stats().droppedBadMessage;
    await peer.refuse(pulled);
    await peer.refuse(seen('_rv_release')[0]!);
    await until('both were dropped', () => node.stats().droppedBadMessage === dropped + 2);
    expect((await staged(2)).text).to.equal('took 10');
  });

  it('an owner that shuts down refuses the pull, and its request fails', async () => {
    await start();
    own(pattern(10), 4, { acquire: () => undefined });
    const answer = staged(1);
    await until('it asked', () => seen('_rv_acquire').length === 1);
    await peer.refuse(seen('_rv_acquire')[0]!);
    expect((await answer).text).to.equal(`${PREFIX}request rejected: peer is shutting down`);
  });
});
