// The sessions that are captured: short, each about one thing, played by a velomux node and a real velo node through a proxy. A session
// tells what it did; it must not look at the bytes.

import { expect } from 'chai';
import type { StreamAnchor, StreamAnchorHandle, VeloOptions } from '../../lib/index.js';
import { amHandler, unaryHandler } from '../../lib/index.js';
import { decodeRequestHeader, RESPONSE_ACK } from '../../lib/wire/envelope.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { HANDLER_RV_RELEASE } from '../../lib/wire/names.js';
import { dataLease, dataReference, decodeDataReady, pullRequest } from '../../lib/wire/rendezvous-messages.js';
import { FRAME_MESSAGE, FRAME_SHUTTING_DOWN } from '../../lib/wire/transport-frame.js';
import type { CapturedCall, CapturedStream, GeneratedPayload } from '../support/captures.js';
import { failure, pause, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';
import { bytes, consume, expected, type MixedPair, OURS, RUST } from './kit.js';
import { bytesOf, checksum, fingerprint, itemsOf, type Token, tokenCodec } from './payload.js';
import { type RecordedFrame, RecordingProxy } from './recording-proxy.js';
import type { RustNodeOptions } from './rust-peer.js';

export interface Story {
  readonly calls?: readonly CapturedCall[];
  readonly streams?: readonly CapturedStream[];
  /** Where the session had a proxy of its own. */
  readonly frames?: readonly RecordedFrame[];
  /** Payloads too long to be written out. */
  readonly generated?: readonly GeneratedPayload[];
}

export interface Session {
  readonly name: string;
  readonly about: string;
  readonly node?: VeloOptions;
  readonly rust?: RustNodeOptions;
  /** Plays it. The pair reaches each other through the proxy only. */
  readonly play: (pair: MixedPair & { readonly proxy: RecordingProxy }) => Promise<Story>;
}

const utf8 = new TextEncoder();
const SIZES = [0, 5, 31, 32, 255, 256, 700];

function call(from: string, handler: string, payload: string, answer: Partial<CapturedCall>): CapturedCall {
  return { from, handler, payload, answer: 'response', ok: true, text: payload, ...answer };
}

interface StreamTraits extends Pick<CapturedStream, 'producer' | 'seed'> {
  readonly sizes?: readonly number[];
  readonly tokens?: number;
  readonly marks?: CapturedStream['marks'];
  readonly end?: CapturedStream['end'];
  readonly lanes?: number;
}

function stream(handle: StreamAnchorHandle, traits: StreamTraits): CapturedStream {
  return {
    anchor: [String(handle.worker), String(handle.local)],
    kind: traits.tokens === undefined ? 'bytes' : 'token',
    marks: [],
    end: 'finalized',
    lanes: 1,
    ...traits,
  };
}

/** What was captured must be what was meant. */
function agree(what: string, got: unknown, wanted: unknown): void {
  expect(got, what).to.deep.equal(wanted);
}

const messages: Session = {
  name: 'messages',
  about: 'hello, unary calls, errors, a panic, an ack, fire-and-forget, headers; each side calls the other',
  play: async ({ node, rust }) => {
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    node.registerHandler(
      'fail',
      unaryHandler(() => {
        throw new Error('failed as asked');
      }),
    );
    const calls: CapturedCall[] = [];
    const headers = { k: 'v', λ: 'ünïcode' };
    await node.unary(rust.instanceId, 'echo', utf8.encode('hello'));
    calls.push(call(OURS, 'echo', 'hello', {}));
    await node.unary(rust.instanceId, 'echo', utf8.encode('with headers'), { headers });
    calls.push(call(OURS, 'echo', 'with headers', { headers }));
    await failure('ERR_HANDLER_FAILED', node.unary(rust.instanceId, 'fail'));
    calls.push(call(OURS, 'fail', '', { ok: false, text: 'failed as asked' }));
    await failure('ERR_HANDLER_FAILED', node.unary(rust.instanceId, 'panic'));
    calls.push(call(OURS, 'panic', '', { answer: 'ack', ok: false, text: 'Handler failed: handler panicked' }));
    await node.sync(rust.instanceId, 'count', utf8.encode('one'));
    calls.push(call(OURS, 'count', 'one', { answer: 'ack', text: '' }));
    await node.send(rust.instanceId, 'count', utf8.encode('two'));
    calls.push(call(OURS, 'count', 'two', { answer: 'nothing', text: '' }));
    await rust.unary(node, 'echo', { text: 'hello', headers });
    calls.push(call(RUST, 'echo', 'hello', { headers }));
    await rust.unary(node, 'fail', { text: '' }).catch(() => {});
    calls.push(call(RUST, 'fail', '', { ok: false, text: 'failed as asked' }));
    await rust.sync(node, 'echo', { text: 'three' });
    calls.push(call(RUST, 'echo', 'three', { answer: 'ack', text: '' }));
    return { calls };
  },
};

const unknownHandler: Session = {
  name: 'unknown-handler',
  about:
    'a test peer stands in for velomux, which would not send such a call: a handler that the Rust node does not have',
  play: async ({ rust }) => {
    const peer = await WirePeer.listen();
    const proxy = await RecordingProxy.between([RUST, rust.info], [OURS, peer.info]);
    peer.faces({ peerInfo: proxy.infoOf(RUST) });
    await peer.hello();
    await peer.call('absent', utf8.encode('anybody?'));
    await peer.call('absent', utf8.encode('anybody at all?'), RESPONSE_ACK);
    await Promise.all([peer.close(), proxy.close()]);
    const refused = { answer: 'ack' as const, ok: false, text: "Handler 'absent' not found" };
    const calls = ['anybody?', 'anybody at all?'].map((payload) => call(OURS, 'absent', payload, refused));
    return { calls, frames: proxy.frames };
  },
};

const STAGED = { length: 262_145, seed: 9 };

const staged: Session = {
  name: 'staged-from-rust',
  about:
    'a test peer stands in for velomux: a message of one byte above the threshold is acquired, pulled, released, and gone',
  play: async ({ rust }) => {
    const peer = await WirePeer.listen();
    peer.handlers = ['sink'];
    const proxy = await RecordingProxy.between([RUST, rust.info], [OURS, peer.info]);
    peer.faces({ peerInfo: proxy.infoOf(RUST) });
    await peer.hello();
    await rust.op('send', { instance: peer.info.instanceId, handler: 'sink', ...STAGED });
    await until('it came', () => proxy.requestsOf(RUST).includes('sink'));
    const { header } = proxy.sentBy(RUST).findLast(({ type }) => type === FRAME_MESSAGE)!;
    const text = decodeRequestHeader(header, 0, header.length).headers!.get('_rv')!;
    const handle = DataHandle.fromText(text);
    const reference = dataReference.encodeJson({ handle });
    const { transferId, leaseId } = decodeDataReady((await peer.call('_rv_acquire', reference)).payload);
    const pulled = await peer.call('_rv_pull', pullRequest.encodeJson({ transferId, chunkIndex: 0 }));
    agree('the bytes', fingerprint(pulled.payload), fingerprint(bytesOf(STAGED.length, STAGED.seed)));
    await peer.fire('_rv_release', dataLease.encodeJson({ handle, leaseId }));
    await pause(50);
    agree('it is gone', (await peer.call('_rv_acquire', reference)).ok, false);
    await Promise.all([peer.close(), proxy.close()]);
    const calls = [call(RUST, 'sink', '', { answer: 'nothing', headers: { _rv: text } })];
    return { calls, frames: proxy.frames, generated: [STAGED] };
  },
};

const stagedBothWays: Session = {
  name: 'staged',
  about: 'a call of one byte above the threshold each way: acquired, pulled and released by the other node',
  play: async ({ node, rust, proxy }) => {
    const sums: number[] = [];
    node.registerHandler(
      'count',
      amHandler((payload) => {
        sums.push(checksum(payload));
      }),
    );
    const payload = bytesOf(STAGED.length, STAGED.seed);
    await node.sync(rust.instanceId, 'count', payload);
    await rust.sync(node, 'count', STAGED);
    agree(
      'the bytes',
      [...(await rust.seen()).counted.map(({ sum }) => sum), ...sums],
      new Array(2).fill(checksum(payload)),
    );
    await until('both were released', () => proxy.frames.filter(isRelease).length === 2);
    const calls = [OURS, RUST].map((from) => {
      const { header } = proxy.sentBy(from).find((frame) => handlerOf(frame) === 'count')!;
      const headers = Object.fromEntries(decodeRequestHeader(header, 0, header.length).headers!);
      return call(from, 'count', '', { answer: 'ack', text: '', headers });
    });
    return { calls, generated: [STAGED] };
  },
};

function handlerOf({ type, header }: RecordedFrame): string | undefined {
  return type === FRAME_MESSAGE ? decodeRequestHeader(header, 0, header.length).handler : undefined;
}

function isRelease(frame: RecordedFrame): boolean {
  return handlerOf(frame) === HANDLER_RV_RELEASE;
}

const fromRust: Session = {
  name: 'stream-from-rust',
  about: 'one stream of byte items from the Rust node, finalized',
  play: async ({ node, rust }) => {
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    await rust.produce(sender, { sizes: SIZES, seed: 1 });
    await rust.end(sender, 'finalize');
    agree('the stream', await consume(anchor), { items: expected(SIZES, 1), marks: [], end: 'finalized' });
    return { streams: [stream(anchor.handle, { producer: RUST, seed: 1, sizes: SIZES })] };
  },
};

const toRust: Session = {
  name: 'stream-to-rust',
  about: 'one stream of byte items from the velomux node, finalized',
  play: async ({ node, rust }) => {
    const anchor = await rust.anchor();
    const sender = await node.attachAnchor(anchor.handle, bytes);
    for (const item of itemsOf(SIZES, 2)) await sender.send(item);
    await sender.finalize();
    agree('the stream', (await rust.consume(anchor)).items, expected(SIZES, 2));
    return { streams: [stream(anchor.handle, { producer: OURS, seed: 2, sizes: SIZES })] };
  },
};

const structs: Session = {
  name: 'structs',
  about: 'two streams of Rust structs, one each way',
  play: async ({ node, rust }) => {
    const codec = tokenCodec();
    const ours: StreamAnchor<Token> = node.createAnchor<Token>({ codec });
    const theirs = await rust.anchor('token');
    const sender = await rust.attach(ours.handle, { kind: 'token' });
    await rust.produce(sender, { tokens: 9, seed: 3 });
    await rust.end(sender, 'finalize');
    const reading = await consume(ours, { report: (token) => token });
    agree('the end', reading.end, 'finalized');
    const back = await node.attachAnchor<Token>(theirs.handle, { codec });
    for (const token of reading.items) await back.send(token);
    await back.finalize();
    agree('the stream', (await rust.consume<Token>(theirs)).items, reading.items);
    return {
      streams: [
        stream(ours.handle, { producer: RUST, seed: 3, tokens: 9 }),
        stream(theirs.handle, { producer: OURS, seed: 3, tokens: 9 }),
      ],
    };
  },
};

const reattach: Session = {
  name: 'reattach',
  about: 'a sender of the Rust node detaches, a second one attaches and finalizes; then the same the other way',
  play: async ({ node, rust }) => {
    const anchor = node.createAnchor(bytes);
    const first = await rust.attach(anchor.handle);
    await rust.produce(first, { sizes: [1, 2], seed: 4 });
    await rust.end(first, 'detach');
    agree('the first half', (await consume(anchor, { max: 2 })).items, expected([1, 2], 4));
    const rest = consume(anchor);
    await pause(20);
    const second = await rust.attach(anchor.handle);
    await rust.produce(second, { sizes: [3], seed: 4, from: 2 });
    await rust.softError(second, 'söft');
    await rust.end(second, 'finalize');
    agree('the second half', await rest, {
      items: expected([3], 4, 2),
      marks: [
        [0, 'detached'],
        [1, 'söft'],
      ],
      end: 'finalized',
    });

    const theirs = await rust.anchor();
    const ours = await node.attachAnchor(theirs.handle, bytes);
    for (const item of itemsOf([1, 2], 5)) await ours.send(item);
    await ours.detach();
    agree('the first half', (await rust.consume(theirs, { max: 2 })).items, expected([1, 2], 5));
    const back = rust.consume(theirs);
    await pause(20);
    const again = await node.attachAnchor(theirs.handle, bytes);
    await again.send(itemsOf([3], 5, 2)[0]!);
    await again.close();
    agree('the second half', (await back).items, expected([3], 5, 2));
    return {
      streams: [
        stream(anchor.handle, {
          producer: RUST,
          seed: 4,
          sizes: [1, 2, 3],
          marks: [
            [2, 'detached'],
            [3, 'söft'],
          ],
        }),
        stream(theirs.handle, {
          producer: OURS,
          seed: 5,
          sizes: [1, 2, 3],
          marks: [[2, 'detached']],
          end: 'dropped',
        }),
      ],
    };
  },
};

const cancel: Session = {
  name: 'cancel',
  about: 'each consumer asks for a stop, reads three items and cancels',
  play: async ({ node, rust }) => {
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    anchor.controller.requestStop();
    await rust.stopped(sender);
    await rust.produce(sender, { sizes: [1, 2, 3], seed: 6 });
    agree('the items', (await consume(anchor, { max: 3 })).items, expected([1, 2, 3], 6));
    anchor.cancel();
    await rust.cancelled(sender);
    await rust.end(sender, 'drop');

    const theirs = await rust.anchor();
    const ours = await node.attachAnchor(theirs.handle, bytes);
    const cancelled = new Promise((resolve) => ours.cancelSignal.addEventListener('abort', resolve));
    await rust.stopAnchor(theirs);
    for (const item of itemsOf([1, 2, 3], 7)) await ours.send(item);
    agree('the items', (await rust.consume(theirs, { max: 3 })).items, expected([1, 2, 3], 7));
    await rust.cancelAnchor(theirs);
    await cancelled;
    await ours.close();
    const end = 'cancelled' as const;
    return {
      streams: [
        stream(anchor.handle, { producer: RUST, seed: 6, sizes: [1, 2, 3], end }),
        stream(theirs.handle, { producer: OURS, seed: 7, sizes: [1, 2, 3], end }),
      ],
    };
  },
};

const LANES = 4;

const lanes: Session = {
  name: 'lanes',
  about: 'eight streams at once, one of every second to the Rust node; both nodes have four lanes',
  node: { lanes: LANES },
  rust: { lanes: LANES },
  play: async ({ node, rust }) => {
    const streams = await Promise.all(
      Array.from({ length: 2 * LANES }, async (_, i) => {
        const seed = 100 * (i + 1);
        const key = BigInt(i >> 1);
        const sizes = [3, 40, 0, 9];
        if (i % 2 === 0) {
          const anchor = node.createAnchor(bytes);
          const sender = await rust.attach(anchor.handle, { key });
          await rust.produce(sender, { sizes, seed });
          await rust.end(sender, 'finalize');
          agree('the items', (await consume(anchor)).items, expected(sizes, seed));
          return stream(anchor.handle, { producer: RUST, seed, sizes, lanes: LANES });
        }
        const anchor = await rust.anchor();
        const sender = await node.attachAnchor(anchor.handle, { ...bytes, key });
        for (const item of itemsOf(sizes, seed)) await sender.send(item);
        await sender.finalize();
        agree('the items', (await rust.consume(anchor)).items, expected(sizes, seed));
        return stream(anchor.handle, { producer: OURS, seed, sizes, lanes: LANES });
      }),
    );
    return { streams };
  },
};

const drain: Session = {
  name: 'drain-echo',
  about:
    'the Rust node drains: a call and a message are refused on the socket they came on, an open stream goes on to its end',
  play: async ({ node, rust, proxy }) => {
    const anchor = await rust.anchor();
    const sender = await node.attachAnchor(anchor.handle, bytes);
    await node.unary(rust.instanceId, 'echo', utf8.encode('before'));
    await rust.beginDrain();
    await failure('ERR_PEER_SHUTTING_DOWN', node.unary(rust.instanceId, 'echo', utf8.encode('refused')));
    await node.send(rust.instanceId, 'count', utf8.encode('refused too'));
    const echoes = () => proxy.frames.filter(({ type }) => type === FRAME_SHUTTING_DOWN).length;
    await until('both were refused', () => echoes() === 2);
    for (const item of itemsOf([1, 2, 3], 8)) await sender.send(item);
    await sender.finalize();
    agree('the items', (await rust.consume(anchor)).items, expected([1, 2, 3], 8));
    const refused = { answer: 'shuttingDown' as const, ok: false, text: '' };
    return {
      calls: [
        call(OURS, 'echo', 'before', {}),
        call(OURS, 'echo', 'refused', refused),
        call(OURS, 'count', 'refused too', refused),
      ],
      streams: [stream(anchor.handle, { producer: OURS, seed: 8, sizes: [1, 2, 3] })],
    };
  },
};

export const SESSIONS: readonly Session[] = [
  messages,
  unknownHandler,
  staged,
  stagedBothWays,
  fromRust,
  toRust,
  structs,
  reattach,
  cancel,
  lanes,
  drain,
];
