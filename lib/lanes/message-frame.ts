// A messenger frame that a client thread handed to its lane, on its way out. It reports back what the client must hear: the
// admission, if somebody waits for it, and a write that failed.

import { VeloError } from '../errors.js';
import { REQUEST_ID_OFFSET, RESPONSE_NONE, RESPONSE_TYPE_OFFSET } from '../wire/envelope.js';
import { responseGeneration, responseSlot } from '../wire/response-id.js';
import { FRAME_MESSAGE, PREAMBLE_LEN } from '../wire/transport-frame.js';
import type { ClientLink } from './client-link.js';
import { EV_ADMITTED, EV_FRAME_FAILED, encodeOutcome, RESPONSE_ID_BYTES } from './commands.js';
import { OutFrame } from './out-frame.js';

const TYPE_OFFSET = 2;

export class MessageFrame extends OutFrame {
  constructor(
    private readonly link: ClientLink,
    /** 0: nobody waits for the admission. */
    private readonly token: number,
    bytes: Uint8Array,
    /** The lane must end a turn so that the client hears. */
    private readonly touched: () => void,
    /** Called when the frame will not reach the peer. */
    private readonly lost: () => void = () => {},
  ) {
    super(bytes);
  }

  /** Called once its admission is decided, for a frame that waits for it. */
  whenDecided: () => void = () => {};

  /** An answer to a peer's request. */
  get isAnswer(): boolean {
    return this.buffer[this.start + TYPE_OFFSET] !== FRAME_MESSAGE;
  }

  /** A request whose caller waits for an answer. */
  get awaitsAnswer(): boolean {
    return (
      this.buffer[this.start + TYPE_OFFSET] === FRAME_MESSAGE &&
      this.buffer[this.header + RESPONSE_TYPE_OFFSET] !== RESPONSE_NONE
    );
  }

  /** The private half of the request's response id. */
  get slot(): number {
    return responseSlot(this.buffer, this.header + REQUEST_ID_OFFSET);
  }

  get generation(): number {
    return responseGeneration(this.buffer, this.header + REQUEST_ID_OFFSET);
  }

  private get header(): number {
    return this.start + PREAMBLE_LEN;
  }

  override onAdmitted(ok: boolean, error?: VeloError): void {
    if (ok) this.admitted(undefined);
    else this.failed(error);
    this.whenDecided();
    this.touched();
  }

  override onWritten(ok: boolean, error?: VeloError): void {
    if (ok) return;
    this.lost();
    this.reportFailure(error);
    this.touched();
  }

  /** The connection took the frame, at once or after a wait. */
  admitted(error: VeloError | undefined): void {
    if (this.token !== 0) this.link.event(EV_ADMITTED, this.token, encodeOutcome(error));
  }

  /** It never will be sent. */
  failed(error: VeloError | undefined): void {
    this.lost();
    const reason = error ?? new VeloError('ERR_CONNECTION_CLOSED', 'the frame was not admitted');
    if (this.token !== 0) this.admitted(reason);
    else this.reportFailure(reason);
  }

  private reportFailure(error: VeloError | undefined): void {
    // An answer, or a message without one, that is lost from here on has nobody left to hear it.
    if (!this.awaitsAnswer) return;
    const outcome = encodeOutcome(error ?? new VeloError('ERR_CONNECTION_CLOSED', 'the frame was not written'));
    const body = new Uint8Array(RESPONSE_ID_BYTES + outcome.length);
    const id = this.header + REQUEST_ID_OFFSET;
    body.set(this.buffer.subarray(id, id + RESPONSE_ID_BYTES));
    body.set(outcome, RESPONSE_ID_BYTES);
    this.link.event(EV_FRAME_FAILED, FRAME_MESSAGE, body);
  }
}
