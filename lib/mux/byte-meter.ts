// How many bytes a lane keeps in queues of its slots, in one direction, and whether its node keeps too many. Owns two numbers: whoever
// queues moves the first, whoever knows all lanes sets the second. It must never decide what follows from it.

export class ByteMeter {
  /** Bytes in the queues. */
  bytes = 0;
  /** All lanes of the node together keep more than they may: nothing is queued or granted that could wait. */
  over = false;
}
