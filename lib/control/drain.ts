// The wait between the gate and the teardown of a node: until every request that came through the gate has its answer on the way.
// It asks the lanes and the handlers, and decides nothing.
//
// A mark goes down every ring and comes back up. Lanes let nothing in any more once they have read it, and it comes back behind all
// they had let in before: then every request is with its handler. When no handler runs, all answers stand in the rings; a
// second mark, behind them, has come back when the lanes have handed them to the sockets.

import type { ClientPlane } from '../lanes/client-plane.js';
import { CMD_MARK } from '../lanes/commands.js';
import type { HandlerTable } from '../messenger/handler-table.js';

const NO_BYTES = new Uint8Array(0);

export class Drain {
  /** By lane: what its mark resolves. */
  private readonly waiting: ((() => void) | undefined)[] = [];

  constructor(
    private readonly plane: ClientPlane,
    private readonly handlers: HandlerTable,
  ) {}

  /** Resolves when nothing that was admitted before the gate closed is unanswered. Call it once, with the gate closed. */
  async settled(): Promise<void> {
    await this.marks();
    await this.handlers.idle();
    await this.marks();
  }

  private marks(): Promise<unknown> {
    return Promise.all(
      this.plane.ports.map((port, lane) => {
        if (!port.isOpen) return undefined;
        return new Promise<void>((resolve) => {
          this.waiting[lane] = resolve;
          port.command(CMD_MARK, 0, NO_BYTES);
        });
      }),
    );
  }

  /** The mark of a lane came back, or the lane is dead and will send nothing any more. */
  passed(lane: number): void {
    const resolve = this.waiting[lane];
    this.waiting[lane] = undefined;
    resolve?.();
  }
}
