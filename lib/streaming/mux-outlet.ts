// Records of a remote stream: encoded by the codec, copied once into the lane's ring. The per-record path of a producer; it
// allocates nothing.

import type { RetiredOutcome, SenderCore } from '../control/sender-core.js';
import { VeloError } from '../errors.js';
import { CMD_DATA } from '../lanes/commands.js';
import type { RingProducer } from '../plane/ring.js';
import { SENDER_CANCELLED, SENDER_CLOSED, SENDER_STOPPED } from '../plane/rows.js';
import type { ItemCodec } from '../wire/codec.js';
import { ITEM_PREFIX_LEN, type ItemFrameWriter, itemFrameLength, writeItemFrame } from '../wire/frame.js';
import { MESSENGER_MUX_KEY } from '../wire/names.js';
import type { Outlet } from './stream-sender.js';

export class MuxOutlet<T> implements Outlet<T> {
  readonly transport = MESSENGER_MUX_KEY;
  private readonly ring: RingProducer;
  private readonly frames: ItemFrameWriter;
  private readonly tag: number;

  constructor(
    private readonly core: SenderCore,
    private readonly codec: ItemCodec<T>,
    /** The lane runs on this thread: blocking would stop it too. */
    private readonly sameThread: boolean,
    /** A larger record is refused. */
    private readonly maxRecordBytes: number,
  ) {
    const { conduit } = core.port;
    this.ring = conduit.egress;
    this.frames = core.port.frames;
    this.tag = core.row.row;
  }

  get cancelled(): boolean {
    return (this.core.flags() & (SENDER_CANCELLED | SENDER_CLOSED)) !== 0;
  }

  get stopped(): boolean {
    return (this.core.flags() & (SENDER_STOPPED | SENDER_CANCELLED | SENDER_CLOSED)) !== 0;
  }

  get over(): boolean {
    return this.core.over;
  }

  overError(): VeloError {
    return this.core.overError();
  }

  trySend(item: T): boolean {
    const { core, codec } = this;
    if (core.over) throw core.overError();
    if (!core.hasRoom()) {
      core.port.publish();
      return false;
    }
    codec.encode(item);
    const { ring } = this;
    const length = itemFrameLength(codec);
    if (length > ring.maxInline) return this.sendLarge();
    const offset = ring.reserve(CMD_DATA, this.tag, length);
    if (offset < 0) return this.noRoom();
    this.frames.write(offset, codec);
    ring.commit();
    core.sent = (core.sent + 1) | 0;
    core.port.committed();
    return true;
  }

  private sendLarge(): boolean {
    const { codec } = this;
    const length = ITEM_PREFIX_LEN + codec.end - codec.start;
    this.checkSize(length);
    const frame = new Uint8Array(length);
    writeItemFrame(frame, 0, codec);
    return this.write(frame);
  }

  trySendFrame(frame: Uint8Array): boolean {
    const { core } = this;
    if (core.over) throw core.overError();
    if (core.hasRoom()) return this.write(frame);
    core.port.publish();
    return false;
  }

  private write(frame: Uint8Array): boolean {
    const { core } = this;
    const { conduit } = core.port;
    this.checkSize(frame.length);
    if (frame.length > conduit.egress.maxInline) {
      if (!core.hasRoomFor(frame.length) || !core.port.sendParcel(CMD_DATA, core.row.row, frame)) return this.noRoom();
      core.sentLarge(frame.length);
    } else {
      const offset = conduit.egress.reserve(CMD_DATA, core.row.row, frame.length);
      if (offset < 0) return this.noRoom();
      conduit.memory.copyIn(offset, frame, 0, frame.length);
      conduit.egress.commit();
    }
    core.sent = (core.sent + 1) | 0;
    core.port.committed();
    return true;
  }

  private checkSize(length: number): void {
    if (length > this.maxRecordBytes)
      throw new VeloError(
        'ERR_FRAME_TOO_LARGE',
        `record of ${length} bytes, at most ${this.maxRecordBytes} may be sent`,
      );
  }

  /** A send that fails shows what was sent before it: its room comes from there. */
  private noRoom(): boolean {
    this.core.port.publish();
    return false;
  }

  roomAgain(): Promise<void> {
    return this.core.roomAgain();
  }

  block(timeoutMs: number): void {
    if (this.sameThread)
      throw new VeloError('ERR_INVALID_STATE', 'blocking on the thread that runs the lane would never end');
    this.core.block(timeoutMs);
  }

  end(ending: number): boolean {
    return this.core.end(ending);
  }

  retired(): Promise<RetiredOutcome> {
    return this.core.retired();
  }

  onSignals(cancelled: () => void, stopped: () => void): void {
    this.core.signals = { cancelled, stopped };
    // What happened between the open and now must not be missed.
    if (this.cancelled) cancelled();
    if (this.stopped) stopped();
  }
}
