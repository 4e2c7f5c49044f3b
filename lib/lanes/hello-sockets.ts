// The sockets of hellos whose answer a client thread still owes: a refusal has no other way back. Bounded; it must never keep a
// socket open, and never decide what is answered.

import type { FrameSource } from './frame-intake.js';

/** Hellos that may wait at once. The oldest loses its way back to one more. */
export const MAX_WAITING_HELLOS = 1_024;

export class HelloSockets {
  private readonly waiting = new Map<number, FrameSource>();
  private next = 1;

  /** A number for the socket, until it is answered. */
  hold(source: FrameSource): number {
    if (this.waiting.size >= MAX_WAITING_HELLOS) {
      for (const oldest of this.waiting.keys()) {
        this.waiting.delete(oldest);
        break;
      }
    }
    const token = this.next;
    this.next = (this.next + 1) >>> 0 || 1;
    this.waiting.set(token, source);
    return token;
  }

  /**
   * Writes the answer, if there is one (no bytes: it went another way), and forgets the socket. False: whoever asked does not
   * hear it.
   */
  answer(token: number, frame: Uint8Array): boolean {
    const source = this.waiting.get(token);
    this.waiting.delete(token);
    return frame.length === 0 || source?.writeBack(frame) === true;
  }
}
