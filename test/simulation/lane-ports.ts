// The ports between lanes of one node, as ports between threads behave: what is posted is cloned, its memory is gone from who posted
// it, and it is heard in an event of its own, a little later; what is taken by hand is there at once. Lanes on one thread hear each
// other in a microtask, which would hide every order of events that threads can have.

import { LocalPort } from '../../lib/lanes/local-port.js';
import type { Holding, Process } from './world/schedule.js';
import { RANK_NET } from './world/schedule.js';
import type { World } from './world/world.js';

const PORT_MS_MAX = 0.4;
/** Now and then the other lane is busy for long. */
const BUSY = 0.1;
const BUSY_MS_MAX = 6;

interface PortInside extends Pick<LocalPort, 'postMessage' | 'close'> {
  readonly other: PortInside;
  readonly queue: unknown[];
  readonly listeners: { close?: () => void };
  closed: boolean;
  deliver(): void;
}

class PairHolding implements Holding {
  readonly what = 'lane port';

  constructor(private readonly owner: Process) {
    owner.holdings.add(this);
  }

  die(): void {
    this.owner.holdings.delete(this);
  }
}

/** The memory that a message hands over. */
function memoryOf(message: unknown): ArrayBuffer[] {
  return Object.values(message as object).flatMap((value: unknown) =>
    value instanceof Uint8Array && value.byteLength > 0 ? [value.buffer as ArrayBuffer] : [],
  );
}

/** Puts the ports of lanes into a world. Call what is returned to take them out again. */
export function delayLanePorts(world: World): () => void {
  const holdings = new WeakMap<object, PairHolding>();
  const last = new WeakMap<object, number>();
  const ended = new WeakSet<object>();
  const port = LocalPort.prototype as unknown as PortInside;
  const { postMessage, close, deliver } = port;
  const { pair } = LocalPort;
  /** In the order in which they were asked for: a port never lets one message, or its close, overtake another. */
  const later = (to: object, what: string, run: () => void) => {
    const { schedule } = world;
    const most = schedule.random.chance(BUSY) ? BUSY_MS_MAX : PORT_MS_MAX;
    const at = Math.max(last.get(to) ?? 0, schedule.now + schedule.random.within(0.001, most));
    last.set(to, at);
    schedule.at(at, RANK_NET, world.running(what), what, run);
  };
  LocalPort.pair = () => {
    const made = pair();
    const holding = new PairHolding(world.running('lane port'));
    holdings.set(made.port1, holding);
    holdings.set(made.port2, holding);
    return made;
  };
  port.postMessage = function (this: PortInside, message: unknown) {
    if (this.closed) return;
    const { other } = this;
    other.queue.push(structuredClone(message, { transfer: memoryOf(message) }));
    later(other, 'lane message', () => other.deliver());
  };
  port.deliver = function (this: PortInside) {
    // Who has closed an end hears nothing more there.
    if (!ended.has(this)) deliver.call(this);
  };
  port.close = function (this: PortInside) {
    if (this.closed) return;
    this.closed = true;
    ended.add(this);
    holdings.get(this)?.die();
    later(this, 'lane port closed', () => this.listeners.close?.());
    const { other } = this;
    later(other, 'lane port closed', () => {
      if (other.closed) return;
      other.deliver();
      other.closed = true;
      ended.add(other);
      other.listeners.close?.();
    });
  };
  return () => {
    LocalPort.pair = pair;
    port.postMessage = postMessage;
    port.close = close;
    port.deliver = deliver;
  };
}
