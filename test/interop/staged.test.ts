// Staged payloads against a real velo node: everything above 262,144 bytes that Rust sends is pulled by its receiver. First byte by byte
// with a test peer, then with a velomux node.

import { expect } from 'chai';
import { unaryHandler } from '../../lib/index.js';
import { decodeRequestHeader, RESPONSE_NONE } from '../../lib/wire/envelope.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { dataLease, dataReference, decodeDataReady, pullRequest } from '../../lib/wire/rendezvous-messages.js';
import { FRAME_MESSAGE } from '../../lib/wire/transport-frame.js';
import { pause, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';
import { bothIdle, bytes, consume, expected, interop, OURS, RUST } from './kit.js';
import { bytesOf, fingerprint } from './payload.js';
import { RecordingProxy } from './recording-proxy.js';
import type { RustPeer } from './rust-peer.js';

const THRESHOLD = 262_144;
const CHUNK = 524_288;
const MIB = 1024 * 1024;

describe('interop: staged payloads, byte by byte', () => {
  const kit = interop();
  let rust: RustPeer;
  let peer: WirePeer;
  let proxy: RecordingProxy;

  beforeEach(async () => {
    rust = await kit.rust();
    peer = await WirePeer.listen();
    peer.handlers = ['sink'];
    proxy = await RecordingProxy.between([RUST, rust.info], [OURS, peer.info]);
    peer.faces({ peerInfo: proxy.infoOf(RUST) });
    await peer.hello();
  });

  afterEach(async () => {
    await proxy.close();
    await peer.close();
  });

  /** A message that Rust sent to `sink`: its payload, and the handle in its header if it was staged. */
  async function sent(length: number): Promise<{ payload: Uint8Array; handle: DataHandle | undefined }> {
    await rust.op('send', { instance: peer.info.instanceId, handler: 'sink', length, seed: length });
    let found: { payload: Uint8Array; handle: DataHandle | undefined } | undefined;
    await until('it came', () => {
      for (const { type, header, payload } of proxy.sentBy(RUST)) {
        if (type !== FRAME_MESSAGE) continue;
        const { handler, headers, responseType } = decodeRequestHeader(header, 0, header.length);
        if (handler !== 'sink') continue;
        expect(responseType).to.equal(RESPONSE_NONE);
        const text = headers?.get('_rv');
        found = { payload, handle: text === undefined ? undefined : DataHandle.fromText(text) };
      }
      return found !== undefined;
    });
    return found!;
  }

  /** Its handlers run side by side: what is sent behind a release may be served before it. */
  async function gone(reference: Uint8Array): Promise<void> {
    while ((await peer.call('_rv_metadata', reference)).ok) await pause(1);
  }

  it('262,144 bytes are the largest that go inline', async () => {
    const { payload, handle } = await sent(THRESHOLD);
    expect(handle).to.equal(undefined);
    expect(fingerprint(payload)).to.deep.equal(fingerprint(bytesOf(THRESHOLD, THRESHOLD)));
  });

  for (const [length, chunks] of [
    [THRESHOLD + 1, 1],
    [2 * MIB + 1, 5],
  ] as const) {
    it(`${length} bytes are staged in ${chunks} chunks, which may be pulled in any order and again`, async () => {
      const { payload, handle } = await sent(length);
      expect(payload).to.have.length(0);
      expect(handle!.worker).to.equal(rust.info.workerId);
      const reference = dataReference.encodeJson({ handle: handle! });
      const ready = decodeDataReady((await peer.call('_rv_acquire', reference)).payload);
      expect(ready).to.include({ totalLength: BigInt(length), chunkSize: CHUNK, chunkCount: chunks });
      const pull = async (chunkIndex: number) =>
        await peer.call('_rv_pull', pullRequest.encodeJson({ transferId: ready.transferId, chunkIndex }));
      const pulled = new Uint8Array(length);
      for (let i = chunks - 1; i >= 0; i--) pulled.set((await pull(i)).payload, i * CHUNK);
      expect(fingerprint(pulled)).to.deep.equal(fingerprint(bytesOf(length, length)));
      expect((await pull(0)).payload).to.have.length(Math.min(length, CHUNK));
      const beyond = await pull(chunks);
      expect(beyond).to.include({ ok: false, via: 'response' });
      expect(beyond.text).to.equal(`chunk not found: transfer_id=${ready.transferId}, chunk_index=${chunks}`);
      await peer.fire('_rv_release', dataLease.encodeJson({ handle: handle!, leaseId: ready.leaseId }));
      await gone(reference);
      const again = await peer.call('_rv_acquire', reference);
      expect(again).to.include({ ok: false, via: 'response' });
      expect(again.text).to.equal(
        `rendezvous handle not found: DataHandle(worker=${handle!.worker}, local=${handle!.local})`,
      );
    });
  }

  it('a detach keeps the bytes; a release with a lease that was never given frees nothing', async () => {
    const { handle } = await sent(THRESHOLD + 1);
    const reference = dataReference.encodeJson({ handle: handle! });
    const acquire = async () => decodeDataReady((await peer.call('_rv_acquire', reference)).payload);
    const first = await acquire();
    await peer.fire('_rv_release', dataLease.encodeJson({ handle: handle!, leaseId: first.leaseId + 1_000n }));
    await peer.fire('_rv_detach', dataLease.encodeJson({ handle: handle!, leaseId: first.leaseId }));
    const metadata = await peer.call('_rv_metadata', reference);
    expect(JSON.parse(metadata.text)).to.deep.equal({ total_len: THRESHOLD + 1, refcount: 1, pinned: false });
    const second = await acquire();
    expect(second.leaseId).to.not.equal(first.leaseId);
    await peer.fire('_rv_release', dataLease.encodeJson({ handle: handle!, leaseId: second.leaseId }));
    await gone(reference);
  });
});

describe('interop: staged payloads', () => {
  const kit = interop();
  const LENGTHS = [THRESHOLD, THRESHOLD + 1, 2 * MIB + 1];

  it('calls from Rust: inline, one chunk, five chunks; nothing stays staged', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    for (const length of LENGTHS) {
      const { length: back, sum } = await rust.unary(node, 'echo', { length, seed: length });
      expect([back, sum]).to.deep.equal(fingerprint(bytesOf(length, length)));
    }
    await bothIdle({ node, rust });
  });

  it('calls to Rust: inline, staged, larger than a frame', async () => {
    const { node, rust } = await kit.pair();
    for (const length of [...LENGTHS, 20 * MIB]) {
      const answer = new TextDecoder().decode(await node.unary(rust.info, 'describe', bytesOf(length, length)));
      const [size, sum] = fingerprint(bytesOf(length, length));
      expect(JSON.parse(answer)).to.include({ length: size, sum });
    }
    await bothIdle({ node, rust });
    await until('nothing stays staged', () => node.stats().rendezvousSlots === 0);
  });

  it('data that either side registered is described, referenced and fetched by the other, until its last reference goes', async () => {
    const { node, rust } = await kit.pair();
    for (const length of [0, 1, CHUNK, MIB + 1]) {
      const wanted = fingerprint(bytesOf(length, length));
      const theirs = DataHandle.fromJSON(await rust.op('registerData', { length, seed: length }));
      expect((await node.metadata(theirs)).totalLength).to.equal(length);
      await node.refHandle(theirs);
      for (const how of ['detach', 'release', 'release'] as const) {
        const lease = await node.get(theirs);
        expect(fingerprint(lease.bytes)).to.deep.equal(wanted);
        await lease[how]();
      }
      await gone(() => node.metadata(theirs));

      const ours = node.registerData(bytesOf(length, length));
      expect(await rust.op('describeData', ours)).to.deep.equal([length, 1]);
      await rust.op('refData', ours);
      expect(await rust.op('describeData', ours)).to.deep.equal([length, 2]);
      for (const detach of [true, false, false])
        expect(await rust.op('getData', { handle: ours, detach })).to.deep.equal(wanted);
      await gone(() => rust.op('describeData', ours));
    }
    await until('nothing stays registered', () => node.stats().rendezvousSlots === 0);
  });

  /** A release is a message that nobody answers. */
  async function gone(look: () => Promise<unknown>): Promise<void> {
    for (;;) {
      try {
        await look();
      } catch (error) {
        expect((error as Error).message).to.match(/rendezvous handle not found/);
        return;
      }
      await pause(1);
    }
  }

  it('stream items above the threshold, both ways, in order with small ones', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const sizes = [1, THRESHOLD + 1, 2, 2 * MIB + 1, 3];
    const anchor = node.createAnchor(bytes);
    const theirs = await rust.attach(anchor.handle);
    await rust.produce(theirs, { sizes, seed: 1 });
    await rust.end(theirs, 'finalize');
    expect(await consume(anchor)).to.deep.equal({ items: expected(sizes, 1), marks: [], end: 'finalized' });
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    for (const [i, size] of sizes.entries()) await ours.send(bytesOf(size, 2 + i));
    await ours.finalize();
    expect(await rust.consume(back)).to.deep.equal({ items: expected(sizes, 2), marks: [], end: 'finalized' });
    await bothIdle(pair);
  });
});
