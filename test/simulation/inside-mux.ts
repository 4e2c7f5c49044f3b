// What no state of the mux shows afterwards, seen as it happens: what the transport said to each batch, which slot is fenced, which
// epochs there were. Methods are wrapped for the time of a run, and do what they did.

import { EgressStream } from '../../lib/lanes/egress-stream.js';
import type { BatchManifest } from '../../lib/mux/batch-manifest.js';
import { BatchWriter } from '../../lib/mux/batch-writer.js';
import type { Retirement } from '../../lib/mux/batcher-types.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import { type Singleton, Singletons } from '../../lib/mux/singletons.js';
import { SlotEmitter } from '../../lib/mux/slot-emitter.js';

interface WriterInside {
  readonly lane: number;
  readonly epoch: number;
  readonly port: {
    readonly peer: { readonly label: string };
    readonly lane: { readonly workerHi: number; readonly workerLo: number };
  };
  settle(manifest: BatchManifest, ok: boolean): void;
  startEpoch(): void;
}

interface SingletonsInside {
  readonly pending: ReadonlySet<Singleton>;
  submit(singleton: Singleton): boolean;
  settled(singleton: Singleton, ok: boolean): void;
}

interface EmitterInside {
  writeData(slot: EgressSlot, src: Uint8Array, off: number, len: number): void;
}

type Report = (check: string, message: string) => void;

/** Call what is returned to end it. */
export function observeMux(report: Report): () => void {
  const undo = [observeFences(report), observeRetired(report), observeEpochs(report)];
  return () => {
    for (const step of undo.reverse()) step();
  };
}

/** Between a record that goes alone and the transport's answer to it, its slot sends nothing. */
function observeFences(report: Report): () => void {
  const fenced = new Map<EgressSlot, Singleton>();
  const singletons = Singletons.prototype as unknown as SingletonsInside;
  const emitter = SlotEmitter.prototype as unknown as EmitterInside;
  const { submit, settled } = singletons;
  const { writeData } = emitter;
  singletons.submit = function (this: SingletonsInside, singleton) {
    const submitted = submit.call(this, singleton);
    if (this.pending.has(singleton) && singleton.kind !== 'terminal') fenced.set(singleton.slot, singleton);
    return submitted;
  };
  singletons.settled = function (this: SingletonsInside, singleton, ok) {
    if (fenced.get(singleton.slot) === singleton) fenced.delete(singleton.slot);
    settled.call(this, singleton, ok);
  };
  emitter.writeData = function (this: EmitterInside, slot, src, off, len) {
    if (fenced.has(slot)) report('fence', `slot ${slot.id} sends while its last record waits for its admission`);
    writeData.call(this, slot, src, off, len);
  };
  return () => {
    singletons.submit = submit;
    singletons.settled = settled;
    emitter.writeData = writeData;
  };
}

/** A stream's output was sent if the transport took the batch of its terminal, and not otherwise. */
function observeRetired(report: Report): () => void {
  const admitted = new WeakSet<EgressSlot>();
  const told = new WeakSet<EgressSlot>();
  const writer = BatchWriter.prototype as unknown as WriterInside;
  const singletons = Singletons.prototype as unknown as SingletonsInside;
  const stream = EgressStream.prototype;
  const { settle } = writer;
  const { settled } = singletons;
  const { retired } = stream;
  writer.settle = function (this: WriterInside, manifest, ok) {
    if (ok) for (const slot of manifest.terminals) admitted.add(slot);
    settle.call(this, manifest, ok);
  };
  singletons.settled = function (this: SingletonsInside, singleton, ok) {
    if (ok && singleton.kind === 'terminal') admitted.add(singleton.slot);
    settled.call(this, singleton, ok);
  };
  stream.retired = function (this: EgressStream, slot: EgressSlot, outcome: Retirement) {
    if (told.has(slot)) report('retired', `slot ${slot.id} retires a second time, as ${outcome}`);
    told.add(slot);
    if (outcome === 'sent' && !admitted.has(slot))
      report('retired', `slot ${slot.id} is told that all was sent, and its terminal was not admitted`);
    retired.call(this, slot, outcome);
  };
  return () => {
    writer.settle = settle;
    singletons.settled = settled;
    stream.retired = retired;
  };
}

/** Epochs of one (peer, mux lane) of a node rise, also when its lane starts again, or its batcher was let go. */
function observeEpochs(report: Report): () => void {
  const seen = new Map<string, number>();
  const writer = BatchWriter.prototype as unknown as WriterInside;
  const { startEpoch } = writer;
  writer.startEpoch = function (this: WriterInside) {
    startEpoch.call(this);
    const { peer, lane } = this.port;
    const key = `${lane.workerHi} ${lane.workerLo} ${peer.label} ${this.lane}`;
    const last = seen.get(key) ?? 0;
    if (this.epoch <= last) report('epoch', `${peer.label} lane ${this.lane}: ${this.epoch} follows ${last}`);
    seen.set(key, Math.max(last, this.epoch));
  };
  return () => {
    writer.startEpoch = startEpoch;
  };
}
