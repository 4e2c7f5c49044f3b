// What a node does with bytes that are wrong: a counted drop, an error answer or a closed connection; then it carries on, which
// every test proves by a stream that completes afterwards.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { expect } from 'chai';
import { PeerInfo, type Velo } from '../../lib/index.js';
import { encodeTcpEndpoints, encodeWorkerAddress } from '../../lib/wire/address.js';
import { RECORD_CLOSE_SLOT } from '../../lib/wire/batch.js';
import { encodeResponseHeader, RESPONSE_ACK, RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { ADDRESS_KEY_TCP } from '../../lib/wire/names.js';
import { encodeFrame, FRAME_RESPONSE } from '../../lib/wire/transport-frame.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import { failure, openStream, type Pair, provesAlive, streamSuite, take, until } from '../support/nodes.js';
import { dataRecord, openRecord, oversizedPreamble, recordsOf, WirePeer } from '../support/wire-peer.js';

const SLOT = 0x100;
const ITEM = Uint8Array.of(...ITEM_PREFIX, 1);
type Counter = {
  [K in keyof ReturnType<Velo['stats']>]: ReturnType<Velo['stats']>[K] extends number ? K : never;
}[keyof ReturnType<Velo['stats']>];

streamSuite('bytes from a foreign node', (host, nodes) => {
  let pair: Pair;
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    pair = await nodes.shared(host);
    node = pair.consumer;
    peer = await WirePeer.listen();
    await peer.faces(node).hello();
  });
  afterEach(async () => {
    await peer.close();
    await provesAlive(pair);
  });

  /** `act` is counted `by` under `counter`, and nothing else is (but `besides`). */
  async function counts(counter: Counter, act: () => Promise<unknown>, by = 1, besides?: Counter): Promise<void> {
    const before = node.stats();
    await act();
    await until(`${counter} is ${by} higher`, () => node.stats()[counter] - before[counter] === by);
    const others = DROPS.filter((drop) => drop !== counter && drop !== besides && node.stats()[drop] !== before[drop]);
    expect(others, 'other counters').to.deep.equal([]);
  }

  /** Bytes that cost their sender the connection, and no other connection anything. */
  const fatal: [string, () => Uint8Array][] = [
    ['a frame over the limit', oversizedPreamble],
    ['an unknown frame type', () => Uint8Array.of(0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0)],
    ['a frame of another version', () => Uint8Array.of(0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0)],
    ['garbage', () => new TextEncoder().encode('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')],
  ];
  for (const [what, bytes] of fatal) {
    it(`${what} closes its connection and is counted`, async () => {
      const other = await WirePeer.listen();
      await other.faces(node).hello();
      await counts('decodeErrors', async () => {
        const socket = await peer.write(bytes());
        await once(socket, 'close');
      });
      expect((await other.call('_list_handlers')).ok).to.equal(true);
      await other.close();
      expect((await peer.call('_list_handlers')).ok, 'a new connection of the same peer').to.equal(true);
    });
  }

  it('a connection that ends inside a frame is counted', async () => {
    await counts('decodeErrors', async () => {
      const socket = await peer.write(encodeFrame(0, new Uint8Array(30), new Uint8Array(100)).subarray(0, 60));
      socket.end();
      await once(socket, 'close');
    });
  });

  it('a connection without a byte is nothing', async () => {
    const before = node.stats().decodeErrors;
    const socket = await peer.write(new Uint8Array(0));
    socket.end();
    await once(socket, 'close');
    expect(node.stats().decodeErrors).to.equal(before);
  });

  it('a header that is no envelope is counted, and its connection stays', async () => {
    await counts('droppedBadMessage', async () => {
      await peer.write(encodeFrame(0, new Uint8Array(30), new Uint8Array(0)));
    });
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
  });

  it('a truncated batch is counted; its whole records count, the rest and no slot is lost', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    const two = () =>
      peer.batch(
        0,
        (batch) => {
          dataRecord(batch, SLOT, 1, ITEM);
          dataRecord(batch, SLOT, 2, ITEM);
        },
        { spoil: (bytes) => bytes.subarray(0, bytes.length - 3) },
      );
    await counts('malformedBatches', two);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 2, Uint8Array.of(...ITEM_PREFIX, 2)));
    expect(await take(anchor, 2)).to.deep.equal([1, 2]);
    anchor.controller.cancel();
  });

  const spoiled: [string, (bytes: Uint8Array) => Uint8Array][] = [
    ['a header cut off', (bytes) => bytes.subarray(0, 15)],
    ['no bytes', (bytes) => bytes.subarray(0, 0)],
    ['an unknown version', (bytes) => bytes.fill(7, 0, 1)],
    ['an unknown record type', (bytes) => bytes.fill(6, 16, 17)],
    ['a body longer than there is', (bytes) => bytes.fill(0xff, 25, 29)],
    ['more records than it says', (bytes) => bytes.fill(0, 3, 4)],
    ['fewer records than it says', (bytes) => bytes.fill(9, 3, 4)],
  ];
  for (const [what, spoil] of spoiled) {
    it(`a batch with ${what} is counted and fails nothing`, async () => {
      const act = () => peer.batch(0, (batch) => dataRecord(batch, 0x700, 1, ITEM), { spoil });
      await counts('malformedBatches', act, 1, 'droppedClosedSlot');
    });
  }

  it('a batch whose header names another lane than its handler is counted by its records', async () => {
    const act = () =>
      peer.batch(
        3,
        (batch) => {
          dataRecord(batch, SLOT, 1, ITEM);
          dataRecord(batch, SLOT, 2, ITEM);
        },
        { headerLane: 2 },
      );
    await counts('droppedLaneMismatch', act, 2);
  });

  it('a record for a slot never opened is dropped without an answer', async () => {
    await counts('droppedClosedSlot', () => peer.batch(0, (batch) => dataRecord(batch, 0x700, 1, ITEM)));
    await counts('droppedClosedSlot', () => peer.batch(0, (batch) => batch.closeSlot(0x700, 1, 1)));
    expect(peer.batches).to.deep.equal([]);
  });

  it('AS-05 a record of another generation is dropped, never delivered', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, 0x103);
    await counts('generationMismatch', () => peer.batch(0, (batch) => dataRecord(batch, 0x102, 1, ITEM)));
    await peer.batch(0, (batch) => dataRecord(batch, 0x103, 1, Uint8Array.of(...ITEM_PREFIX, 2)));
    expect(await take(anchor, 1)).to.deep.equal([2]);
    anchor.controller.cancel();
  });

  it('AS-06 a batch of an older epoch is dropped whole', async () => {
    const refusedBefore = node.stats().droppedUnknownSlot;
    await peer.batch(0, (batch) => openRecord(batch, SLOT, 1n, 1n), { epoch: 5n });
    const old = (epoch: bigint) => () =>
      peer.batch(
        0,
        (batch) => {
          dataRecord(batch, SLOT, 1, ITEM);
          dataRecord(batch, SLOT, 2, ITEM);
        },
        { epoch },
      );
    await until('the new epoch is there', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    // The close is written before its turn ends, and its cause counted after.
    await until('it is counted', () => node.stats().droppedUnknownSlot > refusedBefore);
    await counts('droppedStaleEpoch', old(4n), 2);
  });

  it('grants and closes for a slot this node never opened are refused and counted', async () => {
    await counts(
      'controlRefused',
      () =>
        peer.batch(0, (batch) => {
          batch.creditUpdate(SLOT, 5);
          batch.closeSlot(SLOT, 0, 3);
        }),
      2,
    );
  });

  it('a window overspent ends that stream alone, as dropped, and its sender hears', async () => {
    const anchor = node.createAnchor<number>();
    const other = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    await peer.open(other.handle, 0x200);
    const before = node.stats().holdOverflow;
    await peer.batch(0, (batch) => {
      for (let i = 1; i <= 40; i += 1) dataRecord(batch, SLOT, i, ITEM);
      dataRecord(batch, 0x200, 1, ITEM);
    });
    await until('the close came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ slot: SLOT, closeReason: 3 });
    expect(await take(other, 1)).to.deep.equal([1]);
    expect(await take(anchor, 32)).to.have.length(32);
    await failure('ERR_SENDER_DROPPED', take(anchor, 1));
    await until('it is counted', () => node.stats().holdOverflow - before === 1);
    other.controller.cancel();
  });

  it('a batch from a worker that nobody registered is counted', async () => {
    const stranger = await WirePeer.listen();
    stranger.faces(node);
    await counts('droppedUnknownPeer', () => stranger.batch(0, (batch) => openRecord(batch, SLOT, 1n, 1n)));
    await stranger.close();
  });

  it('an unknown handler is refused to callers of either kind, and ignored when nobody waits', async () => {
    for (const kind of [RESPONSE_ACK, RESPONSE_UNARY]) {
      const { via, ok, text } = await peer.call('nobody', new Uint8Array(3), kind);
      expect({ via, ok, text }).to.deep.equal({ via: 'ack', ok: false, text: "Handler 'nobody' not found" });
    }
    await peer.fire('nobody', 'x');
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
  });

  it('a response to nobody is dropped in the lane', async () => {
    const workerHi = Number(node.workerId >> 32n);
    const workerLo = Number(node.workerId & 0xffff_ffffn);
    const answers = async () => {
      for (const [slot, generation] of [
        [0, 7],
        [65_534, 0],
        [65_535, 0],
        [3, 2 ** 40],
      ] as const) {
        const header = encodeResponseHeader({ workerHi, workerLo, slot, generation }, true);
        await peer.write(encodeFrame(FRAME_RESPONSE, header, new Uint8Array(5)));
      }
      const foreign = encodeResponseHeader({ workerHi: 1, workerLo: 2, slot: 0, generation: 0 }, true);
      await peer.write(encodeFrame(FRAME_RESPONSE, foreign, new Uint8Array(5)));
    };
    // None answers a call that is out, so none reaches the client, however long it computes.
    await counts('droppedBadMessage', answers, 5);
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
  });

  for (const [what, host, port] of [
    ['port 0', '127.0.0.1', 0],
    ['no host', '', 4_711],
  ] as const) {
    it(`a hello whose one endpoint has ${what} is refused, and nothing is ever dialed for it`, async () => {
      const endpoint = { name: '', host, port, prefixLength: 32, numaNode: null };
      const address = encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]);
      const nowhere = new PeerInfo(generateInstanceId(randomBytes), address);
      expect((await peer.call('_hello', encodeHello(nowhere))).ok).to.equal(false);
      await failure('ERR_BAD_ADDRESS', () => node.registerPeer(nowhere));
      await failure('ERR_UNKNOWN_PEER', node.unary(nowhere.instanceId, 'any'));
    });
  }

  const badAttaches: [string, string][] = [
    ['broken JSON', '{"handle":'],
    ['no JSON object', '[]'],
    ['no fields', '{}'],
    ['a handle of text', '{"handle":{"hi":"1","lo":2},"session_id":1,"stream_cancel_handle":{"hi":1,"lo":1}}'],
    ['a number above u64', '{"handle":{"hi":99999999999999999999,"lo":2},"session_id":1}'],
  ];
  for (const [what, text] of badAttaches) {
    it(`an attach request with ${what} is answered with an error`, async () => {
      const answer = await peer.call('_anchor_attach', new TextEncoder().encode(text));
      expect(answer.ok).to.equal(false);
      expect(answer.text).not.to.equal('');
    });
  }

  for (const handler of ['_stream_cancel', '_stream_stop']) {
    it(`a ${handler} with broken JSON is counted, one with a made-up id ends nobody's stream`, async () => {
      for (const text of [
        '{"sender_stream_id":',
        '{}',
        'null',
        '{"sender_stream_id":-1}',
        '{"sender_stream_id":"1"}',
        '',
      ])
        await counts('droppedBadMessage', () => peer.fire(handler, text));
      const { anchor, sender } = await openStream<number>({ consumer: pair.producer, producer: node });
      // No id, another thread's, a row that has no sender, the last row, a life far ahead, beyond what this node makes.
      for (const id of [0n, 1n << 16n, (1n << 20n) + 9_999n, 0xffffn, 1n << 51n, (1n << 53n) + 1n, (1n << 64n) - 1n])
        await peer.fire(handler, `{"sender_stream_id":${id}}`);
      await peer.call('_list_handlers');
      expect(sender.cancelled || sender.stopped).to.equal(false);
      await sender.send(1);
      expect(await take(anchor, 1)).to.deep.equal([1]);
      await sender.close();
      anchor.controller.cancel();
    });
  }

  it('detach, finalize and cancel of an anchor that is not there are answered null', async () => {
    const body = new TextEncoder().encode(`{"handle":{"hi":${node.workerId},"lo":5}}`);
    for (const handler of ['_anchor_detach', '_anchor_finalize', '_anchor_cancel']) {
      const answer = await peer.call(handler, body);
      expect([answer.ok, answer.text]).to.deep.equal([true, 'null']);
    }
  });
});

