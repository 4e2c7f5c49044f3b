// Why a stream, a sender or an attach may end as nobody asked it to: what befell its nodes, a lane that it may have ridden, a record that
// its consumer refuses, an anchor that did not wait, its application's own wish. Owns these reasons; it must never touch a node.

import type { VeloError } from '../../lib/index.js';
import type { Cluster } from './cluster.js';
import { muxLaneOf } from './inside.js';
import type { Session, Stream } from './ledger.js';
import type { SimNode } from './sim-node.js';

/** How the two ends of a stream hear that a record was refused. */
const REFUSED_ENDS = new Set(['ERR_TRANSPORT', 'ERR_CHANNEL_CLOSED', 'ERR_ATTACH_REFUSED', 'ERR_ANCHOR_NOT_FOUND']);
/** How a lane that dies may end a stream, an attach or a sender. */
const LANE_DEATH_ENDS = new Set([
  'ERR_LANE_DIED',
  'ERR_SENDER_DROPPED',
  'ERR_CHANNEL_CLOSED',
  'ERR_TRANSPORT',
  'ERR_ATTACH_REFUSED',
  'ERR_ANCHOR_NOT_FOUND',
  'ERR_ALREADY_ATTACHED',
  'ERR_TIMEOUT',
  'ERR_CONNECT_FAILED',
  'ERR_CONNECTION_CLOSED',
]);

export class Excuses {
  constructor(
    private readonly cluster: Cluster,
    private readonly failed: (check: string, message: string) => void,
  ) {}

  /** A sender is about to attach. */
  begins(stream: Stream, { producer }: Session): void {
    if (!this.cluster.stands(stream.consumer) || !this.cluster.stands(producer)) stream.laneDied = true;
  }

  /** Its slot was opened. */
  opened(session: Session, anchor: bigint): void {
    session.muxLane = muxLaneOf(session.producer.velo, anchor);
  }

  /** A lane of a node is about to die: the streams that may ride it may end. The others may not. */
  laneDies(node: SimNode, lane: number, streams: readonly Stream[]): void {
    const lanes = node.options.lanes!;
    for (const stream of streams) {
      if (stream.laneDied) continue;
      const ends = stream.sessions.filter(({ producer }) => producer === node || stream.consumer === node);
      // Whose sender has not been heard yet is expected on the lane that was named to it, or on lane 0.
      const awaited = ({ received }: Session) => received === 0 && stream.consumer === node;
      const rides = (session: Session) => {
        const { attached, muxLane } = session;
        return !attached || muxLane === undefined || muxLane % lanes === lane || awaited(session);
      };
      // What is staged, and pulled, lies on lane 0.
      const staged = stream.large && lane === 0 && (ends.length > 0 || stream.consumer === node);
      if (staged || ends.some(rides)) stream.laneDied = true;
    }
  }

  /** Something befell the nodes of a stream. */
  private isLost(stream: Stream): boolean {
    const { consumer } = stream;
    if (consumer.leaving || stream.producers.some((node) => node.leaving || node.process.dead)) return true;
    return stream.producers.some((node) => this.cluster.incidents(node, consumer).length > 0);
  }

  /** The same, or a lane died that it may have ridden. */
  isTroubled(stream: Stream): boolean {
    return stream.laneDied || this.isLost(stream);
  }

  isExcused(stream: Stream, error: VeloError): boolean {
    if (this.isTroubled(stream)) return !stream.laneDied || LANE_DEATH_ENDS.has(error.code) || this.isLost(stream);
    // Its consumer fetches no record so large: the reader is told so, and the sender hears of it as of a cancel.
    if (stream.sessions.some(({ refusable }) => refusable) && REFUSED_ENDS.has(error.code)) return true;
    // Its anchor did not wait.
    if (stream.expires && stream.readerEnd === 'expired') return true;
    const told = error.code === 'ERR_SENDER_DROPPED' && stream.sessions.some(({ end }) => end === 'closed');
    if (told) {
      const { accepted, received, number } = stream.sessions.find(({ end }) => end === 'closed')!;
      if (received !== accepted && !stream.cancelled)
        this.failed(
          'lost',
          `${stream.label}: sender ${number} was closed, ${received} of its ${accepted} records came`,
        );
      return true;
    }
    // The consumer's own end: its senders hear of it as a closed channel, late ones as a refusal.
    return stream.cancelled && error.code !== 'ERR_SENDER_DROPPED';
  }
}
