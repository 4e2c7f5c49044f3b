// Who may say hello, what becomes of a hello that is wrong, and who claims to be somebody else; with real sockets.

import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { PeerInfo, type SocketInfo, unaryHandler, type Velo, type VeloOptions } from '../../lib/index.js';
import { encodeTcpEndpoints, encodeWorkerAddress } from '../../lib/wire/address.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { ADDRESS_KEY_TCP } from '../../lib/wire/names.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import { failure, introduce, pause, streamSuite, until } from '../support/nodes.js';
import { openRecord, WirePeer } from '../support/wire-peer.js';

const utf8 = (text: string) => new TextEncoder().encode(text);
/** An address of documentation: nobody answers there. */
const ELSEWHERE = '192.0.2.1';

function addressAt(host: string, port = 9): Uint8Array {
  const endpoint = { name: '', host, port, prefixLength: 32, numaNode: null };
  return encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]);
}

const newId = () => generateInstanceId((length) => randomBytes(length));

streamSuite('who may say hello', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  async function facing(options: VeloOptions): Promise<void> {
    node = await nodes.make({ host, ...options });
    peer.faces(node);
  }
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  it('acceptPeer sees who asks and from where, and lets it in', async () => {
    const asked: [PeerInfo, SocketInfo][] = [];
    await facing({
      acceptPeer: async (info, socket) => {
        asked.push([info, socket]);
        return true;
      },
    });
    const socket = await peer.write(new Uint8Array(0));
    expect((await peer.hello()).ok).to.equal(true);
    expect(peer.accepted.tcp, 'the answer came by the listener').to.equal(1);
    const [[info, seen]] = asked as [[PeerInfo, SocketInfo]];
    expect([info.instanceId, info.address]).to.deep.equal([peer.info.instanceId, peer.info.address]);
    expect(seen).to.deep.equal({
      transport: 'tcp',
      remoteAddress: '127.0.0.1',
      remotePort: socket.localPort,
      localPort: peer.nodePorts[0],
      lane: 0,
    });
    expect(node.stats()).to.include({ peers: 1, spoofSuspected: 0 });
  });

  it('a hello at another lane is judged and answered there', async () => {
    const asked: SocketInfo[] = [];
    await facing({
      lanes: 2,
      acceptPeer: (_, socket) => {
        asked.push(socket);
        return false;
      },
    });
    const port = peer.nodePorts[1]!;
    const refused = peer.answerTo(500);
    await peer.write(peer.request('_hello', encodeHello(peer.info), RESPONSE_UNARY, 500), port);
    expect((await refused).text).to.include('refused');
    expect(asked.map(({ lane, localPort }) => [lane, localPort])).to.deep.equal([[1, port]]);
    expect(peer.accepted.tcp).to.equal(0);
  });

  const noes: [string, VeloOptions['acceptPeer']][] = [
    ['false', () => false],
    ['a promise of false', async () => false],
    ['no boolean', (() => 'yes') as unknown as () => boolean],
    ['an exception', () => JSON.parse('{')],
    ['a rejection', () => Promise.reject(new Error('the database is gone'))],
  ];
  for (const [what, acceptPeer] of noes) {
    it(`${what} refuses: told on the socket that asked, and the peer stays unknown`, async () => {
      await facing({ acceptPeer });
      for (const kind of [RESPONSE_UNARY, RESPONSE_ACK]) {
        const { ok, text } = await peer.call('_hello', encodeHello(peer.info), kind);
        expect([ok, text]).to.deep.equal([false, `hello of ${peer.info.instanceId} refused`]);
      }
      await peer.fire('_hello', encodeHello(peer.info));
      expect((await peer.hello()).ok, 'and the socket stands').to.equal(false);
      expect([peer.accepted.tcp, node.stats().peers]).to.deep.equal([0, 0]);
      let ran = 0;
      node.registerHandler(
        'x',
        unaryHandler(() => {
          ran += 1;
        }),
      );
      void peer.call('x');
      await until('its answer went to nobody', () => node.stats().droppedReplyToNobody === 1);
      expect(ran).to.equal(1);
      await failure('ERR_UNKNOWN_PEER', node.unary(peer.info.instanceId, 'x'));
    });
  }

  it('allowPeers lets in whom it names, in any spelling, and asks acceptPeer about nobody else', async () => {
    const asked: string[] = [];
    await facing({
      allowPeers: [`{${peer.info.instanceId.toUpperCase()}}`],
      acceptPeer: ({ instanceId }) => {
        asked.push(instanceId);
        return true;
      },
    });
    const other = await WirePeer.listen();
    expect((await other.faces(node).hello()).text).to.include('refused');
    expect((await peer.hello()).ok).to.equal(true);
    expect(asked).to.deep.equal([peer.info.instanceId]);
    expect(node.stats().peers).to.equal(1);
    await other.close();
  });

  it('a peer that is refused later stays as it was known', async () => {
    let open = true;
    await facing({ acceptPeer: () => open });
    peer.handlers = ['x'];
    expect((await peer.hello()).ok).to.equal(true);
    open = false;
    const moved = new PeerInfo(peer.info.instanceId, addressAt('127.0.0.1'));
    expect((await peer.call('_hello', encodeHello(moved))).ok).to.equal(false);
    expect(await node.refreshHandlers(peer.info.instanceId)).to.deep.equal(['x']);
  });

  it('a node that is refused by another hears it at once, and one that is registered needs no hello', async () => {
    const refusing = await nodes.make({ host, allowPeers: [] });
    const caller = await nodes.make({ host });
    caller.registerPeer(refusing.peerInfo);
    const error = await failure('ERR_HANDLER_FAILED', caller.unary(refusing.instanceId, 'x', undefined));
    expect(error.message).to.equal(`hello of ${caller.instanceId} refused`);
    expect(refusing.stats().peers).to.equal(0);
    refusing.registerPeer(caller.peerInfo);
    caller.registerHandler(
      'x',
      unaryHandler(() => utf8('hi')),
    );
    expect((await refusing.unary(caller.instanceId, 'x')).length).to.equal(2);
  });

  it('the options are checked', async () => {
    for (const [field, options] of [
      ['acceptPeer', { acceptPeer: true as unknown as () => boolean }],
      ['allowPeers', { allowPeers: 'all' as unknown as string[] }],
      ['allowPeers', { allowPeers: ['nobody'] }],
      ['allowPeers', { allowPeers: [7 as unknown as string] }],
      ['requestBytes', { requestBytes: 0 }],
    ] as [string, VeloOptions][])
      expect((await failure('ERR_INVALID_ARGUMENT', nodes.make({ host, ...options }))).message).to.include(field);
  });
});

