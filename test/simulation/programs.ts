// What the simulated applications do: producers that send, flush and end in every way, readers that read, pause, leave and cancel.
// They use the public interface alone, and report what it said to the ledger.

import { rawCodec, type StreamAnchor, type StreamAnchorHandle, type StreamSender, VeloError } from '../../lib/index.js';
import { makeItem, type Session, type Stream } from './ledger.js';
import type { StreamPlan } from './scenario.js';
import type { SimNode } from './sim-node.js';
import { describe } from './world/world.js';

/** What programs need of the run. */
export interface Stage {
  /** Nothing new begins any more, and everybody comes to an end. */
  readonly ending: boolean;
  failed(check: string, message: string): void;
  /** Resolves in an event of the node's process; at once when all is to come to its end. */
  pause(node: SimNode, ms: number): Promise<void>;
  post(node: SimNode, ms: number, label: string, run: () => void): void;
  chance(probability: number): boolean;
  between(low: number, high: number): number;
  /** The stream's producer, or the next one. */
  producerFor(stream: Stream): SimNode | undefined;
  /** An end that nobody asked for: is there a reason for it? */
  judge(stream: Stream, what: string, error: VeloError): void;
  /** A sender that its application never ends. */
  forget(node: SimNode, session: Session, sender: StreamSender<Uint8Array>): void;
  /** A session begins: which lanes are down matters. */
  begins(stream: Stream, session: Session): void;
  /** Its slot was opened. */
  opened(session: Session, anchor: bigint): void;
  note(what: string): void;
}

/** Above it a record is fetched by its consumer, which may refuse that. */
const STAGED_BYTES = 261_000;
/** What a record has beside its bytes, generously. */
const STAGED_OVERHEAD = 200;
/** How often a sender asks again what became of its output. */
const RETIRED_ASKS = 3;
const HUGE_BYTES = [262_100, 262_200, 300_000, 900_000];
const LARGE_BYTES = [1_000, 59_000, 61_500, 66_000, 120_000];
/** What an attach to an anchor that was removed may say. */
const NOT_FOUND = new Set(['ERR_ATTACH_REFUSED', 'ERR_ANCHOR_NOT_FOUND', 'ERR_ALREADY_ATTACHED']);
/** A stream whose last sender has not been noticed yet refuses the next one. */
const ATTACH_TRIES = 6;
const ATTACH_AGAIN_MS = 40;

function sizeOf(stage: Stage, size: StreamPlan['size']): number {
  if (size === 'huge') return HUGE_BYTES[stage.between(0, HUGE_BYTES.length - 1)]!;
  if (size === 'large') return LARGE_BYTES[stage.between(0, LARGE_BYTES.length - 1)]!;
  if (size === 'mixed') return stage.between(0, 3_000);
  return stage.between(20, 60);
}

/** Starts both ends of a stream. Called in an event of the consumer's process. */
export function startStream(stage: Stage, stream: Stream, plan: StreamPlan): StreamAnchor<Uint8Array> | undefined {
  const { consumer } = stream;
  let anchor: StreamAnchor<Uint8Array>;
  try {
    const unattachedTimeoutMs = plan.unattachedMs < 0 ? undefined : plan.unattachedMs;
    anchor = consumer.velo.createAnchor<Uint8Array>({ codec: rawCodec(), unattachedTimeoutMs });
  } catch (error) {
    if (!consumer.leaving) stage.failed('create', describe(error));
    return undefined;
  }
  stage.note(`stream ${stream.id} n${consumer.number} ${plan.send} ${plan.size} ${plan.read} ${plan.end}`);
  stream.expires = plan.unattachedMs >= 0;
  stream.large = plan.size === 'huge';
  if (plan.cancelAt >= 0)
    stage.post(consumer, plan.cancelAt, 'cancel', () => {
      if (stream.readerEnd === 'open') stream.cancelled = true;
      anchor.cancel();
    });
  if (plan.stopAt >= 0)
    stage.post(consumer, plan.stopAt, 'stop', () => {
      stream.stopAsked = true;
      anchor.controller.requestStop();
    });
  if (!plan.absent || stage.ending) beginReading(stage, stream, plan, anchor);
  const producer = stage.producerFor(stream);
  if (producer !== undefined)
    stage.post(producer, stage.between(0, 5), 'produce', () => {
      run(stage, produce(stage, stream, plan, producer, anchor.handle, 1, 1));
    });
  return anchor;
}

