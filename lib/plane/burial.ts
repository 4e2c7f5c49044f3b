// What becomes of the rows of a lane that dies: the last writes of the lane itself, where its thread gets to make them, and those of
// the client once the lane is dead. A row is buried only when its lane can write no more: `pulled` carries no generation, and a late
// one would count for the next life.

import { type ReceiverRows, SENDER_CLOSED, SENDER_LANE_DIED, SENDER_RETIRED, type SenderRows } from './rows.js';

/** The lane ends, and with it the stream: a client that blocks in the row sees so, though it can hear of nothing else. */
export function abandonSender(senders: SenderRows, row: number, generation: number): void {
  senders.setFlags(row, generation, SENDER_CLOSED | SENDER_LANE_DIED);
}

/** No lane serves the row any more. Also a row whose slot had ended in order must refuse what follows. */
export function burySender(senders: SenderRows, row: number): void {
  senders.setFlags(row, senders.generation(row), SENDER_CLOSED | SENDER_RETIRED);
}

/**
 * True, and the row is free, when its slot was on the dead lane, or would have come to it (`expected`): what its sender wrote to open
 * it may have died with the lane.
 */
export function buryReceiver(receivers: ReceiverRows, row: number, dead: number, expected: boolean): boolean {
  const claimedBy = receivers.claimedBy(row);
  if (claimedBy === dead) {
    receivers.free(row);
    return true;
  }
  return claimedBy < 0 && expected && receivers.release(row);
}
