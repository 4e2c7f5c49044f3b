// Frame credit: the sender's ledger, the receiver's account, and the two against each other.

import { expect } from 'chai';
import fc from 'fast-check';
import { EgressLedger, IngressAccount, slotBufferDepth } from '../../../lib/mux/credit.js';
import { LIFECYCLE_STOP } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES, senderErrorFrame } from '../../../lib/wire/frame.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const NO_WATERMARK = Number.MAX_SAFE_INTEGER;

describe('mux credit', () => {
  it('AC-01 the slot buffer holds C+1 records', () => {
    expect([0, 1, 255].map(slotBufferDepth)).to.deep.equal([1, 2, 256]);
  });

  it('AC-02 data spends C down to refusal, and one terminal still goes', () => {
    const ledger = new EgressLedger(3);
    expect([1, 2, 3, 4].map(() => ledger.spendData())).to.deep.equal([true, true, true, false]);
    expect(ledger.spendTerminal()).to.equal(true);
  });

  it('AC-03 the terminal reserve is spendable once and leaves data credit alone', () => {
    const ledger = new EgressLedger(2);
    expect([ledger.spendTerminal(), ledger.spendTerminal()]).to.deep.equal([true, false]);
    expect(ledger.credit).to.equal(2);
  });

  it('AC-04 control spends nothing, however often, and goes while a slot has no credit', () => {
    const node = new CoreNode({ mux: { flushPolicy: 'manual' } });
    const slot = node.open(new FakeOwner(), 5n, 1n, 0);
    expect([slot.credit, slot.reserve]).to.deep.equal([0, true]);
    node.sendItem(slot, 1);
    node.turn();
    node.port.take();
    for (let i = 1; i <= 3; i++) {
      node.batcher.control.replyCredit(0x100, 1);
      node.batcher.control.replyClose(0x200, 0, 0, 3);
      node.batcher.control.replyLifecycle(0x300, 0, 1, LIFECYCLE_STOP);
      node.turn();
      node.batcher.kick();
      const types = node.port.take().flatMap((batch) => batch.records.map((record) => record.type));
      expect([...types].sort()).to.deep.equal(['close', 'credit', 'lifecycle']);
      expect([slot.credit, slot.reserve, slot.withheld.length]).to.deep.equal([0, true, 1]);
    }
    node.batcher.abandon(node.open(new FakeOwner(), 5n, 2n, 0));
    node.turn();
    expect(node.port.take().flatMap((batch) => batch.records.map((record) => record.type))).to.include('open');
  });

  it('AC-05 a grant restores capacity and saturates at 2^32−1', () => {
    const ledger = new EgressLedger(1);
    ledger.spendData();
    ledger.grant(4);
    expect(ledger.credit).to.equal(4);
    ledger.spendData();
    expect(ledger.credit).to.equal(3);
    ledger.grant(0xffff_ffff);
    expect(ledger.credit).to.equal(0xffff_ffff);
    ledger.grant(0xffff_ffff);
    expect(ledger.credit).to.equal(0xffff_ffff);
  });

  it('AC-06 heartbeats and soft errors spend data credit, only a terminal uses the reserve', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n, 2);
    node.port.take();
    node.batcher.heartbeat(slot);
    expect([slot.credit, slot.reserve]).to.deep.equal([1, true]);
    node.send(slot, senderErrorFrame('soft'));
    expect([slot.credit, slot.reserve]).to.deep.equal([0, true]);
    node.send(slot, senderErrorFrame('late'));
    expect([slot.withheld.length, slot.reserve]).to.deep.equal([1, true]);
    node.batcher.control.postCredit(slot.id, 1);
    node.finalize(slot);
    node.turn();
    expect([slot.credit, slot.reserve, slot.withheld.length]).to.deep.equal([0, false, 0]);
  });

  it('AC-06 at ingress a SlotHeartbeat and a soft error fill the window, and the terminal still has its place', () => {
    const node = new CoreNode();
    const receiver = node.bind(5n, 1n, { limit: 2 });
    const soft = senderErrorFrame('soft');
    node.receive(new BatchBuilder().open(0, 5n, 1n).heartbeat(0, 1).data(0, 2, soft).data(0, 3, FINALIZED_BYTES).bytes);
    expect(receiver.frames.map(frameText).map((text) => text.slice(0, 9))).to.deep.equal([
      'Heartbeat',
      'SenderErr',
      'Finalized',
    ]);
    const full = new CoreNode();
    const refused = full.bind(5n, 1n, { limit: 2 });
    full.receive(new BatchBuilder().open(0, 5n, 1n).heartbeat(0, 1).data(0, 2, soft).data(0, 3, itemFrame(3)).bytes);
    expect(refused.frames.map(frameText).at(-1)).to.equal('Dropped');
  });

  it('AC-07 an account of limit 2 refuses a third data record and still admits the terminal', () => {
    const account = new IngressAccount(2);
    expect([1, 2, 3].map(() => account.admitData())).to.deep.equal([true, true, false]);
    expect(account.admitTerminal()).to.equal(true);
    expect(account.admitTerminal()).to.equal(false);
    for (let i = 0; i < 3; i++) account.delivered(1);
    expect(account.buffered).to.equal(slotBufferDepth(2));
  });

  it('AC-08 draining returns credit per data record, none for the terminal, and a lie makes none', () => {
    const account = new IngressAccount(4);
    for (let i = 0; i < 2; i++) {
      account.admitData();
      account.delivered(10);
    }
    account.admitTerminal();
    account.delivered(10);
    account.release(3);
    expect(account.takeGrant(NO_WATERMARK)).to.equal(2);
    account.release(1_000);
    expect(account.takeGrant(NO_WATERMARK)).to.equal(0);
    expect(account.outstanding).to.equal(0);
    expect(account.bufferedBytes).to.equal(0);
  });

  it('AC-08 a drain count above what was delivered leaves a held record outstanding', () => {
    const account = new IngressAccount(4);
    account.admitData();
    account.delivered(5);
    account.admitData(); // held behind a gap
    account.release(9);
    expect(account.takeGrant(NO_WATERMARK)).to.equal(1);
    expect(account.outstanding).to.equal(1);
  });

  it('AC-09 no interleaving holds more than C+1 in the buffer', () => {
    const action = fc.constantFrom('send', 'terminal', 'take', 'lie', 'grant');
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.array(action, { maxLength: 120, size: 'max' }),
        (limit, actions) => {
          const ledger = new EgressLedger(limit);
          const account = new IngressAccount(limit);
          let inBuffer = 0;
          let drained = 0;
          for (const what of actions) {
            if (what === 'send' && ledger.reserve && ledger.spendData()) {
              expect(account.admitData()).to.equal(true);
              account.delivered(1);
              inBuffer += 1;
            } else if (what === 'terminal' && ledger.spendTerminal()) {
              expect(account.admitTerminal()).to.equal(true);
              account.delivered(1);
              inBuffer += 1;
            } else if (what === 'take' && inBuffer > 0) {
              inBuffer -= 1;
              drained += 1;
            } else if (what === 'grant') {
              account.release(drained);
              drained = 0;
              ledger.grant(account.takeGrant(NO_WATERMARK));
            } else if (what === 'lie') {
              expect(ledger.credit + account.outstanding + account.ungranted).to.equal(limit);
            }
            expect(inBuffer).to.be.at.most(slotBufferDepth(limit));
          }
        },
      ),
    );
  });

  it('AC-10 a ledger emits exactly C data records and one terminal into an unread buffer', () => {
    for (const limit of [1, 2, 8, 64]) {
      const ledger = new EgressLedger(limit);
      const account = new IngressAccount(limit);
      let sent = 0;
      while (ledger.spendData()) {
        expect(account.admitData()).to.equal(true);
        account.delivered(1);
        sent += 1;
      }
      expect(ledger.spendTerminal() && account.admitTerminal()).to.equal(true);
      account.delivered(1);
      expect(sent).to.equal(limit);
      expect(account.buffered).to.equal(slotBufferDepth(limit));
    }
  });

  it('AC-27 a grant is withheld at the byte watermark and flows below it', () => {
    const account = new IngressAccount(4);
    for (let i = 0; i < 4; i++) {
      account.admitData();
      account.delivered(100);
    }
    account.release(2);
    expect(account.takeGrant(200)).to.equal(0);
    account.release(1);
    expect(account.takeGrant(200)).to.equal(3);
  });

  it('the size ring keeps order while it grows and wraps', () => {
    const account = new IngressAccount(200);
    let next = 1;
    let oldest = 1;
    for (let round = 0; round < 40; round++) {
      for (let i = 0; i < 7 && account.admitData(); i++) account.delivered(next++);
      const before = account.bufferedBytes;
      account.release(3);
      expect(before - account.bufferedBytes).to.equal(oldest + (oldest + 1) + (oldest + 2));
      oldest += 3;
      account.takeGrant(NO_WATERMARK);
    }
  });
});