streamSuite('a hello that is wrong', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    peer.faces(node);
  });
  afterEach(() => peer.close());

  const hello = (address: Uint8Array, id = newId()) => encodeHello(new PeerInfo(id, address));
  const wrong: [string, (self: PeerInfo) => Uint8Array][] = [
    ['of no bytes', () => new Uint8Array(0)],
    ['of broken JSON', () => utf8('{"peer_info":')],
    ['of bytes that are no text', () => Uint8Array.of(0x22, 0xff, 0x22)],
    ['of null', () => utf8('null')],
    ['without a peer', () => utf8('{}')],
    ['whose id is no UUID', () => utf8('{"peer_info":{"instance_id":"me","worker_address":[128]}}')],
    ['whose address has no bytes', () => utf8(`{"peer_info":{"instance_id":"${newId()}","worker_address":[]}}`)],
    ['whose address is text', () => utf8(`{"peer_info":{"instance_id":"${newId()}","worker_address":"tcp://x:1"}}`)],
    ['whose address holds 256', () => utf8(`{"peer_info":{"instance_id":"${newId()}","worker_address":[256]}}`)],
    ['whose address is no map', () => hello(Uint8Array.of(0x93, 1, 2, 3))],
    ['whose address is cut off', () => hello(addressAt('127.0.0.1').subarray(0, 20))],
    ['whose address is empty', () => hello(encodeWorkerAddress([]))],
    ['that names another transport only', () => hello(encodeWorkerAddress([['quic', Uint8Array.of(1)]]))],
    ['whose endpoints are an empty list', () => hello(encodeWorkerAddress([[ADDRESS_KEY_TCP, Uint8Array.of(0x90)]]))],
    ['whose endpoint has port 0', () => hello(addressAt('127.0.0.1', 0))],
    ['in the name of the node itself', (self) => hello(addressAt('127.0.0.1'), self.instanceId)],
    ['above 64 KiB', () => new Uint8Array(65_537).fill(0x20)],
  ];
  it('is answered on its socket with a reason, registers nobody, and costs no connection', async () => {
    const before = peer.accepted.tcp;
    for (const [what, payload] of wrong) {
      const { via, ok, text } = await peer.call('_hello', payload(node.peerInfo));
      expect([via, ok], what).to.deep.equal(['response', false]);
      expect(text, what).not.to.equal('');
    }
    expect(peer.accepted.tcp).to.equal(before);
    expect(node.stats()).to.include({ peers: 0, decodeErrors: 0, handlerErrors: 0, droppedReplyToNobody: 0 });
    expect(node.stats().connectionsClosed).to.equal(0);
    expect((await peer.hello()).ok).to.equal(true);
  });

  it('of one peer too many is refused with the limit, and those known go on', async () => {
    expect((await peer.hello()).ok).to.equal(true);
    while (node.stats().peers < 4_096) node.registerPeer(new PeerInfo(newId(), addressAt(ELSEWHERE)));
    const late = await WirePeer.listen();
    const { ok, text } = await late.faces(node).hello();
    expect(ok).to.equal(false);
    expect(text).to.include('4096');
    expect(late.accepted.tcp).to.equal(0);
    expect((await peer.hello()).ok, 'a known one may say hello again').to.equal(true);
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
    await late.close();
  });
});

