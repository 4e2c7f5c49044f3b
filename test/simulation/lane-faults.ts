// Deliberate faults of what goes alone, of what lanes leave with each other, and of lanes that die: see `faults.ts`.

import { SenderCore } from '../../lib/control/sender-core.js';
import { Lane } from '../../lib/lanes/lane.js';
import { MeshHub } from '../../lib/lanes/lane-mesh.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import type { IngressSlot } from '../../lib/mux/ingress-slot.js';
import { IngressTable } from '../../lib/mux/ingress-table.js';
import { type Singleton, Singletons } from '../../lib/mux/singletons.js';
import { CONTROL_DONE, SlotLife } from '../../lib/mux/slot-life.js';
import { cuts, dyingLanes, fenced, largeRecords } from './adjustments.js';
import { type Fault, MANY_SEEDS, replace, SEEDS } from './fault.js';

export const LARGE_FAULTS: readonly Fault[] = [
  {
    name: 'a fence is lifted early',
    caughtBy: ['fence'],
    seeds: SEEDS,
    adjust: fenced,
    install: () =>
      replace(
        Singletons.prototype,
        'submit',
        (original) =>
          function (this: Singletons, singleton: Singleton) {
            const submitted = (original as typeof this.submit).call(this, singleton);
            singleton.slot.fence = undefined;
            return submitted;
          },
      ),
  },
  {
    name: 'a fence is never lifted',
    caughtBy: ['waits for ever', 'unexcused end', 'calm counter', 'caller waits for ever'],
    seeds: SEEDS,
    adjust: fenced,
    install: () =>
      replace(
        SlotLife.prototype,
        'applyControl',
        (original) =>
          function (this: SlotLife, slot: EgressSlot) {
            const { fence } = slot;
            const outcome = (original as typeof this.applyControl).call(this, slot);
            if (fence === undefined || slot.fence !== undefined) return outcome;
            slot.fence = fence;
            return CONTROL_DONE;
          },
      ),
  },
  {
    name: 'a refusal ends another stream',
    caughtBy: ['unexcused end', 'lost'],
    seeds: SEEDS,
    adjust: largeRecords,
    install: () =>
      replace(
        IngressTable.prototype,
        'refuseStaged',
        (original) =>
          function (
            this: { directory: { live: readonly IngressSlot[] } },
            name: { epoch: bigint; slot: number; session: bigint },
            text: string,
          ) {
            const other = this.directory.live.find(({ id }) => id !== name.slot);
            const session = other && (BigInt(other.sessionHi >>> 0) << 32n) | BigInt(other.sessionLo >>> 0);
            const named = other === undefined ? name : { ...name, slot: other.id, session };
            return (original as (...args: unknown[]) => unknown).call(this, named, text);
          },
      ),
  },
  {
    name: 'lane 0 does not look for what other lanes left with it',
    caughtBy: ['unexcused end'],
    seeds: [33, 35, ...MANY_SEEDS],
    adjust: largeRecords,
    install: () => replace(MeshHub.prototype, 'drain', () => () => {}),
  },
  {
    name: 'a sender is told that a refused batch was sent',
    caughtBy: ['retired'],
    seeds: MANY_SEEDS,
    adjust: cuts,
    install: () =>
      replace(
        SlotLife.prototype,
        'retire',
        (original) =>
          function (this: SlotLife, slot: EgressSlot) {
            (original as typeof this.retire).call(this, slot, 'sent');
          },
      ),
  },
];

export const DEATH_FAULTS: readonly Fault[] = [
  {
    name: 'a lane that starts again counts its epochs anew',
    caughtBy: ['epoch', 'epoch went back'],
    seeds: SEEDS,
    adjust: dyingLanes,
    install: () => {
      const counts = new WeakMap<Lane, number>();
      return replace(
        Lane.prototype,
        'nextEpoch',
        () =>
          function (this: Lane) {
            const epoch = (counts.get(this) ?? 0) + 1;
            counts.set(this, epoch);
            return epoch;
          },
      );
    },
  },
  {
    name: 'senders do not hear that their lane died',
    caughtBy: ['caller waits for ever', 'waits for ever', 'retired', 'left over', 'unexcused end'],
    seeds: [12, ...SEEDS],
    adjust: dyingLanes,
    install: () => replace(SenderCore.prototype, 'laneDied', () => () => {}),
  },
];
