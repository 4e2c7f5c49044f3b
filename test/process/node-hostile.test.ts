// What a peer must not be able to do to a node that behaves: make it hoard, or repeat what it was told.

import { expect } from 'chai';
import { StreamAnchorHandle } from '../../lib/index.js';
import { RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { failure, provesAlive, streamSuite, until } from '../support/nodes.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';

const utf8 = new TextEncoder();

streamSuite('a peer that asks for too much', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  it('a window and a byte budget without measure are taken up to what this node would ask for itself', async () => {
    const { producer: node } = await nodes.shared(host);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.onAttach = () => accept({ routingSessionId: 77n, initialCredit: 0xffff_ffff, slotByteBudget: 0xffff_ffff });
    const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await until('the slot is opened', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 1);
    const window = 65_536;
    const sent = (async () => {
      for (let i = 0; i <= window; i += 1) await sender.send(i % 100);
    })();
    const records = () => recordsOf(peer, RECORD_DATA).length;
    await until('the window is used up', () => records() >= window);
    await sent;
    await until('one more waits for credit', () => node.stats().withheldRecords === 1);
    expect(records()).to.equal(window);
    await sender.close();
    await peer.batch(0, (batch) => batch.closeSlot(recordsOf(peer, RECORD_OPEN_SLOT)[0]!.slot, 0, 2));
    await until('nothing is left', () => node.stats().senders === 0);
  });

  it('an attach that offers a million transports is refused in a few words', async () => {
    const pair = await nodes.shared(host);
    const node = pair.consumer;
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    const supportedTransportKeys = Array.from({ length: 50_000 }, (_, i) => `transport-${i}`);
    const answer = await peer.attach(anchor.handle, { supportedTransportKeys });
    const reason = answer.ok ? '' : answer.reason;
    expect(reason).to.contain('the sender offers transport-0, transport-1');
    expect(utf8.encode(reason)).to.have.length.below(1_000);
    anchor.controller.cancel();
    await provesAlive(pair);
  });

  it('a list of handlers without measure is not kept', async () => {
    const { producer: node } = await nodes.shared(host);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.handlers = Array.from({ length: 40_000 }, (_, i) => `handler-of-a-peer-with-too-many-${i}`);
    await failure('ERR_LIMIT', node.unary(peer.info.instanceId, 'handler-of-a-peer-with-too-many-1'));
    peer.handlers = ['echo'];
    peer.services = { echo: (payload) => payload };
    expect(await node.unary(peer.info.instanceId, 'echo', utf8.encode('x'))).to.deep.equal(utf8.encode('x'));
  });
});