export function beginReading(stage: Stage, stream: Stream, plan: StreamPlan, anchor: StreamAnchor<Uint8Array>): void {
  if (stream.reading) return;
  stream.reading = true;
  run(stage, readStream(stage, stream, plan, anchor));
}

function run(stage: Stage, program: Promise<void>): void {
  program.catch((error: unknown) => stage.failed('exception', describe(error)));
}

// ---- readers

async function readStream(
  stage: Stage,
  stream: Stream,
  plan: StreamPlan,
  anchor: StreamAnchor<Uint8Array>,
): Promise<void> {
  let signal: AbortSignal | undefined;
  if (plan.abortAt >= 0) {
    const controller = new AbortController();
    signal = controller.signal;
    stage.post(stream.consumer, plan.abortAt, 'abort', () => controller.abort());
  }
  for (;;) {
    try {
      await stream.consumer.wait(`read ${stream.id}`, readLoop(stage, stream, plan, anchor, signal));
      loopEnded(stream);
      break;
    } catch (error) {
      if (!VeloError.is(error)) throw error;
      if (error.code === 'ERR_ABORTED') signal = undefined;
      else if (error.code === 'ERR_SENDER_ERROR') stream.softError(error.message);
      else {
        stream.ended(error);
        stage.judge(stream, 'its reader', error);
        break;
      }
    }
  }
  // Whatever a loop says at its end, it says once.
  const after = await stream.consumer.wait('read after the end', anchor.items().next());
  if (!after.done) stream.item(after.value);
}

function loopEnded(stream: Stream): void {
  if (stream.cancelled) stream.readerEnd = 'cancelled';
  else if (stream.consumer.leaving && !stream.sessions.some(({ end }) => end === 'finalized'))
    stream.readerEnd = 'closed with its node';
  else if (stream.expires && stream.sessions.every(({ end }) => end !== 'finalized')) stream.expired();
  else stream.finalized();
}

async function readLoop(
  stage: Stage,
  stream: Stream,
  plan: StreamPlan,
  anchor: StreamAnchor<Uint8Array>,
  signal: AbortSignal | undefined,
): Promise<void> {
  let read = 0;
  /** True: the reader leaves. */
  const took = async (item: Uint8Array): Promise<boolean> => {
    stream.item(item);
    read += 1;
    if (plan.readMs > 0) await stage.pause(stream.consumer, plan.readMs);
    if (read !== plan.breakAfter) return false;
    if (stream.readerEnd === 'open') stream.cancelled = true;
    return true;
  };
  if (plan.read === 'items') {
    for await (const item of anchor.items({ signal })) if (await took(item)) break;
  } else if (plan.read === 'batches') {
    for await (const items of anchor.batches({ signal })) {
      let leave = false;
      // A batch is the reader's own: it looks at all of it, however long it takes.
      for (const item of items) leave = (await took(item)) || leave;
      if (leave) break;
    }
  } else {
    for await (const frame of anchor.frames({ signal })) {
      if (frame.kind === 'item') {
        if (await took(frame.value)) break;
      } else if (frame.kind === 'senderError') stream.softError(frame.message);
      else if (frame.kind === 'detached') stream.detached();
    }
  }
}

// ---- producers

async function produce(
  stage: Stage,
  stream: Stream,
  plan: StreamPlan,
  node: SimNode,
  handle: StreamAnchorHandle,
  turn: number,
  attempt: number,
): Promise<void> {
  if (!node.alive) return;
  const session = stream.session(node);
  stage.begins(stream, session);
  let sender: StreamSender<Uint8Array>;
  try {
    const attaching = node.velo.attachAnchor<Uint8Array>(handle, { codec: rawCodec(), key: plan.key });
    sender = await node.wait(`attach ${stream.id}`, attaching);
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    session.end = 'failed';
    if (stream.expires && NOT_FOUND.has(error.code)) return;
    const early = error.code === 'ERR_ATTACH_REFUSED' || error.code === 'ERR_ALREADY_ATTACHED';
    if (early && session.number > 0 && attempt < ATTACH_TRIES) {
      await stage.pause(node, ATTACH_AGAIN_MS);
      await produce(stage, stream, plan, node, handle, turn, attempt + 1);
    } else if (!(early && session.number > 0)) stage.judge(stream, 'its attach', error);
    return;
  }
  session.attached = true;
  stage.opened(session, handle.local);
  run(stage, awaitRetired(stage, stream, session, sender));
  try {
    await sendAll(stage, stream, plan, session, sender);
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    session.end = 'failed';
    stage.judge(stream, 'its sender', error);
    await sender.close();
    return;
  }
  const last = turn >= plan.senders;
  await endSender(stage, stream, last ? plan.end : 'detach', session, sender);
  const next = last ? undefined : stage.producerFor(stream);
  if (next === undefined) return;
  stage.post(next, stage.between(0, 30), 'produce', () => {
    run(stage, produce(stage, stream, plan, next, handle, turn + 1, 1));
  });
}

