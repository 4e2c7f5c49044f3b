// Events of a lane: none without a subscriber for its kind, none beyond what main may leave untaken, and what each of them says.

import { expect } from 'chai';
import { decodeText, EV_DIAGNOSTIC } from '../../../lib/lanes/commands.js';
import {
  type LaneEvent,
  LaneEvents,
  MAX_EVENTS_UNTAKEN,
  WATCH_CLOSE,
  WATCH_EPOCH,
  WATCH_OPEN,
  WATCH_REFUSAL,
  WATCH_WATCHDOG,
} from '../../../lib/lanes/lane-events.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import type { IngressSlot } from '../../../lib/mux/ingress-slot.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';

const WORKER = 1;
const PLACE = { peer: 'a peer', lane: 3 };
const EGRESS = { id: 0x100, sessionHi: 1, sessionLo: 2 } as EgressSlot;
const INGRESS = { id: 0x200, sessionHi: 3, sessionLo: 4, terminalDelivered: true, droppedHere: false } as IngressSlot;

describe('events of a lane', () => {
  let node: NodeBlock;
  let events: LaneEvents;
  let sent: LaneEvent[];
  let dropped: number;
  let hasRoom: boolean;
  beforeEach(() => {
    node = new NodeBlock(createNodeBlock(2, 1));
    sent = [];
    dropped = 0;
    hasRoom = true;
    const main = {
      offer: (kind: number, _tag: number, body: Uint8Array) => {
        expect(kind).to.equal(EV_DIAGNOSTIC);
        if (hasRoom) sent.push(JSON.parse(decodeText(body, 0, body.length)) as LaneEvent);
        return hasRoom;
      },
    };
    const onDropped = () => {
      dropped += 1;
    };
    events = new LaneEvents(
      node,
      WORKER,
      () => main,
      onDropped,
      () => 70,
    );
  });

  function everything(): void {
    events.egressOpened(PLACE, EGRESS);
    events.egressClosed(PLACE, EGRESS, 'cancelled', 50);
    events.ingressOpened(PLACE, INGRESS);
    events.ingressClosed(PLACE, INGRESS, 60);
    events.epochEnded('out', PLACE, 'why', 2);
    events.silent(PLACE, INGRESS);
    events.refused(PLACE, 0x300, 'unknownSlot');
  }

  it('without a subscriber nothing is made, sent or counted as dropped', () => {
    everything();
    expect([sent, dropped]).to.deep.equal([[], 0]);
  });

  for (const [kind, count] of [
    [WATCH_OPEN, 2],
    [WATCH_CLOSE, 2],
    [WATCH_EPOCH, 1],
    [WATCH_WATCHDOG, 1],
    [WATCH_REFUSAL, 1],
  ] as const) {
    it(`a subscriber for kind ${kind} gets that kind alone`, () => {
      node.watch(kind);
      everything();
      expect(sent.map((event) => event.kind)).to.deep.equal(new Array(count).fill(kind));
    });
  }

  it('each says whose stream it was, and why it ended', () => {
    node.watch(WATCH_CLOSE | WATCH_REFUSAL);
    events.egressClosed(PLACE, EGRESS, 'epochDeath', 50);
    events.ingressClosed(PLACE, INGRESS, 60);
    events.ingressClosed(PLACE, { ...INGRESS, droppedHere: true } as IngressSlot, 60);
    events.ingressClosed(PLACE, { ...INGRESS, terminalDelivered: false } as IngressSlot, 60);
    events.refused(PLACE, 0x300, 'protocolError');
    const out = { kind: WATCH_CLOSE, direction: 'out', peer: 'a peer', lane: 3, slot: 0x100, session: [1, 2] };
    const inward = { kind: WATCH_CLOSE, direction: 'in', peer: 'a peer', lane: 3, slot: 0x200, session: [3, 4] };
    expect(sent).to.deep.equal([
      { ...out, reason: 'epochDeath', ageMs: 20 },
      { ...inward, reason: 'terminal', ageMs: 10 },
      { ...inward, reason: 'dropped', ageMs: 10 },
      { ...inward, reason: 'cancelled', ageMs: 10 },
      { kind: WATCH_REFUSAL, peer: 'a peer', lane: 3, slot: 0x300, reason: 'protocolError' },
    ]);
  });

  it('what main has not taken bounds what it is told, and each one that it takes makes room for another', () => {
    node.watch(WATCH_OPEN);
    for (let i = 0; i < MAX_EVENTS_UNTAKEN + 5; i += 1) events.egressOpened(PLACE, EGRESS);
    expect([sent.length, dropped]).to.deep.equal([MAX_EVENTS_UNTAKEN, 5]);
    node.takeEvent(0);
    events.egressOpened(PLACE, EGRESS);
    expect(dropped, 'that one was of another lane').to.equal(6);
    node.takeEvent(WORKER);
    node.takeEvent(WORKER);
    for (let i = 0; i < 3; i += 1) events.egressOpened(PLACE, EGRESS);
    expect([sent.length, dropped]).to.deep.equal([MAX_EVENTS_UNTAKEN + 2, 7]);
  });

  it('a lane in the place of a dead one starts with all the room there is, and no more', () => {
    node.watch(WATCH_OPEN);
    for (let i = 0; i < 5; i += 1) node.takeEvent(WORKER);
    const next = new LaneEvents(
      node,
      WORKER,
      () => ({ offer: () => hasRoom }),
      () => {
        dropped += 1;
      },
    );
    for (let i = 0; i < MAX_EVENTS_UNTAKEN + 1; i += 1) next.egressOpened(PLACE, EGRESS);
    expect(dropped).to.equal(1);
  });

  it('a ring without room drops the event and keeps nothing of it', () => {
    node.watch(WATCH_OPEN);
    hasRoom = false;
    events.egressOpened(PLACE, EGRESS);
    hasRoom = true;
    expect([sent.length, dropped]).to.deep.equal([0, 1]);
    for (let i = 0; i < MAX_EVENTS_UNTAKEN; i += 1) events.egressOpened(PLACE, EGRESS);
    expect([sent.length, dropped], 'it takes no place among those untaken').to.deep.equal([MAX_EVENTS_UNTAKEN, 1]);
  });
});
