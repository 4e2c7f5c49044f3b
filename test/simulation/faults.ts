// Deliberate faults: each changes one method of one shipped class for the time of one run, as a plausible bug would, and names the
// checks that may find it. They show that the simulator bites. Whoever renames such a method repairs its fault here.

import { StagingPool } from '../../lib/lanes/coalescing-writer.js';
import { IngressStream } from '../../lib/lanes/ingress-stream.js';
import { ControlInbox } from '../../lib/mux/batcher-control.js';
import { IngressAccount } from '../../lib/mux/credit.js';
import { type EgressSlot, EgressSlotTable, INLET_LIVE, INLET_TERMINAL, SLOT_OPEN } from '../../lib/mux/egress-slot.js';
import { FlushGate } from '../../lib/mux/flush-gate.js';
import { IngressDelivery } from '../../lib/mux/ingress-delivery.js';
import { SlotDirectory } from '../../lib/mux/ingress-directory.js';
import { IngressHold } from '../../lib/mux/ingress-hold.js';
import type { IngressSlot } from '../../lib/mux/ingress-slot.js';
import { IngressTable } from '../../lib/mux/ingress-table.js';
import { PeerBatcher } from '../../lib/mux/peer-batcher.js';
import { SlotEmitter } from '../../lib/mux/slot-emitter.js';
import { SlotLife } from '../../lib/mux/slot-life.js';
import { DROPPED_BYTES } from '../../lib/wire/frame.js';
import { slotIndex } from '../../lib/wire/slot-id.js';
import { calm, congested, crowded, cuts, reorder, repeats, slowReaders } from './adjustments.js';
import { everyNth, type Fault, MANY_SEEDS, replace, SEEDS } from './fault.js';
import { DEATH_FAULTS, LARGE_FAULTS } from './lane-faults.js';

interface EmitterInside {
  emitData(slot: EgressSlot, source: Uint8Array, offset: number, length: number): boolean;
  emitTerminal(slot: EgressSlot, bytes: Uint8Array): boolean;
  emitClose(slot: EgressSlot): boolean;
}

const CREDIT_FAULTS: readonly Fault[] = [
  {
    name: 'a grant is doubled',
    caughtBy: ['credit made', 'window', 'calm counter', 'unexcused end'],
    seeds: SEEDS,
    adjust: calm,
    install: () =>
      replace(
        ControlInbox.prototype,
        'replyCredit',
        (original) =>
          function (this: ControlInbox, slotId: number, delta: number) {
            (original as typeof this.replyCredit).call(this, slotId, delta * 2);
          },
      ),
  },
  {
    name: 'a grant is lost',
    caughtBy: ['unexcused end', 'calm counter', 'waits for ever'],
    seeds: SEEDS,
    adjust: calm,
    install: () => {
      const strikes = everyNth(5);
      return replace(
        IngressAccount.prototype,
        'takeGrant',
        (original) =>
          function (this: IngressAccount, byteBudget: number) {
            const grant = (original as typeof this.takeGrant).call(this, byteBudget);
            return grant > 0 && strikes() ? 0 : grant;
          },
      );
    },
  },
  {
    name: 'a drain is counted twice',
    caughtBy: ['reader overrun', 'reader stall', 'buffer'],
    seeds: SEEDS,
    adjust: slowReaders,
    install: () =>
      replace(
        IngressStream.prototype,
        'takeDrained',
        (original) =>
          function (this: IngressStream) {
            return (original as typeof this.takeDrained).call(this) * 2;
          },
      ),
  },
  {
    name: 'the withheld queue is not served after a grant',
    caughtBy: ['waits for ever', 'unexcused end', 'calm counter', 'lost'],
    seeds: SEEDS,
    adjust: calm,
    install: () =>
      replace(
        SlotLife.prototype,
        'applyControl',
        (original) =>
          function (this: SlotLife, slot: EgressSlot) {
            (original as typeof this.applyControl).call(this, slot);
            return false;
          },
      ),
  },
  {
    name: 'data is sent without spending credit',
    caughtBy: ['credit made', 'window', 'calm counter'],
    seeds: MANY_SEEDS,
    adjust: calm,
    install: () => {
      const strikes = everyNth(7);
      return replace(
        PeerBatcher.prototype,
        'accept',
        (original) =>
          function (this: PeerBatcher, slot: EgressSlot, source: Uint8Array, offset: number, length: number) {
            (original as typeof this.accept).call(this, slot, source, offset, length);
            if (slot.direct && strikes()) slot.credit += 1;
          },
      );
    },
  },
];