streamSuite('in the name of another', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  const asked: PeerInfo[] = [];
  beforeEach(async () => {
    asked.length = 0;
    peer = await WirePeer.listen();
    node = await nodes.make({
      host,
      acceptPeer: (info) => {
        asked.push(info);
        return true;
      },
    });
    peer.faces(node);
  });
  afterEach(() => peer.close());

  const suspected = (count: number) => until(`${count} are counted`, () => node.stats().spoofSuspected === count);

  it('messages and batches from a host that is none of the peer’s are counted, and handled', async () => {
    node.registerPeer(new PeerInfo(peer.info.instanceId, addressAt(ELSEWHERE)));
    let ran = 0;
    node.registerHandler(
      'x',
      unaryHandler(() => {
        ran += 1;
      }),
    );
    for (let i = 0; i < 3; i += 1) await peer.fire('x', '');
    await suspected(3);
    await until('they ran', () => ran === 3);
    await peer.batch(0, (batch) => openRecord(batch, 0x100, 1n, 1n));
    await suspected(4);
    expect(node.stats()).to.include({ batchesReceived: 1, droppedBadMessage: 0 });
  });

  it('a peer behind another address than it says is believed from its hello on', async () => {
    // It says where nobody is, as behind a NAT; its answers cannot come, its messages can.
    const behind = new PeerInfo(peer.info.instanceId, addressAt(ELSEWHERE));
    await peer.fire('_hello', encodeHello(behind));
    await until('it is known', () => node.stats().peers === 1);
    await peer.fire('nobody', '');
    await peer.batch(0, (batch) => openRecord(batch, 0x100, 1n, 1n));
    await until('they came', () => node.stats().batchesReceived === 1);
    // Saying where it is by configuration as well changes nothing.
    node.registerPeer(behind);
    await peer.batch(0, (batch) => openRecord(batch, 0x100, 1n, 1n));
    await until('the second came', () => node.stats().batchesReceived === 2);
    expect(node.stats().spoofSuspected).to.equal(0);
  });

  it('a hello that moves a registered peer to another host is counted, and passes acceptPeer like any other', async () => {
    expect((await peer.hello()).ok).to.equal(true);
    expect((await peer.hello()).ok).to.equal(true);
    expect(node.stats().spoofSuspected).to.equal(0);
    const moved = new PeerInfo(peer.info.instanceId, addressAt(ELSEWHERE));
    await peer.fire('_hello', encodeHello(moved));
    await suspected(1);
    await until('it was asked for', () => asked.length === 3);
    expect(asked.map(({ address }) => address)).to.deep.equal([peer.info.address, peer.info.address, moved.address]);
    expect(node.stats().peers).to.equal(1);
  });

  it('a hello that says the same address again is no move, however the address is spelled', async () => {
    for (const spelled of [`::ffff:${ELSEWHERE}`, '2001:DB8:0:0:0:0:0:1']) {
      const info = new PeerInfo(newId(), addressAt(spelled));
      const { peers } = node.stats();
      await peer.fire('_hello', encodeHello(info));
      await until('it is known', () => node.stats().peers === peers + 1);
      const before = asked.length;
      await peer.fire('_hello', encodeHello(info));
      await until('it was asked for again', () => asked.length === before + 1);
    }
    expect(node.stats().spoofSuspected).to.equal(0);
  });

  it('peers of one host look alike: a claim among them is not suspected', async () => {
    const other = await WirePeer.listen();
    await peer.hello();
    await other.faces(node).hello();
    await other.write(peer.request('nobody', new Uint8Array(0), RESPONSE_NONE, 0));
    await other.fire('nobody', '');
    expect((await other.call('_list_handlers')).ok).to.equal(true);
    expect(node.stats().spoofSuspected).to.equal(0);
    await other.close();
  });
});

