// The sockets of hellos whose answer a client thread still owes: a refusal has no other way back. Bounded; it must never keep a
// socket open, and never decide what is answered.

import type { FrameSource } from './frame-intake.js';

/** Hellos that may wait at once. The oldest loses its way back to one more. */
export const MAX_WAITING_HELLOS = 1_024;

/** Tokens are u32: so many lives, and so many hellos of each, before numbers come again. */
const LIVES = 256;
const TOKENS_PER_LIFE = 2 ** 24;

export class HelloSockets {
  private readonly waiting = new Map<number, FrameSource>();
  private count = 0;
  private readonly base: number;

  /** `life`: which lane of its number this is. An answer to a hello that the dead one took must find no socket here. */
  constructor(life = 0) {
    this.base = (life % LIVES) * TOKENS_PER_LIFE;
  }

  /** A number for the socket, until it is answered. */
  hold(source: FrameSource): number {
    if (this.waiting.size >= MAX_WAITING_HELLOS) {
      for (const oldest of this.waiting.keys()) {
        this.waiting.delete(oldest);
        break;
      }
    }
    this.count = (this.count % (TOKENS_PER_LIFE - 1)) + 1;
    const token = this.base + this.count;
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