const EGRESS_FAULTS: readonly Fault[] = [
  {
    name: 'a kick is eaten by a clamp',
    caughtBy: ['kick lost'],
    seeds: MANY_SEEDS,
    adjust: congested,
    install: () =>
      replace(
        FlushGate.prototype,
        'cleared',
        (original) =>
          function (this: FlushGate) {
            (original as typeof this.cleared).call(this);
            this.takeKick();
          },
      ),
  },
  {
    name: 'a terminal overtakes withheld records',
    caughtBy: ['lost', 'gauge', 'fence'],
    seeds: SEEDS,
    adjust: calm,
    install: () =>
      replace(
        SlotEmitter.prototype,
        'finish',
        () =>
          function (this: EmitterInside, slot: EgressSlot) {
            if (slot.state !== SLOT_OPEN || slot.inletState === INLET_LIVE) return true;
            return slot.inletState === INLET_TERMINAL ? this.emitTerminal(slot, slot.terminal!) : this.emitClose(slot);
          },
      ),
  },
  {
    name: 'records are sent again when a slot is served again',
    caughtBy: ['repeated'],
    seeds: SEEDS,
    adjust: calm,
    install: () => {
      const strikes = everyNth(5);
      return replace(
        SlotEmitter.prototype,
        'serve',
        (original) =>
          function (this: EmitterInside, slot: EgressSlot) {
            const { withheld } = slot;
            if (slot.state === SLOT_OPEN && withheld.length > 0 && slot.credit > 0 && strikes())
              this.emitData(slot, withheld.buffer, withheld.frontOffset, withheld.frontLength);
            return (original as (slot: EgressSlot) => boolean).call(this, slot);
          },
      );
    },
  },
  {
    name: 'the lane makes no heartbeats',
    caughtBy: ['unexcused end', 'calm counter'],
    seeds: SEEDS,
    adjust: (scenario) => {
      const made = calm(scenario);
      return { ...made, streams: made.streams.map((plan) => ({ ...plan, burst: 2, gapMs: 5_000 })) };
    },
    install: () => replace(PeerBatcher.prototype, 'heartbeat', () => () => false),
  },
  {
    name: 'two writes share a staging buffer',
    caughtBy: ['frames', 'checksum', 'bytes', 'malformed batch', 'foreign record', 'lost', 'repeated', 'unexcused end'],
    seeds: SEEDS,
    adjust: crowded,
    install: () => {
      const shared = new Uint8Array(65_536);
      return replace(StagingPool.prototype, 'take', () => () => shared);
    },
  },
  {
    name: 'an index is used again in the same generation',
    caughtBy: ['foreign record', 'repeated', 'lost', 'invented'],
    seeds: MANY_SEEDS,
    adjust: repeats,
    install: () =>
      replace(
        EgressSlotTable.prototype,
        'remove',
        (original) =>
          function (this: { generations: number[] }, slot: EgressSlot) {
            const generation = this.generations[slot.index]!;
            (original as (slot: EgressSlot) => void).call(this, slot);
            this.generations[slot.index] = generation;
          },
      ),
  },
];