/** Everything that counts a drop or an error. */
const DROPS = [
  'droppedStaleEpoch',
  'droppedUnknownSlot',
  'droppedClosedSlot',
  'droppedSlotCollision',
  'droppedDuplicate',
  'droppedLaneMismatch',
  'malformedBatches',
  'controlRefused',
  'holdOverflow',
  'droppedUnknownPeer',
  'droppedWrongHome',
  'droppedStagedBatch',
  'droppedBadMessage',
  'decodeErrors',
  'handlerErrors',
] as const satisfies Counter[];

streamSuite('a batch at the wrong door', (host, nodes) => {
  it('a batch of lane 3 sent to another worker is dropped and counted, also with a peer of lanes', async () => {
    const peer = await WirePeer.listen({ lanes: 4 });
    const node = await nodes.make({ host, lanes: 4 });
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    const answer = await peer.attach(anchor.handle, { laneKey: 0n });
    const { lane = -1, routingSessionId = 0n } = answer.ok ? answer.value : {};
    expect(lane).to.equal(3);
    const open = (port: number) =>
      peer.batch(3, (batch) => openRecord(batch, SLOT, anchor.handle.local, routingSessionId), { port, seq: 0 });
    for (const wrong of [0, 1, 2]) await open(peer.nodePorts[wrong]!);
    await until('all three are counted', () => node.stats().droppedWrongHome === 3);
    expect(node.stats().liveSlots).to.equal(0);
    await open(peer.nodePorts[3]!);
    await until('it is claimed', () => node.stats().liveSlots === 1);
    await peer.batch(3, (batch) => dataRecord(batch, SLOT, 1, ITEM), { port: peer.nodePorts[3]! });
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await peer.close();
  });
});