streamSuite('handler lists', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
  });
  afterEach(() => peer.close());
  const hellos = () => peer.requests.filter(({ handler }) => handler === '_hello').length;

  it('the own list names what is served, the system’s handlers included', async () => {
    const other = await nodes.make({ host });
    introduce(node, other);
    node.registerHandler(
      'x',
      unaryHandler(() => {}),
    );
    expect(node.handlers()).to.include.members(['x', '_hello', '_list_handlers', '_anchor_attach', '_stream_batch.15']);
    expect(await other.availableHandlers(node.instanceId)).to.have.members(node.handlers());
  });

  it('a peer’s list is asked for once, and anew on request', async () => {
    peer.handlers = ['a'];
    expect(await node.availableHandlers(peer.workerId)).to.deep.equal(['a']);
    peer.handlers = ['a', 'b'];
    expect(await node.availableHandlers(peer.info)).to.deep.equal(['a']);
    expect(hellos()).to.equal(1);
    expect(await node.refreshHandlers(peer.info)).to.deep.equal(['a', 'b']);
    expect(await node.availableHandlers(peer.info)).to.deep.equal(['a', 'b']);
    expect(hellos()).to.equal(2);
    await failure('ERR_UNKNOWN_PEER', node.availableHandlers(newId()));
    await failure('ERR_UNKNOWN_PEER', node.refreshHandlers(1n));
  });

  it('waiting for a handler ends when it is there, without a message when it was known', async () => {
    const waiting = node.waitForHandler(peer.info, 'late', { timeoutMs: 10_000 });
    await until('it asked twice', () => hellos() === 2);
    peer.handlers.push('late');
    await waiting;
    const before = hellos();
    await node.waitForHandler(peer.info, 'late');
    expect(hellos()).to.equal(before);
  });

  it('waiting for a handler gives up: after ten looks, at its timeout, at a signal', async () => {
    await failure('ERR_TIMEOUT', node.waitForHandler(peer.info, 'never'));
    expect(hellos()).to.equal(10);
    await failure('ERR_TIMEOUT', node.waitForHandler(peer.info, 'never', { timeoutMs: 20 }));
    const abort = new AbortController();
    const waiting = failure('ERR_ABORTED', node.waitForHandler(peer.info, 'never', { signal: abort.signal }));
    const before = hellos();
    await until('it asked again', () => hellos() > before);
    abort.abort();
    await waiting;
    const after = hellos();
    await pause(250);
    expect(hellos(), 'nobody asks any more').to.equal(after);
    await failure('ERR_INVALID_ARGUMENT', node.waitForHandler(peer.info, ''));
    await failure('ERR_UNKNOWN_PEER', node.waitForHandler(newId(), 'x'));
  });

  it('a question that is not answered ends by its timeout, and one that fails at once', async () => {
    peer.answers = false;
    await failure('ERR_TIMEOUT', node.refreshHandlers(peer.info, { timeoutMs: 30 }));
    const gone = await WirePeer.listen();
    node.registerPeer(gone.info);
    await gone.close();
    await failure('ERR_CONNECT_FAILED', node.waitForHandler(gone.info, 'x'));
    await failure('ERR_CONNECT_FAILED', node.availableHandlers(gone.info));
  });
});