/** What became of its output: asked early, and again, which must say the same. */
async function awaitRetired(
  stage: Stage,
  stream: Stream,
  session: Session,
  sender: StreamSender<Uint8Array>,
): Promise<void> {
  const asked = Array.from({ length: stage.between(1, RETIRED_ASKS) }, () => sender.retired());
  const outcomes = await session.producer.wait(`retired ${stream.id}`, Promise.all(asked));
  outcomes.push(await sender.retired());
  session.retired = outcomes[0];
  stage.note(`retired ${stream.id} ${outcomes[0]}`);
  if (outcomes.some((outcome) => outcome !== outcomes[0]))
    stage.failed('retired', `${stream.label}: sender ${session.number} was told ${outcomes.join(', ')}`);
  if (outcomes[0] === 'sent' && session.end !== 'finalized' && session.end !== 'detached' && session.end !== 'closed')
    stage.failed('retired', `${stream.label}: sender ${session.number} is ${session.end}, and all of it was sent`);
}

async function sendAll(
  stage: Stage,
  stream: Stream,
  plan: StreamPlan,
  session: Session,
  sender: StreamSender<Uint8Array>,
): Promise<void> {
  const { producer } = session;
  const manual = producer.options.flushPolicy === 'manual';
  let inBurst = 0;
  for (let sent = 0; sent < plan.items && !sender.stopped; sent++) {
    await sendOne(stage, stream, plan, session, sender);
    if (++inBurst < plan.burst) continue;
    inBurst = 0;
    if (manual || stage.chance(0.1)) producer.velo.flushBatch();
    if (plan.gapMs > 0) await stage.pause(producer, plan.gapMs);
  }
  if (manual) producer.velo.flushBatch();
}

async function sendOne(
  stage: Stage,
  stream: Stream,
  plan: StreamPlan,
  session: Session,
  sender: StreamSender<Uint8Array>,
): Promise<void> {
  const { producer } = session;
  const seq = session.accepted;
  // Counted before: its reader may have it before this program goes on.
  session.accepted += 1;
  try {
    if (plan.softErrors && stage.chance(0.2)) {
      producer.velo.flushBatch();
      await producer.wait(`sendErr ${stream.id}`, sender.sendErr(`${stream.id}:${session.number}:${seq}`));
      return;
    }
    const item = makeItem(stream.id, session.number, seq, sizeOf(stage, plan.size));
    const limit = stream.consumer.options.stagedPayloadMax ?? Number.POSITIVE_INFINITY;
    if (item.length > STAGED_BYTES && item.length > limit - STAGED_OVERHEAD) session.refusable = true;
    // Under Manual, who waits for room must have flushed: the room comes from what is written.
    const manual = producer.options.flushPolicy === 'manual';
    if (plan.send === 'await' && !manual) await producer.wait(`send ${stream.id}`, sender.send(item));
    else
      while (!sender.trySend(item)) {
        if (manual || plan.send === 'burst') producer.velo.flushBatch();
        await producer.wait(`ready ${stream.id}`, sender.ready());
      }
    // Accepted is copied: what the application does with its memory is its own business.
    item.fill(0xee);
  } catch (error) {
    session.accepted -= 1;
    throw error;
  }
}

async function endSender(
  stage: Stage,
  stream: Stream,
  how: StreamPlan['end'],
  session: Session,
  sender: StreamSender<Uint8Array>,
): Promise<void> {
  stage.note(`end ${stream.id} ${how}`);
  switch (how) {
    case 'finalize':
      session.end = 'finalized';
      return await sender.finalize();
    case 'detach':
      session.end = 'detached';
      await sender.detach();
      return;
    case 'close':
      session.end = 'closed';
      return await sender.close();
    case 'forget':
      return stage.forget(session.producer, session, sender);
  }
}
