// Senders and anchors that their application dropped and never ended. What keeps a stream alive (rows, registry, lanes) does not keep
// them, so the collector finds them; their streams end here, are counted, and the application is told once. It must never keep one
// alive itself, and never touch a stream that has ended.

import { emitWarning } from 'node:process';
import type { AnchorEntry } from '../control/anchor-entry.js';
import { ENDING_DROPPED } from '../plane/rows.js';

/** Code of the warning. */
const WARNING_CODE = 'VELOMUX_ABANDONED_STREAM';

/** A sender's way out, which knows whether it has ended. */
export interface AbandonedSender {
  /** Further sends would fail. */
  readonly over: boolean;
  end(ending: number): boolean;
}

export class Abandoned {
  senders = 0;
  anchors = 0;
  private warned = false;
  private readonly droppedSenders = new FinalizationRegistry<AbandonedSender>((outlet) => this.endSender(outlet));
  private readonly droppedAnchors = new FinalizationRegistry<AnchorEntry>((entry) => this.endAnchor(entry));

  /** `outlet` must not lead back to `sender`. */
  watchSender(sender: WeakKey, outlet: AbandonedSender): void {
    this.droppedSenders.register(sender, outlet);
  }

  /** `entry` must not lead back to `anchor`. */
  watchAnchor(anchor: WeakKey, entry: AnchorEntry): void {
    this.droppedAnchors.register(anchor, entry);
  }

  private endSender(outlet: AbandonedSender): void {
    // One whose stream was over before is only tidied away: nothing was lost by not ending it.
    const isOpen = !outlet.over;
    if (!outlet.end(ENDING_DROPPED) || !isOpen) return;
    this.senders += 1;
    this.warn('A sender was garbage-collected before finalize, detach or close: its stream ended as dropped.');
  }

  private endAnchor(entry: AnchorEntry): void {
    if (entry.removed) return;
    entry.cancel();
    this.anchors += 1;
    this.warn('An anchor was garbage-collected before its stream had ended: it was cancelled.');
  }

  private warn(what: string): void {
    if (this.warned) return;
    this.warned = true;
    const detail = 'Further ones of this node are only counted: abandonedSenders and abandonedAnchors of stats().';
    emitWarning(what, { type: 'VelomuxWarning', code: WARNING_CODE, detail });
  }
}
