// Batches that come as a handle, because their one record is too large to travel with them: a foreign node owns the payload, and the
// lane pulls it. Also batches that merely carry headers.

import { expect } from 'chai';
import { rawCodec, type Velo } from '../../lib/index.js';
import { BatchEncoder, CLOSE_TERMINAL_SENT, RECORD_LIFECYCLE } from '../../lib/wire/batch.js';
import { u64High, u64Low } from '../../lib/wire/bytes.js';
import { RESPONSE_NONE } from '../../lib/wire/envelope.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { provesAlive, range, readAll, streamSuite, until } from '../support/nodes.js';
import { dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const CHUNK = 524_288;
const FIRST = 0x100;
const SECOND = 0x200;
const BIN_32 = 0xc6;
const EPOCH = 1n;
const utf8 = new TextEncoder();
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

function itemOf(length: number, fill: number): Uint8Array {
  const bytes = new Uint8Array(ITEM_PREFIX.length + 5 + length).fill(fill);
  bytes.set(ITEM_PREFIX);
  bytes[ITEM_PREFIX.length] = BIN_32;
  new DataView(bytes.buffer).setUint32(ITEM_PREFIX.length + 1, length);
  return bytes;
}

/** A batch as bytes, however long. */
function batchOf(seq: number, room: number, fill: (batch: BatchEncoder) => void): Uint8Array {
  const buffer = new Uint8Array(room + 4_096);
  const encoder = new BatchEncoder();
  encoder.begin(buffer, 0, 0, u64High(EPOCH), u64Low(EPOCH), seq);
  fill(encoder);
  return buffer.slice(0, encoder.finish());
}

streamSuite('batches that come as a handle', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let payloads: Map<number, Uint8Array>;
  let pulls: number[];
  /** A pull of this payload waits until it is called. */
  let gates: Map<number, Promise<void>>;

  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = (await nodes.shared(host)).consumer;
    await peer.faces(node).hello();
    payloads = new Map();
    gates = new Map();
    pulls = [];
    peer.services._rv_acquire = (payload) => {
      const id = Number(/"lo":(\d+)/.exec(text(payload))![1]!);
      const bytes = payloads.get(id);
      if (bytes === undefined) return 'rendezvous handle not found';
      const ready = { lease_id: id, transfer_id: id, total_len: bytes.length, chunk_size: CHUNK };
      return utf8.encode(JSON.stringify({ Ready: { ...ready, chunk_count: Math.ceil(bytes.length / CHUNK) } }));
    };
    peer.services._rv_pull = async (payload) => {
      const { transfer_id: id, chunk_index: index } = JSON.parse(text(payload));
      pulls.push(id);
      await gates.get(id);
      return payloads.get(id)!.slice(index * CHUNK, (index + 1) * CHUNK);
    };
  });
  afterEach(async () => {
    await peer.close();
    await provesAlive(await nodes.shared(host));
  });

  const send = (bytes: Uint8Array, headers?: Record<string, string>) =>
    peer.write(peer.request('_stream_batch', bytes, RESPONSE_NONE, 0, headers));
  const sendStaged = (id: number, bytes: Uint8Array | undefined) => {
    if (bytes !== undefined) payloads.set(id, bytes);
    return send(new Uint8Array(0), { _rv: new DataHandle(peer.workerId, BigInt(id)).toText() });
  };
  const attach = async () => {
    const anchor = node.createAnchor({ codec: rawCodec() });
    const answer = await peer.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    return { anchor, session: answer.value.routingSessionId };
  };
  const finish = (batch: BatchEncoder, slot: number, seq: number) => {
    dataRecord(batch, slot, seq, FINALIZED_BYTES);
    batch.closeSlot(slot, seq + 1, CLOSE_TERMINAL_SENT);
  };

  it('what follows a staged record is held until it has been pulled; two of them keep their order', async () => {
    const { anchor, session } = await attach();
    const [large, larger] = [itemOf(600_000, 1), itemOf(1_200_000, 2)];
    let open = () => {};
    gates.set(1, new Promise((resolve) => (open = resolve)));
    await send(batchOf(0, 0, (batch) => openRecord(batch, FIRST, anchor.handle.local, session)));
    await sendStaged(
      1,
      batchOf(1, large.length, (batch) => dataRecord(batch, FIRST, 1, large)),
    );
    await sendStaged(
      2,
      batchOf(2, larger.length, (batch) => dataRecord(batch, FIRST, 2, larger)),
    );
    await send(
      batchOf(3, 64, (batch) => {
        dataRecord(batch, FIRST, 3, itemOf(3, 3));
        finish(batch, FIRST, 4);
      }),
    );
    await until(
      'the first is being pulled and the rest is held',
      () => pulls.length > 0 && node.stats().heldRecords > 0,
    );
    open();
    const { items, error } = await readAll(anchor);
    expect(error).to.equal(undefined);
    expect(items.map((item) => item.length)).to.deep.equal([600_000, 1_200_000, 3]);
    expect(items.map((item) => item.at(-1))).to.deep.equal([1, 2, 3]);
    expect(pulls).to.deep.equal([1, 1, 2, 2, 2]);
    await until(
      'both leases are given back',
      () => peer.requests.filter((r) => r.handler === '_rv_release').length === 2,
    );
  });

  it('one that cannot be had leaves a gap in its own stream and nothing else', async () => {
    const [lost, kept] = [await attach(), await attach()];
    await send(
      batchOf(0, 64, (batch) => {
        openRecord(batch, FIRST, lost.anchor.handle.local, lost.session);
        openRecord(batch, SECOND, kept.anchor.handle.local, kept.session);
      }),
    );
    await sendStaged(9, undefined);
    await send(new Uint8Array(0), { _rv: 'no handle' });
    const large = itemOf(300_000, 7);
    await sendStaged(
      1,
      batchOf(3, large.length, (batch) => dataRecord(batch, SECOND, 1, large)),
    );
    await send(batchOf(4, 64, (batch) => finish(batch, SECOND, 2)));
    const { items, error } = await readAll(kept.anchor);
    expect([items.map((item) => item.length), error]).to.deep.equal([[300_000], undefined]);
    lost.anchor.controller.cancel();
    await until('its sender hears', () => recordsOf(peer, RECORD_LIFECYCLE).some(({ slot }) => slot === FIRST));
  });

  it('a batch with other headers is a batch like any other', async () => {
    const { anchor, session } = await attach();
    await send(
      batchOf(0, 64, (batch) => {
        openRecord(batch, FIRST, anchor.handle.local, session);
        for (const i of range(1, 4)) dataRecord(batch, FIRST, i, itemOf(1, i));
      }),
      { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
    );
    await send(
      batchOf(1, 64, (batch) => finish(batch, FIRST, 4)),
      {},
    );
    expect((await readAll(anchor)).items.map((item) => item.at(-1))).to.deep.equal([1, 2, 3]);
  });
});
