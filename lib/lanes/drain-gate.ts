// A lane's part in a drain: it refuses the requests that come after the gate has closed, and says when everything that came
// before is out of its hands. Of a request it looks at the handler's name and at nothing else.

import { encodeShuttingDown } from '../messenger/replies.js';
import type { NodeBlock } from '../plane/node-block.js';
import { isDrainExemptHeader } from '../wire/envelope.js';
import type { ClientLink } from './client-link.js';
import { EV_MARK } from './commands.js';
import type { FrameSource } from './frame-intake.js';

const NO_BYTES = new Uint8Array(0);

export class DrainGate {
  /** Requests, and answers to requests, that were let in and have not left the lane. */
  private held = 0;
  private readonly marks: { readonly link: ClientLink; readonly tag: number }[] = [];

  constructor(private readonly node: NodeBlock) {}

  /**
   * Whether a request goes on. One that does not is counted, and echoed on a socket that the peer dialed: header byte for byte,
   * no payload. On a socket of ours it is dropped, because a requester looks for the echo on the connection it dialed itself.
   */
  admits(
    buffer: Uint8Array,
    headerAt: number,
    headerLength: number,
    payloadLength: number,
    source: FrameSource,
  ): boolean {
    if (!this.node.isGateClosed || isDrainExemptHeader(buffer, headerAt, headerLength)) return true;
    source.metrics.drainRejected += 1;
    source.metrics.drainRejectedBytes += headerLength + payloadLength;
    source.writeBack(encodeShuttingDown(buffer, headerAt, headerLength));
    return false;
  }

  /** Something that was let in stays with the lane for now: a drain waits for its `release`. */
  hold(): void {
    this.held += 1;
  }

  release(): void {
    this.held -= 1;
    if (this.held > 0) return;
    for (const { link, tag } of this.marks.splice(0)) link.event(EV_MARK, tag, NO_BYTES);
  }

  /**
   * Sends a client's mark back, behind everything that was let in for it before. The gate was closed before the mark was sent, so
   * what is admitted after the mark was read is exempt.
   */
  mark(link: ClientLink, tag: number): void {
    if (this.held > 0) this.marks.push({ link, tag });
    else link.event(EV_MARK, tag, NO_BYTES);
  }
}