const INGRESS_FAULTS: readonly Fault[] = [
  {
    name: 'the generation is not checked at ingress',
    caughtBy: ['foreign record', 'repeated', 'lost', 'invented'],
    seeds: MANY_SEEDS,
    adjust: repeats,
    install: () =>
      replace(
        SlotDirectory.prototype,
        'find',
        () =>
          function (this: SlotDirectory, id: number) {
            return this.at(slotIndex(id));
          },
      ),
  },
  {
    name: 'the hold is released out of order',
    caughtBy: ['lost', 'repeated', 'calm counter'],
    seeds: MANY_SEEDS,
    adjust: reorder,
    install: () =>
      replace(
        IngressHold.prototype,
        'take',
        (original) =>
          function (this: IngressHold, _frameSeq: number) {
            const { records } = this as unknown as { records: Map<number, Uint8Array> };
            const last = [...records.keys()].pop();
            return last === undefined ? undefined : (original as typeof this.take).call(this, last);
          },
      ),
  },
  {
    name: 'a close is not deferred behind a gap',
    caughtBy: ['unexcused end', 'lost'],
    seeds: MANY_SEEDS,
    adjust: reorder,
    install: () =>
      replace(
        IngressDelivery.prototype,
        'close',
        () =>
          function (this: IngressDelivery, slot: IngressSlot, _frameSeq: number, injectDropped: boolean) {
            this.end(slot, injectDropped);
          },
      ),
  },
  {
    name: 'a duplicate is delivered',
    caughtBy: ['repeated', 'lost'],
    seeds: SEEDS,
    adjust: repeats,
    install: () =>
      replace(
        IngressTable.prototype,
        'data',
        (original) =>
          function (
            this: { directory: SlotDirectory; delivery: IngressDelivery },
            id: number,
            frameSeq: number,
            source: Uint8Array,
            offset: number,
            length: number,
          ) {
            const slot = this.directory.find(id);
            if (slot !== undefined && frameSeq < slot.next) this.delivery.inOrder(slot, source, offset, length);
            else (original as (...args: unknown[]) => void).call(this, id, frameSeq, source, offset, length);
          },
      ),
  },
  {
    name: 'Dropped is injected twice',
    caughtBy: ['second terminal'],
    seeds: SEEDS,
    adjust: cuts,
    install: () =>
      replace(
        IngressDelivery.prototype,
        'end',
        (original) =>
          function (this: IngressDelivery, slot: IngressSlot, injectDropped: boolean) {
            if (slot.live && injectDropped && !slot.terminalDelivered)
              slot.receiver.deliver(DROPPED_BYTES, 0, DROPPED_BYTES.length, true);
            (original as typeof this.end).call(this, slot, injectDropped);
          },
      ),
  },
  {
    name: 'a stale epoch is accepted',
    caughtBy: ['epoch went back'],
    seeds: MANY_SEEDS,
    adjust: cuts,
    install: () =>
      replace(
        IngressTable.prototype,
        'admitEpoch',
        (original) =>
          function (this: { epochHi: number; epochLo: number; epochKnown: boolean }, hi: number, lo: number) {
            if (this.epochKnown && (hi < this.epochHi || (hi === this.epochHi && lo < this.epochLo))) {
              this.epochHi = hi;
              this.epochLo = lo;
              return true;
            }
            return (original as (hi: number, lo: number) => boolean).call(this, hi, lo);
          },
      ),
  },
  {
    name: 'a held record keeps the bytes of its socket chunk',
    caughtBy: ['bytes', 'checksum', 'foreign record', 'repeated', 'lost'],
    seeds: SEEDS,
    adjust: reorder,
    install: () =>
      replace(
        IngressHold.prototype,
        'add',
        (original) =>
          function (this: IngressHold, frameSeq: number, source: Uint8Array, offset: number, length: number) {
            const added = (original as typeof this.add).call(this, frameSeq, source, offset, length);
            const { records } = this as unknown as { records: Map<number, Uint8Array> };
            if (added) records.set(frameSeq, source.subarray(offset, offset + length));
            return added;
          },
      ),
  },
];

export const FAULTS: readonly Fault[] = [
  ...CREDIT_FAULTS,
  ...EGRESS_FAULTS,
  ...INGRESS_FAULTS,
  ...LARGE_FAULTS,
  ...DEATH_FAULTS,
];
