// Waits on a doorbell without blocking the thread: park, look again, wait. One standing asynchronous wait per bell and no
// timeout (a timed one keeps its delayed task alive). It does not keep the process running; its owner holds a handle that does.

import type { Doorbell } from '../plane/doorbell.js';
import type { SharedMemory } from '../plane/memory.js';

export interface SleeperWork {
  /** Does what there is to do, bounded. Returns true when it wants to be called again without sleeping. */
  work(): boolean;
  /** The look between parking and waiting. */
  hasWork(): boolean;
}

export class Sleeper {
  private stopped = false;
  private running = false;
  /** On one thread: what the other side calls instead of waking a thread. */
  readonly hook: () => void;
  /** A wait stands on the bell: a turn that something else caused must not add a second one. */
  private waiting = false;
  private readonly again = (): void => {
    this.run();
  };
  private readonly woken = (): void => {
    this.waiting = false;
    this.run();
  };

  constructor(
    private readonly memory: SharedMemory,
    private readonly bell: Doorbell,
    private readonly source: SleeperWork,
    /** Both ends live on this thread: the ringer calls `hook`, nobody waits on the word. */
    private readonly sameThread: boolean,
  ) {
    this.hook = () => queueMicrotask(this.again);
  }

  /** Works until there is nothing to do, then waits for the bell. */
  run(): void {
    if (this.running || this.stopped) return;
    this.running = true;
    try {
      if (this.source.work()) {
        setImmediate(this.again);
        return;
      }
      if (this.waiting || this.stopped) return;
      const value = this.bell.park();
      if (this.source.hasWork()) {
        this.bell.unpark();
        setImmediate(this.again);
        return;
      }
      if (this.sameThread) return;
      const wait = Atomics.waitAsync(this.memory.words, this.bell.bellWord, value);
      if (wait.async) {
        this.waiting = true;
        void wait.value.then(this.woken);
      } else setImmediate(this.again);
    } finally {
      this.running = false;
    }
  }

  /** Ends the standing wait. */
  stop(): void {
    this.stopped = true;
    this.memory.add(this.bell.bellWord, 1);
    this.memory.notify(this.bell.bellWord);
  }
}
