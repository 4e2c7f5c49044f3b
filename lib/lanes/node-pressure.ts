// What the queues of one lane keep, and whether those of all lanes keep too much: the lane's end of `nodeBufferBytes`. Looked at once
// per turn, never per record. Senders and readers have half of it each: were it one bound, two nodes that wait for each other's credit
// could both be over it and grant nothing.

import { ByteMeter } from '../mux/byte-meter.js';
import { BUFFERED_IN, BUFFERED_OUT, type BufferedSide, type NodeBlock } from '../plane/node-block.js';

export class NodePressure {
  /** Withheld and standing records of this node's senders. */
  readonly egress: ByteMeter;
  /** Records for this node's readers that wait for their ring, or behind a gap. */
  readonly ingress: ByteMeter;
  private readonly sides: readonly Side[];

  constructor(node: NodeBlock, lane: number, nodeBufferBytes: number) {
    const limit = nodeBufferBytes / 2;
    const [egress, ingress] = [BUFFERED_OUT, BUFFERED_IN].map(
      (side) => new Side(node, lane, side as BufferedSide, limit),
    );
    this.sides = [egress!, ingress!];
    this.egress = egress!.meter;
    this.ingress = ingress!.meter;
  }

  /** Tells the other lanes, and hears of them. */
  look(): void {
    for (const side of this.sides) side.look();
  }
}

class Side {
  readonly meter = new ByteMeter();
  private told = 0;

  constructor(
    private readonly node: NodeBlock,
    private readonly lane: number,
    private readonly side: BufferedSide,
    private readonly limit: number,
  ) {}

  look(): void {
    const { meter } = this;
    if (meter.bytes !== this.told) {
      this.told = meter.bytes;
      this.node.setBuffered(this.lane, this.side, meter.bytes);
    } else if (meter.bytes === 0 && !meter.over) return; // what others keep is their business, until this lane keeps something too
    meter.over = this.node.bufferedBytes(this.side) > this.limit;
  }
}
