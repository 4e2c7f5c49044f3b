// A cancel that comes as a message: it names a sender and no slot, and may come to another lane than the slot's.

import { expect } from 'chai';
import { StreamAnchorHandle } from '../../lib/index.js';
import { CLOSE_PEER_GONE, RECORD_CLOSE_SLOT, RECORD_DATA } from '../../lib/wire/batch.js';
import { streamSignal } from '../../lib/wire/control.js';
import { HANDLER_STREAM_CANCEL } from '../../lib/wire/names.js';
import { failure, streamSuite, until } from '../support/nodes.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';

streamSuite('a sender that is cancelled by message', (host, nodes) => {
  for (const ended of [true, false]) {
    for (const lane of [0, 1]) {
      it(`gives its slot on lane ${lane} up, with what waits there for credit (${ended ? 'ended' : 'open'})`, async () => {
        const node = await nodes.make({ host, lanes: 2 });
        const peer = await WirePeer.listen({ lanes: 2 });
        try {
          node.registerPeer(peer.info);
          peer.faces(node);
          peer.onAttach = () => accept({ routingSessionId: 77n, initialCredit: 1, lane });
          const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
          for (let i = 0; i < 2; i += 1) await sender.send(i);
          await until('one waits for credit', () => node.stats().withheldRecords > 0);
          if (ended) await sender.finalize();
          const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
          await peer.fire(HANDLER_STREAM_CANCEL, streamSignal.encodeJson({ senderStreamId }));
          await until('the slot is gone', () => node.stats().liveSlots === 0);
          expect(node.stats().withheldRecords).to.equal(0);
          await until('the peer hears', () => recordsOf(peer, RECORD_CLOSE_SLOT).length > 0);
          expect(recordsOf(peer, RECORD_CLOSE_SLOT).map(({ closeReason }) => closeReason)).to.deep.equal([
            CLOSE_PEER_GONE,
          ]);
          expect(recordsOf(peer, RECORD_DATA)).to.have.length(1);
          if (!ended) {
            expect([sender.cancelled, sender.cancelSignal.aborted]).to.deep.equal([true, true]);
            await failure('ERR_CHANNEL_CLOSED', sender.send(9));
            await sender.close();
          }
          await until('its row is free', () => node.stats().senders === 0);
        } finally {
          await peer.close();
        }
      });
    }
  }
});
