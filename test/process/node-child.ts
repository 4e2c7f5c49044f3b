// A node in a process of its own, driven over IPC: it makes anchors, reads them by plan, and tells what it read; and it sends.

import {
  type AnchorFrame,
  PeerInfo,
  parseJson,
  type StreamAnchor,
  StreamAnchorHandle,
  type StreamSender,
  stringifyJson,
  Velo,
  VeloError,
} from '../../lib/index.js';

/** How the child reads one anchor. */
export interface ReadingPlan {
  /** Pause before each item, in milliseconds. */
  readonly pauseMs?: number;
  /** After so many items: `and`. */
  readonly after?: number;
  readonly and?: 'cancel' | 'stop';
  /** Does not read at all until told to. */
  readonly hold?: boolean;
}

export interface Reading {
  readonly items: readonly unknown[];
  /** Kind of the last frame, or the code of the error. */
  readonly end: string;
}

export type ChildRequest =
  | { readonly id: number; readonly do: 'register'; readonly info: string }
  | { readonly id: number; readonly do: 'anchor'; readonly plan: ReadingPlan }
  /** Reads a held anchor from now on, and answers once it is over. */
  | { readonly id: number; readonly do: 'result'; readonly anchor: number }
  | { readonly id: number; readonly do: 'attach'; readonly handle: string }
  | { readonly id: number; readonly do: 'send'; readonly sender: number; readonly items: readonly number[] }
  | { readonly id: number; readonly do: 'finalize'; readonly sender: number }
  | { readonly id: number; readonly do: 'sender'; readonly sender: number }
  | { readonly id: number; readonly do: 'close' };

/** What a sender knows of its stream. */
export interface SenderState {
  readonly cancelled: boolean;
}

/** JSON texts: handles do not fit the numbers of plain IPC. */
export interface ChildReply {
  readonly id: number;
  readonly value: string;
}

interface Held {
  readonly release: () => void;
  readonly reading: Promise<Reading>;
}

async function read(anchor: StreamAnchor<unknown>, plan: ReadingPlan, released: Promise<void>): Promise<Reading> {
  const items: unknown[] = [];
  let end = 'cancelled';
  if (plan.hold) await released;
  try {
    for await (const frame of anchor.frames() as AsyncIterable<AnchorFrame<unknown>>) {
      end = frame.kind;
      if (frame.kind !== 'item') continue;
      items.push(frame.value);
      if (items.length === plan.after && plan.and === 'stop') anchor.controller.requestStop();
      if (items.length === plan.after && plan.and === 'cancel') anchor.controller.cancel();
      if (plan.pauseMs !== undefined) await new Promise((resolve) => setTimeout(resolve, plan.pauseMs));
    }
  } catch (error) {
    end = VeloError.is(error) ? error.code : String(error);
  }
  return { items, end };
}

async function serve(): Promise<void> {
  const node = await Velo.create(JSON.parse(process.argv[2] ?? '{}'));
  const anchors: Held[] = [];
  const senders: StreamSender<number>[] = [];
  const answer = async (request: ChildRequest): Promise<unknown> => {
    switch (request.do) {
      case 'register':
        node.registerPeer(PeerInfo.fromJSON(JSON.parse(request.info)));
        return JSON.parse(JSON.stringify(node.peerInfo));
      case 'anchor': {
        const anchor = node.createAnchor();
        let release = () => {};
        const released = new Promise<void>((resolve) => {
          release = resolve;
        });
        anchors.push({ release, reading: read(anchor, request.plan, released) });
        return { anchor: anchors.length - 1, handle: anchor.handle.toJSON() };
      }
      case 'result': {
        const held = anchors[request.anchor]!;
        held.release();
        return await held.reading;
      }
      case 'attach':
        senders.push(await node.attachAnchor<number>(StreamAnchorHandle.fromJSON(parseJson(request.handle))));
        return senders.length - 1;
      case 'send':
        for (const item of request.items) await senders[request.sender]!.send(item);
        return null;
      case 'finalize':
        await senders[request.sender]!.finalize();
        return null;
      case 'sender':
        return { cancelled: senders[request.sender]!.cancelled } satisfies SenderState;
      case 'close':
        await node.close();
        process.disconnect();
        return null;
    }
  };
  process.on('message', (message) => {
    const request = message as ChildRequest;
    void answer(request).then((value) => {
      if (process.connected) process.send?.({ id: request.id, value: stringifyJson(value) } satisfies ChildReply);
    });
  });
  process.send?.({ id: 0, value: 'null' } satisfies ChildReply);
}

/** For the parent: a reply's value. */
export function replyValue(reply: ChildReply): unknown {
  return parseJson(reply.value);
}

if (process.send !== undefined && process.argv[1] === new URL(import.meta.url).pathname) await serve();
